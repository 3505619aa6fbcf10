"""Proves a machine, and shows why where it cannot: a counterexample at a small scope and the shortest run to one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain

from kvspec.language.machine import Machine

from kvspec_proofs.finite import Counterexample, counterexample
from kvspec_proofs.obligations import Obligation, entailments, obligations
from kvspec_proofs.scopes import of_counterexample, scopes, starts
from kvspec_proofs.search import Run, search
from kvspec_proofs.solvers import QUICK, ask_cvc5, ask_z3, smt_text

BUDGETS = (4_000, 40_000, 200_000)
"""Distinct states that each scope is searched to, round by round, until a run is found."""


@dataclass(frozen=True)
class Verdict:
    """What each solver said of the negated goal: `unsat` proves it, `sat` refutes it, `unknown` is a failure.

    When a counterexample at a small scope refutes it, z3 said `sat` of that finite instance and cvc5 was not asked.
    """

    obligation: Obligation
    z3: str
    cvc5: str
    refuted: Counterexample | None = None

    @property
    def proved(self) -> bool:
        return self.z3 == self.cvc5 == "unsat"


@dataclass(frozen=True)
class Proof:
    """The verdicts on every obligation of a machine; `skipped` pairs of action and law cannot meet."""

    machine: type[Machine]
    verdicts: tuple[Verdict, ...]
    skipped: int

    @property
    def failed(self) -> list[Verdict]:
        """What is not proved by both solvers, `unknown` included."""
        return [verdict for verdict in self.verdicts if not verdict.proved]

    @property
    def laws(self) -> dict[str, int]:
        """How many obligations each law has of its own."""
        found: dict[str, int] = {}
        for verdict in self.verdicts:
            found[verdict.obligation.law] = found.get(verdict.obligation.law, 0) + 1
        return found


def prove(
    machine: type[Machine], *, seed: int = 0, progress: Callable[[int, int, Obligation], None] | None = None
) -> Proof:
    """Decides every obligation of a machine."""
    listed = obligations(machine)
    verdicts = []
    for number, obligation in enumerate(listed.proofs):
        if progress:
            progress(number, len(listed.proofs), obligation)
        verdicts.append(decide(machine, obligation, seed=seed))
    for obligation in entailments(machine) if machine.variant else ():
        if found := refute(machine, obligation):
            verdicts.append(Verdict(obligation, "sat", "not asked", found))
    return Proof(machine, tuple(verdicts), listed.skipped)


def decide(machine: type[Machine], obligation: Obligation, *, seed: int = 0) -> Verdict:
    """Asks both solvers; where z3 hesitates, a counterexample at a small scope is looked for first."""
    text = smt_text(obligation)
    answer = ask_z3(text, seed, QUICK)
    if answer != "unsat":
        if found := refute(machine, obligation):
            return Verdict(obligation, "sat", "not asked", found)
        answer = ask_z3(text, seed)
    return Verdict(obligation, answer, ask_cvc5(text, seed))


def refuted(machine: type[Machine], law: str, *, seed: int = 0) -> Verdict | None:
    """The first obligation about a step that the law has of its own and that a counterexample refutes."""
    for obligation in (*obligations(machine).proofs, *entailments(machine)):
        if obligation.law == law and obligation.taken:
            verdict = decide(machine, obligation, seed=seed)
            if verdict.refuted:
                return verdict
    return None


def refute(machine: type[Machine], obligation: Obligation) -> Counterexample | None:
    """A counterexample of an obligation about a step, at the smallest scope that has one."""
    for sizes in scopes(machine):
        if found := counterexample(machine, obligation, sizes):
            return found
    return None


@dataclass(frozen=True)
class Reached:
    """A run from init to a step that breaks a law, shortest at its scope, and how many states were seen for it."""

    run: Run | None
    sizes: dict[str, int]
    states: int


def reach(
    machine: type[Machine], law: str, budgets: Sequence[int] = BUDGETS, near: Counterexample | None = None
) -> Reached:
    """Searches every scope, each round further, for the shortest run that breaks the law.

    First at the scope and with the rigid variables of a counterexample `near` it: a machine with assumptions has too
    many to try them all.
    """
    shown = [of_counterexample(machine, near)] if near and machine.of_kind("assumption") else []
    states = 0
    for budget in budgets:
        for sizes, rigid in chain(shown, starts(machine)):
            searched = search(machine, sizes, rigid, law=law, max_states=budget)
            states += searched.states
            if searched.run:
                return Reached(searched.run, sizes, states)
    return Reached(None, {}, states)
