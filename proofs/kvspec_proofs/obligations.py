"""What must be proved of a machine: every obligation by name, as formulas that both solvers read."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import getitem

import z3
from kvspec.language.counts import counts, deltas, facts, movements
from kvspec.language.elaborate import elaborate
from kvspec.language.machine import Machine, count, no_truth, total
from kvspec.language.solver import (
    NEXT,
    Step,
    assumptions,
    generic_cell,
    in_domain,
    initial,
    statement,
    step_statement,
    transition,
)  # fmt: skip
from kvspec.language.sorts import domains
from kvspec.language.terms import Term, every, universal
from kvspec.language.walk import mentions


@dataclass(frozen=True)
class Obligation:
    """Under `facts`, `goal` must hold. `action` is empty for obligations of no step."""

    machine: str
    action: str
    law: str
    name: str
    facts: tuple[Term, ...]
    goal: Term
    taken: Step | None = None

    @property
    def title(self) -> str:
        """`DeferredFree.end: D1 frees_what_was_named`."""
        return f"{self.machine}.{self.action or '*'}: {self.law} {self.name}"

    @cached_property
    def fragment(self) -> str:
        """`QF` without quantifiers, `EPR` with universal facts over plain sorts only, else `beyond`."""
        return fragment([*self.facts, z3.Not(self.goal)])


@dataclass(frozen=True)
class Obligations:
    """All obligations of a machine, and how many pairs of action and law were skipped because they cannot meet."""

    proofs: tuple[Obligation, ...]
    skipped: int


def obligations(machine: type[Machine], only: str = "") -> Obligations:
    """Init, preservation, step laws, derived laws, lemmas, the delta rule, domains and superposition.

    With `only`, of the actions just this one's.
    """
    with no_truth():
        found = [*_static(machine)]
        skipped = 0
        for name in (only,) if only else machine.actions:
            taken = transition(machine, name)
            before = _assumed(machine, taken.before)
            happens = [*before, *taken.guards, *taken.updates]
            moved = [*happens, *movements(machine, taken)]
            found += _delta_rule(machine, name, taken, happens)
            after = [*moved, *facts(machine, taken.after)]
            for law, goal in _goals(machine, taken):
                if goal is None:
                    skipped += 1
                else:
                    known = happens if law[0] == "domain" else after
                    found.append(Obligation(machine.__name__, name, *law, tuple(known), goal, taken))
            if not machine.variant:
                found += _superposition(machine, name, taken, happens)
    return Obligations(tuple(found), skipped)


def _assumed(machine: type[Machine], moment: Machine) -> list[Term]:
    """What holds of any reachable state: the invariants, the domains, the facts of counting."""
    laws = [*assumptions(machine, moment), *[statement(law, moment) for law in machine.of_kind("invariant")]]
    return [*laws, *in_domain(machine, moment).values(), *facts(machine, moment)]


def _static(machine: type[Machine]) -> Iterator[Obligation]:
    """The obligations that no action takes part in."""
    moment = machine.moment()
    start = [*initial(machine, moment), *facts(machine, moment), *assumptions(machine, moment)]
    for law in machine.of_kind("invariant"):
        yield Obligation(machine.__name__, "init", law.law, law.name, tuple(start), statement(law, moment))
    for name, goal in in_domain(machine, moment).items():
        yield Obligation(machine.__name__, "init", "domain", name, tuple(start), goal)
    for var in counts(machine):
        over, per = var.over.fresh("x"), domains(var.kind)[0].fresh("j")
        weight = universal([var.over, domains(var.kind)[0]], [over, per], var.weight(moment, over, per) >= 0)
        yield Obligation(machine.__name__, "", var.law, f"{var.name} weighs naturals",
                         tuple(in_domain(machine, moment).values()), weight)  # fmt: skip
        empty = universal([var.over, domains(var.kind)[0]], [over, per], var.weight(moment, over, per) == 0)
        begins = universal([domains(var.kind)[0]], [per], moment.terms[var.name][per] == 0)
        yield Obligation(machine.__name__, "init", var.law, f"{var.name} counts", tuple(initial(machine, moment)),
                         z3.And(empty, begins))  # fmt: skip
    known = [*_assumed(machine, moment), *facts(machine, moment, witness=True)]
    for law in machine.of_kind("derived"):
        yield Obligation(machine.__name__, "", law.law, law.name, tuple(known), statement(law, moment))
    for law in machine.of_kind("step"):
        if not law.on:
            title = f"{law.name} where nothing moves"
            yield Obligation(machine.__name__, "", law.law, title, tuple(known), statement(law, moment, moment))
    for law in machine.of_kind("lemma"):
        yield Obligation(machine.__name__, "", law.law, law.name, (), statement(law))


def _goals(machine: type[Machine], taken: Step) -> Iterator[tuple[tuple[str, str], Term | None]]:
    """Every invariant and domain after the step, and every step law; None for those the step cannot touch.

    A step law holds of a step that does not touch it because it holds where nothing moves, an obligation of its own.
    """
    written = taken.action.written
    for law in machine.of_kind("invariant"):
        touched = footprint(machine, statement(law, taken.before)) & written
        yield (law.law, law.name), statement(law, taken.after) if touched else None
    for name, goal in in_domain(machine, taken.after).items():
        yield ("domain", name), goal if name in written else None
    indexed = [(sort, term) for write in taken.action.writes
               for sort, term in zip(domains(write.var.kind), write.index, strict=False)]  # fmt: skip
    limits = [limit for sort, term in indexed if (limit := sort.domain(term)) is not None and term.num_args()]
    if limits:
        yield ("domain", "indices"), every(limits)
    for law in machine.of_kind("step"):
        if (stated := step_statement(law, taken)) is not None:
            meets = bool(law.on) or bool(footprint(machine, stated) & written)
            yield (law.law, law.name), stated if meets else None


def footprint(machine: type[Machine], term: Term) -> frozenset[str]:
    """The variables that a formula speaks of, with counts and totals unfolded to what they count."""
    names: set[str] = set()
    todo = {name.removesuffix(NEXT) for name in mentions(term)}
    while todo := (todo & machine.variables.keys()) - names:
        names |= todo
        for var in [machine.variables[name] for name in todo]:
            if isinstance(var, count):
                x, j = var.over.fresh("x"), domains(var.kind)[0].fresh("j")
                todo |= mentions(var.weight(machine.moment(), x, j))
            elif isinstance(var, total):
                todo.add(var.of.name)
    return frozenset(names)


def _delta_rule(machine: type[Machine], name: str, taken: Step, happens: list[Term]) -> Iterator[Obligation]:
    for var, (frame, change) in deltas(machine, taken).items():
        if footprint(machine, taken.before.terms[var.name]) & taken.action.written:
            for part, goal in (("frame", frame), ("delta", change)):
                title = f"{var.name} {part}"
                yield Obligation(machine.__name__, name, var.law, title, tuple(happens), goal, taken)


def entailments(machine: type[Machine]) -> Iterator[Obligation]:
    """What a variant may break of the derived law that it names: they follow from invariants, which may fail in it."""
    for name in machine.actions:
        taken = transition(machine, name)
        for law in machine.of_kind("derived"):
            if law.law == machine.breaks:
                yield Obligation(machine.__name__, name, law.law, law.name, (), statement(law, taken.after), taken)


def _superposition(machine: type[Machine], name: str, taken: Step, happens: list[Term]) -> Iterator[Obligation]:
    """A refined action only strengthens its parents' guards, and leaves their variables as they would."""
    for parent in machine.__bases__:
        if not (issubclass(parent, Machine) and name in parent.actions):
            continue
        if parent.actions[name] is machine.actions[name]:
            continue
        base = elaborate(parent, name, machine(taken.before.terms))
        weaker = every([guard.term for guard in base.guards])
        yield Obligation(machine.__name__, name, "superposition", f"guard of {parent.__name__}", tuple(happens), weaker,
                         taken)  # fmt: skip
        inherited = transition(parent, name, f"{NEXT}of {parent.__name__}")
        same = []
        for var in parent.variables.values():
            if not (var.rigid or isinstance(var, total)):
                sorts, index, cell = generic_cell(taken.after, var)
                same.append(universal(sorts, index, cell == reduce(getitem, index, inherited.after.terms[var.name])))
        yield Obligation(machine.__name__, name, "superposition", f"updates of {parent.__name__}", tuple(happens),
                         z3.Implies(every(inherited.updates), every(same)), taken)  # fmt: skip


def fragment(terms: list[Term]) -> str:
    """Which fragment the formulas are in; see `Obligation.fragment`."""
    quantified = arithmetic = alternates = False
    seen: set[tuple[int, bool]] = set()
    todo = [(term, False) for term in terms]
    while todo:
        node, inside = todo.pop()
        if (node.get_id(), inside) in seen:
            continue
        seen.add((node.get_id(), inside))
        if z3.is_quantifier(node):
            quantified = True
            alternates |= inside
            arithmetic |= any(node.var_sort(i).kind() == z3.Z3_INT_SORT for i in range(node.num_vars()))
            todo.append((node.body(), True))
        else:
            todo += [(child, inside) for child in node.children()]
    if not quantified:
        return "QF"
    return "beyond" if arithmetic or alternates else "EPR"
