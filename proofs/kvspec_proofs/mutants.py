"""Mutants of the specification: one part of a guard or one assignment of one action changed at a time.

A part of a guard or an assignment is dropped, a constant that is assigned is negated, an assignment goes to another
variable of the same kind: a law must break. A guard is strengthened: that forbids what was allowed, and a run of the
reference in lockstep must meet it. What survives is redundant, over-strict, or tells of a missing law.
"""

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import z3
from kvspec.language.elaborate import Action, elaborate
from kvspec.language.machine import Guard, Machine, Write, action, state
from kvspec.language.sorts import Index
from kvspec.language.terms import Term

PART, ASSIGNMENT, NEGATED, REDIRECTED = "part dropped", "assignment dropped", "negated", "redirected"
STRENGTHENED = "strengthened"
KINDS = (PART, ASSIGNMENT, NEGATED, REDIRECTED, STRENGTHENED)
"""What is done to an action: a part of a guard or an assignment is dropped; an assigned constant is negated; an
assignment goes to another variable; a guard is strengthened."""


@dataclass(frozen=True)
class Mutant:
    """A machine that differs from the original in one place of one action; `name` says which, in words.

    `own`: the place is in the machine's own text, and no parent's action has it.
    """

    name: str
    machine: type[Machine]
    action: str
    kind: str
    own: bool


@dataclass(frozen=True)
class Change:
    """What an action is changed to."""

    name: str
    kind: str
    action: Action
    own: bool


def mutants(machine: type[Machine]) -> Iterator[Mutant]:
    """All mutants of a machine's own view of its actions, those of inherited parts among them; no two have one name."""
    seen: Counter[str] = Counter()
    for name in machine.actions:
        for change in changes(machine, name):
            seen[change.name] += 1
            title = change.name if seen[change.name] == 1 else f"{change.name} ({seen[change.name]})"
            yield Mutant(title, _changed(machine, title, change.action), name, change.kind, change.own)


def own_mutants(machine: type[Machine]) -> list[Mutant]:
    """The mutants of what the machine says itself: what it inherits is mutated in the parent."""
    return [mutant for mutant in mutants(machine) if mutant.own]


def changes(machine: type[Machine], name: str) -> Iterator[Change]:
    """Every change of an action."""
    act = elaborate(machine, name)
    parents = [
        elaborate(base, name) for base in machine.__bases__ if issubclass(base, Machine) and name in base.actions
    ]
    for place, guard in enumerate(act.guards):
        own = not any(_same_guard(guard, other) for parent in parents for other in parent.guards)
        yield from _of_guard(act, place, own)
    for place, write in enumerate(act.writes):
        own = not any(_same_write(write, other) for parent in parents for other in parent.writes)
        yield from _of_write(machine, act, place, own)
    inherited = {param for parent in parents for param, _, _ in parent.params}
    yield _narrower(act, "never", z3.BoolVal(False), not parents)
    for param, sort, const in act.params:
        if isinstance(sort, Index):
            for term in (const == 0, const > 0):
                yield _narrower(act, f"only if {said(term)}", term, param not in inherited)


def conjuncts(term: Term) -> list[Term]:
    """The parts of a guard: those that must all hold."""
    return [part for child in term.children() for part in conjuncts(child)] if z3.is_and(term) else [term]


def said(term: Term) -> str:
    """A term in one line, without the sorts that the names of bound variables carry."""
    return re.sub(r"!\w+", "", " ".join(str(term).split()))


def stronger(term: Term) -> list[Term]:
    """Terms that imply a part of a guard and are not it: a case left out, an implication's case forbidden, one more."""
    kind = term.decl().kind() if z3.is_app(term) else None
    parts = list(term.children()) if kind in (z3.Z3_OP_OR, z3.Z3_OP_IMPLIES, z3.Z3_OP_NOT) else []
    if kind == z3.Z3_OP_IMPLIES:
        return [z3.Not(parts[0]), parts[1]]
    if kind == z3.Z3_OP_OR:
        return [z3.Or(*parts[:n], *parts[n + 1 :]) for n in range(len(parts))]
    if kind == z3.Z3_OP_NOT and z3.is_and(parts[0]):
        return [z3.And(*[z3.Not(part) for part in parts[0].children()])]
    if kind == z3.Z3_OP_GT:
        more = term.arg(1) + 1
        return [term.arg(0) > (z3.simplify(more) if z3.is_int_value(term.arg(1)) else more)]
    return []


