"""The judge: what the reference did is lawful, and each lie about it is a finding that names the law."""

from itertools import islice
from typing import Any

import pytest
from kvspec.operations import (
    Allocate,
    AnyOperation,
    Begin,
    Checkpoint,
    Configuration,
    Copy,
    End,
    Evict,
    Finish,
    Free,
    Outcome,
    Overwrite,
    Pin,
    Publish,
    Read,
    Start,
    Trim,
    Unpin,
    Write,
)
from kvspec_diff.caller import Caller
from kvspec_diff.generate import Generator
from kvspec_diff.monitor import Finding, judge, translate
from kvspec_diff.program import Program
from kvspec_diff.subject import EVERYTHING
from kvspec_diff.subjects.reference import Reference, perform
from kvspec_reference import Cache
from msgspec.structs import replace

POOL = Configuration(6, 2)
TWO_ROWS = (Start("a", 0), Start("b", 0), Allocate("a", 4), Allocate("b", 4))
WRITTEN = (*TWO_ROWS, Write("a", 0, 4), Write("b", 0, 4))


def lie(operations: tuple[AnyOperation, ...], **changes: Any) -> Finding | None:
    """Judge the reference's outcomes with changes to the last one."""
    program = Program(POOL, operations)
    *before, last = Reference().run(program)
    assert judge(program, [*before, last]) is None
    return judge(program, [*before, replace(last, **changes)])


def test_translation_agrees_with_what_the_reference_reports() -> None:
    """Action by action: the translation knows only outcomes, the reference knows what it did."""
    for program in islice(Generator(EVERYTHING).bulk(5), 500):
        cache = Cache(program.configuration.pages, program.configuration.page_size)
        caller = Caller(program.configuration)
        for operation in program.operations:
            outcome = perform(cache, operation)
            assert translate(caller, operation, outcome) == cache.take_actions(), operation


@pytest.mark.parametrize(
    ("operations", "changes", "law", "pages"),
    [
        # What allocation hands out.
        ((*TWO_ROWS, Allocate("a", 2)), {"pages": (2,), "slots": (4, 5)}, "O5", (2,)),
        ((*TWO_ROWS, Allocate("a", 3)), {"pages": (5, 5), "slots": (10, 11, 10)}, "O5", (5,)),
        ((*TWO_ROWS, Allocate("a", 2)), {"pages": (5, 6), "slots": (10, 11)}, "O5", (5, 6)),
        ((*TWO_ROWS, Allocate("a", 2)), {"pages": (), "slots": (8, 9)}, "O5", ()),
        ((*TWO_ROWS, Allocate("a", 2)), {"pages": (7,), "slots": (14, 15)}, "O5", (7,)),
        ((*TWO_ROWS, Allocate("a", 2)), {"pages": (0,), "slots": (0, 1)}, "R3", (0,)),
        ((*TWO_ROWS, Allocate("a", 2)), {"status": "refused", "pages": (), "slots": ()}, "O5", ()),
        ((*TWO_ROWS, Allocate("a", 5)), {"status": "done", "pages": (5, 6), "slots": (10, 11, 12, 13)}, "O5", (5, 6)),
        ((*TWO_ROWS, Trim("a", 1)), {"status": "refused"}, "O5", ()),
        # Addresses and contents.
        ((*TWO_ROWS, Allocate("a", 2)), {"slots": (11, 10)}, "R6", ()),
        ((*TWO_ROWS, Write("a", 1, 3)), {"slots": (3, 5)}, "R6", ()),
        ((*WRITTEN, Read("a", 1, 3)), {"tokens": (4, 5)}, "R1", (2,)),
        ((*WRITTEN, Read("a", 1, 3)), {"tokens": (4,)}, "R1", ()),
        # Blank pages: leaked, freed twice, freed while held, freed early, unknown, null.
        ((*TWO_ROWS, Free("a", 0, 2)), {"blank": (5, 6, 1), "available": 3}, "O1", (2,)),
        ((*TWO_ROWS, Free("a", 0, 2)), {"blank": (5, 6, 1, 2, 2)}, "O2", (2,)),
        ((*TWO_ROWS, Free("a", 0, 2)), {"blank": (5, 6, 1, 3), "available": 4}, "O2", (3, 2)),
        ((*WRITTEN, Begin(), Read("a", 0, 1)), {"blank": (5, 6, 4), "available": 3}, "O2", (4,)),
        ((*TWO_ROWS, Begin(), Free("a", 0, 1)), {"blank": (5, 6, 1), "available": 3}, "O6", (1,)),
        ((*TWO_ROWS, Free("a", 0, 1)), {"blank": (5, 6, 7)}, "O1", (1, 7)),
        ((*TWO_ROWS, Free("a", 0, 1)), {"blank": (5, 6, 1, -1)}, "O1", (-1,)),
        ((*TWO_ROWS, Free("a", 0, 1)), {"blank": (5, 6, 0)}, "R3", (0, 1)),
        ((*TWO_ROWS, Free("a", 0, 1)), {"available": 4}, "O6", ()),
        # Groups.
        ((*TWO_ROWS, Begin(), Free("a", 0, 1), End()), {"blank": (5, 6, 3)}, "D1", (3, 1)),
        ((*TWO_ROWS, Begin(), Free("a", 0, 1), End()), {"blank": (5, 6), "available": 2}, "D1", (1,)),
        ((*TWO_ROWS, Begin(), Free("a", 0, 1), End()), {"blank": (5, 6, 0)}, "D1", (0, 1)),
        ((*TWO_ROWS, Begin(), Free("a", 0, 2), End()), {"blank": (5, 6, 3, 3)}, "D1", (3, 1, 2, 3)),
        ((*TWO_ROWS, Begin(), Free("a", 0, 1), Overwrite("a", 0, 1, "b")), {"state": {"changed": ["a"]}}, "D5", ()),
        # The cache.
        ((*WRITTEN, Publish("a", 0, 2), Copy("a", 0)), {"pages": ()}, "O7", ()),
        ((*WRITTEN, Copy("a", 0)), {"pages": (5,)}, "O7", (5,)),
        ((*WRITTEN, Publish("a", 0, 2), Copy("a", 0)), {"pages": (3,)}, "O5", (3,)),
        ((*WRITTEN, Publish("a", 0, 2), Trim("a", 2), Evict(2)), {"pages": (1,)}, "O4", (1,)),
        ((*WRITTEN, Publish("a", 0, 2), Finish("a"), Evict(1)), {"pages": (1, 2)}, "P13", (1, 2)),
        ((*WRITTEN, Pin("p", "a", 0), Finish("a"), Unpin("p")), {"blank": (5, 6, 2), "available": 3}, "O1", (1,)),
        # Misuse, and what the subject raised.
        ((*TWO_ROWS, Free("a", 0, 1)), {"status": "error", "reason": "KeyError: 1"}, "raised", ()),
        ((*TWO_ROWS, Free("a", 0, 1)), {"status": "misuse"}, "contract", ()),
        ((*TWO_ROWS, Free("a", 0, 3)), {"status": "done"}, "contract", ()),
    ],
)  # fmt: skip
def test_a_lie_is_found(
    operations: tuple[AnyOperation, ...], changes: dict[str, Any], law: str, pages: tuple[int, ...]
) -> None:
    found = lie(operations, **changes)
    assert found is not None
    assert (found.index, found.operation) == (len(operations) - 1, operations[-1])
    assert (found.law, found.pages) == (law, pages), str(found)
    assert "\n" not in str(found)


