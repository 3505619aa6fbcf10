"""Judges the mutants of a machine by proof, by search and in lockstep; what none of these sees is a survivor.

By proof: an obligation of the mutated action is refuted at a small scope. By search: a run from the initial state
breaks a law. In lockstep: what the reference does differs from what the mutant allows or does; this part is passed in,
since the proofs do not import the reference. A survivor needs a reason: see `survivors`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

from kvspec.language.machine import Machine
from kvspec.language.run import Compiled, OutOfScope, State, arguments, compile_machine

from kvspec_proofs.finite import Counterexample, counterexample_of_any
from kvspec_proofs.mutants import STRENGTHENED, Mutant
from kvspec_proofs.obligations import obligations
from kvspec_proofs.scopes import scopes, starts
from kvspec_proofs.search import key, successors
from kvspec_proofs.solvers import ask_z3, smt_text

FEW = 200_000
"""Resource units of z3, enough for what holds; where they run out, a counterexample is looked for first."""

STATES, FIRST = 400, 2_500
"""Distinct states of each start from which a mutated action is tried, and of the first two if they are of the first
scope. Of states that only the mutant reaches, `STATES` in all are searched on."""

STARTS = 8
"""From so many starts: a machine with assumptions has many."""

Lockstep = Callable[[type[Machine], Sequence[Mutant]], Mapping[str, str]]
"""By name, those mutants that the reference meets in lockstep, and where."""


@dataclass(frozen=True)
class Judged:
    """What was found of a mutant: an obligation that is refuted, the law that a run breaks, where the reference met it.

    Each is empty where there is nothing of the kind. `undecided` are obligations that are neither proved nor refuted;
    a mutant that is `unknown` to the solver is not killed by that.
    """

    mutant: Mutant
    proof: str
    search: str
    lockstep: str
    undecided: tuple[str, ...] = ()

    @property
    def survives(self) -> bool:
        return not (self.proof or self.search or self.lockstep)


def judge(machine: type[Machine], mutants: Sequence[Mutant], lockstep: Lockstep | None = None) -> list[Judged]:
    """Judges mutants of one machine, in their order.

    A strengthened guard only forbids: all that is proved of a machine is proved of the mutant, and the reference alone
    can meet it. It is asked for any other mutant that no search has met.
    """
    found = [Judged(mutant, "", "", "") if mutant.kind == STRENGTHENED else unaided(mutant) for mutant in mutants]
    unseen = [each.mutant for each in found if not each.search]
    met = lockstep(machine, unseen) if lockstep and unseen else {}
    return [
        Judged(each.mutant, each.proof, each.search, met.get(each.mutant.name, ""), each.undecided) for each in found
    ]


def unaided(mutant: Mutant) -> Judged:
    """By proof and by search."""
    refuted, undecided = by_proof(mutant)
    return Judged(mutant, refuted.obligation.title if refuted else "", by_search(mutant), "", tuple(undecided))


def by_proof(mutant: Mutant) -> tuple[Counterexample | None, list[str]]:
    """A counterexample of an obligation of the mutated action, or what is neither proved nor refuted.

    An action that changes nothing any more may have no obligations.
    """
    listed = [each for each in obligations(mutant.machine, mutant.action).proofs if each.taken]
    first, *larger = scopes(mutant.machine)
    if not listed:
        return None, []
    if found := counterexample_of_any(mutant.machine, listed, first):
        return found, []
    hesitant = [each for each in listed if ask_z3(smt_text(each), limit=FEW) != "unsat"]
    for sizes in larger if hesitant else ():
        if found := counterexample_of_any(mutant.machine, hesitant, sizes):
            return found, []
    return None, [each.title for each in hesitant if ask_z3(smt_text(each)) != "unsat"]


def by_search(mutant: Mutant) -> str:
    """The law that a run of the mutant breaks, or nothing.

    What the original does keeps every law, as is proved. So only steps of the mutated action are judged, and of those
    from a state that the original reaches only the ones that it would not take.
    """
    (original_machine,) = mutant.machine.__bases__
    original, changed = compiled(original_machine), compile_machine(mutant.machine)
    beyond: dict[Any, State] = {}
    for state in reached(original_machine):
        for args, after in taken(changed, mutant.action, state):
            if again(original, mutant.action, args, state, after):
                continue
            if broken := original.judge(state, mutant.action, args, after):
                return " ".join(broken[0])
            beyond.setdefault((tuple(sizes(state)), key(original, after)), after)
    return onward(original, changed, mutant.action, beyond)


def onward(original: Compiled, changed: Compiled, action: str, beyond: dict[Any, State]) -> str:
    """The law that a run breaks from states that only the mutant reaches, or nothing."""
    level = list(beyond.values())
    seen, limit = set(beyond), len(beyond) + STATES
    while level and len(seen) < limit:
        following = []
        for state in level:
            for name in changed.actions:
                for args, after in taken(changed, name, state):
                    if name == action and (broken := original.judge(state, name, args, after)):
                        return " ".join(broken[0])
                    if (found := (tuple(sizes(state)), key(original, after))) not in seen:
                        seen.add(found)
                        following.append(after)
            if len(seen) >= limit:
                break
        level = following
    return ""


def taken(of: Compiled, action: str, state: State) -> Iterator[tuple[tuple[int, ...], State]]:
    """Every step of an action from a state; a mutant may leave the scope, which is no step of it."""
    for args in arguments(of, action, state):
        after = state.copy()
        try:
            if not of.enabled[action](state, *args):
                continue
            of.actions[action](after, *args)
        except (OutOfScope, IndexError):
            continue
        yield args, after


def again(original: Compiled, action: str, args: tuple[int, ...], state: State, after: State) -> bool:
    """Whether the original takes the same step."""
    if not original.enabled[action](state, *args):
        return False
    same = state.copy()
    original.actions[action](same, *args)
    return bool(key(original, same) == key(original, after))


def sizes(state: State) -> list[int]:
    """How many elements each sort has."""
    return [size for name, size in vars(state).items() if name.startswith("n_")]


@cache
def compiled(machine: type[Machine]) -> Compiled:
    """A machine that is no mutant, compiled once."""
    return compile_machine(machine)


@cache
def reached(machine: type[Machine]) -> tuple[State, ...]:
    """The first states that a search of each start meets."""
    original = compile_machine(machine)
    found: list[State] = []
    for number, (chosen, rigid) in enumerate(islice(starts(machine), STARTS)):
        limit = FIRST if number < 2 and chosen == scopes(machine)[0] else STATES
        start = original.start(chosen, rigid)
        states = {key(original, start): start}
        level = [start]
        while level and len(states) < limit:
            following = []
            for state in level:
                for _, _, after in successors(original, state):
                    if (name := key(original, after)) not in states:
                        states[name] = after
                        following.append(after)
                if len(states) >= limit:
                    break
            level = following
        found += states.values()
    return tuple(found)
