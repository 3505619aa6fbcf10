"""Counters move by what their weights do, totals by what their sets do; what is only nearly right is not proved."""

import itertools
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
import z3
from kvspec.language import (
    And,
    If,
    Machine,
    Map,
    Not,
    Relation,
    SetOf,
    SpecificationError,
    action,
    bit,
    count,
    rigid,
    state,
    step,
    total,
)  # fmt: skip
from kvspec.language.counts import each_once
from kvspec.language.machine import no_truth
from kvspec.language.run import compile_machine
from kvspec.pages import Entry, Page, Request
from kvspec_proofs.obligations import footprint, obligations
from kvspec_proofs.prove import prove


class Counted(Machine):
    """Who has what, and how many have it: marks count once, stars twice."""

    has = state(Relation(Request, Page))
    star = state(Relation(Request, Page))
    n = count(lambda s, r, p: bit(s.has[r, p]) + 2 * bit(s.star[r, p]), over=Request, per=Page, law="X1")


def adding(*bodies: Callable[..., None], to: type[Machine] = Counted) -> type[Machine]:
    return type("Counting", (to,), {body.__name__: action(body) for body in bodies})


def failed(of: type[Machine]) -> set[str]:
    """What is not proved, without the machine's name; each refuted by z3, with a state where a step is concerned."""
    found = prove(of).failed
    assert all(verdict.z3 == "sat" for verdict in found)
    assert all(verdict.refuted for verdict in found if verdict.obligation.taken)
    return {verdict.obligation.title.partition(".")[2] for verdict in found}


# Right and wrong counters


def test_a_counter_that_is_kept_is_proved() -> None:
    def mark(s: Any, r: Request, p: Page) -> None:
        s.require(Not(s.has[r, p]))
        s.has[r, p], s.n[p] = True, s.n[p] + 1

    def award(s: Any, r: Request, p: Page) -> None:
        s.star[r, p], s.n[p] = True, s.n[p] + 2 * bit(Not(s.star[r, p]))

    def give(s: Any, r: Request, q: Request, p: Page) -> None:
        s.require(And(s.has[r, p], Not(s.has[q, p])))
        s.has[r, p], s.has[q, p] = False, True

    def swap(s: Any, r: Request, p: Page, q: Page) -> None:
        s.require(And(s.has[r, p], Not(s.has[r, q])))
        s.has[r, p], s.has[r, q] = False, True
        s.n[p], s.n[q] = s.n[p] - 1, s.n[q] + 1

    def lose(s: Any, r: Request) -> None:
        s.has[r] = lambda p: False
        s.n = lambda p: s.n[p] - bit(s.has[r, p])

    of = adding(mark, award, give, swap, lose)
    assert failed(of) == set()
    assert {each.name for each in obligations(of).proofs if each.action == "lose"} == {"n frame", "n delta"}


def forgotten(s: Any, r: Request, p: Page) -> None:
    s.require(Not(s.has[r, p]))
    s.has[r, p] = True


def twice(s: Any, r: Request, p: Page) -> None:
    s.require(Not(s.has[r, p]))
    s.has[r, p], s.n[p] = True, s.n[p] + 2


def marked_again(s: Any, r: Request, p: Page) -> None:
    """It may have been marked before."""
    s.has[r, p], s.n[p] = True, s.n[p] + 1


def starred_as_one(s: Any, r: Request, p: Page) -> None:
    s.require(Not(s.star[r, p]))
    s.star[r, p], s.n[p] = True, s.n[p] + 1


def both_new(s: Any, r: Request, q: Request, p: Page) -> None:
    """The two may be one."""
    s.require(And(Not(s.has[r, p]), Not(s.has[q, p])))
    s.has[r, p], s.has[q, p], s.n[p] = True, True, s.n[p] + 2


def same_page(s: Any, r: Request, p: Page, q: Page) -> None:
    """The two pages may be one, and the later assignment stands."""
    s.require(And(s.has[r, p], s.star[r, q]))
    s.has[r, p], s.star[r, q] = False, False
    s.n[p], s.n[q] = s.n[p] - 1, s.n[q] - 2


def elsewhere(s: Any, r: Request, p: Page, q: Page) -> None:
    s.require(Not(s.has[r, p]))
    s.has[r, p], s.n[q] = True, s.n[q] + 1


def unprovoked(s: Any, p: Page) -> None:
    s.n[p] = s.n[p] + 1


def all_of_one(s: Any, r: Request) -> None:
    """A row of them, counted as if each were there."""
    s.has[r] = lambda p: False
    s.n = lambda p: s.n[p] - 1


WRONG = [forgotten, twice, marked_again, starred_as_one, both_new, same_page, elsewhere, unprovoked, all_of_one]


