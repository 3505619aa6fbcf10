"""Counterexamples at a small scope: a few elements a sort, quantifiers written out, counts exact, so that z3 decides.

The pre-state that is found satisfies every invariant, but a run need not reach it; `search` says whether one does.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import z3
from kvspec.language.counts import counts, totals
from kvspec.language.machine import Machine, cardinal, no_truth, rigid
from kvspec.language.run import State
from kvspec.language.solver import assumptions, in_domain, statement
from kvspec.language.sorts import Bool, Index, Nat, Sort, Type, domains, value_sort
from kvspec.language.terms import Term, bit, every
from kvspec.language.walk import opened
from kvspec.registry import sorts

from kvspec_proofs.obligations import Obligation

SMALL = 2
"""Numbers in a counterexample are at most this where they can be."""


@dataclass(frozen=True)
class Counterexample:
    """A state in which every invariant holds, and the arguments with which the action breaks the goal."""

    obligation: Obligation
    before: State
    args: tuple[int, ...]


class Scope:
    """The elements of every sort: constants for plain sorts, the numbers from 0 for indices."""

    def __init__(self, machine: type[Machine], sizes: Mapping[str, int]) -> None:
        self.machine, self.sizes = machine, dict(sizes)
        self.elements = {name: self._elements(sort, sizes[name]) for name, sort in sorts(machine).items()}

    def _elements(self, sort: Sort, size: int) -> list[Term]:
        if isinstance(sort, Index):
            return [z3.IntVal(number) for number in range(size)]
        return [sort.const(f"{sort.name} {number}") for number in range(size)]

    def distinct(self) -> list[Term]:
        """The constants of a plain sort are different elements."""
        return [z3.Distinct(*each) for each in self.elements.values() if len(each) > 1 and not z3.is_int(each[0])]

    def named(self) -> list[Term]:
        """The first rigid constant of a plain sort is its element 0, a matter of names; cardinals are the sizes."""
        first = {var.kind.name: name for name, var in reversed(list(self.machine.variables.items()))
                 if var.rigid and isinstance(var.kind, Sort) and not isinstance(var.kind, Index)}  # fmt: skip
        moment = self.machine.moment()
        sized = [moment.terms[name] == self.sizes[var.of.name] for name, var in self.machine.variables.items()
                 if isinstance(var, cardinal)]  # fmt: skip
        return [*sized, *[moment.terms[name] == self.elements[sort][0] for sort, name in first.items()]]

    def member(self, sort: Sort, term: Term) -> Term:
        """The term is one of the sort's elements."""
        return z3.Or(*[term == element for element in self.elements[sort.name]])

    def cells(self, kind: Type, term: Term) -> Iterator[tuple[tuple[int, ...], Term]]:
        """Every cell of a variable at this scope, with its indices."""
        for index in itertools.product(*[range(self.sizes[sort.name]) for sort in domains(kind)]):
            cell = term
            for sort, number in zip(domains(kind), index, strict=True):
                cell = cell[self.elements[sort.name][number]]
            yield index, cell

    def closed(self, moment: Machine) -> list[Term]:
        """Every cell holds an element of its sort; naturals are bounded by their sort's size only where they index."""
        found: list[Term] = []
        for var in self.machine.variables.values():
            sort = value_sort(var.kind)
            if sort.name in ("Bool", "Nat"):
                continue
            found += [self.member(sort, cell) for _, cell in self.cells(var.kind, moment.terms[var.name])]
        return found

    def exact(self, moment: Machine) -> list[Term]:
        """Counts and totals are the sums that they stand for."""
        found: list[Term] = []
        for var in counts(self.machine):
            for (number,), cell in self.cells(var.kind, moment.terms[var.name]):
                j = self.elements[domains(var.kind)[0].name][number]
                found.append(cell == z3.Sum([var.weight(moment, x, j) for x in self.elements[var.over.name]]))
        for summed in totals(self.machine):
            members = [bit(cell) for _, cell in self.cells(summed.of.kind, moment.terms[summed.of.name])]
            found.append(moment.terms[summed.name] == z3.Sum(members))
        return found

    def ground(self, term: Term) -> Term:
        """The term with every quantifier written out over the elements."""
        if z3.is_quantifier(term):
            bound, body = opened(term)
            cases = itertools.product(*[self.elements[each.sort] for each in bound])
            written = [
                self.ground(z3.substitute(body, *zip([each.const for each in bound], case, strict=True)))
                for case in cases
            ]
            return every(written) if term.is_forall() else z3.Or(*written)
        if not z3.is_app(term) or not term.num_args():
            return term
        return term.decl()(*[self.ground(child) for child in term.children()])


def counterexample(machine: type[Machine], obligation: Obligation, sizes: Mapping[str, int]) -> Counterexample | None:
    """A counterexample of an obligation about one step at this scope, or None where there is none."""
    return counterexample_of_any(machine, [obligation], sizes) if obligation.taken else None