def _of_guard(act: Action, place: int, own: bool) -> Iterator[Change]:
    """Each part of a guard dropped, and each strengthened."""
    parts = conjuncts(act.guards[place].term)
    for number, part in enumerate(parts):
        rest = [*parts[:number], *parts[number + 1 :]]
        yield Change(f"{act.name} without {said(part)}", PART, _guarded(act, place, rest), own)
        for better in stronger(part):
            changed = _guarded(act, place, [*parts[:number], better, *parts[number + 1 :]])
            yield Change(f"{act.name} only if {said(better)}", STRENGTHENED, changed, own)


def _of_write(machine: type[Machine], act: Action, place: int, own: bool) -> Iterator[Change]:
    """An assignment dropped, negated where it is of a constant, and made to each other variable of its kind."""
    write = act.writes[place]
    at = f"[{', '.join(said(term) for term in write.index)}]" if write.index else ""
    target = f"{write.var.name}{at}"
    yield Change(f"{act.name} without setting {target}", ASSIGNMENT, _writing(act, place), own)
    if z3.is_true(write.value) or z3.is_false(write.value):
        wrong = z3.is_false(write.value)
        changed = _writing(act, place, replace(write, value=z3.BoolVal(wrong)))
        yield Change(f"{act.name} sets {target} to {wrong}", NEGATED, changed, own)
    for other in machine.variables.values():
        if other is not write.var and type(other) is state and other.kind == write.var.kind:
            changed = _writing(act, place, replace(write, var=other))
            yield Change(f"{act.name} sets {other.name}{at} in place of {target}", REDIRECTED, changed, own)


def _guarded(act: Action, place: int, parts: list[Term]) -> Action:
    """The action with other parts in one of its guards; a guard without parts is gone."""
    changed = [replace(act.guards[place], term=z3.And(*parts))] if parts else []
    return replace(act, guards=(*act.guards[:place], *changed, *act.guards[place + 1 :]))


def _writing(act: Action, place: int, *writes: Write) -> Action:
    """The action with other assignments in place of one."""
    return replace(act, writes=(*act.writes[:place], *writes, *act.writes[place + 1 :]))


def _narrower(act: Action, how: str, term: Term, own: bool) -> Change:
    """The action with one more guard."""
    return Change(f"{act.name} {how}", STRENGTHENED, replace(act, guards=(*act.guards, Guard("expect", "", term))), own)


def _same_guard(one: Guard, other: Guard) -> bool:
    return one.kind == other.kind and bool(one.term.eq(other.term))


def _same_write(one: Write, other: Write) -> bool:
    if one.var is not other.var or len(one.index) != len(other.index):
        return False
    pairs = zip((*one.index, one.value), (*other.index, other.value), strict=True)
    return all(mine.eq(theirs) for mine, theirs in pairs)


def _changed(machine: type[Machine], title: str, changed: Action) -> type[Machine]:
    """A variant of the machine whose action does what the changed elaboration says."""

    def body(s: Any, *args: Any) -> None:
        for (_, _, const), given in zip(changed.params, args, strict=True):
            assert const.eq(given), "a mutant is elaborated on its own parameters"
        for name, term in machine.moment().terms.items():
            assert term.eq(s.terms[name]), "a mutant is elaborated on the machine's own state"
        s.guards += changed.guards
        s.writes += changed.writes

    body.__name__, body.__doc__, body.__qualname__ = changed.name, changed.doc, f"{machine.__name__}.{changed.name}"
    old = inspect.signature(machine.actions[changed.name].body)
    body.__signature__ = old  # type: ignore[attr-defined]
    return type(machine.__name__, (machine,), {changed.name: action(body)}, variant=title, breaks="")
