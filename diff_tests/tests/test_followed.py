"""Mutants of the specification that the reference meets in lockstep: all that are strengthened, or a reason is listed.

Every mutant is judged, by proof and by search too, in `make nightly`.
"""

from collections.abc import Callable

import pytest
from kvspec.language import Bool, Machine, action, state
from kvspec.language.run import compile_machine
from kvspec.registry import ALGORITHMS, MACHINES, machine
from kvspec_diff.followed import follow, followed, met, recorded
from kvspec_proofs.judged import judge
from kvspec_proofs.mutants import ASSIGNMENT, NEGATED, STRENGTHENED, Mutant, own_mutants
from kvspec_proofs.survivors import named, reasons, stale, tally, unexplained

EVERY = (*MACHINES, *ALGORITHMS)

Record = Callable[[str, object], None]


def mutants(name: str, *kinds: str) -> list[Mutant]:
    return [mutant for mutant in own_mutants(machine(name)) if mutant.kind in kinds]


@pytest.mark.parametrize("name", EVERY)
def test_the_reference_meets_every_strengthened_guard_or_it_is_listed(name: str) -> None:
    listed = {each for each in reasons() if each.startswith(f"{name}, ")}
    asked = mutants(name, STRENGTHENED)
    found = met(machine(name), asked)
    unmet = {f"{name}, {mutant.name}" for mutant in asked if mutant.name not in found}
    assert unmet == listed & {f"{name}, {mutant.name}" for mutant in asked}


@pytest.mark.parametrize("name", [name for name in MACHINES if name not in ("pages", "tiers", "stream")])
def test_these_machines_follow_the_reference_to_the_end(name: str) -> None:
    of = compile_machine(machine(name))
    assert [follow(of, run) for run in recorded(machine(name))[:50]] == [None] * 50


def test_tiers_follow_the_store_until_a_crash() -> None:
    of = compile_machine(machine("tiers"))
    partings = [parted for run in recorded(machine("tiers")) if (parted := follow(of, run))]
    assert {parted.what for parted in partings} == {"recover is unknown"}
    assert sum(parted.operation for parted in partings) > 500


def test_a_stream_follows_the_decoder_until_it_is_handed_over() -> None:
    of = compile_machine(machine("stream"))
    partings = [parted for run in recorded(machine("stream")) if (parted := follow(of, run))]
    assert {parted.what for parted in partings} == {"take is unknown", "forward is unknown"}
    assert sum(parted.operation for parted in partings) > 500


@pytest.mark.parametrize("name", ["pages", "ring", "row_table"])
def test_the_others_follow_it_most_of_the_way(name: str) -> None:
    """Until it does what they do not know: swaps a duplicate, or grows a row whose end was given up."""
    of = compile_machine(machine(name))
    runs = recorded(machine(name))
    went = sum(len(followed(of, run).done) for run in runs)
    assert went > 0.85 * sum(len(run.done) for run in runs)
    partings = {parted.what for run in runs if (parted := follow(of, run))}
    known = {"replace is unknown"}
    assert partings <= known | ({"acquire is forbidden", "share is forbidden"} if name == "row_table" else set())


@pytest.mark.parametrize(
    ("name", "changed", "part"),
    [
        ("read_law", "settle sets settled[r, k, o] to False", "settled"),
        ("fairness", "block sets blocked[r] to False", "blocked"),
        ("speculation", "schedule without setting drafted[r]", "drafted"),
    ],
)
def test_a_mutant_that_differs_by_its_state_alone_is_met(name: str, changed: str, part: str) -> None:
    lazy = next(each for each in mutants(name, NEGATED, ASSIGNMENT) if each.name == changed)
    assert met(machine(name), [lazy]) == {lazy.name: f"{part} differs"}


@pytest.mark.parametrize("name", ["admission", "fairness", "reservation", "speculation"])
def test_an_action_that_never_happens_is_met_by_the_scheduler(name: str) -> None:
    never = [each for each in mutants(name, STRENGTHENED) if each.name.endswith(" never")]
    found = met(machine(name), never)
    assert {each.name for each in never} - found.keys() <= {"warm never"}
    assert all(found[each] == f"{each.removesuffix(' never')} is forbidden" for each in found)


def test_what_nobody_does_is_not_met() -> None:
    never = next(each for each in mutants("read_law", STRENGTHENED) if each.name == "pad never")
    assert met(machine("read_law"), [never]) == {}


def test_of_a_machine_of_its_own_the_reference_says_nothing() -> None:
    class Lamp(Machine):
        """It is on or off."""

        on = state(Bool)

        @action
        def switch(s):
            """On."""
            s.on = True

    assert met(Lamp, own_mutants(Lamp)) == {}


@pytest.mark.nightly
@pytest.mark.parametrize("name", EVERY)
def test_every_mutant_is_seen_or_listed(name: str, record_property: Record) -> None:
    judged = judge(machine(name), own_mutants(machine(name)), met)
    assert [each.undecided for each in judged if each.undecided] == []
    assert [each.mutant.name for each in judged if each.search and not each.proof] == [], "a run breaks what is proved"
    rows = tally(name, judged)
    listed = {each: reason for each, reason in reasons().items() if each.startswith(f"{name}, ")}
    assert unexplained(named(rows), listed) == stale(named(rows), listed) == []
    for row in rows:
        seen = f"{row.proof} refuted, {row.search} met by search, {row.lockstep} in lockstep"
        record_property("say", f"mutants of {name}, {row.kind}: {row.mutants}; {seen}; {len(row.survivors)} survive")
