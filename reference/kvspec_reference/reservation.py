"""How many blocks a step needs, by kind of group (C1-C7): the one formula for warm-up, scheduler and allocator.

Positions are counted in tokens, tables in blocks. A group is a set of layers that share a block table.
"""

from dataclasses import dataclass
from typing import Literal

from kvspec_reference.geometry import chunk_start, pages_for, place, window_start

Kind = Literal["full", "window", "chunk", "none", "all", "align", "cross"]
"""Full attention, sliding window, chunked local attention; recurrent state in its three modes; cross-attention."""

ATTENTION: tuple[Kind, ...] = ("full", "window", "chunk")
RECURRENT: tuple[Kind, ...] = ("none", "all", "align")


@dataclass(frozen=True)
class Group:
    """Layers with one block table. `span` is the length of a window or of a chunk, in tokens.

    Raises ValueError for a block of no tokens, for an unknown kind, and for a window or chunk of no tokens.
    """

    kind: Kind
    size: int
    span: int = 0

    def __post_init__(self) -> None:
        if self.kind not in (*ATTENTION, *RECURRENT, "cross"):
            raise ValueError(f"unknown kind of group {self.kind!r}: use full, window, chunk, none, all, align or cross")
        for name in ("size", "span"):
            if type(getattr(self, name)) is not int:
                raise ValueError(f"{name} is {getattr(self, name)!r}: a whole number of tokens is wanted")
        if self.size < 1:
            raise ValueError(f"a block holds at least 1 token, not {self.size}")
        if (self.kind in ("window", "chunk")) != (self.span > 0):
            raise ValueError(f"a group of kind {self.kind} cannot have a span of {self.span} tokens")


@dataclass(frozen=True)
class Limits:
    """What is the same for every step: all in tokens, but `spares`, which are state blocks for drafts.

    `length` is the longest sequence, `lookahead` what a drafter writes past its step (C2), `encoded` the length of the
    encoder's input. Raises ValueError where one is negative, or no sequence fits.
    """

    length: int
    lookahead: int = 0
    spares: int = 0
    encoded: int = 0

    def __post_init__(self) -> None:
        for name in ("length", "lookahead", "spares", "encoded"):
            if type(getattr(self, name)) is not int:
                raise ValueError(f"{name} is {getattr(self, name)!r}: a whole number is wanted")
        if self.length < 1:
            raise ValueError(f"the longest sequence has at least 1 token, not {self.length}")
        for name in ("lookahead", "spares", "encoded"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} cannot be negative: {getattr(self, name)}")


def reach(kind: Kind, ahead: int, limits: Limits) -> int:
    """Tokens that the table must hold when the last scheduled step ends at `ahead`, drafts included."""
    if kind == "cross":
        return limits.encoded
    if kind == "align":
        return ahead
    return min(ahead + limits.lookahead, limits.length)


def blocks(group: Group, ahead: int, limits: Limits) -> int:
    """Entries that the block table has then, null ones before a window included (C1, C7).

    Raises ValueError when the step ends before the first token or behind the longest sequence (C4).
    """
    if not 0 <= ahead <= limits.length:
        raise ValueError(f"a step ends between 0 and {limits.length} tokens, the longest sequence, not at {ahead}")
    spares = limits.spares if group.kind in RECURRENT else 0
    return pages_for(reach(group.kind, ahead, limits), group.size) + spares


def first_read(group: Group, settled: int) -> int:
    """The first token that a step at the settled position reads: the start of its window or of its chunk."""
    if group.kind == "window":
        return window_start(settled, group.span)
    if group.kind == "chunk":
        return chunk_start(settled, group.span)
    return 0


def null_entries(group: Group, settled: int) -> int:
    """Entries that no later step reads: wholly before the window of the settled position, never of a hoped-for one."""
    return place(first_read(group, settled), group.size)[0]
