"""Every obligation of every machine is proved by both solvers, and none of them because nothing can happen."""

from functools import cache

import pytest
import z3
from kvspec.language import Machine, Not, SetOf, action, derived, invariant, state, step
from kvspec.language.machine import count
from kvspec.language.run import State
from kvspec.pages import Page
from kvspec.registry import ALGORITHMS, MACHINES, machine
from kvspec_proofs.obligations import Obligation, obligations
from kvspec_proofs.prove import Proof, prove
from kvspec_proofs.scopes import starts
from kvspec_proofs.search import search
from kvspec_proofs.solvers import QUICK, ask_cvc5, ask_z3, cvc5_proof, smt_text


@cache
def proof(name: str) -> Proof:
    return prove(machine(name))


@pytest.mark.parametrize("name", [*MACHINES, *ALGORITHMS])
def test_both_solvers_prove_everything(name: str) -> None:
    verdicts = [(verdict.obligation.title, verdict.z3, verdict.cvc5) for verdict in proof(name).verdicts]
    assert [verdict for verdict in verdicts if verdict[1:] != ("unsat", "unsat")] == []
    assert len({title for title, _, _ in verdicts}) == len(verdicts), "an obligation's title names it"


@pytest.mark.parametrize("name", [*MACHINES, *ALGORITHMS])
def test_every_law_has_an_obligation_of_its_own(name: str) -> None:
    of = machine(name)
    proved = {(verdict.obligation.law, verdict.obligation.name) for verdict in proof(name).verdicts}
    for law in of.laws.values():
        if law.kind not in ("claim", "assumption"):
            assert (law.law, law.name) in proved
    for var in of.variables.values():
        if isinstance(var, count):
            assert {(var.law, f"{var.name} {part}") for part in ("frame", "delta", "counts")} <= proved
    assert proof(name).laws.keys() >= {law.law for law in of.laws.values() if law.kind not in ("claim", "assumption")}


def contradictions(of: type[Machine]) -> list[str]:
    """Obligations that hold of anything, since their facts hold of nothing."""
    found: list[str] = []
    asked: set[str] = set()
    for each in obligations(of).proofs:
        text = smt_text(Obligation(each.machine, each.action, each.law, each.name, each.facts, z3.BoolVal(False)))
        if text not in asked and ask_z3(text, limit=QUICK // 4) == "unsat":
            found.append(each.title)
        asked.add(text)
    return found


def never(of: type[Machine]) -> set[str]:
    """Actions that no run takes, as far as the search goes."""
    left = set(of.actions)

    def all_seen(_before: State, action: str, _args: tuple[int, ...], _after: State) -> bool:
        left.discard(action)
        return not left

    for sizes, rigid in starts(of):
        search(of, sizes, rigid, goal=all_seen, max_states=4_000)
    return left


@pytest.mark.parametrize("name", [*MACHINES, *ALGORITHMS])
def test_no_facts_contradict_each_other(name: str) -> None:
    assert contradictions(machine(name)) == []


@pytest.mark.parametrize("name", [*MACHINES, *ALGORITHMS])
def test_every_action_can_happen(name: str) -> None:
    assert never(machine(name)) == set()


def test_what_cannot_happen_is_noticed() -> None:
    class Stuck(Machine):
        """One action contradicts itself, and another waits for what no action does."""

        a, b = state(SetOf(Page)), state(SetOf(Page))

        @action
        def contradict(s, p: Page):
            """Never."""
            s.require(s.a[p])
            s.require(Not(s.a[p]))
            s.b[p] = True

        @action
        def wait(s, p: Page):
            """Not from the start."""
            s.require(s.a[p])
            s.b[p] = True

        @invariant("X1")
        def fine(s, p: Page):
            """Only what cannot happen would break it."""
            return Not(s.b[p])

    assert [title for title in contradictions(Stuck)] == ["Stuck.contradict: X1 fine"]
    assert never(Stuck) == {"contradict", "wait"}


def test_what_is_not_so_is_not_proved() -> None:
    class Wrong(Machine):
        """Nothing that is claimed of it is so."""

        a = state(SetOf(Page))

        @action
        def put(s, p: Page):
            """Put p in."""
            s.a[p] = True

        @invariant("X1")
        def empty(s, p: Page):
            """It is not."""
            return Not(s.a[p])

        @derived("X2")
        def full(s, p: Page):
            """Nor this."""
            return s.a[p]

        @step("X3")
        def still(s, t, p: Page):
            """Nor this."""
            return s.a[p] == t.a[p]

    failed = {verdict.obligation.title: (verdict.z3, verdict.refuted is not None) for verdict in prove(Wrong).failed}
    assert failed == {
        "Wrong.put: X1 empty": ("sat", True), "Wrong.put: X3 still": ("sat", True), "Wrong.*: X2 full": ("sat", False),
    }  # fmt: skip


def test_a_solver_that_gives_up_proves_nothing() -> None:
    (hard, *_) = [each for each in obligations(machine("deferred_free")).proofs if each.name == "others_keep"]
    assert ask_z3(smt_text(hard)) == ask_cvc5(smt_text(hard)) == "unsat"
    assert ask_z3(smt_text(hard), limit=10) == "unknown"


def test_a_proof_of_cvc5_is_complete_and_of_nothing_else() -> None:
    (short, *_) = [
        each for each in obligations(machine("pages")).proofs if each.title == "Pages.refuse: O5 refused_rightly"
    ]
    written = cvc5_proof(smt_text(short))
    assert "(assume" in written
    assert ":rule trust" not in written
    with pytest.raises(RuntimeError, match="proof"):
        cvc5_proof(smt_text(Obligation("", "", "", "", (), z3.BoolVal(False))))


def test_the_same_question_reads_the_same_whatever_was_asked_before() -> None:
    texts = [[str([*each.facts, each.goal]) for each in obligations(machine("pages")).proofs] for _ in range(2)]
    assert texts[0] == texts[1]
