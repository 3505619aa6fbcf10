"""What a query may see, by the kind of memory: positions of its own prefix, or a state of it.

A class of caches has members: one for each memory that it holds. The family of a member says what a query at position
p must see, and what it may:

- `full`: every position up to p;
- `window(size, keep)`: the last `size` up to p, itself among them; when `keep` is not 0, the first `keep` positions
  and the last `size - keep`. In a chunk of several tokens the kept ones may be left out and the whole window be seen;
- `chunk(size)`: those of the chunk of `size` positions that p is in, up to p;
- `state(entries)`: for each entry the fold of all tokens up to now.
"""

import functools
from collections.abc import Sequence
from typing import Literal, NamedTuple

Family = Literal["full", "window", "chunk", "state"]
NUMBERS: dict[Family, int] = {"full": 0, "window": 2, "chunk": 1, "state": 1}
"""How many numbers a family has at most; the last of a window may be missing."""


class Member(NamedTuple):
    """A memory of a layer: where its reads are told, of which class, of which family with which numbers."""

    path: str
    of: str
    family: Family
    numbers: tuple[int, ...] = ()


class Sight(NamedTuple):
    """Positions that a query must and may see."""

    must: frozenset[int]
    may: frozenset[int]


@functools.lru_cache(4096)
def sight(member: Member, position: int, alone: bool) -> Sight:
    """What the query at a position sees; `alone` when its step had one token for each row."""
    if member.family == "window":
        size, keep = (*member.numbers, 0)[:2]
        if position >= size and keep:
            kept = frozenset(range(keep))
            least = frozenset(range(position - (size - keep) + 1, position + 1))
            most = frozenset(range(position - size + 1, position + 1))
            return Sight(kept | least, kept | least) if alone else Sight(least, kept | most)
        return _exactly(max(position - size + 1, 0), position)
    if member.family == "chunk":
        return _exactly(position - position % member.numbers[0], position)
    return _exactly(0, position)


def _exactly(first: int, last: int) -> Sight:
    positions = frozenset(range(first, last + 1))
    return Sight(positions, positions)


def bounds(members: Sequence[Member]) -> list[int]:
    """Lengths at which something begins to be different, for programs to come close to."""
    return sorted({number for member in members if member.family in ("window", "chunk") for number in member.numbers})
