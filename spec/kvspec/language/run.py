"""Runs a machine: each action compiled to one Python function that checks the guards and then assigns in place."""

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import z3

from kvspec.language.elaborate import Action, elaborate
from kvspec.language.machine import (
    Guard,
    Law,
    Machine,
    SpecificationError,
    Write,
    as_term,
    cardinal,
    count,
    given,
    no_truth,
    parameters,
    state,
    total,
)  # fmt: skip
from kvspec.language.python import PythonText, divide, modulo, natural
from kvspec.language.solver import NEXT, assumptions
from kvspec.language.sorts import Index, Map, Sort, domains, value_sort
from kvspec.language.terms import Term


class Violation(Exception):
    """A guard that failed: `expect` is the engine's fault, `require` the caller's. The state is unchanged."""

    def __init__(self, action: str, law: str, text: str, kind: str) -> None:
        super().__init__(f"{action}: {law + ' ' if law else ''}{kind} {text}")
        self.action, self.law, self.text, self.kind = action, law, text, kind


class OutOfScope(ValueError):
    """An argument that is no element of its sort at this scope."""


class State:
    """The state of a run: one attribute a variable (nested lists, numbers), and `n_Sort` for each sort's size."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        for name, size in sizes.items():
            setattr(self, f"n_{name}", size)

    def copy(self) -> "State":
        """An independent copy."""
        twin = State({})
        twin.__dict__.update({name: _copied(value) for name, value in self.__dict__.items()})
        return twin

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"no state variable or sort size {name!r}; give every sort of the machine a size")


def _copied(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    return [_copied(item) for item in value] if value and isinstance(value[0], list) else value.copy()


@dataclass(frozen=True)
class Compiled:
    """A machine as Python: actions to run, guards to ask, laws to evaluate. `source` is what was compiled."""

    machine: type[Machine]
    source: str
    actions: Mapping[str, Callable[..., None]]
    enabled: Mapping[str, Callable[..., bool]]
    params: Mapping[str, tuple[Sort, ...]]
    _begin: Callable[[State], None]
    _refresh: Callable[[State], None]
    _assumptions: tuple[tuple[Law, Callable[..., bool]], ...]
    _laws: tuple[tuple[Law, Callable[..., bool]], ...]
    _cases: Mapping[str, Callable[..., bool]]
    _steps: Mapping[str, tuple[tuple[Law, Callable[..., bool], tuple[int, ...]], ...]]

    def start(self, sizes: Mapping[str, int], rigid: Mapping[str, Any]) -> State:
        """The initial state: `sizes` gives each sort's number of elements, `rigid` what the rigid variables are."""
        initial = State(sizes)
        for name, var in self.machine.variables.items():
            if isinstance(var, cardinal):
                setattr(initial, name, sizes[var.of.name])
            elif var.rigid and name not in rigid:
                raise SpecificationError(f"{self.machine.__name__}: the rigid variable {name!r} needs a value")
            else:
                setattr(initial, name, _copied(rigid[name]) if var.rigid else None)
        for law, holds in self._assumptions:
            if not holds(initial, initial):
                raise SpecificationError(f"{self.machine.__name__}: the rigid values do not meet {law.name!r}")
        self._begin(initial)
        return initial

    def refresh(self, changed: State) -> None:
        """Recomputes the totals of a state that was assembled by hand."""
        self._refresh(changed)

    def broken(self, at: State, *, only: str = "") -> list[tuple[str, str]]:
        """The counts, invariants and derived laws that do not hold of a state, as (law id, name)."""
        return [
            (law.law, law.name) for law, holds in self._laws if only in ("", law.law) and not holds(at, at)
        ]  # fmt: skip

    def broken_step(
        self, before: State, action: str, args: tuple[Any, ...], after: State, *, only: str = ""
    ) -> list[tuple[str, str]]:
        """The step laws that a step does not keep."""
        return [
            (law.law, law.name)
            for law, keeps, own in self._steps[action]
            if only in ("", law.law) and not keeps(before, after, *[args[place] for place in own])
        ]

    def cases(
        self, before: State, action: str, args: tuple[Any, ...], after: State, *, among: Collection[str] | None = None
    ) -> set[str]:
        """The names of the laws whose case occurs: in a step, what they speak of; in the state after it.

        With `among`, only these laws are looked at.
        """
        of_steps = {
            law.name
            for law, _, own in self._steps[action]
            if (among is None or law.name in among)
            and self._cases[law.name](before, after, *[args[place] for place in own])
        }
        of_states = [law.name for law, _ in self._laws if among is None or law.name in among]
        return of_steps | {name for name in of_states if self._cases[name](after, after)}

    @property
    def state_laws(self) -> tuple[tuple[Law, Callable[..., bool]], ...]:
        """The laws of states and the definitions of counters, each with its compiled statement."""
        return self._laws

    def judge(
        self, before: State, action: str, args: tuple[Any, ...], after: State, *, only: str = ""
    ) -> list[tuple[str, str]]:
        """All that is broken by a step to an observed state: the step laws first, then the laws of states."""
        return [*self.broken_step(before, action, args, after, only=only), *self.broken(after, only=only)]


