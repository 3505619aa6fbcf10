"""A machine that extends another keeps what it does, and no law is passed over by the way it is written."""

from typing import Any

import pytest
from kvspec.language import (
    And,
    If,
    Implies,
    Index,
    Machine,
    Map,
    Nat,
    Not,
    Relation,
    SetOf,
    SpecificationError,
    action,
    exists,
    forall,
    invariant,
    rigid,
    state,
    step,
    total,
)  # fmt: skip
from kvspec.pages import Entry, Page, Request
from kvspec_proofs.obligations import obligations
from kvspec_proofs.prove import prove


class Base(Machine):
    """Things are put into a set, and rows of notes are kept."""

    good, other = state(SetOf(Page)), state(SetOf(Page))
    note = state(Map(Request, Entry, Nat))
    size = total(good)

    @action
    def put(s, p: Page):
        """Put p in."""
        s.require(Not(s.good[p]))
        s.good[p] = True

    @action
    def clear(s, r: Request, k: Entry):
        """Forget a row's notes from k on."""
        s.note[r] = lambda j: If(j < k, s.note[r, j], 0)
        s.good = lambda p: And(s.good[p], s.other[p])


def extended(**items: Any) -> type[Machine]:
    return type("Extended", (Base,), items)


def failed(of: type[Machine]) -> set[str]:
    found = prove(of).failed
    assert all(verdict.z3 == "sat" for verdict in found)
    return {verdict.obligation.title.partition(".")[2] for verdict in found}


def checked(of: type[Machine]) -> set[str]:
    return {f"{each.action}: {each.name}" for each in obligations(of).proofs if each.law == "superposition"}


def test_what_refines_is_proved() -> None:
    class Extended(Base):
        """Also notes what was put."""

        seen = state(SetOf(Page))

        @action
        def put(s, p: Page):
            """Only once, and noted."""
            super().put(p)
            s.require(Not(s.seen[p]))
            s.seen[p] = True

        @action
        def clear(s, r: Request, k: Entry):
            """Said in other words."""
            s.note[r] = lambda j: If(k <= j, 0, s.note[r, j])
            s.good = lambda q: And(s.other[q], s.good[q])

        @action
        def look(s, p: Page):
            """A new action may do anything that keeps the laws."""
            s.good[p] = True

    assert failed(Extended) == set()
    assert checked(Extended) == {
        f"{name}: {part} of Base" for name in ("put", "clear") for part in ("guard", "updates")
    }  # fmt: skip


def weaker_guard(s: Any, p: Page) -> None:
    s.good[p] = True


def other_value(s: Any, p: Page) -> None:
    s.require(Not(s.good[p]))
    s.good[p] = False


def other_element(s: Any, p: Page, q: Page) -> None:
    s.require(And(Not(s.good[p]), Not(s.good[q])))
    s.good[q] = True


def one_more(s: Any, p: Page, q: Page) -> None:
    s.require(And(Not(s.good[p]), Not(s.good[q])))
    s.good[p], s.good[q] = True, True


def also_another_variable(s: Any, p: Page) -> None:
    """One that the parent's action leaves alone."""
    s.require(Not(s.good[p]))
    s.good[p], s.other[p] = True, True


def undone(s: Any, p: Page) -> None:
    s.require(Not(s.good[p]))
    s.good[p] = True
    s.good[p] = s.good[p]


def renamed(s: Any, q: Page) -> None:
    """The parameter of the parent is anything then."""
    s.require(Not(s.good[q]))
    s.good[q] = True


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (weaker_guard, {"guard"}), (other_value, {"updates"}), (other_element, {"updates"}), (one_more, {"updates"}),
        (also_another_variable, {"updates"}), (undone, {"updates"}), (renamed, {"guard", "updates"}),
    ],
)  # fmt: skip
def test_what_does_something_else_is_refuted(body: Any, parts: set[str]) -> None:
    body.__name__ = "put"
    of = extended(put=action(body))
    assert failed(of) == {f"put: superposition {part} of Base" for part in parts}
    assert all(verdict.refuted for verdict in prove(of).failed), "with a state and a step"


def test_a_bulk_update_is_compared_cell_by_cell() -> None:
    def clear(s: Any, r: Request, k: Entry) -> None:
        s.note[r] = lambda j: If(j < k, s.note[r, j], 0)
        s.good = lambda p: And(s.good[p], s.other[p], s.size > 0)

    def clear_note(s: Any, r: Request, k: Entry) -> None:
        s.note[r] = lambda j: If(j <= k, s.note[r, j], 0)
        s.good = lambda p: And(s.good[p], s.other[p])

    clear_note.__name__ = "clear"
    assert failed(extended(clear=action(clear))) == set(), "who has an element is not empty"
    assert failed(extended(clear=action(clear_note))) == {"clear: superposition updates of Base"}


def test_a_variant_need_not_refine() -> None:
    def put(s: Any, p: Page) -> None:
        s.good[p] = False

    bug = type("Bug", (Base,), {"put": action(put)}, variant="bug#1")
    assert checked(bug) == set()
    assert failed(bug) == set()


# Step laws where nothing moves


