"""A live cache of some layout, the blocks that it is cut into, and the cache that blocks are put together to (B1-B8).

What a member holds is a string of bytes for each of its parts: its rows one after the other, in the order of their
positions, or its state. A block has the rows of its own tokens; of windows and recurrent members, whose state is valid
at one position only, it has that state if the cache stands at the block's end, and nothing otherwise (B10, S3).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kvspec.members import Layout, Leaf, Part, Recurrent, Window, checked
from kvspec.operations import Misuse, Refused

from kvspec_reference.entry_format import LARGEST, Miss

Parts = Mapping[str, bytes]
"""By a part's path, such as "2.1.state": its rows, one after the other, or its state."""


@dataclass(frozen=True)
class Block:
    """The block of number `index` of a prefix. `stateful`: it has the states too, so that a cache may end with it."""

    index: int
    parts: Parts
    stateful: bool


def parts_of(layout: Layout) -> dict[str, tuple[Leaf, Part]]:
    """By path, each part and the member that it belongs to, in order."""
    return {f"{path}.{part.name}": (leaf, part) for path, leaf in layout.leaves.items() for part in leaf.parts}


def is_stateless(layout: Layout) -> bool:
    """Whether no member has a state: then every block has all the states that there are."""
    return all(leaf.sliced for leaf in layout.leaves.values())


def new_sizes(layout: Layout, start: int, end: int) -> dict[str, int]:
    """By path, in order, the bytes that the tokens from `start` to `end` bring."""
    sizes = {}
    for path, (leaf, part) in parts_of(layout).items():
        if isinstance(leaf, Recurrent):
            rows = 1
        elif isinstance(leaf, Window):
            rows = end - start
        else:
            rows = leaf.rows(end) - leaf.rows(start)
        sizes[path] = rows * part.bytes
    return sizes


class Cache:
    """What a model keeps of the tokens that it has seen, member by member; empty at first, with states of zeros.

    Every method checks everything before it changes anything. What goes in and comes out are strings of bytes, which
    nobody can change: what was read stays as it was (S4).
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = checked(layout)
        self.position = 0  # tokens seen so far
        self._held = {
            path: bytes(part.bytes) if isinstance(leaf, Recurrent) else b""
            for path, (leaf, part) in parts_of(self.layout).items()
        }

    def append(self, count: int, new: Parts) -> None:
        """`count` more tokens, with all parts of the layout.

        Of plain and quantized members and of windows, a row for each token; of pooled ones, the rows that these tokens
        complete; of recurrent ones, the state after them. Raises `Misuse` for anything else.
        """
        end = self.position + _natural("count", count)
        _check_sizes(new, new_sizes(self.layout, self.position, end))
        for path, (leaf, part) in parts_of(self.layout).items():
            if isinstance(leaf, Recurrent):
                self._held[path] = new[path]
            else:
                self._held[path] += new[path]
            if isinstance(leaf, Window):
                self._held[path] = _last(self._held[path], leaf.rows(end), part)
        self.position = end

    def trim(self, position: int) -> None:
        """Keep the first so many tokens, in every member or in none (B8).

        Raises `Refused` where a member cannot go back: a window that has lost rows, a recurrent member. Raises
        `Misuse` if there are not so many tokens.
        """
        if _natural("position", position) > self.position:
            raise Misuse(f"position: {position}, the cache has {self.position} tokens")
        if position == self.position:
            return
        for path, leaf in self.layout.leaves.items():
            if isinstance(leaf, Recurrent):
                raise Refused(f"member {path}: its state is the one after {self.position} tokens, not after {position}")
            if isinstance(leaf, Window) and self.position > leaf.size:
                raise Refused(f"member {path}: rows before {self.position - leaf.size} have left the window")
        for path, (leaf, part) in parts_of(self.layout).items():
            self._held[path] = self._held[path][: leaf.rows(position) * part.bytes]
        self.position = position

    def read(self, path: str) -> bytes:
        """All rows of a part in the order of their positions, of a window those that are left; or the state."""
        self._part(path)
        return self._held[path]

    def ring(self, path: str) -> tuple[bytes, int, int]:
        """A window's rows as they lie, the position of the next one, and the slot that it will take (B7).

        Position i stands in slot i modulo the window's size.
        """
        leaf, part = self._part(path)
        if not isinstance(leaf, Window):
            raise Misuse(f"{path}: is no part of a window")
        cursor = self.position % leaf.size
        return _by_slot(self._held[path], self.position, leaf, part), self.position, cursor

    def block(self, index: int) -> Block:
        """The block of this number: its rows, and the states if the cache stands at its end (B3, B10).

        Raises `Misuse` unless all its tokens are in the cache.
        """
        start = _natural("index", index) * self.layout.block_size
        end = start + self.layout.block_size
        if end > self.position:
            raise Misuse(f"block {index}: ends at {end}, the cache has {self.position} tokens")
        stateful = is_stateless(self.layout) or end == self.position
        parts = {}
        for path, (leaf, part) in parts_of(self.layout).items():
            held = self._held[path]
            if leaf.sliced:
                parts[path] = held[leaf.rows(start) * part.bytes : leaf.rows(end) * part.bytes]
            elif stateful:
                parts[path] = _by_slot(held, end, leaf, part) if isinstance(leaf, Window) else held
        return Block(index, parts, stateful)

    def _part(self, path: str) -> tuple[Leaf, Part]:
        if path not in (parts := parts_of(self.layout)):
            raise Misuse(f"{path!r} is no part; there are {', '.join(parts) or 'none'}")
        return parts[path]


def restore(layout: Layout, blocks: Sequence[Block | None]) -> Cache:
    """The cache of the longest prefix that these blocks make up (B4, B5).

    It ends before the first block that is not there, or has another number; and it ends with one that has the states.
    Raises `Misuse` for a block that is none of this layout.
    """
    cache = Cache(layout)
    for block in blocks:
        if block is not None:
            _check_block(layout, block)
    usable: list[Block] = []
    for index, block in enumerate(blocks):
        if block is None or block.index != index:
            break
        usable.append(block)
    while usable and not usable[-1].stateful:
        usable.pop()
    if usable:
        cache.position = len(usable) * layout.block_size
        for path, (leaf, part) in parts_of(layout).items():
            if leaf.sliced:
                cache._held[path] = b"".join(block.parts[path] for block in usable)
            elif isinstance(leaf, Window):
                cache._held[path] = _by_position(usable[-1].parts[path], cache.position, leaf, part)
            else:
                cache._held[path] = usable[-1].parts[path]
    return cache


# A block as bytes.


def sizes_of(layout: Layout, index: int, stateful: bool) -> dict[str, int]:
    """By path, in order, the bytes of the parts that the block of this number has."""
    start = index * layout.block_size
    end = start + layout.block_size
    sizes = {}
    for path, (leaf, part) in parts_of(layout).items():
        if leaf.sliced:
            sizes[path] = (leaf.rows(end) - leaf.rows(start)) * part.bytes
        elif stateful:
            sizes[path] = leaf.rows(end) * part.bytes
    return sizes


HEAD = 9
"""Bytes before the parts: the block's number (8, big-endian), and 1 if it has the states, otherwise 0."""