def counterexample_of_any(
    machine: type[Machine], obligations: Sequence[Obligation], sizes: Mapping[str, int]
) -> Counterexample | None:
    """A counterexample of one of the obligations, which are about the same step, at this scope; z3 chooses which."""
    taken = obligations[0].taken
    assert taken is not None, f"{obligations[0].title} is about no step"
    assert all(obligation.taken is taken for obligation in obligations), "obligations about different steps"
    scope = Scope(machine, sizes)
    solver = z3.Solver()
    with no_truth():
        before, after = taken.before, taken.after
        laws = [*assumptions(machine, before), *[statement(law, before) for law in machine.of_kind("invariant")]]
        formulas = [*laws, *in_domain(machine, before).values(), *taken.guards, *taken.updates]
        solver.add(*scope.distinct(), *scope.named(), *[scope.ground(formula) for formula in formulas])
        solver.add(*scope.closed(before), *scope.exact(before))
        for _, sort, const in taken.action.params:
            solver.add(scope.member(sort, const))
        for var in totals(machine):
            members = [bit(cell) for _, cell in scope.cells(var.of.kind, after.terms[var.of.name])]
            solver.add(after.terms[var.name] == z3.Sum(members))
        goal = obligations[0].goal if len(obligations) == 1 else every([obligation.goal for obligation in obligations])
        solver.add(z3.Not(scope.ground(goal)))
        small = [cell <= SMALL for var in machine.variables.values() if value_sort(var.kind) is Nat
                 for _, cell in scope.cells(var.kind, before.terms[var.name])]  # fmt: skip
    answer = z3.sat if solver.check(*small) == z3.sat else solver.check()
    if answer == z3.unknown:
        raise AssertionError(f"{obligations[0].title}: z3 gave up on a finite instance ({solver.reason_unknown()})")
    if answer == z3.unsat:
        return None
    model = solver.model()
    return _read(scope, model, _falsified(scope, model, obligations), before)


def _falsified(scope: Scope, model: Any, obligations: Sequence[Obligation]) -> Obligation:
    """The first obligation that the model refutes."""
    *earlier, last = obligations
    with no_truth():
        goals = [scope.ground(obligation.goal) for obligation in earlier]
    refuted = (z3.is_false(model.eval(goal, model_completion=True)) for goal in goals)
    return next((each for each, false in zip(earlier, refuted, strict=True) if false), last)


def assumed(machine: type[Machine], sizes: Mapping[str, int], random: Random | None = None) -> dict[str, Any]:
    """Values of the rigid variables that meet the machine's assumptions at this scope; as declared or as drawn."""
    scope, solver, moment = Scope(machine, sizes), z3.Solver(), machine.moment()
    with no_truth():
        solver.add(*scope.distinct(), *scope.named(), *scope.closed(moment))
        solver.add(*[scope.ground(assumption) for assumption in assumptions(machine, moment)])
        for wish in _wishes(scope, moment, random):
            if solver.check(wish) == z3.sat:
                solver.add(wish)
    if solver.check() != z3.sat:
        raise AssertionError(f"{machine.__name__}: nothing meets its assumptions at {dict(sizes)}")
    state = _state(scope, solver.model(), moment)
    return {name: getattr(state, name) for name, var in machine.variables.items() if var.rigid}


def _wishes(scope: Scope, moment: Machine, random: Random | None) -> Iterator[Term]:
    """For the cells of the rigid variables what they are declared to be such as; truth values and others are drawn."""
    for var in [var for var in scope.machine.variables.values() if isinstance(var, rigid)]:
        for _, cell in scope.cells(var.kind, moment.terms[var.name]):
            if random and value_sort(var.kind) is Bool:
                yield cell == (random.random() < 0.5)
            elif var.such_as is not None:
                yield cell == (random.randint(0, var.such_as + 1) if random else var.such_as)


def _read(scope: Scope, model: Any, obligation: Obligation, before: Machine) -> Counterexample:
    """The model as a state of the compiled machine, and arguments."""
    assert obligation.taken is not None
    args = tuple(_number(scope, model, sort, const) for _, sort, const in obligation.taken.action.params)
    return Counterexample(obligation, _state(scope, model, before), args)


def _state(scope: Scope, model: Any, moment: Machine) -> State:
    found = State(scope.sizes)
    for name, var in scope.machine.variables.items():
        cells = {
            index: _number(scope, model, value_sort(var.kind), cell)
            for index, cell in scope.cells(var.kind, moment.terms[name])
        }
        setattr(found, name, _nested(cells, [scope.sizes[sort.name] for sort in domains(var.kind)], ()))
    return found


def _number(scope: Scope, model: Any, sort: Sort, term: Term) -> Any:
    """A term's value as compiled code has it: elements by number."""
    value = model.eval(term, model_completion=True)
    if sort.name == "Bool":
        return z3.is_true(value)
    if z3.is_int(value):
        return value.as_long()
    names = [str(model.eval(element, model_completion=True)) for element in scope.elements[sort.name]]
    return names.index(str(value))


def _nested(cells: Mapping[tuple[int, ...], Any], sizes: list[int], index: tuple[int, ...]) -> Any:
    if not sizes:
        return cells[index]
    return [_nested(cells, sizes[1:], (*index, number)) for number in range(sizes[0])]
