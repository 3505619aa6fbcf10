"""What a cache is made of, member by member, and so what the bytes of a stored block mean (B1-B8, E1).

A cache has members, one a layer or several. Plain members have a row for each token, quantized ones too: the values of
a row and its scales are parts of it. Pooled members have a row for each `ratio` tokens, which is appended when these
are complete. A window keeps the rows of the last `size` tokens in a ring: position i stands at i modulo `size`. A
recurrent member has one state, which is valid at one position only. A group has members of its own, an absent member
nothing at all. Batched members are plain: a row has all sequences of the batch.

Rows can be sliced, block by block; the whole of a window or of a recurrent member is a state, which belongs to the
position that it was taken at.
"""

import hashlib
from collections.abc import Iterator
from math import prod
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta, Struct

from kvspec.operations import Misuse

WIDTHS = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "int16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "float32": 4, "int64": 8, "float64": 8,
}  # fmt: skip
"""Bytes of an element, by the name of its dtype, as torch calls it."""

Natural: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Name: TypeAlias = Annotated[str, Meta(pattern="^[a-z][a-z0-9_]{0,30}$")]


class Part(Struct, frozen=True, forbid_unknown_fields=True):
    """One tensor of a member: the shape of a row, or of the state of a recurrent member, and the dtype."""

    name: Name
    shape: tuple[Natural, ...]
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in WIDTHS:
            raise ValueError(f"dtype {self.dtype!r} is unknown; there are {', '.join(WIDTHS)}")

    @property
    def bytes(self) -> int:
        """Bytes of a row, or of the state."""
        return prod(self.shape) * WIDTHS[self.dtype]


class Leaf(Struct, frozen=True, forbid_unknown_fields=True):
    """A member that has parts."""

    parts: tuple[Part, ...]

    def __post_init__(self) -> None:
        if len({part.name for part in self.parts}) < len(self.parts):
            raise ValueError("two parts have one name")

    @property
    def sliced(self) -> bool:
        """Whether it has rows that stay what they are, and no state."""
        return not isinstance(self, Window | Recurrent)

    def rows(self, position: int) -> int:
        """How many rows it has after so many tokens; 1 for the state of a recurrent member."""
        return position


class Plain(Leaf, frozen=True, tag="plain"):
    """A row for each token."""


class Quantized(Leaf, frozen=True, tag="quantized", kw_only=True):
    """A row for each token, of values with `bits` bits and of what brings `group` of them back to size."""

    bits: Positive
    group: Positive


class Pooled(Leaf, frozen=True, tag="pooled", kw_only=True):
    """A row for each `ratio` tokens."""

    ratio: Positive

    def rows(self, position: int) -> int:
        return position // self.ratio


class Window(Leaf, frozen=True, tag="window", kw_only=True):
    """A ring of the rows of the last `size` tokens."""

    size: Positive

    def rows(self, position: int) -> int:
        return min(position, self.size)


class Recurrent(Leaf, frozen=True, tag="recurrent"):
    """One state."""

    def rows(self, position: int) -> int:
        return 1


class Absent(Struct, frozen=True, forbid_unknown_fields=True, tag="absent"):
    """Nothing: a layer that reads another one's."""


class Group(Struct, frozen=True, forbid_unknown_fields=True, tag="group"):
    """Several members of one layer."""

    members: tuple["Member", ...]


Member: TypeAlias = Plain | Quantized | Pooled | Window | Recurrent | Absent | Group


class Layout(Struct, frozen=True, forbid_unknown_fields=True):
    """All that changes what the bytes of a block mean: the model, the tokens of a block, the members (E1)."""

    model: str
    block_size: Positive
    members: tuple[Member, ...]

    @property
    def signature(self) -> str:
        """A SHA-256 in lower case over all of it: two layouts have one signature if and only if they are equal.

        It covers the name of this way to lay out a block: members each for themselves, slices and states apart.
        """
        text = msgspec.json.encode(self, order="sorted")
        return hashlib.sha256(b"kvspec layout of members\0" + text).hexdigest()

    @property
    def leaves(self) -> dict[str, Leaf]:
        """By path, such as "0", or "3.1" in a group, the members that have parts, in order."""
        return dict(_leaves("", self.members))


def checked(layout: Layout) -> Layout:
    """The layout, if all of it is as it should be. Raises `Misuse` otherwise: Python itself checks no field."""
    try:
        return msgspec.convert(msgspec.to_builtins(layout), Layout)
    except (msgspec.ValidationError, TypeError) as error:
        raise Misuse(f"layout: {error}") from None


def _leaves(before: str, members: tuple[Member, ...]) -> Iterator[tuple[str, Leaf]]:
    for index, member in enumerate(members):
        path = f"{before}{index}"
        if isinstance(member, Group):
            yield from _leaves(f"{path}.", member.members)
        elif isinstance(member, Leaf):
            yield path, member
