"""After any run of events that passes all guards, every invariant of the specification is true."""

from collections import Counter
from itertools import product
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvspec.language.run import State, Violation
from kvspec_diff.generate import Generator, programs
from kvspec_diff.monitor import Monitor, machine, start
from kvspec_diff.profiles import register
from kvspec_diff.program import Program
from kvspec_diff.subject import EVERYTHING
from kvspec_diff.subjects.reference import Reference

register()

SIZES = {"Page": 4, "Request": 2, "Entry": 2, "Offset": 2, "Call": 2, "Token": 3, "Stop": 3, "Nat": 4}
PREFIX = [[[0, 1], [2, 0]], [[0, 1], [1, 2]]]
"""Two requests whose first pages say the same and whose second ones do not."""


def enabled(state: State) -> list[tuple[str, tuple[int, ...]]]:
    """Every action, with its arguments, whose guards hold."""
    compiled = machine()
    return [
        (name, arguments)
        for name, sorts in compiled.params.items()
        for arguments in product(*(range(SIZES[sort.name]) for sort in sorts))
        if compiled.enabled[name](state, *arguments)
    ]


def take(state: State, kind: int, choice: int) -> str:
    """Do one of the events that pass, each kind of action as likely as any other; check every law of the step."""
    compiled = machine()
    possible = enabled(state)
    kinds = list(dict.fromkeys(name for name, _ in possible))
    ready = [event for event in possible if event[0] == kinds[kind % len(kinds)]]
    name, arguments = ready[choice % len(ready)]
    before = state.copy()
    compiled.actions[name](state, *arguments)
    assert compiled.judge(before, name, arguments, state) == [], (name, arguments)
    return name


@settings(settings.get_profile("pr"))
@given(st.lists(st.tuples(st.integers(0, 13), st.integers(0, 2**16)), max_size=60))
def test_guards_keep_every_invariant(choices: list[tuple[int, int]]) -> None:
    """Events with no program behind them."""
    state = machine().start(SIZES, {"null": 0, "prefix": PREFIX})
    assert machine().broken(state) == []
    for kind, choice in choices:
        take(state, kind, choice)


def test_walks_take_every_action() -> None:
    """The same without Hypothesis, for as long as it takes until the rarest action was taken some times."""
    random = Random(1)
    taken = Counter(dict.fromkeys(machine().actions, 0))
    for _ in range(1_000):
        state = machine().start(SIZES, {"null": 0, "prefix": PREFIX})
        taken.update(take(state, random.randrange(840), random.randrange(2**16)) for _ in range(60))
        if min(taken.values()) >= 5:
            return
    raise AssertionError(f"an action is hardly ever taken: {taken}")


@settings(settings.get_profile("pr"))
@given(st.lists(st.tuples(st.integers(0, 13), st.integers(0, 2**16)), max_size=20), st.data())
def test_what_fails_a_guard_changes_nothing(choices: list[tuple[int, int]], data: st.DataObject) -> None:
    compiled = machine()
    state = compiled.start(SIZES, {"null": 0, "prefix": PREFIX})
    for kind, choice in choices:
        take(state, kind, choice)
    name = data.draw(st.sampled_from(sorted(compiled.params)))
    arguments = tuple(data.draw(st.integers(0, SIZES[sort.name] - 1)) for sort in compiled.params[name])
    before = state.copy()
    if not compiled.enabled[name](state, *arguments):
        with pytest.raises(Violation):
            compiled.actions[name](state, *arguments)
        assert vars(state) == vars(before)


@settings(settings.get_profile("pr"))
@given(programs(Generator(EVERYTHING)))
def test_runs_of_programs_keep_every_invariant(program: Program) -> None:
    """The same for the events of whole programs, and the laws of steps from operation to operation."""
    monitor = Monitor(program)
    compiled = machine()
    assert vars(monitor.state) == vars(start(program))
    for operation, outcome in zip(program.operations, Reference().run(program), strict=True):
        assert monitor.step(operation, outcome) is None
        assert compiled.broken(monitor.state) == [], operation