def pack(layout: Layout, block: Block) -> bytes:
    """The block as bytes: number, states or none, then its parts in the order of the layout (B1).

    The layout tells how long each is, so nothing else is needed.
    """
    _check_block(layout, block)
    parts = [block.parts[path] for path in sizes_of(layout, block.index, block.stateful)]
    return block.index.to_bytes(8, "big") + bytes([block.stateful]) + b"".join(parts)


def unpack(layout: Layout, data: bytes) -> Block | Miss:
    """The block that `pack` made these bytes of, or why there is none. Never raises for what `data` holds."""
    if len(data) < HEAD:
        return Miss("length", f"{len(data)} bytes, a block has {HEAD} or more")
    index, flag = int.from_bytes(data[:8], "big"), data[8]
    if index > LARGEST or flag > 1 or (flag == 0 and is_stateless(layout)):
        return Miss("header", f"block {index} with {flag} for its states")
    sizes = sizes_of(layout, index, flag == 1)
    if len(data) != HEAD + sum(sizes.values()):
        return Miss("length", f"{len(data)} bytes, block {index} has {HEAD + sum(sizes.values())}")
    parts, at = {}, HEAD
    for path, size in sizes.items():
        parts[path] = data[at : at + size]
        at += size
    return Block(index, parts, flag == 1)


# What several of these need.


def _by_slot(rows: bytes, position: int, window: Window, part: Part) -> bytes:
    """A window's rows, which are in the order of positions, in that of their slots in the ring."""
    first = position - window.rows(position)
    slots = [b""] * window.rows(position)
    for at in range(len(slots)):
        slots[(first + at) % window.size] = rows[at * part.bytes : (at + 1) * part.bytes]
    return b"".join(slots)


def _by_position(ring: bytes, position: int, window: Window, part: Part) -> bytes:
    """The other way round."""
    slots = [i % window.size for i in range(position - window.rows(position), position)]
    return b"".join(ring[slot * part.bytes : (slot + 1) * part.bytes] for slot in slots)


def _last(rows: bytes, count: int, part: Part) -> bytes:
    return rows[len(rows) - count * part.bytes :]


def _natural(what: str, value: int) -> int:
    if type(value) is not int or value < 0:
        raise Misuse(f"{what}: {value!r}, 0 or more is wanted")
    return value


def _check_block(layout: Layout, block: Block) -> None:
    if _natural("index", block.index) > LARGEST:
        raise Misuse(f"index: {block.index!r}, at most {LARGEST} is wanted")
    if type(block.stateful) is not bool or (not block.stateful and is_stateless(layout)):
        raise Misuse(f"block {block.index}: stateful is {block.stateful!r}; without states in the layout it is True")
    _check_sizes(block.parts, sizes_of(layout, block.index, block.stateful))


def _check_sizes(parts: Parts, sizes: Mapping[str, int]) -> None:
    """Raises `Misuse` unless there are exactly the parts of `sizes`, each with so many bytes."""
    for path in sorted(parts.keys() ^ sizes.keys()):
        raise Misuse(f"{path}: {'is missing' if path in sizes else 'is no part here'}")
    for path, size in sizes.items():
        if type(parts[path]) is not bytes:
            raise Misuse(f"{path}: is {type(parts[path]).__name__}, not bytes")
        if len(parts[path]) != size:
            raise Misuse(f"{path}: has {len(parts[path])} bytes, {size} are wanted")
