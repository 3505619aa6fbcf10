"""Small scopes: quantifiers written out, counts exact, models read as states; on cases that can be checked by hand."""

import itertools
from typing import Any

import pytest
import z3
from kvspec.language import (
    And,
    Bool,
    Implies,
    Machine,
    Map,
    Nat,
    Not,
    Or,
    Relation,
    SetOf,
    SpecificationError,
    action,
    assumption,
    bit,
    cardinal,
    count,
    exists,
    forall,
    invariant,
    rigid,
    state,
    total,
)  # fmt: skip
from kvspec.language.counts import counts, facts, movements, totals
from kvspec.language.machine import no_truth
from kvspec.language.solver import in_domain, transition
from kvspec.pages import Entry, Page, Request
from kvspec.registry import ALGORITHMS, MACHINES, machine
from kvspec_proofs import finite
from kvspec_proofs.finite import Scope, assumed, counterexample
from kvspec_proofs.obligations import Obligation, fragment, obligations
from kvspec_proofs.scopes import scopes
from kvspec_proofs.solvers import ask_cvc5, ask_z3, smt_text

SIZES = {"Page": 3, "Request": 2, "Entry": 2, "Nat": 2}


class Tiny(Machine):
    """Who has what."""

    null = rigid(Page)
    has = state(Relation(Request, Page))
    n = count(lambda s, r, p: bit(s.has[r, p]), over=Request, per=Page, law="X1")
    row = state(Map(Request, Entry, Page))
    place = state(Map(Page, Entry))
    good = state(SetOf(Page))
    size = total(good)
    open = state(Bool)

    @action
    def put(s, r: Request, k: Entry, p: Page):
        """Put p at k."""
        s.require(s.has[r, p])
        s.row[r, k], s.good[p] = p, True

    @invariant("X2")
    def only_first(s, p: Page):
        """Only the null page is good."""
        return Implies(s.good[p], p == s.null)


def equal(one: Any, other: Any) -> bool:
    solver = z3.Solver()
    solver.add(one != other)
    return bool(solver.check() == z3.unsat)


def test_quantifiers_are_written_out() -> None:
    scope, s = Scope(Tiny, SIZES), Tiny.moment()
    pages, requests = scope.elements["Page"], scope.elements["Request"]
    every = scope.ground(forall(Page, lambda p: s.good[p]))
    assert equal(every, And(*[s.good[p] for p in pages]))
    some = scope.ground(exists(Request, Page, lambda r, p: s.has[r, p]))
    assert equal(some, Or(*[s.has[r, p] for r in requests for p in pages]))
    within = scope.ground(forall(Entry, lambda k: exists(Page, lambda p: Or(k > 0, s.row[requests[0], k] == p))))
    assert equal(within, Or(*[s.row[requests[0], 0] == p for p in pages]))
    alone = forall(Page, lambda p: Implies(s.good[p], forall(Page, lambda q: Or(p == q, Not(s.good[q])))))
    nested = scope.ground(alone)
    pairs = [Not(And(s.good[p], s.good[q])) for p, q in itertools.combinations(pages, 2)]
    assert z3_says(scope, nested != And(*pairs)) == "unsat"
    for written in (every, some, within, nested):
        assert "ForAll" not in str(written)
        assert "Exists" not in str(written)


def z3_says(scope: Scope, *formulas: Any) -> str:
    solver = z3.Solver()
    solver.add(*scope.distinct(), *formulas)
    return str(solver.check())


def test_elements_are_different_and_cells_hold_elements() -> None:
    scope, s = Scope(Tiny, SIZES), Tiny.moment()
    zero, one, two = scope.elements["Page"]
    assert z3_says(scope, zero == one) == "unsat"
    assert z3_says(scope, *scope.named(), s.null == one) == "unsat"
    elsewhere = [s.row[scope.elements["Request"][1], 1] != page for page in (zero, one, two)]
    assert z3_says(scope, *elsewhere) == "sat"
    assert z3_says(scope, *scope.closed(s), *elsewhere) == "unsat"
    assert z3_says(scope, *scope.closed(s), s.place[two] == 1) == "sat"
    assert z3_says(scope, *scope.closed(s), s.place[two] == 2) == "unsat"
    assert [index for index, _ in scope.cells(Tiny.row.kind, s.terms["row"])] == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_counts_and_totals_are_sums() -> None:
    scope, s = Scope(Tiny, SIZES), Tiny.moment()
    pages, requests = scope.elements["Page"], scope.elements["Request"]
    for bits in itertools.product([False, True], repeat=2):
        holders = [s.has[r, pages[1]] == z3.BoolVal(bit) for r, bit in zip(requests, bits, strict=True)]
        assert z3_says(scope, *scope.exact(s), *holders, s.n[pages[1]] == sum(bits)) == "sat"
        assert z3_says(scope, *scope.exact(s), *holders, s.n[pages[1]] != sum(bits)) == "unsat"
    members = [s.good[p] == z3.BoolVal(number != 1) for number, p in enumerate(pages)]
    assert z3_says(scope, *scope.exact(s), *members, s.size != 2) == "unsat"


def obligation(of: type[Machine], title: str) -> Obligation:
    (found,) = [each for each in obligations(of).proofs if each.title == title]
    return found


def test_a_counterexample_is_a_state_and_arguments() -> None:
    broken = obligation(Tiny, "Tiny.put: X2 only_first")
    found = counterexample(Tiny, broken, SIZES)
    assert found is not None
    (request, entry, page), before = found.args, found.before
    assert page in (1, 2), "page 0 is null"
    assert (before.null, before.has[request][page], before.good[1:]) == (0, True, [False, False])
    assert before.n == [sum(row[p] for row in before.has) for p in range(3)]
    assert before.size == sum(before.good)
    assert (len(before.row), len(before.row[0]), len(before.place), before.n_Page) == (2, 2, 3, 3)
    assert entry in (0, 1)
    assert counterexample(Tiny, broken, SIZES | {"Page": 1}) is None, "with the null page only there is none"
    assert counterexample(Tiny, obligation(Tiny, "Tiny.init: X2 only_first"), SIZES) is None, "it is about no step"


