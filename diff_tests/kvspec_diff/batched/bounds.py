"""What may be in a case that comes from a file: numbers that a worker can bear, and operations that there are."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
from kvspec_reference.reservation import Group, Kind

MOST = 100_000
"""Of anything that is counted: a file cannot make a worker build more."""

Positive = Annotated[int, msgspec.Meta(ge=1, le=MOST)]
Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
Groups = Annotated[tuple[tuple[Kind, Positive, Count], ...], msgspec.Meta(min_length=1)]
"""Kind, tokens in a block, span."""

Step = tuple[str | int, ...]
"""An operation: its name, and its numbers."""

Arguments = Mapping[str, Sequence[str]]
"""The operations of a program, and what their numbers are."""


def check_groups(groups: Iterable[Group]) -> None:
    """Raise `ValueError` for a chunk of chunked attention that is not whole blocks: vLLM's attention asserts it."""
    if any(group.kind == "chunk" and group.span % group.size for group in groups):
        raise ValueError("a chunk of chunked attention is whole blocks")


def check_steps(steps: Sequence[Step], arguments: Arguments) -> None:
    """Raise `ValueError` for what is no operation with its numbers."""
    for number, step in enumerate(steps):
        name, *given = step or ("",)
        if len(given) != len(arguments.get(str(name), ("",) * (len(given) + 1))) or not all(map(_is_count, given)):
            raise ValueError(f"step {number} is no operation with its numbers, 0 to {MOST}: {name}{tuple(given)}")


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST
