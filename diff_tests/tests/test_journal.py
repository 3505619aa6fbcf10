"""What a subject does wrong half way through an operation leaves the monitor where it was before the operation."""

import dataclasses
from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Any

import pytest
from kvspec.language.run import State
from kvspec.operations import Allocate, AnyOperation, Configuration, Copy, Evict, Outcome, Publish, Start, Trim, Write
from kvspec_diff.caller import Page
from kvspec_diff.generate import Generator
from kvspec_diff.monitor import Monitor
from kvspec_diff.program import Program
from kvspec_diff.subject import EVERYTHING
from kvspec_diff.subjects.reference import Reference
from msgspec.structs import replace

POOL = Configuration(4, 1)
FULL = (Start("a", 0), Start("b", 0), Allocate("a", 2), Write("a", 0, 2), Publish("a", 0, 2))

LIES = [
    ((*FULL, Allocate("b", 2)), {"pages": (3, 1), "slots": (3, 1)}, "O5"),  # the second page is held
    ((*FULL, Allocate("b", 2)), {"pages": (3, 5), "slots": (3, 5)}, "O5"),  # there is no such page
    ((*FULL, Trim("a", 0), Evict(2)), {"pages": (1, 3)}, "O4"),  # the second page is blank
    ((*FULL, Copy("a", 0)), {"pages": (2,)}, "O5"),
    ((*FULL, Trim("a", 0)), {"status": "refused"}, "O5"),
    ((*FULL, Trim("a", 0)), {"status": "misuse"}, "contract"),
    ((*FULL, Trim("a", 0)), {"status": "error", "reason": "it raised"}, "raised"),
]


def known(monitor: Monitor) -> object:
    """All that the monitor knows, by value."""
    caller = monitor.caller
    rows = [
        (name, row.request, row.prompt, row.length, row.settled, [page and shown(page) for page in row.entries])
        for name, row in caller.rows.items()
    ]
    pins = [(name, row.request, shown(page)) for name, (row, page) in caller.pins.items()]
    cache = [(number, shown(page)) for number, page in caller.cache.items()]
    deferred = [shown(page) for page in caller.deferred]
    given_up = [(name, entry, shown(page)) for name, entry, page in caller.given_up]
    counts = (caller.requests, caller.open, caller.calls, list(caller.actions))
    return vars(monitor.state.copy()), rows, pins, cache, deferred, given_up, counts


def shown(page: Page) -> tuple[int, int, bool]:
    return page.number, page.holders, page.cached


def check(
    operations: tuple[AnyOperation, ...], changes: dict[str, Any], law: str, kind: type[Monitor] = Monitor
) -> None:
    """The lie about the last operation is found and changes nothing; the truth is lawful afterwards."""
    program = Program(POOL, operations)
    *before, last = Reference().run(program)
    monitor = kind(program)
    for operation, outcome in zip(operations, before, strict=False):
        assert monitor.step(operation, outcome) is None
    was = known(monitor)
    found = monitor.step(operations[-1], replace(last, **changes))
    assert found is not None
    assert (found.index, found.law) == (len(operations) - 1, law), str(found)
    assert known(monitor) == was
    assert monitor.step(operations[-1], last) is None


@pytest.mark.parametrize(("operations", "changes", "law"), LIES)
def test_a_lie_half_way_changes_nothing(
    operations: tuple[AnyOperation, ...], changes: dict[str, Any], law: str
) -> None:
    check(operations, changes, law)


class Forgetful(Monitor):
    """A monitor without its journal."""

    def _roll_back(self) -> None:
        pass


@pytest.mark.parametrize(("operations", "changes", "law"), LIES)
def test_without_the_journal_it_would(operations: tuple[AnyOperation, ...], changes: dict[str, Any], law: str) -> None:
    """So the first actions of each were performed, or taken in by the caller's model, when the lie was found."""
    with pytest.raises(AssertionError):
        check(operations, changes, law, Forgetful)


def lies(random: Random, program: Program, outcome: Outcome) -> Iterator[Outcome]:
    """Wrong outcomes: another status, and another page in the place of each that came."""
    for status in ("done", "refused", "misuse", "error"):
        if status != outcome.status:
            yield Outcome(status)  # type: ignore[arg-type]
    for i in range(len(outcome.pages)):
        pages = list(outcome.pages)
        pages[i] = random.randint(-1, program.configuration.pages + 1)
        yield Outcome("done", pages=tuple(pages), slots=outcome.slots)


def test_programs_go_on_after_every_lie() -> None:
    """A lie that happens to be lawful (any policy is) is not told: a monitor of its own says which are."""
    random, told, half_way = Random(3), 0, 0
    for program in islice(Generator(EVERYTHING).bulk(31, (20, 30)), 25):
        outcomes = Reference().run(program)
        monitor = Monitor(program)
        for index, (operation, outcome) in enumerate(zip(program.operations, outcomes, strict=True)):
            for lie in lies(random, program, outcome):
                if not forbidden(program, outcomes, index, lie):
                    continue
                before = known(monitor)
                half_way += performed(monitor, operation, lie)
                assert monitor.step(operation, lie) is not None
                assert known(monitor) == before, (operation, lie)
                told += 1
            assert monitor.step(operation, outcome) is None, operation
    assert told > 1_000
    assert half_way > 20


def forbidden(program: Program, outcomes: list[Outcome], index: int, lie: Outcome) -> bool:
    """Whether the contract or a guard forbids the lie, not only what is observed afterwards."""
    other = Monitor(program)
    for operation, outcome in zip(program.operations[:index], outcomes, strict=False):
        other.step(operation, outcome)
    steps = len(other._steps)
    return other.step(program.operations[index], lie) is not None and len(other._steps) == steps


def performed(monitor: Monitor, operation: AnyOperation, lie: Outcome) -> bool:
    """Whether the machine had moved when the lie was found."""
    other = Forgetful(monitor.program)
    for done, came in monitor._steps:
        other.step(done, came)
    before = vars(other.state.copy())
    other.step(operation, lie)
    return vars(other.state) != before


def test_whatever_is_raised_half_way_changes_nothing() -> None:
    """Here Ctrl-C, when one of two pages has been acquired."""
    program = Program(POOL, (*FULL, Allocate("b", 2)))
    *before, last = Reference().run(program)
    monitor = Monitor(program)
    for operation, outcome in zip(program.operations, before, strict=False):
        assert monitor.step(operation, outcome) is None
    was, right = known(monitor), monitor.compiled

    def acquire(state: State, row: int, entry: int, page: int) -> None:
        if entry > 0:
            raise KeyboardInterrupt
        right.actions["acquire"](state, row, entry, page)

    monitor.compiled = dataclasses.replace(right, actions={**right.actions, "acquire": acquire})
    with pytest.raises(KeyboardInterrupt):
        monitor.step(program.operations[-1], last)
    monitor.compiled = right
    assert known(monitor) == was
    assert monitor.step(program.operations[-1], last) is None
