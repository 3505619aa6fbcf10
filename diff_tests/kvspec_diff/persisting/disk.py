"""A store on a real folder, and what was put into it: blocks cut out of what an engine's cache handed out."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvspec.members import Layout, Recurrent, Window
from kvspec_torch.block_store import BlockStore
from kvspec_torch.blocks import Block, Cache
from kvspec_torch.entry_format import Miss

from kvspec_diff.beside import Broken
from kvspec_diff.subjects.torch_blocks import bytes_of, tensor_of

BUDGET = 2**30
HEADER = 4096
"""Bytes of a file besides its parts, at most, and of each part's name and shape."""

PART = 256

Parts = Mapping[str, bytes]
"""By path: all rows of a part, a ring in the order of its slots, or a state."""

Prefix = tuple[int, ...]


@dataclass(frozen=True)
class Stored:
    """A block that was saved: its key, and what is to be found."""

    key: str
    parts: Parts
    stateful: bool


class Disk:
    """A store of this layout in a folder of its own. What breaks a law raises `Broken`."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.blocks: dict[Prefix, Stored] = {}  # by the tokens up to the block's end
        self._leaves = {f"{at}.{part.name}": (leaf, part) for at, leaf in layout.leaves.items() for part in leaf.parts}
        self._stateless = all(leaf.sliced for leaf in layout.leaves.values())
        self._folder = tempfile.TemporaryDirectory(prefix="kvspec-")
        self._store = self._opened()

    def close(self) -> None:
        """Close the store and delete its folder."""
        self._store.close()
        self._folder.cleanup()

    def save(self, tokens: Sequence[int], parts: Parts) -> None:
        """Save the whole blocks of a cache of these tokens, the last one with its states if the cache ends there.

        As an engine does: what is stored already is not stored again, unless it has its states only now (B10).
        """
        self._fit(len(tokens), parts)
        parent = None
        for index in range(len(tokens) // self.layout.block_size):
            block, raw = self._cut(tokens, index, parts)
            prefix = tuple(tokens[: (index + 1) * self.layout.block_size])
            there = self.blocks.get(prefix)
            if there is None or (block.stateful and not there.stateful):
                key = self._store.save(parent, prefix[index * self.layout.block_size :], block)
                self.blocks[prefix] = there = Stored(key, raw, block.stateful)
            elif (differs := _differing(there.parts, raw)) is not None:
                raise Broken("B3", f"{differs} of block {index}: is cut otherwise out of {len(tokens)} tokens")
            parent = there.key
        self._store.flush()
        self._count_bytes()

    def lose(self, number: int) -> None:
        """Delete the stored block of this number, modulo how many there are."""
        if self.blocks:
            prefix = sorted(self.blocks)[number % len(self.blocks)]
            self._store.evict(self.blocks.pop(prefix).key)

    def restore(self, tokens: Sequence[int]) -> tuple[int, Parts]:
        """What is found of these tokens after the store was opened anew: how many of them, and all parts."""
        self._store.close()
        self._store = self._opened()
        self._find_all()
        wanted = self._longest(tokens)
        cache = self._store.restore(tokens)
        if cache.position != wanted:
            raise Broken("B4", f"restored {cache.position} of {len(tokens)} tokens, {wanted} is right")
        return wanted, {path: self._read(cache, path) for path in self._leaves}

    def _fit(self, length: int, parts: Parts) -> None:
        """What was handed out is what the members say that it is (E1, B5)."""
        if parts.keys() != self._leaves.keys():
            raise Broken("E1", f"has the parts {sorted(parts)}, by its members {sorted(self._leaves)}")
        for path, (leaf, part) in self._leaves.items():
            wanted = leaf.rows(length) * part.bytes
            if len(parts[path]) != wanted:
                raise Broken("B5", f"{path}: {len(parts[path])} bytes after {length} tokens, {wanted} are right")

    def _opened(self) -> BlockStore:
        return BlockStore(Path(self._folder.name), self.layout, budget=BUDGET, slots=512, writer=False)

    def _cut(self, tokens: Sequence[int], index: int, parts: Parts) -> tuple[Block, Parts]:
        """A block, as tensors and as bytes."""
        size = self.layout.block_size
        start, end = index * size, (index + 1) * size
        stateful = self._stateless or end == len(tokens)
        raw, made = {}, {}
        for path, (leaf, part) in self._leaves.items():
            if leaf.sliced:
                first, last = leaf.rows(start), leaf.rows(end)
                raw[path] = parts[path][first * part.bytes : last * part.bytes]
                made[path] = tensor_of(raw[path], part, last - first)
            elif stateful:
                raw[path] = parts[path]
                made[path] = tensor_of(raw[path], part, None if isinstance(leaf, Recurrent) else leaf.rows(end))
        return Block(index, made, stateful), raw

    def _read(self, cache: Cache, path: str) -> bytes:
        leaf = self._leaves[path][0]
        return bytes_of(cache.ring(path)[0] if isinstance(leaf, Window) else cache.read(path))

    def _longest(self, tokens: Sequence[int]) -> int:
        """How much of these tokens is stored whole, up to a block that has its states."""
        size, found = self.layout.block_size, 0
        for end in range(size, len(tokens) + 1, size):
            there = self.blocks.get(tuple(tokens[:end]))
            if there is None:
                break
            found = end if there.stateful else found
        return found

    def _find_all(self) -> None:
        """Every block is found as it was saved (B1)."""
        for prefix, there in self.blocks.items():
            index = len(prefix) // self.layout.block_size - 1
            found = self._store.load(there.key)
            if isinstance(found, Miss):
                raise Broken("B1", f"block {index}: is not found: {found.text}")
            now = {path: bytes_of(tensor) for path, tensor in found.parts.items()}
            if (differs := _differing(there.parts, now)) is not None or found.stateful != there.stateful:
                raise Broken("B1", f"{differs or 'a state'} of block {index}: is not what was saved")

    def _count_bytes(self) -> None:
        """The files are as large as the blocks in them, and little more (B6)."""
        used = self._store.stats().bytes
        room = sum(HEADER + sum(PART + len(data) for data in there.parts.values()) for there in self.blocks.values())
        if used > room:
            raise Broken(
                "B6", f"{len(self.blocks)} blocks take {used} bytes, of which their parts and all else have {room}"
            )


def _differing(one: Parts, other: Parts) -> str | None:
    """The first path at which two blocks that are both whole differ; a state that only one of them has does not."""
    return next((path for path in one if path in other and one[path] != other[path]), None)