def test_a_finite_instance_that_is_not_decided_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tired(z3.Solver):  # type: ignore[misc]
        def check(self, *assumptions: Any) -> Any:
            return z3.unknown

        def reason_unknown(self) -> str:
            return "tired"

    monkeypatch.setattr(finite.z3, "Solver", Tired)
    with pytest.raises(AssertionError, match=r"Tiny.put: X2 only_first: z3 gave up on a finite instance \(tired\)"):
        counterexample(Tiny, obligation(Tiny, "Tiny.put: X2 only_first"), SIZES)


# Assumptions


class Ordered(Machine):
    """Pages in an order that is chosen before the run."""

    null = rigid(Page)
    pages = cardinal(Page)
    first = rigid(Page)
    low, high = rigid(Nat), rigid(Nat)

    @assumption
    def begins(s):
        """Not with the null page."""
        return And(s.first != s.null, s.low < s.high, s.high < s.pages)


def test_rigid_values_meet_the_assumptions() -> None:
    chosen = assumed(Ordered, {"Page": 3, "Nat": 2})
    assert (chosen["null"], chosen["pages"]) == (0, 3)
    assert chosen["first"] in (1, 2)
    assert 0 <= chosen["low"] < chosen["high"] < 3
    with pytest.raises(AssertionError, match="Ordered: nothing meets its assumptions at "):
        assumed(Ordered, {"Page": 1, "Nat": 2})


def test_of_what_an_action_may_change_nothing_is_assumed() -> None:
    class Hopes(Machine):
        """Assumes what it should prove."""

        good = state(SetOf(Page))

        @assumption
        def none(s, p: Page):
            """Hopefully."""
            return Not(s.good[p])

    for ask in (obligations, lambda of: assumed(of, {"Page": 2})):
        with pytest.raises(
            SpecificationError, match=r"Hopes.none: an assumption speaks of rigid variables, not of 'good'"
        ):
            ask(Hopes)


# Texts


def test_both_solvers_read_every_obligation() -> None:
    """Names that need quoting, nested quantifiers, arrays of arrays; the proofs of the machines read all the others."""
    for each in obligations(Tiny).proofs:
        text, holds = smt_text(each), each.title != "Tiny.put: X2 only_first"
        assert ask_z3(text) == ("unsat" if holds else "sat"), each.title
        assert ask_cvc5(text) in (("unsat",) if holds else ("sat", "unknown")), each.title


def test_what_is_not_smt_lib_is_an_error() -> None:
    with pytest.raises(z3.Z3Exception):
        ask_z3("(assert (= x y))")
    with pytest.raises(Exception, match="x"):
        ask_cvc5("(set-logic ALL)(assert (= x y))(check-sat)")
    assert ask_z3("(declare-const x Int)(assert (> x 0))(check-sat)") == "sat"
    assert ask_cvc5("(set-logic ALL)(declare-const x Int)(assert (and (> x 0) (< x 1)))(check-sat)") == "unsat"


def test_the_fragment_of_an_obligation() -> None:
    s = Tiny.moment()
    assert fragment([s.open, s.size > 1]) == "QF"
    assert fragment([s.open, forall(Page, lambda p: s.good[p])]) == "EPR"
    assert fragment([forall(Entry, lambda k: s.row[z3.Const("r", Request.z3), k] == s.null)]) == "beyond"
    assert fragment([forall(Page, lambda p: exists(Request, lambda r: s.has[r, p]))]) == "beyond"


# What proofs take for granted of counting


def possible(scope: Scope, *formulas: Any) -> bool:
    return z3_says(scope, *scope.named(), *[scope.ground(formula) for formula in formulas]) != "unsat"


@pytest.mark.parametrize("of", [Tiny, *map(machine, (*MACHINES, *ALGORITHMS))])
def test_the_facts_of_counting_hold_of_exact_sums(of: type[Machine]) -> None:
    for sizes in scopes(of) if of is not Tiny else [SIZES]:
        scope, moment = Scope(of, sizes), of.moment()
        with no_truth():
            natural = in_domain(of, moment).values()
            known, exact = facts(of, moment), [*natural, *scope.closed(moment), *scope.exact(moment)]
            assert not possible(scope, *exact, Not(And(*known)))
            for var in [*counts(of), *totals(of)]:
                value = moment.terms[var.name]
                more = value[scope.elements[var.per.name][0]] if isinstance(var, count) else value
                assert possible(scope, *exact, Not(And(*known, more <= 0))), "more is not known of them"


@pytest.mark.parametrize("of", [Tiny, *map(machine, ("deferred_free", *ALGORITHMS))])
def test_totals_move_as_exact_sums_do(of: type[Machine]) -> None:
    sizes = scopes(of)[-1] if of is not Tiny else SIZES
    scope = Scope(of, sizes)
    for name in of.actions:
        with no_truth():
            taken = transition(of, name)
            exact = [*scope.closed(taken.before), *scope.exact(taken.before), *scope.exact(taken.after)]
            inside = [scope.member(sort, const) for _, sort, const in taken.action.params]
            moved = movements(of, taken)
            assert moved
            assert possible(scope, *exact, *inside, *taken.updates), "the step can happen"
            assert not possible(scope, *exact, *inside, *taken.updates, Not(And(*moved)))
