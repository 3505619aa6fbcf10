"""Names mean one thing, also in machines that extend others."""

import re
from typing import Any

import pytest
import z3
from kvspec.language import (
    And,
    Bool,
    If,
    Implies,
    Machine,
    Map,
    Nat,
    Not,
    Or,
    Relation,
    SetOf,
    Sort,
    SpecificationError,
    action,
    assumption,
    bit,
    cardinal,
    count,
    derived,
    exists,
    forall,
    invariant,
    rigid,
    state,
    step,
    total,
)  # fmt: skip
from kvspec.language.elaborate import elaborate
from kvspec.language.run import compile_machine
from kvspec.language.solver import initial, statement

Thing = Sort("Thing")


class Shelf(Machine):
    """Some things are good."""

    good = state(SetOf(Thing))
    open = state(Bool)

    def better(s, x):
        return And(s.good[x], s.open)

    @action
    def put(s, x: Thing):
        """Make a thing good."""
        s.require(Not(s.good[x]))
        s.good[x] = True

    @invariant("A1")
    def fine(s, x: Thing):
        """What is better is good."""
        return Implies(s.better(x), s.good[x])


def test_a_bound_variable_is_its_own() -> None:
    """However many helpers, laws and actions call something `x`."""

    class Named(Machine):
        x = state(Nat)
        good = state(SetOf(Thing))
        near = state(Relation(Thing, Thing))
        c = count(lambda s, x, j: bit(And(s.good[x], s.x == 0)), over=Thing, per=Nat, law="A1")

        def only(s, y):
            return forall(Thing, lambda x: Implies(x != y, Not(s.near[x, y])))

        @invariant("A2")
        def alone(s, x: Thing):
            """Only x itself is near x."""
            return Implies(s.good[x], s.only(x))

        @derived("A3")
        def between(s, x: Nat):
            """No number is as large as x."""
            return s.x != x

        @invariant("A4")
        def crossed(s, x: Thing):
            """Whoever is near something near x is x."""
            return forall(Thing, lambda y: Implies(exists(Thing, lambda x: And(s.near[y, x], x != y)), y != x))

    compiled = compile_machine(Named)
    at = compiled.start({"Thing": 2, "Nat": 2}, {})
    assert compiled.broken(at) == [("A3", "between")]
    at.x, at.good[0] = 5, True
    assert compiled.broken(at) == []
    at.near[1][0] = True
    assert compiled.broken(at) == [("A2", "alone"), ("A4", "crossed")]
    at.near, at.x = [[False, False], [False, False]], 0
    assert compiled.broken(at) == [("A1", "c_counts"), ("A3", "between")]
    s = Named.moment()
    solver = z3.Solver()
    one, other = z3.Consts("one other", Thing.z3)
    two_near = [s.good[one], s.near[other, one], one != other]
    solver.from_string(text(statement(Named.laws["alone"], s), *two_near))
    assert solver.check() == z3.unsat, "the text that solvers read keeps the names apart too"
    solver = z3.Solver()
    solver.add(statement(Named.laws["between"], s), s.x == 5)
    assert solver.check() == z3.unsat


def text(*facts: Any) -> str:
    solver = z3.Solver()
    solver.add(*facts)
    return str(solver.to_smt2())


def test_a_count_and_a_law_may_have_like_names() -> None:
    class Counted(Machine):
        good = state(SetOf(Thing))
        c = count(lambda s, x, j: bit(s.good[x]), over=Thing, per=Nat, law="A1")

        @invariant("A2")
        def c_counts(s):
            """Never so."""
            return s.c[0] == 1

    compiled = compile_machine(Counted)
    at = compiled.start({"Thing": 2, "Nat": 1}, {})
    assert compiled.broken(at) == [("A2", "c_counts")]
    at.c[0] = 1
    assert compiled.broken(at) == [("A1", "c_counts")]


# Extension


def test_what_a_parent_declared_keeps_its_meaning() -> None:
    def law(s: Any, x: Thing) -> Any:
        return Or(s.good[x], Not(s.good[x]))

    for name, item, message in (
        ("good", state(SetOf(Thing)), "Shelf2: state 'good' is declared by a parent already"),
        ("good", 3, "Shelf2: state 'good' is declared by a parent already"),
        ("fine", invariant("A1")(law), "Shelf2: Law 'fine' is declared by a parent already"),
        ("put", lambda s, x: None, "Shelf2: 'put' replaces an action; mark it with @action"),
        (
            "better",
            lambda s, x: s.open,
            "Shelf2: 'better' of a parent would change what inherited laws and actions mean",
        ),
        ("require", lambda s, x: None, "Shelf2: 'require' of a parent would change"),
        ("moment", state(Bool), "Shelf2: 'moment' of a parent would change"),
    ):
        with pytest.raises(SpecificationError, match=message):
            type("Shelf2", (Shelf,), {name: item})


def test_only_a_variant_replaces_a_helper_and_none_a_law() -> None:
    class Odd(Shelf, variant="odd#1", breaks="A1"):
        def better(s, x):
            return s.open

    assert (Odd.variant, Odd.breaks, Shelf.variant) == ("odd#1", "A1", "")
    with pytest.raises(SpecificationError, match="'fine' is declared by a parent already"):

        class Odder(Shelf, variant="odd#2"):
            @invariant("A1")
            def fine(s, x: Thing):
                """Weaker."""
                return Not(And(s.good[x], Not(s.good[x])))

    with pytest.raises(SpecificationError, match="'same' of a parent"):
        type("Odder", (Shelf,), {"same": lambda s, t: z3.BoolVal(True)}, variant="odd#3")


