"""The fast implementation against the reference: the same programs, the same results and the same whole state."""

from itertools import islice
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis.stateful import run_state_machine_as_test
from kvspec_diff.compare import Errors, compare
from kvspec_diff.generate import Generator, programs
from kvspec_diff.monitor import judge
from kvspec_diff.profiles import register
from kvspec_diff.program import Program
from kvspec_diff.stateful import state_machine
from kvspec_diff.subject import EVERYTHING
from kvspec_diff.subjects.reference import Reference
from kvspec_diff.subjects.torch import Torch

register()

GENERATOR = Generator(EVERYTHING)
PATHS = [Torch("host", "whole"), Torch("device", "whole")]
NAMES = [path.name for path in PATHS]


def check(fast: Torch, program: Program) -> None:
    found = compare(Reference("whole").run(program), fast.run(program), Errors.SAME_STATUS)
    assert found is None, str(found)


@pytest.mark.parametrize("fast", PATHS, ids=NAMES)
def test_bulk(fast: Torch) -> None:
    for program in islice(GENERATOR.bulk(43), 100):
        check(fast, program)


@settings(settings.get_profile("pr"))
@given(programs(GENERATOR))
def test_programs(program: Program) -> None:
    check(PATHS[0], program)


def test_rules() -> None:
    run_state_machine_as_test(
        state_machine(GENERATOR, lambda program: check(PATHS[0], program)),
        settings=settings(settings.get_profile("pr"), max_examples=30),
    )


@pytest.mark.parametrize("fast", [Torch("host"), Torch("device")], ids=NAMES)
def test_the_specification_judges_it_too(fast: Torch) -> None:
    for program in islice(GENERATOR.bulk(44), 50):
        assert judge(program, fast.run(program)) is None


@pytest.mark.parametrize("name", ["host", "device"])
def test_the_fast_comparison_sees_the_same_at_the_end(name: Literal["host", "device"]) -> None:
    """Less is observed on the way, and the same whole state after the last operation."""
    for program in islice(GENERATOR.bulk(45), 30):
        whole, end = Torch(name, "whole").run(program), Torch(name, "end").run(program)
        assert compare(Reference("end").run(program), end, Errors.SAME_STATUS) is None
        assert end[-1:] == whole[-1:]
        assert [outcome.slots for outcome in end] == [outcome.slots for outcome in whole]
        assert all(outcome.blank is None for outcome in end[:-1])
