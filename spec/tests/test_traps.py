"""What the notation would let a careless author write, and the language does not."""

from collections.abc import Callable
from typing import Any

import pytest
import z3
from kvspec.language import (
    And,
    Bool,
    Implies,
    Index,
    Machine,
    Map,
    Nat,
    Not,
    Relation,
    SetOf,
    Sort,
    SpecificationError,
    action,
    invariant,
    rigid,
    state,
    total,
)  # fmt: skip
from kvspec.language.elaborate import elaborate
from kvspec.language.run import OutOfScope, State, Violation, compile_machine
from kvspec.language.solver import statement, transition

Thing, Other, Place = Sort("Thing"), Sort("Other"), Index("Place")
SIZES = {"Thing": 3, "Other": 2, "Place": 3, "Nat": 4}


class Shelf(Machine):
    """Things on places, with one of everything that can be assigned."""

    first = rigid(Thing)
    good = state(SetOf(Thing))
    on = state(Relation(Thing, Place))
    grid = state(Map(Thing, Place, Nat))
    open = state(Bool)
    number = state(Nat)
    size = total(good)

    def better(s, x):
        return And(s.good[x], s.open)

    @action
    def put(s, x: Thing):
        """Make a thing good."""
        s.require(Not(s.good[x]))
        s.good[x] = True

    @invariant("A1")
    def fine(s, x: Thing):
        """Nothing in particular."""
        return Implies(s.good[x], s.better(x) == s.better(x))


def with_action(body: Callable[..., None]) -> type[Machine]:
    """The shelf with one more action."""
    return type("Shelf2", (Shelf,), {body.__name__: action(body)})


def with_law(body: Callable[..., Any]) -> type[Machine]:
    return type("Shelf2", (Shelf,), {body.__name__: invariant("A2")(body)})


def started(of: type[Machine]) -> State:
    return compile_machine(of).start(SIZES, {"first": 0})


def do(of: type[Machine], at: State, name: str, *args: Any) -> State:
    """The state after an action; `at` stays."""
    after = at.copy()
    compile_machine(of).actions[name](after, *args)
    return after


# Terms have no truth value

UNTRUE: dict[str, Callable[[Any, Any], Any]] = {
    "if": lambda s, x: 1 if s.number == 0 else 2,
    "not": lambda s, x: not s.good[x],
    "and": lambda s, x: s.open and s.good[x],
    "or": lambda s, x: s.number == 1 or s.open,
    "in": lambda s, x: s.number in [s.number + 1],
    "chain": lambda s, x: 0 <= s.number < 3,
    "max": lambda s, x: max(s.number, s.number + 1),
    "while": lambda s, x: next(iter(lambda: s.open, False)),
}


@pytest.mark.parametrize("kind", UNTRUE)
def test_the_truth_of_a_term_is_an_error(kind: str) -> None:
    def careless(s: Any, x: Thing) -> None:
        UNTRUE[kind](s, x)

    def law(s: Any, x: Thing) -> Any:
        UNTRUE[kind](s, x)
        return s.open

    with pytest.raises(SpecificationError, match=r"a term has no truth value: .*(number|good|open)"):
        elaborate(with_action(careless), "careless")
    with pytest.raises(SpecificationError, match="a term has no truth value"):
        compile_machine(with_law(law))


def test_outside_a_body_z3_is_as_it_was() -> None:
    compile_machine(Shelf)
    x = z3.Int("x")
    assert bool(x == x)
    assert not bool(x == x + 1)


def test_a_set_has_no_truth_value_no_members_no_order_and_is_not_compared() -> None:
    s = Shelf.moment()
    with pytest.raises(SpecificationError, match="good has no truth value; index it"):
        bool(s.good)
    with pytest.raises(SpecificationError, match="write good"):
        s.number in s.good  # noqa: B015
    with pytest.raises(SpecificationError, match="grid cannot be iterated"):
        list(s.grid[s.first])
    with pytest.raises(SpecificationError, match="rows of grid cannot be compared"):
        s.grid[s.first] == s.grid[s.first]  # noqa: B015
    with pytest.raises(SpecificationError, match="rows of good cannot be compared"):
        s.good != s.good  # noqa: B015
    with pytest.raises(SpecificationError, match="on takes 2 indices, not 3"):
        s.on[s.first, 0, 1]


# Only conditions are guards and laws, and a cell takes only what it holds

