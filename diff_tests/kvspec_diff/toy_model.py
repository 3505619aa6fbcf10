"""A toy model over caches of any layout, and what it computes from the tokens alone: the cold way, without any cache.

The row of a token is a function of the whole prefix up to it, so that no row fits another place. A recurrent state is
folded, token by token, out of the state before: a wrong one makes every later one wrong (S2).
"""

import random
from collections.abc import Mapping, Sequence
from hashlib import sha256, shake_128

from kvspec.members import (
    WIDTHS,
    Absent,
    Group,
    Layout,
    Leaf,
    Member,
    Part,
    Plain,
    Pooled,
    Quantized,
    Recurrent,
    Window,
)

Rows = list[bytes]


def parts_of(layout: Layout) -> dict[str, tuple[Leaf, Part]]:
    """By path, each part and the member that it belongs to, in order."""
    return {f"{path}.{part.name}": (leaf, part) for path, leaf in layout.leaves.items() for part in leaf.parts}


class Model:
    """What is computed over a layout. Tokens are numbers; what was computed once is remembered."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.parts = layout, parts_of(layout)
        self._cold: dict[tuple[int, ...], dict[str, Rows]] = {}

    def new(self, tokens: Sequence[int], start: int, states: Mapping[str, bytes]) -> dict[str, bytes]:
        """What the tokens from `start` on bring to a cache that has these states."""
        found, rows = {}, self.rows(tokens)
        for path, (leaf, part) in self.parts.items():
            if isinstance(leaf, Recurrent):
                found[path] = _fold(states[path], tokens[start:], path, part)
            else:
                found[path] = b"".join(rows[path][leaf.rows(start) if leaf.sliced else start :])
        return found

    def cold(self, tokens: Sequence[int]) -> dict[str, bytes]:
        """All that can be read after these tokens."""
        rows = self.rows(tokens)
        return {
            path: b"".join(rows[path][-leaf.rows(len(tokens)) :] if isinstance(leaf, Window) else rows[path])
            for path, (leaf, _) in self.parts.items()
        }

    def ring(self, tokens: Sequence[int], path: str) -> bytes:
        """The rows of a window as they lie: that of position i in slot i modulo the window's size."""
        window, rows = self.parts[path][0], self.rows(tokens)[path]
        assert isinstance(window, Window)
        slots: dict[int, bytes] = {}
        for position, row in enumerate(rows):
            slots[position % window.size] = row
        return b"".join(slots[slot] for slot in sorted(slots))

    def block(self, tokens: Sequence[int], index: int, states: bool) -> dict[str, bytes]:
        """The parts of a block of these tokens, with the states at its end or without."""
        size = self.layout.block_size
        until = tokens[: (index + 1) * size]
        rows, found = self.rows(until), {}
        for path, (leaf, _) in self.parts.items():
            if leaf.sliced:
                found[path] = b"".join(rows[path][leaf.rows(index * size) :])
            elif states:
                found[path] = self.ring(until, path) if isinstance(leaf, Window) else rows[path][0]
        return found

    def rows(self, tokens: Sequence[int]) -> dict[str, Rows]:
        """Every row of each part, those too that left a window; of a recurrent member the one state."""
        known = tuple(tokens)
        if known not in self._cold:
            digests = _digests(known)
            self._cold[known] = {
                path: [_fold(bytes(part.bytes), known, path, part)]
                if isinstance(leaf, Recurrent)
                else [_drawn(path, digest, part) for digest in _chosen(leaf, digests)]
                for path, (leaf, part) in self.parts.items()
            }
        return self._cold[known]


def _digests(tokens: Sequence[int]) -> list[bytes]:
    """For each token one of the prefix that ends with it."""
    found, before = [], b""
    for token in tokens:
        before = sha256(before + token.to_bytes(8, "big")).digest()
        found.append(before)
    return found


def _chosen(leaf: Leaf, digests: list[bytes]) -> list[bytes]:
    """Those of the tokens with which a row is complete."""
    return digests[leaf.ratio - 1 :: leaf.ratio] if isinstance(leaf, Pooled) else digests


def _fold(state: bytes, tokens: Sequence[int], path: str, part: Part) -> bytes:
    for token in tokens:
        state = _drawn(path, state + token.to_bytes(8, "big"), part)
    return state


def _drawn(path: str, seed: bytes, part: Part) -> bytes:
    """Bytes of the part's size that depend on all of this; each byte of a bool is 0 or 1."""
    data = shake_128(path.encode() + b"\0" + seed).digest(part.bytes)
    return bytes(byte & 1 for byte in data) if part.dtype == "bool" else data


# Random layouts.

BLOCK_SIZES = (1, 2, 3, 4, 5, 7, 8, 16, 33, 64)


def random_layout(of: random.Random) -> Layout:
    """A few members of any kinds, nested ones too; windows smaller and larger than what a program appends."""
    size = of.choice(BLOCK_SIZES)
    return Layout("toy", size, tuple(_member(of, size, 2) for _ in range(of.choice((1, 1, 2, 2, 3, 4)))))


def _member(of: random.Random, size: int, depth: int) -> Member:
    kind = of.choice(("plain", "quantized", "pooled", "window", "recurrent", "absent", "group"))
    if kind == "group" and depth:
        return Group(tuple(_member(of, size, depth - 1) for _ in range(of.randrange(4))))
    if kind == "quantized":
        values, scales = Part("values", (of.randrange(1, 3),), "uint8"), Part("scales", (1,), "float16")
        return Quantized((values, scales), bits=4, group=2)
    if kind == "pooled":
        return Pooled(_parts(of), ratio=of.choice((1, 2, 3, 5, size, 2 * size)))
    if kind == "window":
        return Window(_parts(of), size=of.choice((1, 2, 3, size, size + 1, 2 * size + 1, 5 * size)))
    if kind == "recurrent":
        return Recurrent(_parts(of))
    return Absent() if kind == "absent" else Plain(_parts(of))


def _parts(of: random.Random) -> tuple[Part, ...]:
    shapes: tuple[tuple[int, ...], ...] = ((), (1,), (2,), (2, 3), (1, 0), (0,))
    names = ("keys", "values")[: of.choice((1, 1, 2))]
    return tuple(Part(name, of.choice(shapes), of.choice(list(WIDTHS))) for name in names)
