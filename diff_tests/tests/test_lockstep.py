"""The reference in lockstep with the specification, on programs from Hypothesis, from rules and from a seed."""

from itertools import islice

from hypothesis import given, settings
from hypothesis.stateful import run_state_machine_as_test
from kvspec_diff.generate import Generator, programs
from kvspec_diff.lockstep import lockstep
from kvspec_diff.profiles import register
from kvspec_diff.program import Program
from kvspec_diff.stateful import state_machine
from kvspec_diff.subject import EVERYTHING

register()

GENERATOR = Generator(EVERYTHING)


def check(program: Program) -> None:
    found = lockstep(program)
    assert found is None, str(found)


@settings(settings.get_profile("pr"))
@given(programs(GENERATOR))
def test_programs(program: Program) -> None:
    check(program)


def test_rules() -> None:
    run_state_machine_as_test(state_machine(GENERATOR, check), settings=settings.get_profile("pr"))


def test_bulk() -> None:
    for program in islice(GENERATOR.bulk(20_261), 1_000):
        check(program)