@pytest.mark.parametrize("body", WRONG)
def test_a_counter_that_is_not_kept_is_refuted(body: Callable[..., None]) -> None:
    of = adding(body)
    assert failed(of) == {f"{body.__name__}: X1 n delta"}
    (verdict,) = prove(of).failed
    assert verdict.refuted is not None
    compiled, after = compile_machine(of), verdict.refuted.before.copy()
    assert compiled.broken(after) == []
    compiled.actions[body.__name__](after, *verdict.refuted.args)
    assert ("X1", "n_counts") in compiled.broken(after), "the exact sum says so too"


def test_two_that_differ_may_be_counted_together() -> None:
    def both_new(s: Any, r: Request, q: Request, p: Page) -> None:
        s.require(And(r != q, Not(s.has[r, p]), Not(s.has[q, p])))
        s.has[r, p], s.has[q, p], s.n[p] = True, True, s.n[p] + 2

    assert failed(adding(both_new)) == set()


def test_each_touched_element_counts_once() -> None:
    """Against the plain definition: the sum over the set of the elements."""
    random = Random(5)
    for size in range(5):
        terms = [z3.Int(f"t{place}") for place in range(size)]
        with no_truth():
            sum_ = each_once(terms, lambda t: 10 * t + 1)
        for _ in range(20):
            values = [random.randrange(3) for _ in terms]
            numbers = [(term, z3.IntVal(value)) for term, value in zip(terms, values, strict=True)]
            expected = sum(10 * value + 1 for value in set(values))
            assert z3.simplify(z3.substitute(sum_, *numbers)).as_long() == expected


def test_a_counter_begins_at_nothing() -> None:
    class Begun(Machine):
        """Somebody has something from the start."""

        has = state(Relation(Request, Page), init=lambda s, r, p: z3.BoolVal(True))
        n = count(lambda s, r, p: bit(s.has[r, p]), over=Request, per=Page, law="X1")

    assert failed(Begun) == {"init: X1 n counts"}


def test_a_weight_below_zero_would_let_parts_exceed_the_whole() -> None:
    class Balance(Machine):
        """What some have and others owe."""

        has, owes = state(SetOf(Request)), state(SetOf(Request))
        n = count(lambda s, r, p: bit(s.has[r]) - bit(s.owes[r]), over=Request, per=Page, law="X1")

        @action
        def owe(s, r: Request):
            """One more owes."""
            s.require(Not(s.owes[r]))
            s.owes[r] = True
            s.n = lambda p: s.n[p] - 1

    assert "*: X1 n weighs naturals" in failed(Balance)


# Which elements are touched


def test_elements_that_are_not_named_cannot_be_counted() -> None:
    def all_marked(s: Any, p: Page) -> None:
        s.has = lambda r, q: q == p

    with pytest.raises(
        SpecificationError, match="all_marked: the delta rule needs has assigned at named Requests only"
    ):
        obligations(adding(all_marked))

    class Pairs(Machine):
        """A weight that reads a variable at two elements of its sort."""

        near = state(Relation(Request, Request))
        n = count(lambda s, r, p: bit(s.near[r, r]), over=Request, per=Page, law="X1")

        @action
        def join(s, r: Request):
            """Near itself."""
            s.near[r, r] = True

    with pytest.raises(SpecificationError, match="join: the delta rule needs near assigned"):
        obligations(Pairs)


@pytest.mark.parametrize("name", ["r", "x", "j", "y", "p"])
def test_a_weight_that_looks_elsewhere_fails_the_frame_whatever_the_parameter_is_called(name: str) -> None:
    """With leaders, a request's weight changes though the request is not touched."""

    class Led(Machine):
        """Counts the requests whose leader is up."""

        up = state(SetOf(Request))
        leader = rigid(Map(Request, Request))
        n = count(lambda s, r, p: bit(s.up[s.leader[r]]), over=Request, per=Page, law="X1")

    def rise(s: Any, who: Request) -> None:
        s.up[who] = True
        s.n = lambda p: s.n[p] + If(s.leader[who] == who, bit(Not(s.up[who])), 0)

    space: dict[str, Any] = {"rise": rise, "Request": Request}
    exec(f"def stand(s, {name}: Request): rise(s, {name})", space)
    assert failed(adding(space["stand"], to=Led)) == {"stand: X1 n frame"}


def test_a_weight_may_itself_be_counted() -> None:
    """What a counter speaks of is unfolded to the end, so that no action that changes it is skipped."""

    class Tower(Machine):
        """A counter whose weights depend on a total."""

        up, has = state(SetOf(Page)), state(SetOf(Request))
        tall = total(up)
        n = count(lambda s, r, p: bit(And(s.has[r], s.tall > 0)), over=Request, per=Page, law="X1")

        @action
        def rise(s, q: Page):
            """A page goes up."""
            s.up[q] = True

    moment = Tower.moment()
    assert footprint(Tower, moment.terms["n"]) == {"n", "has", "tall", "up"}
    assert {verdict.obligation.title for verdict in prove(Tower).failed} >= {"Tower.rise: X1 n frame"}