def test_two_parents_may_not_disagree() -> None:
    def put(s: Any, x: Thing) -> None:
        s.good[x] = True

    def law(s: Any) -> Any:
        return s.open

    def extended(name: str, item: Any) -> type[Machine]:
        return type("Half", (Shelf,), {name: item})

    for name, kind, left, right in (
        ("put", "action", extended("put", action(put)), Shelf),
        ("extra", "state", extended("extra", state(Bool)), extended("extra", state(Bool))),
        ("law", "Law", extended("law", invariant("A9")(law)), extended("law", invariant("A9")(law))),
    ):
        with pytest.raises(SpecificationError, match=f"Both: two parents have a {kind} {name!r}; rename one of them"):
            type("Both", (left, right), {})
    with pytest.raises(SpecificationError, match="'helper' of a parent would change"):
        type("Both", (extended("helper", law), extended("helper", lambda s: s.open)), {})
    both = type("Both", (extended("one", state(Bool)), extended("two", state(Bool))), {})
    assert both.variables.keys() == {"one", "two", *Shelf.variables}


@pytest.mark.parametrize("keywords", [{"on": ("putt",)}, {"unless": ("put", "putt")}])
def test_a_step_law_speaks_of_actions_that_exist(keywords: dict[str, Any]) -> None:
    def moves(s: Any, t: Any) -> Any:
        return t.same(s)

    law = step("A1", **keywords)(moves)
    with pytest.raises(SpecificationError, match=r"Shelf2.moves: there is no action 'putt'"):
        type("Shelf2", (Shelf,), {"moves": law})


def test_rigid_numbers_are_naturals() -> None:
    class Sized(Machine):
        slots = rigid(Nat)

    s = Sized.moment()
    solver = z3.Solver()
    solver.add(*initial(Sized, s), s.slots < 0)
    assert solver.check() == z3.unsat


def test_elaborating_again_says_the_same() -> None:
    """Nothing is left in a machine or in a moment by what was elaborated before."""
    first, moment = compile_machine(Shelf).source, Shelf.moment()
    acts = [elaborate(Shelf, "put", moment) for _ in range(3)]
    assert [(len(act.guards), len(act.writes)) for act in acts] == [(1, 1)] * 3
    assert (moment.guards, moment.writes) == ([], [])
    assert compile_machine(Shelf).source == first


# Algorithms, assumptions and cardinals


class Noted(Shelf, algorithm=True):
    """Keeps a note of its own, besides what is good."""

    note = state(Map(Thing, Nat))
    twin = state(SetOf(Thing))
    goods = total(Shelf.good)

    @action
    def put(s, x: Thing):
        """Note it."""
        super().put(x)
        s.require(s.note[x] == 0)
        s.note[x], s.note[x] = s.note[x] + 1, s.note[x] + 1


@pytest.mark.parametrize(
    ("careless", "message"),
    [
        (lambda s, x: s.require(s.good[x]), "put: good[x] reads the ghost 'good'"),
        (lambda s, x: s.expect(And(s.note[x] == 0, s.better(x)), "A1"), "reads the ghost"),
        (lambda s, x: s.note.__setitem__(x, If(s.open, 1, 2)), "If(open, 1, 2) reads the ghost 'open'"),
        (lambda s, x: setattr(s, "twin", lambda y: Or(s.twin[y], s.good[y])), "reads the ghost 'good'"),
        (lambda s, x: s.require(exists(Thing, lambda y: s.good[y])), "reads the ghost 'good'"),
        (lambda s, x: s.require(s.goods > 1), "reads the ghost 'goods'"),
    ],
)
def test_an_algorithm_decides_by_what_it_keeps_itself(careless: Any, message: str) -> None:
    def put(s: Any, x: Thing) -> None:
        Shelf.actions["put"].body(s, x)
        careless(s, x)

    with pytest.raises(SpecificationError, match=re.escape(message)):
        compile_machine(type("Noted2", (Noted,), {"put": action(put)}, algorithm=True, variant="noted#1"))


def test_an_algorithm_may_do_what_its_parent_does_and_read_its_own() -> None:
    compiled = compile_machine(Noted)
    at = compiled.start({"Thing": 2, "Nat": 2}, {})
    compiled.actions["put"](at, 1)
    assert (at.good, at.note, at.goods) == ([False, True], [0, 1], 1)


class Sized(Machine):
    """As many places as there are things."""

    things = cardinal(Thing)
    most = rigid(Nat)
    number = state(Nat)

    @assumption
    def few(s):
        """Not all of them."""
        return s.most < s.things

    @action
    def grow(s):
        """Up to the limit."""
        s.require(s.number < s.most)
        s.number = s.number + 1


def test_a_run_starts_with_rigid_values_that_meet_the_assumptions() -> None:
    compiled = compile_machine(Sized)
    at = compiled.start({"Thing": 3, "Nat": 1}, {"most": 2})
    assert (at.things, at.most, at.number) == (3, 2, 0)
    with pytest.raises(SpecificationError, match="Sized: the rigid values do not meet 'few'"):
        compiled.start({"Thing": 3, "Nat": 1}, {"most": 3})


def test_of_what_changes_nothing_is_assumed() -> None:
    def hope(s: Any) -> Any:
        return s.number <= s.most

    with pytest.raises(SpecificationError, match=r"Sized2.hope: an assumption speaks of rigid .* not of 'number'"):
        compile_machine(type("Sized2", (Sized,), {"hope": assumption(hope)}))