WRONG: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "none": (lambda s, x: s.require(None), "a guard is a Bool, not None"),
    "number": (lambda s, x: s.expect(s.number, "A1"), "a guard is a Bool, not number"),
    "set": (lambda s, x: s.require(s.good), "a guard is a Bool, not <"),
    "text": (lambda s, x: s.good.__setitem__(x, "yes"), "good is a Bool, not 'yes'"),
    "count": (lambda s, x: s.good.__setitem__(x, 1), "good is a Bool, not 1"),
    "truth": (lambda s, x: s.grid.__setitem__((x, 0), True), "grid is a Nat, not True"),
    "thing": (lambda s, x: s.grid.__setitem__((x, 0), x), "grid is a Nat, not x"),
    "map": (lambda s, x: s.good.__setitem__(x, s.grid[x]), "good is a Bool, not <"),
    "open": (lambda s, x: s.grid.__setitem__(x, 0), "grid has 1 open indices here; assign a row or a function"),
    "total": (lambda s, x: setattr(s, "size", 1), "size cannot be assigned"),
    "rigid": (lambda s, x: setattr(s, "first", x), "first cannot be assigned"),
    "index": (lambda s, x: s.grid.__setitem__((x, x), 0), "an index of grid is a Place, not x"),
    "read": (lambda s, x: s.require(s.good[s.number]), "an index of good is a Thing, not number"),
    "indices": (lambda s, x: s.good.__setitem__((x, x), True), "good takes 1 indices, not 2"),
    "too few": (lambda s, x: s.require(s.grid[x] == 0), "rows of grid cannot be compared"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_not_well_formed_is_an_error_that_names_it(kind: str) -> None:
    body, message = WRONG[kind]

    def careless(s: Any, x: Thing) -> None:
        body(s, x)

    of = with_action(careless)
    with pytest.raises(SpecificationError, match=message.replace("(", r"\(")):
        elaborate(of, "careless")


def test_a_law_that_is_no_condition_is_an_error() -> None:
    def forgot(s: Any, x: Thing) -> None:
        Not(s.good[x])

    with pytest.raises(SpecificationError, match="forgot: a law is a Bool, not None"):
        compile_machine(with_law(forgot))
    with pytest.raises(SpecificationError, match="forgot: a law is a Bool, not None"):
        statement(with_law(forgot).laws["forgot"], Shelf.moment())


def test_parameters_need_a_sort_and_a_name_of_their_own() -> None:
    def bare(s, x) -> None: ...

    def plain(s, x: int) -> None: ...

    def number(s, number: Thing) -> None: ...

    for body in (bare, plain):
        with pytest.raises(SpecificationError, match=f"{body.__name__}: parameter 'x' needs a sort as annotation"):
            elaborate(with_action(body), body.__name__)
    clashing = type("Shelf2", (Shelf,), {"renumber": action(number)})
    with pytest.raises(SpecificationError, match=r"Shelf2.renumber: parameter 'number' is a state variable's name too"):
        compile_machine(clashing)


# Assignment


def test_a_row_is_copied() -> None:
    def fork(s: Any, x: Thing, y: Thing) -> None:
        s.grid[y], s.on[y] = s.grid[x], s.on[x]

    def spread(s: Any, x: Thing) -> None:
        s.grid = lambda y, k: s.grid[x, k]

    def poke(s: Any, x: Thing, k: Place, n: Nat) -> None:
        s.grid[x, k] = n

    of = type("Shelf2", (Shelf,), {body.__name__: action(body) for body in (fork, spread, poke)})
    at = do(of, started(of), "poke", 0, 1, 3)
    for name, args in (("fork", (0, 1)), ("spread", (0,))):
        copied = do(of, at, name, *args)
        assert copied.grid[1] == [0, 3, 0]
        assert copied.grid[1] is not copied.grid[0]
        poked = do(of, do(of, copied, "poke", 0, 1, 2), "poke", 1, 0, 1)
        assert (poked.grid[0], poked.grid[1]) == ([0, 2, 0], [1, 3, 0])
    swapped = do(of, at, "fork", 0, 0)
    assert vars(swapped) == vars(at)


def test_a_copy_of_a_state_shares_nothing() -> None:
    at = started(Shelf)
    twin = at.copy()
    twin.grid[0][1], twin.good[2], twin.on[1][1], twin.open = 7, True, True, True
    assert vars(at) == vars(started(Shelf))


def test_of_two_assignments_to_a_cell_the_later_stands_and_all_read_the_state_before() -> None:
    def twice(s: Any, x: Thing, y: Thing) -> None:
        s.grid[x, 0] += 1
        s.grid[y, 0] += 2
        s.number = s.grid[x, 0]
        s.good[x] = True
        s.good[y] = False

    def bulk(s: Any, x: Thing) -> None:
        s.good = lambda y: Not(s.good[y])
        s.good[x] = s.good[x]

    of = type("Shelf2", (Shelf,), {body.__name__: action(body) for body in (twice, bulk)})
    same, apart = do(of, started(of), "twice", 1, 1), do(of, started(of), "twice", 1, 2)
    assert (same.grid[1][0], same.good, same.size, same.number) == (2, [False, False, False], 0, 0)
    assert (apart.grid[1][0], apart.grid[2][0], apart.good, apart.size) == (1, 2, [False, True, False], 1)
    after = do(of, apart, "bulk", 1)
    assert (after.good, after.size) == ([True, True, True], 3)
    taken = transition(of, "twice")
    x, y = (const for _, _, const in taken.action.params)
    for goal in (
        taken.after.terms["grid"][x][0] == taken.before.terms["grid"][x][0] + 2,
        Not(taken.after.terms["good"][x]),
    ):
        solver = z3.Solver()
        solver.add(*taken.updates, x == y, Not(goal))
        assert solver.check() == z3.unsat


def test_a_failed_guard_changes_nothing_and_names_its_duty() -> None:
    at = do(Shelf, started(Shelf), "put", 1)
    before = at.copy()
    with pytest.raises(Violation, match=r"put: require Not\(good\[x\]\)") as raised:
        compile_machine(Shelf).actions["put"](at, 1)
    assert (raised.value.kind, raised.value.action) == ("require", "put")
    assert vars(at) == vars(before)


# Arguments and indices


@pytest.mark.parametrize("x", [-1, -3, 3, 99])
def test_an_argument_that_is_no_element_is_out_of_scope(x: int) -> None:
    at, compiled = started(Shelf), compile_machine(Shelf)
    for called in (compiled.actions["put"], compiled.enabled["put"]):
        with pytest.raises(OutOfScope, match=f"put: an argument is outside this run's sizes: .*'x': {x}"):
            called(at, x)
    assert vars(at) == vars(started(Shelf))


def test_a_negative_number_is_out_of_scope_where_nothing_is_indexed() -> None:
    def grow(s: Any, n: Nat) -> None:
        s.number = n

    of = with_action(grow)
    assert do(of, started(of), "grow", 99).number == 99
    with pytest.raises(OutOfScope):
        do(of, started(of), "grow", -1)


def test_a_computed_index_is_no_position_from_the_end() -> None:
    def reads(s: Any, x: Thing, k: Place) -> None:
        s.require(s.grid[x, k - 1] == 0)

    def writes(s: Any, x: Thing, k: Place) -> None:
        s.open = True
        s.grid[x, k - 1] = 1

    def beyond(s: Any, x: Thing, k: Place) -> None:
        s.open = True
        s.grid[x, k + 1] = 1

    of = type("Shelf2", (Shelf,), {body.__name__: action(body) for body in (reads, writes, beyond)})
    at, compiled = started(of), compile_machine(of)
    assert do(of, at, "writes", 0, 1).grid[0] == [1, 0, 0]
    for name, k, error in (("reads", 0, IndexError), ("writes", 0, OutOfScope), ("beyond", 2, OutOfScope)):
        after = at.copy()
        with pytest.raises(error):
            compiled.actions[name](after, 0, k)
        assert vars(after) == vars(at), "what is out of scope changes nothing"


def test_every_sort_needs_a_size_and_every_rigid_variable_a_value() -> None:
    with pytest.raises(SpecificationError, match="Shelf: the rigid variable 'first' needs a value"):
        compile_machine(Shelf).start(SIZES, {})
    with pytest.raises(AttributeError, match="'n_Place'; give every sort of the machine a size"):
        compile_machine(Shelf).start({"Thing": 2}, {"first": 0})


# What an interpretation lacks


@pytest.mark.parametrize(
    ("construct", "term"),
    [
        ("Lambda", lambda s, x: z3.Lambda([z3.Int("i")], z3.Int("i") > 0)[s.number]),
        ("function f", lambda s, x: z3.Function("f", Thing.z3, z3.BoolSort())(x)),
        ("bvslt", lambda s, x: z3.BitVec("b", 8) < 3),
        ("store", lambda s, x: z3.Store(s.terms["good"], x, z3.BoolVal(True))[s.first]),
        ("xor", lambda s, x: z3.Xor(s.open, s.good[x])),
        ("**", lambda s, x: s.number**2 > 3),
        ("constant z", lambda s, x: z3.Bool("z")),
    ],
)  # fmt: skip
def test_a_missing_construct_is_named_with_its_place(construct: str, term: Callable[[Any, Any], Any]) -> None:
    def odd(s: Any, x: Thing) -> None:
        s.require(s.open)
        s.expect(term(s, x), "A1")

    def stores(s: Any, x: Thing) -> None:
        s.open = term(s, x)

    def states(s: Any, x: Thing) -> Any:
        return term(s, x)

    for of, place in (
        (with_action(odd), "Shelf2.odd, guard 2"),
        (with_action(stores), "Shelf2.stores, assignment of open"),
        (with_law(states), "Shelf2.states"),
    ):
        with pytest.raises(SpecificationError) as raised:
            compile_machine(of)
        assert str(raised.value).startswith(f"compiled Python has no {construct!r}")
        assert str(raised.value).endswith(f"in {place}")


def test_a_plain_constant_may_be_a_first_value() -> None:
    class Full(Machine):
        full = state(SetOf(Sort("Thing")), init=lambda s, x: True)
        number = state(Nat, init=lambda s: 3)

    began = compile_machine(Full).start({"Thing": 2}, {})
    assert (began.full, began.number) == ([True, True], 3)