def test_what_is_assigned_must_exist() -> None:
    class Beside(Machine):
        """Counts marks at entries, one of which may be entry -1."""

        at = state(SetOf(Entry))
        n = count(lambda s, k, p: bit(s.at[k]), over=Entry, per=Page, law="X1")

        @action
        def before(s, k: Entry):
            """Mark the entry before k."""
            s.require(Not(s.at[k - 1]))
            s.at[k - 1] = True
            s.n = lambda p: s.n[p] + 1

        @action
        def safe(s, k: Entry):
            """Mark the entry before k, if there is one."""
            s.require(And(k > 0, Not(s.at[k - 1])))
            s.at[k - 1] = True
            s.n = lambda p: s.n[p] + 1

    assert failed(Beside) == {"before: domain indices"}


# Totals


class Stock(Machine):
    """A set, how many are in it, and a note of how many there were."""

    good = state(SetOf(Page))
    size = total(good)

    def taken(s, t, by):
        return t.size == s.size + by


def stocked(body: Callable[..., None], law: Callable[..., Any]) -> set[str]:
    law.__name__ = "law"
    return failed(type("Counting", (Stock,), {"act": action(_named(body, "act")), "law": step("X2", on=("act",))(law)}))


def _named(body: Callable[..., None], name: str) -> Callable[..., None]:
    body.__name__ = name
    return body


def test_a_total_moves_by_the_elements_that_change() -> None:
    def put(s: Any, p: Page) -> None:
        s.require(Not(s.good[p]))
        s.good[p] = True

    def put_again(s: Any, p: Page) -> None:
        s.good[p] = True

    def put_two(s: Any, p: Page, q: Page) -> None:
        s.require(And(Not(s.good[p]), Not(s.good[q])))
        s.good[p], s.good[q] = True, True

    def put_and_take(s: Any, p: Page) -> None:
        s.require(s.good[p])
        s.good[p], s.good[p] = True, False

    one_more: Callable[..., Any] = lambda s, t: s.taken(t, 1)  # noqa: E731
    two_more: Callable[..., Any] = lambda s, t: s.taken(t, 2)  # noqa: E731
    one_less: Callable[..., Any] = lambda s, t: s.taken(t, -1)  # noqa: E731
    assert stocked(put, one_more) == set()
    assert stocked(put_again, one_more) == {"act: X2 law"}
    assert stocked(put_two, two_more) == {"act: X2 law"}
    assert stocked(put_and_take, one_less) == set()
    assert stocked(put_and_take, one_more) == {"act: X2 law"}


def test_a_total_of_a_set_that_changes_in_bulk_moves_by_inclusion() -> None:
    def more(s: Any, p: Page) -> None:
        s.good = lambda q: z3.Or(s.good[q], q == p)

    def fewer(s: Any, p: Page) -> None:
        s.good = lambda q: And(s.good[q], q != p)

    def other(s: Any, p: Page) -> None:
        s.good = lambda q: q == p

    def then_one(s: Any, p: Page) -> None:
        s.good = lambda q: s.good[q]
        s.good[p] = True

    laws: dict[str, Callable[..., Any]] = {
        "no less": lambda s, t: t.size >= s.size,
        "no more": lambda s, t: t.size <= s.size,
        "less": lambda s, t: t.size < s.size,
    }
    expected = {more: {"no less"}, fewer: {"no more"}, other: set(), then_one: {"no less"}}
    for body, law in itertools.product(expected, laws):
        assert (stocked(body, laws[law]) == set()) == (law in expected[body]), (body.__code__.co_name, law)


def test_a_total_knows_one_and_two_elements() -> None:
    class Known(Stock):
        """What is always so of a total, and what is not."""

        @action
        def put(s, p: Page):
            """Put p in."""
            s.good[p] = True

        @step("X2")
        def one(s, t, p: Page):
            """An element is one."""
            return z3.Implies(t.good[p], t.size >= 1)

        @step("X3")
        def two(s, t, p: Page, q: Page):
            """Two elements are two."""
            return z3.Implies(And(t.good[p], t.good[q], p != q), t.size >= 2)

        @step("X4")
        def three(s, t, p: Page, q: Page):
            """Two elements are not three."""
            return z3.Implies(And(t.good[p], t.good[q], p != q), t.size >= 3)

    assert failed(Known) == {"put: X4 three", "*: X4 three where nothing moves"}
