"""Compiled Python says what Z3 says: of every construct, and of every guard, assignment and law of the machines.

Z3's side is a model in which each cell has its value, quantifiers written out here over a few elements.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import z3
from kvspec.language import (
    And,
    Bool,
    If,
    Implies,
    Index,
    Machine,
    Map,
    Nat,
    Not,
    Or,
    Relation,
    Sort,
    exists,
    forall,
    state,
)
from kvspec.language.machine import count, no_truth, total
from kvspec.language.python import PythonText, divide, modulo, natural
from kvspec.language.run import Compiled, OutOfScope, State, compile_machine
from kvspec.language.solver import NEXT, Step, initial, statement, step_statement, transition
from kvspec.language.sorts import Type, domains, value_sort
from kvspec.language.walk import CONSTRUCTS
from kvspec.registry import ALGORITHMS, MACHINES, machine, sorts, variant, variant_names


class World:
    """A few elements of each sort, as Z3 terms."""

    def __init__(self, of: type[Machine], sizes: Mapping[str, int]) -> None:
        self.machine, self.sizes = of, sizes
        self.elements = {
            name: [z3.IntVal(n) if isinstance(sort, Index) else sort.const(f"{name} {n}") for n in range(sizes[name])]
            for name, sort in sorts(of).items()
        }

    def literal(self, sort: Sort, value: Any) -> Any:
        if sort is Bool:
            return z3.BoolVal(value)
        return z3.IntVal(value) if isinstance(sort, Index) else self.elements[sort.name][value]

    def written_out(self, term: Any) -> Any:
        """Without quantifiers."""
        if z3.is_quantifier(term):
            ranges = [self.elements[term.var_name(i).partition("!")[2]] for i in range(term.num_vars())]
            cases = [z3.substitute_vars(term.body(), *reversed(case)) for case in itertools.product(*ranges)]
            return (z3.And if term.is_forall() else z3.Or)([self.written_out(case) for case in cases])
        if z3.is_eq(term) and z3.is_array(term.arg(0)) and all(map(z3.is_const, term.children())):
            return self.equal(*term.children())
        return term.decl()(*map(self.written_out, term.children())) if term.num_args() else term

    def equal(self, one: Any, other: Any) -> Any:
        """Two state variables, in the cells that Python has; Z3's arrays go on beyond them, and differ there or not."""
        kind = self.machine.variables[one.decl().name().removesuffix(NEXT)].kind
        return z3.And([self.cell(one, kind, at) == self.cell(other, kind, at) for at in self.indices(kind)])

    def cell(self, array: Any, kind: Type, index: tuple[int, ...]) -> Any:
        for sort, number in zip(domains(kind), index, strict=True):
            array = array[self.literal(sort, number)]
        return array

    def indices(self, kind: Type) -> Iterable[tuple[int, ...]]:
        return itertools.product(*[range(self.sizes[sort.name]) for sort in domains(kind)])

    def cells(self, moment: Machine, at: State, *, totals: bool = True) -> list[Any]:
        """For every cell that it has in z3 the value which it has in Python."""
        found = []
        for name, var in self.machine.variables.items():
            if isinstance(var, total) and not totals:
                continue
            for index in self.indices(var.kind):
                value = getattr(at, name)
                for number in index:
                    value = value[number]
                found.append(
                    self.cell(moment.terms[name], var.kind, index) == self.literal(value_sort(var.kind), value)
                )
        return found

    def arguments(self, taken: Step, args: tuple[int, ...]) -> list[Any]:
        params = zip(taken.action.params, args, strict=True)
        return [const == self.literal(sort, value) for (_, sort, const), value in params]

    def model(self, *formulas: Any) -> Any:
        solver = z3.Solver()
        solver.add(*[z3.Distinct(*each) for each in self.elements.values() if len(each) > 1 and not z3.is_int(each[0])])
        solver.add(*formulas)
        assert solver.check() == z3.sat
        return solver.model()


def holds(model: Any, term: Any) -> bool:
    value = model.eval(term, model_completion=True)
    assert z3.is_true(value) or z3.is_false(value), value
    return z3.is_true(value)


# Every construct


class Everything(Machine):
    """Something of each type."""

    p, q, n, m, small = state(Bool), state(Bool), state(Nat), state(Nat), state(Index("Place"))
    row = state(Map(Index("Place"), Nat))
    grid = state(Relation(Index("Place"), Sort("Thing")))
    thing, other, third = state(Sort("Thing")), state(Sort("Thing")), state(Sort("Thing"))


