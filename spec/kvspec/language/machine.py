"""Machines: state, actions and laws, written in Z3Py terms and elaborated once for every interpretation.

An action's body reads the state *before* the step and its assignments say what the state is after it, in order: of two
assignments to one cell the later one stands. `require` is the caller's duty and `expect` the engine's; both are guards.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any, ClassVar, NoReturn, Self

import z3

from kvspec.language.sorts import Bool, Map, Nat, Sort, Type, domains, value_sort
from kvspec.language.terms import Term


class SpecificationError(Exception):
    """A machine that is not well formed: the message names the machine, the place and what to do."""


@contextmanager
def no_truth() -> Iterator[None]:
    """Inside, the truth value of a term is an error: otherwise `if c[p] == 0` is silently a comparison of syntax."""

    def refuse(term: Any) -> bool:
        text = f"a term has no truth value: {term}; use And, Or, Not, Implies or If instead of and, or, not, in or if"
        raise SpecificationError(text)

    saved = [(kind, kind.__dict__["__bool__"]) for kind in (z3.AstRef, z3.ExprRef) if "__bool__" in kind.__dict__]
    for kind, _ in saved:
        kind.__bool__ = refuse
    try:
        yield
    finally:
        for kind, old in saved:
            kind.__bool__ = old


@dataclass(eq=False)
class state:
    """A state variable. `init(s, *indices)` gives each cell's first value; without it: False, 0, or anything."""

    kind: Type
    init: Callable[..., Term] | None = None
    rigid: bool = False
    name: str = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, moment: "Machine | None", owner: type) -> Any:
        return self if moment is None else moment._read(self)

    def __set__(self, moment: "Machine", value: Any) -> None:
        moment._write(self, (), value)


class rigid(state):
    """A variable that no action changes: chosen once, before the run; for a small run `such_as` this, if it may be."""

    def __init__(self, kind: Type, such_as: int | None = None) -> None:
        super().__init__(kind, rigid=True)
        self.such_as = such_as


class cardinal(rigid):
    """The number of elements of a sort, of which there are finitely many; null and the like included."""

    def __init__(self, of: Sort) -> None:
        super().__init__(Nat)
        self.of = of


class count(state):
    """A counter that actions keep by hand and that the proof compares with `sum of weight(s, x, j) over all x`.

    Its own obligations are the delta rule: an action changes c[j] by exactly what it changes of the weights.
    """

    def __init__(self, weight: Callable[..., Term], *, over: Sort, per: Sort, law: str) -> None:
        super().__init__(Map(per, Nat))
        self.weight, self.over, self.per, self.law = weight, over, per, law


class total(state):
    """The number of elements of a declared set, kept by the language itself; actions cannot assign it."""

    def __init__(self, of: state) -> None:
        super().__init__(Nat)
        self.of = of


class action:
    """Marks a method as an action. Its parameters are annotated with sorts, outcomes chosen by the engine included."""

    def __init__(self, body: Callable[..., None]) -> None:
        self.body, self.name, self.doc = body, body.__name__, inspect.getdoc(body) or ""

    def __get__(self, moment: "Machine | None", owner: type) -> Any:
        return self if moment is None else self.body.__get__(moment)

    @property
    def params(self) -> dict[str, Sort]:
        return parameters(self.body, skip=1)


def parameters(body: Callable[..., Any], skip: int) -> dict[str, Sort]:
    """The annotated sorts of a body's parameters, after the first `skip` (the moments)."""
    listed = list(inspect.signature(body).parameters.values())[skip:]
    for parameter in listed:
        if not isinstance(parameter.annotation, Sort):
            raise SpecificationError(f"{body.__qualname__}: parameter {parameter.name!r} needs a sort as annotation")
    return {parameter.name: parameter.annotation for parameter in listed}


@dataclass(eq=False)
class Law:
    """A named law of a machine: what kind of statement it is, which law id it serves, and its body."""

    kind: str
    law: str
    body: Callable[..., Term]
    on: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()

    def __call__(self, *args: Any) -> Term:
        """The condition that it states of these moments and elements."""
        return as_term(self.body(*args), Bool, f"{self.body.__qualname__}: a law")

    @property
    def name(self) -> str:
        return self.body.__name__

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.body) or ""


def invariant(law: str) -> Callable[[Callable[..., Term]], Law]:
    """A law of every reachable state, proved by induction; its parameters are universally quantified."""
    return lambda body: Law("invariant", law, body)


def assumption(body: Callable[..., Term]) -> Law:
    """What is taken for granted of the rigid variables, in proofs and at the start of a run."""
    return Law("assumption", "", body)


