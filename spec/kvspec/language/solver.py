"""Solver terms: an action as a relation between two moments, and laws as closed formulas over moments."""

from dataclasses import dataclass

import z3

from kvspec.language.elaborate import Action, elaborate
from kvspec.language.machine import Law, Machine, SpecificationError, count, given, parameters, state, total
from kvspec.language.sorts import Index, Map, Sort, domains, value_sort
from kvspec.language.terms import Term, universal
from kvspec.language.walk import mentions

NEXT = "+"
"""What is added to a variable's name for its value after a step."""


@dataclass(frozen=True)
class Step:
    """One action between two moments: what holds when it happens, and the terms that were touched."""

    action: Action
    before: Machine
    after: Machine
    guards: list[Term]
    updates: list[Term]


def transition(machine: type[Machine], name: str, suffix: str = NEXT) -> Step:
    """The step relation of an action. Point assignments are stores, bulk ones are pointwise equations."""
    before, after = machine.moment(), machine.moment(suffix)
    act = elaborate(machine, name, before)
    guards = [limit for _, sort, const in act.params if (limit := sort.domain(const)) is not None]
    guards += [guard.term for guard in act.guards]
    updates: list[Term] = []
    for var in machine.variables.values():
        if var.rigid or isinstance(var, total):
            continue
        term = before.terms[var.name]
        for number, write in enumerate(w for w in act.writes if w.var is var):
            value = write.value
            if write.bound:
                assert isinstance(var.kind, Map)
                new = z3.Const(f"{var.name}{suffix}:{number}", var.kind.inner(len(write.index)))
                cell = new
                for index in write.bound:
                    cell = cell[index]
                sorts = list(var.kind.domains[len(write.index) :])
                updates.append(universal(sorts, list(write.bound), cell == value))
                value = new
            term = _stored(term, write.index, value)
        updates.append(after.terms[var.name] == term)
    return Step(act, before, after, guards, updates)


def _stored(term: Term, index: tuple[Term, ...], value: Term) -> Term:
    if not index:
        return value
    return z3.Store(term, index[0], _stored(term[index[0]], index[1:], value))


def statement(law: Law, *moments: Machine) -> Term:
    """A law as a closed formula: of one moment, of two for a step law, of none for a lemma."""
    params = parameters(law.body, skip=len(moments))
    consts = [sort.fresh(name) for name, sort in params.items()]
    return universal(list(params.values()), consts, law(*moments, *consts))


def assumptions(machine: type[Machine], moment: Machine) -> list[Term]:
    """The assumptions as closed formulas; of what an action may change nothing is taken for granted."""
    found = [statement(law, moment) for law in machine.of_kind("assumption")]
    for law, term in zip(machine.of_kind("assumption"), found, strict=True):
        names = {name.removesuffix(NEXT) for name in mentions(term)} & machine.variables.keys()
        if changing := [name for name in sorted(names) if not machine.variables[name].rigid]:
            text = f"an assumption speaks of rigid variables, not of {changing[0]!r}; make it an invariant"
            raise SpecificationError(f"{machine.__name__}.{law.name}: {text}")
    return found


def step_statement(law: Law, taken: Step) -> Term | None:
    """A step law for one action, or None where it does not speak of it."""
    if (law.on and taken.action.name not in law.on) or taken.action.name in law.unless:
        return None
    own = {name: const for name, _, const in taken.action.params}
    params = parameters(law.body, skip=2)
    free = {name: sort for name, sort in params.items() if name not in given(type(taken.before), law)}
    bound = {name: sort.fresh(name) for name, sort in free.items()}
    body = law(taken.before, taken.after, *[bound[name] if name in free else own[name] for name in params])
    return universal(list(free.values()), list(bound.values()), body)


def generic_cell(moment: Machine, var: state) -> tuple[list[Sort], list[Term], Term]:
    """A cell of a variable at arbitrary indices: their sorts, the indices, the cell."""
    sorts = list(domains(var.kind))
    index = [sort.fresh(f"{var.name}.{place}") for place, sort in enumerate(sorts)]
    cell = moment.terms[var.name]
    for position in index:
        cell = cell[position]
    return sorts, index, cell


def initial(machine: type[Machine], moment: Machine) -> list[Term]:
    """What holds at the start: False, 0, or the declared first value of each cell; anything for plain sorts.

    Rigid variables may have any value of their sort.
    """
    facts: list[Term] = []
    for var in machine.variables.values():
        sorts, index, cell = generic_cell(moment, var)
        if isinstance(var, total):
            continue
        if var.rigid:
            facts += [] if (limit := value_sort(var.kind).domain(cell)) is None else [universal(sorts, index, limit)]
        elif var.init is not None:
            facts.append(universal(sorts, index, cell == var.init(moment, *index)))
        elif isinstance(value_sort(var.kind), Index):
            facts.append(universal(sorts, index, cell == 0))
        elif z3.is_bool(cell):
            facts.append(universal(sorts, index, z3.Not(cell)))
    return facts


def in_domain(machine: type[Machine], moment: Machine) -> dict[str, Term]:
    """For each variable that holds naturals, that it does; totals and counts have it from what they count."""
    facts: dict[str, Term] = {}
    for var in machine.variables.values():
        if isinstance(value_sort(var.kind), Index) and not isinstance(var, count | total):
            sorts, index, cell = generic_cell(moment, var)
            facts[var.name] = universal(sorts, index, cell >= 0)
    return facts