PLACE, THING = domains(Everything.grid.kind)
S = Everything.moment()
CASES: dict[str, list[Any]] = {
    "true": [z3.BoolVal(True)],
    "false": [z3.BoolVal(False)],
    "number": [z3.IntVal(3), z3.IntVal(-3), z3.IntVal(2**70)],
    "name": [S.n, S.p],
    "and_": [And(S.p, S.q), And(S.p, S.q, S.n < 1), And(S.p), z3.And([])],
    "or_": [Or(S.p, S.q), Or(S.p, S.q, S.n < 1), z3.Or([]), And(Or(S.p, S.q), S.p)],
    "not_": [Not(S.p), Not(And(S.p, Not(S.q))), Not(S.n == 2) == S.q],
    "implies": [Implies(S.p, S.q), Implies(Not(S.p), Implies(S.q, S.p)), Implies(S.n == 1, S.p) == S.q],
    "if_": [If(S.p, S.n, S.m), If(If(S.p, S.q, S.n < 0), 1, S.m) + 1, S.m - If(S.p, 1, 0)],
    "equal": [S.n == S.m, (S.n == 1) == S.q, S.thing == S.other, S.row[S.small] == S.n],
    "distinct": [S.n != S.m, S.p != S.q, z3.Distinct(S.thing, S.other, S.third), z3.Distinct(S.n, S.m, S.n + 1)],
    "at_most": [S.n <= S.m],
    "at_least": [S.n >= S.m],
    "less": [S.n < S.m],
    "more": [S.n > S.m],
    "add": [S.n + S.m, z3.Sum(S.n, S.m, 4)],
    "subtract": [S.n - S.m, S.n - (S.m - 2), 1 - S.n - S.m],
    "negate": [-S.n, -(S.n - S.m), S.m - -S.n],
    "multiply": [S.n * S.m, (S.n + 1) * (S.m - 2), -S.n * S.m],
    "divide": [S.n / 3, S.n / -3, (S.n - 9) / (S.m * S.m + 1), S.n / (0 - 1 - S.m * S.m)],
    "modulo": [S.n % 3, S.n % -3, (S.n - 9) % (S.m * S.m + 1), S.n % (0 - 1 - S.m * S.m)],
    "select": [S.row[S.small], S.grid[S.small, S.thing], S.row[S.n % 3], S.row[2]],
    "forall": [
        forall(PLACE, lambda k: S.row[k] < S.n),
        forall(PLACE, THING, lambda k, x: Or(S.grid[k, x], k > S.small)),
        forall(THING, lambda x: Implies(x != S.thing, exists(PLACE, lambda k: S.grid[k, x]))),
    ],
    "exists": [
        exists(PLACE, lambda k: S.row[k] == S.n),
        And(S.p, exists(PLACE, THING, lambda k, x: And(S.grid[k, x], x != S.thing))),
        exists(PLACE, lambda k: forall(PLACE, lambda j: Implies(j < k, S.row[j] < S.row[k]))),
    ],
}
SOME = {"Place": 3, "Thing": 3, "Nat": 1}


def test_every_construct_has_a_case() -> None:
    assert CASES.keys() == {*CONSTRUCTS.values(), "forall", "exists"}
    for construct, cases in CASES.items():
        for case in cases:
            assert construct in constructs(case), construct


def constructs(term: Any) -> set[str]:
    """The constructs that occur in a term."""
    if z3.is_quantifier(term):
        return {"forall" if term.is_forall() else "exists"} | constructs(term.body())
    own = {CONSTRUCTS[term.decl().kind()]} if z3.is_app(term) else set()
    return own.union(*map(constructs, term.children()))


def some_state(random: Random) -> State:
    at = State(SOME)
    at.p, at.q, at.small = random.random() < 0.5, random.random() < 0.5, random.randrange(3)
    at.n, at.m = random.randint(-9, 9), random.randint(-3, 3)
    at.row = [random.randint(-3, 3) for _ in range(3)]
    at.grid = [[random.random() < 0.7 for _ in range(3)] for _ in range(3)]
    at.thing, at.other, at.third = (random.randrange(3) for _ in range(3))
    return at


def differs(term: Any, translator: type[PythonText], states: int) -> bool:
    """In some state the translated term has another value than Z3 gives it."""
    world = World(Everything, SOME)
    source = translator("here", {name: f"S.{name}" for name in Everything.variables})(term)
    for seed in range(states):
        at = some_state(Random(seed))
        value = eval(source, {"S": at, "divide": divide, "modulo": modulo, "natural": natural, "wrong": wrong})
        model = world.model(*world.cells(S, at))
        literal = z3.BoolVal(value) if isinstance(value, bool) else z3.IntVal(value)
        if not holds(model, world.written_out(term) == literal):
            return True
    return False


def wrong(value: Any) -> Any:
    if isinstance(value, list):
        return [wrong(item) for item in value]
    return not value if isinstance(value, bool) else value + 1