def derived(law: str) -> Callable[[Callable[..., Term]], Law]:
    """A law of every reachable state that follows from the invariants."""
    return lambda body: Law("derived", law, body)


def step(law: str, *, on: tuple[str, ...] = (), unless: tuple[str, ...] = ()) -> Callable[[Callable[..., Term]], Law]:
    """A law of the state before (s) and after (t) a step of any action, only of `on`, or of all `unless` these.

    A parameter named like one of the action's is that one; all others are universally quantified.
    """
    return lambda body: Law("step", law, body, on, unless)


def given(machine: "type[Machine]", law: Law) -> list[str]:
    """The parameters of a step law that are the action's own: those that every action it is `on` has."""
    having = [machine.actions[name].params.keys() for name in law.on if name in machine.actions]
    return [name for name in parameters(law.body, skip=2) if having and all(name in keys for keys in having)]


def lemma(law: str) -> Callable[[Callable[..., Term]], Law]:
    """A law of arithmetic alone, for any values of its parameters."""
    return lambda body: Law("lemma", law, body)


def claim(place: str) -> Callable[[Callable[..., Term]], Law]:
    """Registers a case of a 'somewhere' law: `s.claimed(place, x)` is the Or over all registered claims."""
    return lambda body: Law("claim", place, body)


@dataclass(frozen=True)
class Write:
    """One assignment: `var[index] = value`, or pointwise in `bound` for the indices that are left."""

    var: state
    index: tuple[Term, ...]
    bound: tuple[Term, ...]
    value: Term


@dataclass(frozen=True)
class Guard:
    """A condition under which an action may happen; `kind` says whose duty it is."""

    kind: str
    law: str
    term: Term


class Cells:
    """A state variable, or a row of it, as a machine's body sees it: indexed to read, assigned to write."""

    def __init__(self, moment: "Machine", var: state, index: tuple[Term, ...] = ()) -> None:
        self.moment, self.var, self.index = moment, var, index

    def __getitem__(self, index: Any) -> Any:
        full = self._at(index)
        missing = len(domains(self.var.kind)) - len(full)
        return Cells(self.moment, self.var, full) if missing else self.moment._cell(self.var, full)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.moment._write(self.var, self._at(index), value)

    def _at(self, index: Any) -> tuple[Term, ...]:
        """One more index, or several, as terms of the right sorts."""
        full = (*self.index, *(index if isinstance(index, tuple) else (index,)))
        sorts = domains(self.var.kind)
        if len(full) > len(sorts):
            raise SpecificationError(f"{self.var.name} takes {len(sorts)} indices, not {len(full)}")
        place = f"{type(self.moment).__name__}: an index of {self.var.name}"
        return tuple(as_term(term, sort, place) for term, sort in zip(full, sorts, strict=False))

    def __bool__(self) -> bool:
        raise SpecificationError(f"{self.var.name} has no truth value; index it")

    def __eq__(self, other: object) -> NoReturn:
        raise SpecificationError(f"rows of {self.var.name} cannot be compared; compare cells, with forall")

    def __contains__(self, item: Any) -> bool:
        raise SpecificationError(f"'in {self.var.name}' has no meaning; write {self.var.name}[...]")

    def __iter__(self) -> Iterator[Any]:
        raise SpecificationError(f"{self.var.name} cannot be iterated; use forall or exists")