def _count_law(var: count) -> Law:
    """The definition of a counter, as a law of states; it is compiled as an exact sum."""

    def body() -> None: ...

    body.__name__ = f"{var.name}_counts"
    return Law("count", var.law, body)


def compile_machine(machine: type[Machine]) -> Compiled:
    """Compiles a machine. A construct that Python lacks here is an error that names it and its place."""
    with no_truth():
        elaborated = {name: elaborate(machine, name) for name in machine.actions}
        assumptions(machine, machine.moment())
        writer = _Writer(machine)
        parts = [writer.begin(), writer.refresh()]
        parts += [text for act in elaborated.values() for text in writer.action(act)]
        kinds = ("assumption", "invariant", "derived", "step")
        parts += [writer.law(law) for law in machine.laws.values() if law.kind in kinds]
        parts += [writer.counter(var) for var in machine.variables.values() if isinstance(var, count)]
    source = "\n\n".join(parts)
    space: dict[str, Any] = {"divide": divide, "modulo": modulo, "natural": natural, "fail": writer.fail}
    space |= {"outside": _outside, "within": _within}
    exec(compile(source, f"<compiled {machine.__name__}>", "exec"), space)
    counters = [var for var in machine.variables.values() if isinstance(var, count)]
    of_states = [(_count_law(var), space[f"count_{var.name}"]) for var in counters]
    of_states += [(law, space[f"law_{law.name}"]) for kind in ("invariant", "derived") for law in machine.of_kind(kind)]
    return Compiled(
        machine,
        source,
        {name: space[f"do_{name}"] for name in elaborated},
        {name: space[f"can_{name}"] for name in elaborated},
        {name: tuple(sort for _, sort, _ in act.params) for name, act in elaborated.items()},
        space["begin"],
        space["refresh"],
        tuple((law, space[f"law_{law.name}"]) for law in machine.of_kind("assumption")),
        tuple(of_states),
        {name.removeprefix("case_"): case for name, case in space.items() if name.startswith("case_")},
        {name: tuple(_step_laws(machine, name, space)) for name in elaborated},
    )


def _step_laws(
    machine: type[Machine], action: str, space: Mapping[str, Any]
) -> Iterator[tuple[Law, Callable[..., bool], tuple[int, ...]]]:
    """The step laws that speak of an action, and which of its arguments each one takes."""
    for law in machine.of_kind("step"):
        if (not law.on or action in law.on) and action not in law.unless:
            own = list(machine.actions[action].params)
            places = [own.index(name) for name in given(machine, law)]
            yield law, space[f"law_{law.name}"], tuple(places)


def _outside(action: str, **args: Any) -> None:
    raise OutOfScope(f"{action}: an argument is outside this run's sizes: {args}")


def _within(index: int, size: int) -> int:
    """An index of a cell to assign, checked before the first assignment."""
    if not 0 <= index < size:
        raise OutOfScope(f"index {index} is outside this run's sizes")
    return index


