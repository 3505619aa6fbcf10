"""The one comparison of what two subjects did with one program."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, NamedTuple

from kvspec.operations import Outcome


class Errors(Enum):
    """How a refusal or a misuse is compared. The text of a `reason` is for people and is never compared."""

    SAME_STATUS = "done, refused and misuse must agree at every operation"
    MISUSE_UNDEFINED = "from the first expected misuse on, nothing is compared: the subject does not check its caller"


class Difference(NamedTuple):
    """Where two runs part: the operation, the field (`state.rows` for a part of the state) and both values."""

    operation: int
    field: str
    expected: Any
    actual: Any

    def __str__(self) -> str:
        """One line."""
        return f"operation {self.operation}: {self.field} is {self.actual!r}, expected {self.expected!r}"


def compare(expected: Sequence[Outcome], actual: Sequence[Outcome], errors: Errors) -> Difference | None:
    """The first difference, or None. What the expected side did not observe (None) is not compared."""
    for index, (left, right) in enumerate(zip(expected, actual, strict=False)):
        if errors is Errors.MISUSE_UNDEFINED and left.status == "misuse":
            return None
        found = _outcomes(left, right)
        if found is not None:
            return Difference(index, *found)
    if len(expected) != len(actual):
        return Difference(min(len(expected), len(actual)), "number of outcomes", len(expected), len(actual))
    return None


def _outcomes(expected: Outcome, actual: Outcome) -> tuple[str, Any, Any] | None:
    for field in ("status", "pages", "slots", "tokens", "available", "blank"):
        left, right = getattr(expected, field), getattr(actual, field)
        if left is not None and left != right:
            return field, left, right
    for key in sorted(expected.state.keys() | actual.state.keys()):
        left, right = expected.state.get(key), actual.state.get(key)
        if left != right:
            return f"state.{key}", left, right
    return None