class Machine:
    """A specification. An instance is one moment of it: the terms of the state, and what an action does to them."""

    variables: ClassVar[Mapping[str, state]] = {}
    actions: ClassVar[Mapping[str, action]] = {}
    laws: ClassVar[Mapping[str, Law]] = {}
    variant: ClassVar[str] = ""
    breaks: ClassVar[str] = ""
    algorithm: ClassVar[bool] = False

    def __init__(self, terms: Mapping[str, Term]) -> None:
        self.terms = terms
        self.guards: list[Guard] = []
        self.writes: list[Write] = []

    def __init_subclass__(cls, *, variant: str = "", breaks: str = "", algorithm: bool = False, **kw: Any) -> None:
        """A `variant` is a known bug, named by its upstream issue, that breaks a law; it is not a superposition.

        An `algorithm` refines its parent: what it decides and keeps depends on variables of its own, and the parent's
        go along as ghosts.
        """
        super().__init_subclass__(**kw)
        cls.variant, cls.breaks = variant or cls.variant, breaks or cls.breaks
        cls.algorithm = algorithm
        machines = [base for base in cls.__bases__ if issubclass(base, Machine)]
        for attribute, kind in (("variables", state), ("actions", action), ("laws", Law)):
            merged: dict[str, Any] = {}
            for base in machines:
                for name, item in getattr(base, attribute).items():
                    if merged.setdefault(name, item) is not item:
                        text = f"{cls.__name__}: two parents have a {kind.__name__} {name!r}; rename one of them"
                        raise SpecificationError(text)
            own = {name: item for name, item in vars(cls).items() if isinstance(item, kind)}
            again = vars(cls).keys() & merged.keys()
            if kind is not action and again:
                text = f"{cls.__name__}: {kind.__name__} {min(again)!r} is declared by a parent already"
                raise SpecificationError(text)
            if unmarked := again - own.keys():
                raise SpecificationError(f"{cls.__name__}: {min(unmarked)!r} replaces an action; mark it with @action")
            setattr(cls, attribute, {**merged, **own})
        cls._keep_meanings(machines)

    @classmethod
    def _keep_meanings(cls, machines: "list[type[Machine]]") -> None:
        """Refuses that a name which laws and actions use quietly comes to mean something else, or nothing."""
        for name, old in ((name, inspect.getattr_static(base, name)) for base in machines for name in dir(base)):
            fixed = not cls.variant or hasattr(Machine, name)
            if fixed and isinstance(old, FunctionType | classmethod) and inspect.getattr_static(cls, name) is not old:
                text = "would change what inherited laws and actions mean; only a variant may replace it"
                raise SpecificationError(f"{cls.__name__}: {name!r} of a parent {text}")
        for law in cls.laws.values():
            if unknown := {*law.on, *law.unless} - cls.actions.keys():
                raise SpecificationError(f"{cls.__name__}.{law.name}: there is no action {min(unknown)!r}")

    @classmethod
    def moment(cls, suffix: str = "") -> Self:
        """A moment whose state is named by fresh constants; rigid variables have no suffix."""
        return cls({
            name: var.kind.const(name if var.rigid else name + suffix) for name, var in cls.variables.items()
        })  # fmt: skip

    @classmethod
    def of_kind(cls, kind: str) -> list[Law]:
        """The laws of one kind, in the order of declaration."""
        return [law for law in cls.laws.values() if law.kind == kind]

    def require(self, condition: Term, law: str = "") -> None:
        """A guard that is the caller's duty."""
        self.guards.append(Guard("require", law, as_term(condition, Bool, f"{type(self).__name__}: a guard")))

    def expect(self, condition: Term, law: str) -> None:
        """A guard that is the engine's duty: where it fails, `law` is broken."""
        self.guards.append(Guard("expect", law, as_term(condition, Bool, f"{type(self).__name__}: a guard")))

    def claimed(self, place: str, *args: Term) -> Term:
        """Some registered claim of `place` holds."""
        return z3.Or(*[law(self, *args) for law in self.of_kind("claim") if law.law == place])

    def same(self, other: "Machine") -> Term:
        """Every state variable has the value it has in `other`."""
        return z3.And(*[self.terms[name] == other.terms[name] for name, v in self.variables.items() if not v.rigid])

    def _read(self, var: state) -> Any:
        return Cells(self, var) if domains(var.kind) else self.terms[var.name]

    def _cell(self, var: state, index: tuple[Term, ...]) -> Term:
        """The term at `index`, which may leave inner indices open."""
        term = self.terms[var.name]
        for position in index:
            term = term[position]
        return term

    def _write(self, var: state, index: tuple[Term, ...], value: Any) -> None:
        if isinstance(var, total) or var.rigid:
            raise SpecificationError(f"{type(self).__name__}: {var.name} cannot be assigned")
        open_sorts = domains(var.kind)[len(index) :]
        names = [f"{var.name}.{place}" for place in range(len(open_sorts))]
        bound = tuple(sort.const(name) for sort, name in zip(open_sorts, names, strict=True))
        if isinstance(value, Cells):
            for position in bound:
                value = value[position]
        elif callable(value):
            value = value(*bound)
        elif bound:
            text = f"{type(self).__name__}: {var.name} has {len(bound)} open indices here; assign a row or a function"
            raise SpecificationError(text)
        term = as_term(value, value_sort(var.kind), f"{type(self).__name__}: {var.name}")
        self.writes.append(Write(var, index, bound, term))


def as_term(value: Any, sort: Sort, place: str) -> Term:
    """A term of the sort that `place` holds; Python's constants become terms."""
    term = z3.BoolVal(value) if isinstance(value, bool) else z3.IntVal(value) if isinstance(value, int) else value
    if not (z3.is_expr(term) and term.sort() == sort.z3):
        raise SpecificationError(f"{place} is a {sort.name}, not {value!r}")
    return term