@pytest.mark.parametrize("construct", CASES)
def test_a_construct_means_the_same_and_a_wrong_translation_is_noticed(construct: str) -> None:
    right = getattr(PythonText, construct)
    mistaken = type("Mistaken", (PythonText,), {construct: lambda self, *args: f"wrong({right(self, *args)})"})
    for case in CASES[construct]:
        assert not differs(case, PythonText, 30)
    assert differs(CASES[construct][0], mistaken, 8)


def test_division_is_not_pythons() -> None:
    assert [divide(-7, 2), divide(7, -2), divide(-7, -2)] == [-4, -3, 4]
    assert [modulo(-7, 2), modulo(7, -2), modulo(-7, -2)] == [1, 1, 1]
    for left, right in itertools.product(range(-7, 8), [*range(-3, 0), *range(1, 4)]):
        quotient = z3.simplify(z3.IntVal(left) / z3.IntVal(right)).as_long()
        remainder = z3.simplify(z3.IntVal(left) % z3.IntVal(right)).as_long()
        assert (divide(left, right), modulo(left, right)) == (quotient, remainder)
    with pytest.raises(ZeroDivisionError, match="divides by zero"):
        divide(1, 0)
    with pytest.raises(ZeroDivisionError, match="divides by zero"):
        modulo(1, 0)


ODD = {"Page": 3, "Stop": 3, "Nat": 4, "Slot": 3, "Position": 4, "Prefix": 4, "Block": 3, "Owner": 4}
SIZES = {name: ODD.get(name, 2) for each in (*MACHINES, *ALGORITHMS) for name in sorts(machine(each))}


def any_state(of: type[Machine], random: Random) -> State:
    """Any state at all, reachable or not; some are nearly empty, some nearly full."""
    at = State({name: SIZES[name] for name in sorts(of)})

    def filled(left: tuple[Sort, ...], value: Callable[[], Any]) -> Any:
        return [filled(left[1:], value) for _ in range(SIZES[left[0].name])] if left else value()

    for name, var in of.variables.items():
        sort, dense = value_sort(var.kind), random.choice([0.0, 0.5, 0.8, 1.0])
        most = random.randint(1, SIZES.get(sort.name, 1))
        draw = (lambda d=dense: random.random() < d) if sort is Bool else (lambda m=most: random.randrange(m))
        setattr(at, name, filled(domains(var.kind), draw))
    return at


def near(of: type[Machine], at: State, random: Random) -> State:
    """A state that differs in a few variables, or not at all."""
    other, twin = any_state(of, random), at.copy()
    for name in random.sample(sorted(of.variables), random.choice([0, 1, 3, len(of.variables)])):
        if not of.variables[name].rigid:
            setattr(twin, name, getattr(other, name))
    return twin


def wrong_steps(of: type[Machine], compiled: Compiled, action: str, random: Random) -> list[str]:
    """Where the guards or the assignments first differ from Z3's, of some enabled and some disabled cases."""
    with no_truth():
        taken, world = transition(of, action), World(of, SIZES)
        allowed = world.written_out(z3.And(taken.guards))
        updates = [world.written_out(update) for update in taken.updates]
    found, wanted = [], {True: 30, False: 4 if taken.action.guards else 0}
    for _ in range(20_000):
        if found or not any(wanted.values()):
            return found
        before = any_state(of, random)
        compiled.refresh(before)
        args = tuple(random.randrange(SIZES[sort.name]) for sort in compiled.params[action])
        enabled = compiled.enabled[action](before, *args)
        if not wanted[enabled]:
            continue
        after = before.copy()
        try:
            if enabled:
                compiled.actions[action](after, *args)
        except (IndexError, OutOfScope):
            continue
        wanted[enabled] -= 1
        model = world.model(*world.cells(taken.before, before), *world.arguments(taken, args), *updates)
        if holds(model, allowed) != enabled:
            found.append(f"{action}{args}: guards")
        elif enabled:
            cells = world.cells(taken.after, after, totals=False)
            found += [f"{action}{args}: {cell}" for cell in cells if not holds(model, cell)]
            counted = after.copy()
            compiled.refresh(counted)
            found += [f"{action}{args}: totals"] if vars(counted) != vars(after) else []
    raise AssertionError(f"{action}: so many cases were not found: {wanted}")