class _Writer:
    """Writes the source of a machine's functions."""

    def __init__(self, machine: type[Machine]) -> None:
        self.machine = machine
        self.indexed = {sort.name for var in machine.variables.values() for sort in domains(var.kind)}
        self.guards: list[tuple[str, Guard]] = []

    def fail(self, number: int) -> None:
        action, guard = self.guards[number]
        raise Violation(action, guard.law, " ".join(str(guard.term).split()), guard.kind)

    def text(self, place: str, params: Mapping[str, Any] = {}, after: str = "T") -> PythonText:
        """The translator with the machine's names: S is the state before, T (or S) the one after."""
        names = {name: f"S.{name}" for name in self.machine.variables}
        names |= {name + NEXT: f"{after}.{name}" for name in self.machine.variables}
        return PythonText(f"{self.machine.__name__}.{place}", names | {name: f"a_{name}" for name in params})

    def loops(self, sorts: tuple[Sort, ...], names: list[str]) -> str:
        return " ".join(f"for {name} in range(S.n_{sort.name})" for name, sort in zip(names, sorts, strict=True))

    def filled(self, sorts: tuple[Sort, ...], names: list[str], cell: str) -> str:
        """Nested lists over the sorts, the innermost cell given."""
        for name, sort in zip(reversed(names), reversed(sorts), strict=True):
            cell = f"[{cell} for {name} in range(S.n_{sort.name})]"
        return cell

    def begin(self) -> str:
        lines = ["def begin(S):"]
        for name, var in self.machine.variables.items():
            sorts = domains(var.kind)
            index = [f"i{place}" for place in range(len(sorts))]
            if var.rigid or isinstance(var, total):
                continue
            cell = "0" if isinstance(value_sort(var.kind), Index) or value_sort(var.kind).name != "Bool" else "False"
            if var.init is not None:
                consts = [sort.fresh(i) for sort, i in zip(sorts, index, strict=True)]
                text = self.text(f"{name}.init")
                text.names |= {const.decl().name(): i for const, i in zip(consts, index, strict=True)}
                first = var.init(self.machine.moment(), *consts)
                cell = text(as_term(first, value_sort(var.kind), f"{self.machine.__name__}: the first {name}"))
            lines.append(f"    S.{name} = {self.filled(sorts, index, cell)}")
        return "\n".join([*lines, "    refresh(S)"])

    def refresh(self) -> str:
        sums = [f"    S.{v.name} = sum(S.{v.of.name})" for v in self.machine.variables.values() if isinstance(v, total)]
        return "\n".join(["def refresh(S):", *(sums or ["    pass"])])

    def action(self, act: Action) -> list[str]:
        """Two functions: `can_x` evaluates the guards, `do_x` checks them and assigns."""
        names = {name: const for name, _, const in act.params}
        head = ", ".join(["S", *(f"a_{name}" for name in names)])
        inside = [f"0 <= a_{name}" + (f" < S.n_{sort.name}" if sort.name in self.indexed else "")
                  for name, sort, _ in act.params if sort.name in self.indexed or isinstance(sort, Index)]  # fmt: skip
        shown = ", ".join(f"{name}=a_{name}" for name in names)
        can = [f"def can_{act.name}({head}):"]
        do = [f"def do_{act.name}({head}):"]
        if inside:
            for lines in (can, do):
                lines.append(f"    if not ({' and '.join(inside)}): outside({act.name!r}, {shown})")
        for number, guard in enumerate(act.guards):
            text = self.text(f"{act.name}, guard {number + 1}", names)(guard.term)
            can.append(f"    if not {text}: return False")
            do.append(f"    if not {text}: fail({len(self.guards)})")
            self.guards.append((act.name, guard))
        do += self.assignments(act, names)
        return ["\n".join([*can, "    return True"]), "\n".join(do if len(do) > 1 else [*do, "    pass"])]

    def assignments(self, act: Action, names: Mapping[str, Any]) -> list[str]:
        """All right sides and indices first, over the state before; then the assignments, in order."""
        values, stores = [], []
        for number, write in enumerate(act.writes):
            place = f"{act.name}, assignment of {write.var.name}"
            text = self.text(place, names)
            path = f"S.{write.var.name}"
            for depth, index in enumerate(write.index):
                position = text(index)
                if not any(index.eq(param) for param in names.values()):
                    position = f"within({position}, S.n_{domains(write.var.kind)[depth].name})"
                values.append(f"    i{number}_{depth} = {position}")
                path += f"[i{number}_{depth}]"
            values.append(f"    v{number} = {self.value(write, text)}")
            stores += self.store(write, path, f"v{number}")
        return values + stores

    def value(self, write: Write, text: PythonText) -> str:
        if not write.bound:
            return text(write.value)
        assert isinstance(write.var.kind, Map)
        names = [text.bind(const) for const in write.bound]
        return self.filled(write.var.kind.domains[len(write.index) :], names, text(write.value))

    def store(self, write: Write, path: str, value: str) -> list[str]:
        lines = [f"    {path} = {value}"]
        for var in self.machine.variables.values():
            if isinstance(var, total) and var.of is write.var:
                if write.bound:
                    lines.append(f"    S.{var.name} = sum({path})")
                else:
                    lines.insert(0, f"    S.{var.name} += {value} - {path}")
        return lines

    def law(self, law: Law) -> str:
        """A law as a function of the states S and T and of those parameters that the action gives."""
        moments = 2 if law.kind == "step" else 1
        params = parameters(law.body, skip=moments)
        own = given(self.machine, law) if moments == 2 else []
        free = {name: sort for name, sort in params.items() if name not in own}
        consts = [sort.fresh(name) for name, sort in params.items()]
        seen = [self.machine.moment(), self.machine.moment(NEXT)][:moments]
        text = self.text(law.name)
        text.names |= {const.decl().name(): f"a_{name}" for const, name in zip(consts, params, strict=True)}
        body = text(law(*seen, *consts))
        loops = " ".join(f"for a_{name} in range(S.n_{sort.name})" for name, sort in free.items())
        head = ", ".join(["S", "T", *own])
        named = [f"    a_{name} = {name}" for name in own]
        holds = f"all({body} {loops})" if loops else body
        lines = [f"def law_{law.name}({head}):", *named, f"    return {holds}"]
        case = text(condition(law(*seen, *consts)))
        occurs = f"any({case} {loops})" if loops else case
        return "\n".join([*lines, "", f"def case_{law.name}({head}):", *named, f"    return {occurs}"])

    def counter(self, var: count) -> str:
        """A counter compared with the exact sum of its weights; its case is that there is something to count."""
        assert isinstance(var.kind, Map)
        x, j = var.over.fresh("x"), var.kind.domains[0].fresh("j")
        text = self.text(f"{var.name}.weight")
        text.names |= {x.decl().name(): "a_x", j.decl().name(): "a_j"}
        weight = text(var.weight(self.machine.moment(), x, j))
        sum_ = f"sum({weight} for a_x in range(S.n_{var.over.name}))"
        loop = f"for a_j in range(S.n_{var.kind.domains[0].name})"
        case = f"def case_{_count_law(var).name}(S, T):\n    return any(S.{var.name}[a_j] {loop})"
        return f"def count_{var.name}(S, T):\n    return all(S.{var.name}[a_j] == {sum_} {loop})\n\n{case}"


def condition(term: Term) -> Term:
    """The case in which a law says something: what implies the rest of it; of other laws, always."""
    return term.arg(0) if z3.is_implies(term) else z3.BoolVal(True)


def arguments(compiled: Compiled, action: str, at: State) -> "itertools.product[tuple[int, ...]]":
    """Every choice of arguments of an action at the state's sizes."""
    return itertools.product(*[range(getattr(at, f"n_{sort.name}")) for sort in compiled.params[action]])


def values(at: State, machine: type[Machine]) -> dict[str, Any]:
    """The state variables by name."""
    return {name: getattr(at, name) for name, var in machine.variables.items() if isinstance(var, state)}