def test_the_explanation_says_which_page_is_where() -> None:
    found = lie((*TWO_ROWS, Begin(), Free("a", 0, 1), Overwrite("a", 0, 1, "b"), End()), blank=(5, 6, 3))
    assert str(found) == (
        "operation 7 breaks D1: page 3 is blank and should not be: row b holds it at entry 0; "
        "page 1 should be blank and is not (breaks D1, D3, O2, O1, O4)"
    )


def test_unchecked_misuse_is_told_apart() -> None:
    done = lie((*TWO_ROWS, Free("a", 0, 3)), status="done")
    wrongly = lie((*TWO_ROWS, Free("a", 0, 1)), status="misuse")
    assert done is not None
    assert wrongly is not None
    assert (done.kind, wrongly.kind) == ("misuse", "fault")


def test_what_was_not_observed_is_not_judged() -> None:
    assert lie((*TWO_ROWS, Free("a", 0, 1)), blank=None, available=None) is None
    program = Program(POOL, TWO_ROWS)
    assert judge(program, Reference().run(program)[:2]) is None


def test_any_policy_is_lawful() -> None:
    """Pages may come in any order, and be taken out of the cache in any order."""
    kept = (Start("a", 0), Allocate("a", 4), Write("a", 0, 4), Publish("a", 0, 2))
    program = Program(POOL, (*kept, Finish("a"), Evict(1)))
    outcomes = Reference().run(program)
    outcomes[1] = replace(outcomes[1], pages=(6, 2), slots=(12, 13, 4, 5))
    outcomes[2] = replace(outcomes[2], slots=(12, 13, 4, 5))
    for i in range(1, 5):
        outcomes[i] = replace(outcomes[i], blank=(5, 4, 3, 1))
    outcomes[5] = replace(outcomes[5], pages=(2,), blank=(2, 1, 3, 4, 5))
    assert judge(program, outcomes) is None


def test_a_checkpoint_swaps_duplicates() -> None:
    """A radix cache: the second row of one prompt gets the first one's pages; the group's end frees its own."""
    program = Program(POOL, (*WRITTEN, Checkpoint("a"), Begin(), Checkpoint("b"), End(), Read("b", 0, 4)))
    before = Reference().run(Program(POOL, WRITTEN))
    kept = Outcome("done", pages=(1, 2), blank=(5, 6), available=2)
    read = Outcome("done", slots=(2, 3, 4, 5), tokens=(0, 4, 8, 12))
    good = [*before, kept, Outcome("done"), kept, Outcome("done", blank=(5, 6, 3, 4), available=4), read]
    assert judge(program, good) is None
    bad = [*before, kept, Outcome("done"), kept, Outcome("done", blank=(5, 6, 1, 2), available=4), read]
    found = judge(program, bad)
    assert found is not None
    assert (found.index, found.law, found.pages) == (9, "D1", (1, 2, 3, 4))