@pytest.mark.parametrize("name", [*MACHINES, *ALGORITHMS])
def test_a_run_starts_where_the_terms_say(name: str) -> None:
    of, random = machine(name), Random(3)
    compiled, moment, world = compile_machine(of), of.moment(), World(of, SIZES)
    chosen = vars(any_state(of, random)) | {"null": 0, "order": [1, 2, 0], "rank": [2, 0, 1]}
    chosen |= {"blocks": [0, 1, 1, 2], "whole": [0, 0, 1, 1], "since": [[0] * 4] * 2, "first": [[0] * 2] * 2}
    chosen |= {"size": [1] * 2, "place": [0, 1], "budget": [2] * 2, "slots": [1] * 2}
    chosen |= {"wanted": [[0, 1], [1, 0]], "prefixes": [[0, 1, 2, 3]] * 2, "drafts": 2}
    chosen |= {owner: number for number, owner in enumerate(("stream", "keeper", "handoff", "batch"))}
    start = compiled.start(SIZES, {name: chosen[name] for name, var in of.variables.items() if var.rigid})
    begins = [world.written_out(fact) for fact in initial(of, moment)]
    assert world.model(*world.cells(moment, start), *begins)
    for name, var in of.variables.items():
        if var.rigid or isinstance(var, total) or not isinstance(value_sort(var.kind), Index | type(Bool)):
            continue
        wrong_start = start.copy()
        setattr(wrong_start, name, wrong(getattr(start, name)))
        with pytest.raises(AssertionError):
            world.model(*world.cells(moment, wrong_start), *begins)


@pytest.mark.parametrize("name", [*MACHINES, *ALGORITHMS])
def test_actions_do_what_their_terms_say(name: str) -> None:
    of = machine(name)
    compiled = compile_machine(of)
    for action in of.actions:
        assert wrong_steps(of, compiled, action, Random(7)) == []


@pytest.mark.parametrize("name", variant_names())
def test_another_machines_actions_are_noticed(name: str) -> None:
    bug = variant(name)
    right, compiled = bug.__bases__[0], compile_machine(bug)
    changed = [action for action in right.actions if formulas(right, action) != formulas(bug, action)]
    assert len(changed) == 1
    assert any(wrong_steps(right, compiled, changed[0], Random(seed)) for seed in range(30))


def formulas(of: type[Machine], action: str) -> str:
    taken = transition(of, action)
    return str([taken.guards, taken.updates])


def laws(of: type[Machine], taken: Step) -> dict[str, Any]:
    """Every law about a state, or about a step of this action, as a formula."""
    listed = {
        law.name: statement(law, taken.before) for law in of.laws.values() if law.kind in ("invariant", "derived")
    }
    for law in of.of_kind("step"):
        if (stated := step_statement(law, taken)) is not None:
            listed[law.name] = stated
    for var in of.variables.values():
        if isinstance(var, count):
            (per,) = domains(var.kind)
            world, number = World(of, SIZES), taken.before.terms[var.name]
            listed[f"{var.name}_counts"] = z3.And([
                number[j] == z3.Sum([var.weight(taken.before, x, j) for x in world.elements[var.over.name]])
                for j in world.elements[per.name]
            ])  # fmt: skip
    return listed


def wrong_laws(of: type[Machine], compiled: Compiled, action: str, random: Random, skip: set[str]) -> set[str]:
    """Which laws evaluate otherwise in Python; adds to `skip` those that were seen often enough, true and false."""
    with no_truth():
        taken, world = transition(of, action), World(of, SIZES)
        listed = {name: world.written_out(term) for name, term in laws(of, taken).items() if name not in skip}
    seen = {(name, answer): 0 for name in listed for answer in (True, False)}
    found: set[str] = set()
    for _ in range(6_000):
        if not listed:
            break
        before = any_state(of, random)
        after = near(of, before, random)
        args = tuple(random.randrange(SIZES[sort.name]) for sort in compiled.params[action])
        no = {law for _, law in [*compiled.broken(before), *compiled.broken_step(before, action, args, after)]}
        wanted = [name for name in listed if seen[name, name not in no] < 3]
        if wanted:
            moments = [*world.cells(taken.before, before), *world.cells(taken.after, after)]
            model = world.model(*moments, *world.arguments(taken, args))
            for name in wanted:
                seen[name, name not in no] += 1
                if holds(model, listed[name]) != (name not in no):
                    found.add(name)
                if min(seen[name, True], seen[name, False]) >= 3:
                    skip.add(name)
                    del listed[name]
    return found


@pytest.mark.parametrize("name", [*MACHINES, *ALGORITHMS])
def test_laws_are_evaluated_as_their_terms_say(name: str) -> None:
    of = machine(name)
    compiled, skip = compile_machine(of), set[str]()
    for action in of.actions:
        assert wrong_laws(of, compiled, action, Random(11), skip) == set()
    counters = {f"{var.name}_counts" for var in of.variables.values() if isinstance(var, count)}
    evaluated = {law.name for law in of.laws.values() if law.kind in ("invariant", "derived", "step")}
    assert skip == evaluated | counters, "some law was never seen both true and false"


def test_laws_that_say_the_opposite_are_noticed() -> None:
    of = machine("pages")
    compiled = compile_machine(of)
    opposite = tuple((law, lambda *moments, says=says: not says(*moments)) for law, says in compiled._laws)
    noticed = wrong_laws(of, replace(compiled, _laws=opposite), "reclaim", Random(11), set())
    assert noticed == {law.name for law, _ in opposite}
