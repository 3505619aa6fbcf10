"""The schedulers of the vLLM releases that are installed, unmodified and with planted faults."""

from typing import Any

import pytest
from kvspec_diff.batched.finding import known
from kvspec_diff.schedulers.case import Case
from kvspec_diff.schedulers.compare import Comparison

RELEASES = ("0.26.0", "0.33.0")
PLANTS = (
    "preempt=keep_computed", "preempt=keep_blocks", "preempt=to_the_end", "preempt=the_most_urgent",
    "preempt=the_first", "admit=in_spite_of_preemption", "retire=no_rollback", "queue=the_least_urgent",
    "hit=the_last_token_too", "events=no_removal", "reset=keep_keys",
)  # fmt: skip
SOME = 600
"""Programs: some seconds of them."""


@pytest.mark.parametrize("version", RELEASES)
def test_a_release_is_wrong_as_it_is_known_to_be(vllm: Any, version: str) -> None:
    asked = vllm.unmodified(version)
    filed = known("vllm", version, Case)
    for name, finding in filed:
        assert finding.fault.key in [each.key for each in Comparison(asked).replay(finding)], name
    made = Comparison(asked)
    made.run(programs=SOME)
    assert made.seen.keys() <= {finding.fault.key for _, finding in filed}
    assert ("P15", "scheduler", "duplicate") in made.seen
    assert made.tally.figures["programs"] + made.declined == SOME
    assert all(made.tally.figures.values()), made.tally.figures


def test_plants_are_offered(vllm: Any) -> None:
    assert vllm.unmodified("0.33.0").offered[: len(PLANTS)] == PLANTS


@pytest.mark.parametrize("plant", ["preempt=to_the_end", "retire=no_rollback"])
def test_a_plant_is_found_and_made_small(vllm: Any, plant: str) -> None:
    usual = {finding.fault.key for _, finding in known("vllm", "0.33.0", Case)}
    with vllm.client("0.33.0", plant) as asked:
        made = Comparison(asked)
        made.run(programs=SOME)
        found = [each for each in made.findings(usual) if each.fault.law in ("A3", "R4")]
    assert len(found[0].case.steps) <= 8


@pytest.mark.nightly
@pytest.mark.parametrize("version", RELEASES)
def test_most_plants_are_found(vllm: Any, version: str) -> None:
    usual = {finding.fault.key for _, finding in known("vllm", version, Case)}
    found = []
    for plant in PLANTS:
        with vllm.client(version, plant) as asked:
            made = Comparison(asked)
            made.run(programs=1500)
            if made.seen.keys() - usual:
                found.append(plant)
    assert len(found) >= len(PLANTS) - 1, f"missed: {set(PLANTS) - set(found)}"
