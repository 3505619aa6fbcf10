"""The vLLM releases that are installed, unmodified and with planted faults: what they reserve."""

from typing import Any

import pytest
from kvspec_diff.batched.client import Client
from kvspec_diff.batched.finding import known
from kvspec_diff.capacity.case import Case
from kvspec_diff.capacity.compare import Comparison
from kvspec_diff.recipes import EngineError

RELEASES = ("0.26.0", "0.33.0")
PLANTS = (
    "allocate=no_lookahead", "allocate=no_limit", "allocate=refuse_the_last", "allocate=forget_in_flight",
    "new_blocks=round_down", "state=no_spares", "state_align=one_spare_less", "window=one_token_short",
    "free=forget_one", "hit=not_claimed",
)  # fmt: skip
SMALL = 1200
"""Configurations: two in each cell."""


def compared(asked: Client, configurations: int = SMALL) -> Comparison:
    made = Comparison(asked)
    made.methods()
    made.run(configurations=configurations)
    return made


def test_the_new_release_agrees(vllm: Any) -> None:
    made = compared(vllm.unmodified("0.33.0"))
    assert made.seen == {}
    assert made.declined == 0
    assert all(count.configurations and count.warmups for count in made.counts)


def test_the_old_release_disagrees_as_it_is_known_to(vllm: Any) -> None:
    asked = vllm.unmodified("0.26.0")
    keys = {finding.fault.key for _, finding in known("vllm", "0.26.0", Case)}
    for name, finding in known("vllm", "0.26.0", Case):
        assert finding.fault.key in [each.key for each in Comparison(asked).replay(finding)], name
    made = compared(asked)
    assert made.seen.keys() == keys
    found = next(each for each in made.findings() if each.fault.where == "warmup_kernels")
    assert found.case.configuration.groups in ((("full", 1, 0),), (("none", 1, 0),))


@pytest.mark.parametrize("version", RELEASES)
def test_lookahead_is_told_by_the_release(vllm: Any, version: str) -> None:
    asked = [{"do": "lookahead", "method": method, "drafts": 3} for method in ("none", "eagle", "dflash")]
    told = vllm.unmodified(version).ask(asked)
    assert [each["scheduler"] for each in told] == [0, 3, 4]
    assert [each["config"] for each in told] == ([0, 3, 4] if version == "0.33.0" else [None] * 3)


def test_plants_are_named(vllm: Any) -> None:
    assert vllm.unmodified("0.33.0").offered[-len(PLANTS) :] == PLANTS
    with pytest.raises(EngineError, match="unknown plant 'x'"):
        Client("vllm", "0.33.0", ("x",))


@pytest.mark.nightly
@pytest.mark.parametrize("version", RELEASES)
def test_most_plants_are_found(vllm: Any, version: str) -> None:
    usual = {finding.fault.key for _, finding in known("vllm", version, Case)}
    found = []
    for plant in PLANTS:
        with vllm.client(version, plant) as asked:
            if compared(asked).seen.keys() - usual:
                found.append(plant)
    assert len(found) >= 8, f"missed: {set(PLANTS) - set(found)}"


@pytest.mark.parametrize("plant", ["state=no_spares", "window=one_token_short"])
def test_a_plant_is_found_and_made_small(vllm: Any, plant: str) -> None:
    with vllm.client("0.33.0", plant) as asked:
        made = compared(asked, 700)
        found = made.findings()
    assert found[0].case.weight <= (1, 5, 60)
