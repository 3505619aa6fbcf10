"""What requests need of each pool: rows, encoder entries, and the blocks of their tables (C1, C6, C9, A6).

Tables are counted by group of layers, pages by pool; groups may share a pool. All of it follows from lengths, by the
formulas of `kvspec_reference.reservation`.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from kvspec.operations import Misuse

from kvspec_reference.geometry import pages_for
from kvspec_reference.reservation import Group, Limits, blocks


def count(name: str, value: int) -> int:
    """The value, if it is a whole number and not negative."""
    if type(value) is not int or value < 0:
        raise Misuse(f"{name}: {value!r} is no count")
    return value


@dataclass(frozen=True)
class Pool:
    """A resource: `pages` of it, `apart` of them kept by start-up, `watermark` left free by admission if somebody runs.

    A running request holds `each` pages (a row, an encoder entry) and the blocks of its tables for `groups`. Raises
    `Misuse` when a number is negative, or no page is left beyond those kept apart (A5).
    """

    pages: int
    groups: tuple[Group, ...] = ()
    each: int = 0
    apart: int = 0
    watermark: int = 0

    def __post_init__(self) -> None:
        for name in ("pages", "each", "apart", "watermark"):
            count(name, getattr(self, name))
        if self.apart >= self.pages:
            raise Misuse(f"a pool of {self.pages} pages has none beside the {self.apart} that are kept apart")


@dataclass
class Request:
    """One request. Positions are tokens from its beginning; `first`, `most` and `due` are pages, one number a pool."""

    name: str
    number: int
    prompt: int
    tokens: int  # it ends with so many
    order: tuple[int, int]  # priority, ticket
    first: list[int]  # what it is promised when it is admitted
    most: list[int]  # what it will ever hold
    due: list[int] = field(default_factory=list)  # what it was promised and has not taken
    entries: list[int] = field(default_factory=list)  # lengths of its tables, one number a group
    lost: list[int] = field(default_factory=list)  # of those, given back before the window
    emitted: int = 0
    running: bool = False
    blocked: bool = False
    passed: int = 0  # by later ones, while it was blocked
    run: int = -1  # which admission it runs by
    known: int = 0  # tokens that are known when it is admitted: its prompt, and what it had emitted
    settled: int = 0  # positions whose step has retired
    ahead: int = 0  # where its last step ends if no draft is refused
    flight: deque[tuple[int, int]] = field(default_factory=deque)  # (tokens, drafts) of its steps, the oldest first
    stopped: bool = False  # it emitted less than it might
    cancelled: bool = False

    @property
    def end(self) -> int:
        """Positions that are ever computed: the last token is emitted, and nothing comes after it."""
        return self.prompt + self.tokens - 1

    @property
    def over(self) -> bool:
        """No further step."""
        return self.stopped or self.cancelled or self.emitted == self.tokens


class Demand:
    """How much of each pool, for requests whose longest sequence and lookahead are `limits`."""

    def __init__(self, pools: Sequence[Pool], limits: Limits, flight: int) -> None:
        """`flight` tokens at most are scheduled and not settled, of one request."""
        self.pools, self.limits, self.flight = tuple(pools), limits, flight
        self.groups = [(at, group) for at, pool in enumerate(self.pools) for group in pool.groups]

    def lengths(self, ahead: int) -> list[int]:
        """How long the tables must be when the last step ends at `ahead`, one number a group."""
        return [blocks(group, ahead, self.limits) for _, group in self.groups]

    def by_pool(self, entries: list[int]) -> list[int]:
        """Numbers by group, added up by pool."""
        totals = [0] * len(self.pools)
        for (at, _), number in zip(self.groups, entries, strict=True):
            totals[at] += number
        return totals

    def tables(self, request: Request) -> list[int]:
        """Pages in its tables, by pool."""
        return self.by_pool([has - lost for has, lost in zip(request.entries, request.lost, strict=True)])

    def held(self, request: Request) -> list[int]:
        """Pages of a running request that come free when it goes: those it has and those it was promised."""
        each = (pool.each for pool in self.pools)
        return [sum(three) for three in zip(each, self.tables(request), request.due, strict=True)]

    def first(self, prompt: int, most: list[int]) -> list[int]:
        """What a request is promised to begin with, by pool: its prompt's blocks, but no more than it ever holds."""
        tables = self.by_pool(self.lengths(prompt))
        return [min(pool.each + table, top) for pool, table, top in zip(self.pools, tables, most, strict=True)]

    def most(self, end: int) -> list[int]:
        """What a request that ends there holds at most, by pool."""
        return [pool.each + table for pool, table in zip(self.pools, self.by_pool(self.peaks(end)), strict=True)]

    def peaks(self, end: int) -> list[int]:
        """The same, by group. In a window the blocks before it are given back, so the reach of its steps bounds it."""
        peaks = self.lengths(end)
        for at, (_, group) in enumerate(self.groups):
            if group.span:
                reach = group.span - 1 + self.flight + self.limits.lookahead
                peaks[at] = min(peaks[at], pages_for(reach, group.size) + 1)
        return peaks
