"""The one comparison: every field, both error modes, and no more."""

from typing import Any

import pytest
from kvspec.operations import Outcome
from kvspec_diff.compare import Difference, Errors, compare
from msgspec.structs import replace

STATE = {"rows": {0: {0: 1}}, "open": False}
DONE = Outcome("done", (1,), (2, 3), (4,), blank=(5, 6), available=2, state=STATE)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "refused"),
        ("pages", (2,)),
        ("slots", (3, 2)),
        ("tokens", ()),
        ("blank", (6, 5)),
        ("blank", None),
        ("available", 3),
        ("available", None),
    ],
)
def test_every_field_counts(field: str, value: Any) -> None:
    found = compare([DONE, DONE], [DONE, replace(DONE, **{field: value})], Errors.SAME_STATUS)
    assert found == Difference(1, field, getattr(DONE, field), value)


def test_the_state_is_compared_part_by_part() -> None:
    other = replace(DONE, state={"rows": {0: {0: 2}}, "open": False})
    assert compare([DONE], [other], Errors.SAME_STATUS) == Difference(0, "state.rows", {0: {0: 1}}, {0: {0: 2}})
    missing = replace(DONE, state={"rows": {0: {0: 1}}})
    found = compare([DONE], [missing], Errors.SAME_STATUS)
    assert found is not None
    assert str(found) == "operation 0: state.open is None, expected False"


def test_reasons_are_for_people_and_what_was_not_observed_is_not_compared() -> None:
    assert compare([DONE], [replace(DONE, reason="why")], Errors.SAME_STATUS) is None
    assert compare([replace(DONE, blank=None, available=None)], [DONE], Errors.SAME_STATUS) is None


def test_a_run_that_is_cut_short_differs() -> None:
    assert compare([DONE, DONE], [DONE], Errors.SAME_STATUS) == Difference(1, "number of outcomes", 2, 1)
    assert compare([], [DONE], Errors.MISUSE_UNDEFINED) == Difference(0, "number of outcomes", 0, 1)


def test_after_a_misuse_the_undefined_mode_compares_nothing() -> None:
    misuse = Outcome("misuse")
    assert compare([DONE, misuse, DONE], [DONE, DONE], Errors.MISUSE_UNDEFINED) is None
    assert compare([DONE, misuse], [DONE, DONE], Errors.SAME_STATUS) == Difference(1, "status", "misuse", "done")
    assert compare([DONE], [misuse], Errors.MISUSE_UNDEFINED) == Difference(0, "status", "done", "misuse")