class Clock(Machine):
    """Two numbers that grow, each by its own action."""

    hour, minute = state(Nat), state(Nat)

    @action
    def tick(s):
        """A minute."""
        s.minute = s.minute + 1

    @action
    def strike(s):
        """An hour."""
        s.hour = s.hour + 1


def test_a_step_law_that_asks_for_change_is_not_passed_over() -> None:
    def moves(s: Any, t: Any) -> Any:
        return t.hour > s.hour

    def grows(s: Any, t: Any) -> Any:
        return t.hour >= s.hour

    def of(law: Any) -> type[Machine]:
        return type("Timed", (Clock,), {law.body.__name__: law})

    assert failed(of(step("X1")(moves))) == {"*: X1 moves where nothing moves"}
    assert failed(of(step("X1", unless=("tick",))(moves))) == {"*: X1 moves where nothing moves"}
    assert failed(of(step("X1", on=("strike",))(moves))) == set()
    assert failed(of(step("X1", on=("strike", "tick"))(moves))) == {"tick: X1 moves"}
    assert failed(of(step("X1")(grows))) == set()
    assert {each.action for each in obligations(of(step("X1")(grows))).proofs if each.name == "grows"} == {"strike"}


def test_a_law_on_some_actions_is_proved_though_they_touch_nothing_of_it() -> None:
    def same_hour(s: Any, t: Any) -> Any:
        return And(t.hour == s.hour, s.hour == 0)

    of = type("Timed", (Clock,), {"same_hour": step("X1", on=("tick",))(same_hour)})
    assert failed(of) == {"tick: X1 same_hour"}


def test_a_law_about_a_total_is_not_passed_over() -> None:
    def none(s: Any, t: Any) -> Any:
        return t.size <= 0

    def still(s: Any, t: Any) -> Any:
        return t.size == s.size

    assert failed(extended(none=step("X1", unless=("put",))(none))) == {
        "clear: X1 none",
        "*: X1 none where nothing moves",
    }
    assert failed(extended(still=step("X1")(still))) == {"put: X1 still", "clear: X1 still"}


def test_parameters_of_a_step_law_are_the_actions_where_every_action_has_them() -> None:
    def puts_it(s: Any, t: Any, p: Page) -> Any:
        return t.good[p]

    on_put = type("One", (Base,), {"puts_it": step("X1", on=("put",))(puts_it)})
    on_any = type("Two", (Base,), {"puts_it": step("X1")(puts_it)})
    assert failed(on_put) == set()
    assert failed(on_any) == {"put: X1 puts_it", "clear: X1 puts_it", "*: X1 puts_it where nothing moves"}


# Names


def test_bound_names_catch_no_others() -> None:
    class Named(Machine):
        """Helpers, laws and an action that call everything `p`."""

        good = state(SetOf(Page))

        def only(s, q):
            return forall(Page, lambda p: Implies(p != q, Not(s.good[p])))

        def some_other(s, q):
            return exists(Page, lambda p: And(p != q, s.good[p]))

        @action
        def put(s, p: Page):
            """Nothing keeps a second one out."""
            s.good[p] = True

        @action
        def last(s, p: Page):
            """Take p out if it is the only one."""
            s.require(And(s.good[p], s.only(p)))
            s.good[p] = False

        @invariant("X1")
        def alone(s, p: Page):
            """It is not."""
            return Implies(s.good[p], s.only(p))

        @step("X2", on=("last",))
        def gone(s, t, p: Page):
            """Then nothing is left."""
            return Not(t.some_other(p))

    assert failed(Named) == {"put: X1 alone"}


def test_a_law_may_call_a_number_like_a_variable() -> None:
    class Numbered(Machine):
        """The law speaks of every n, not of the variable's value."""

        n = state(Nat)

        @invariant("X1")
        def small(s, n: Nat):
            """It is not below every number."""
            return s.n <= n

        @action
        def grow(s):
            """One more."""
            s.n = s.n + 1

    assert failed(Numbered) == {"grow: X1 small"}


# Domains


def test_numbers_stay_naturals_without_help_from_what_counting_knows() -> None:
    class Debt(Machine):
        """A number that may go below nothing."""

        n, low = state(Nat), rigid(Nat)

        @action
        def pay(s, k: Entry):
            """Too much, perhaps."""
            s.n = s.n - k

        @action
        def keep(s, k: Entry):
            """Never too much."""
            s.require(s.n >= k + s.low)
            s.n = s.n - k

    assert failed(Debt) == {"pay: domain n"}
    (domain,) = [each for each in obligations(Debt).proofs if each.title == "Debt.init: domain low"]
    assert domain.action == "init"


def test_a_machine_without_sizes_says_which_sort_needs_one() -> None:
    shelf = Index("Shelf")

    class Unsized(Machine):
        """Of a sort that no scope knows."""

        good = state(Relation(shelf, Page))

        @invariant("X1")
        def full(s, p: Page):
            """It is not."""
            return s.good[0, p]

        @action
        def put(s, p: Page):
            """Take the first out."""
            s.good[0, p] = False

    with pytest.raises((LookupError, SpecificationError), match="no size for the sort Shelf"):
        prove(Unsized)
