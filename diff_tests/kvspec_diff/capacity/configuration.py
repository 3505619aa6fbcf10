"""Configurations of a KV-cache manager, sorted into cells: method, kinds of groups, mode of the state, block size."""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec
from kvspec_reference.reservation import RECURRENT, Group, Kind, Limits

from kvspec_diff.batched.bounds import Count, Groups, Positive, check_groups
from kvspec_diff.lookahead import Row, written

KINDS: tuple[tuple[Kind, ...], ...] = (
    ("full",), ("window",), ("chunk",), ("none",), ("all",), ("align",), ("cross",),
    ("full", "window"), ("full", "chunk"), ("full", "none"), ("full", "all"), ("full", "align"), ("full", "cross"),
)  # fmt: skip
SIZES = (1, 4, 16)
"""Tokens in a block: of the first group, and of the others unless they have twice as many."""

MOST_DRAFTS = 7


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A manager: its groups (kind, block size, span), the method with k drafts, and what limits it.

    `length` is the longest sequence and `encoded` the encoder's input, in tokens; `spares` are state blocks for drafts;
    `pool` counts the blocks that can be handed out.
    """

    groups: Groups
    method: str
    drafts: Count
    spares: Count
    length: Positive
    encoded: Count
    pool: Positive
    caching: bool

    def __post_init__(self) -> None:
        check_groups(self.described)

    @property
    def described(self) -> tuple[Group, ...]:
        """The groups as the formula takes them."""
        return tuple(Group(*group) for group in self.groups)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """The groups' kinds."""
        return tuple(kind for kind, _, _ in self.groups)

    def limits(self, row: Row) -> Limits:
        """What is the same for every step, with the lookahead of the table's row."""
        return Limits(self.length, written(row, self.drafts), self.spares, self.encoded)


class Cell(NamedTuple):
    """Configurations that are counted together."""

    method: str
    kinds: tuple[Kind, ...]
    size: int

    @property
    def mode(self) -> str:
        """The mode of the recurrent state, `-` where there is none."""
        return next((kind for kind in self.kinds if kind in RECURRENT), "-")

    def __str__(self) -> str:
        return f"{self.method}, {'+'.join(self.kinds)}, block size {self.size}"


def cells(methods: tuple[str, ...]) -> list[Cell]:
    """Every cell."""
    return [Cell(method, kinds, size) for method in methods for kinds in KINDS for size in SIZES]


def draw(cell: Cell, rng: random.Random) -> Configuration:
    """A configuration of the cell. Prefixes are cached only where the engine has it: not beside every kind.

    A chunk of chunked attention is whole blocks.
    """
    drafts = 0 if cell.method == "none" else rng.randint(1, MOST_DRAFTS)
    length = rng.randint(3, 40 + 8 * cell.size)
    caches = {"none", "all", "cross"}.isdisjoint(cell.kinds) and rng.random() < 0.5
    groups = []
    for number, kind in enumerate(cell.kinds):
        size = cell.size * (2 if number and not caches and rng.random() < 0.3 else 1)
        span = {"window": rng.randint(2, 3 * size + 2), "chunk": size * rng.randint(1, 4)}.get(kind, 0)
        groups.append((kind, size, span))
    spares = 0 if set(RECURRENT).isdisjoint(cell.kinds) or rng.random() < 0.1 else drafts
    encoded = rng.randint(1, 4 * cell.size + 8) if "cross" in cell.kinds else 0
    ample = len(groups) * 3 * (length // cell.size + drafts + encoded + 4)
    pool = ample if rng.random() < 0.6 else rng.randint(1, max(ample // 3, 2))
    return Configuration(tuple(groups), cell.method, drafts, spares, length, encoded, pool, caches)


def distinct(cell: Cell, seed: int) -> Iterator[Configuration]:
    """Configurations of the cell, none twice, without end: they stop when the cell seems to have no more."""
    rng = random.Random(f"{seed} {cell}")
    seen: set[Configuration] = set()
    misses = 0
    while misses < 1000:
        drawn = draw(cell, rng)
        misses = misses + 1 if drawn in seen else 0
        if not misses:
            seen.add(drawn)
            yield drawn


def plain(configuration: Configuration) -> dict[str, Any]:
    """As the worker takes it."""
    made: dict[str, Any] = msgspec.to_builtins(configuration)
    return made
