"""The reference's caches and blocks as a subject of `representing`, and its store as one of `prefixing`.

Its parts are bytes already.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kvspec.members import Layout
from kvspec_reference import blocks, prefixes
from kvspec_reference.entry_format import MAGIC, Entry, Miss, read_entry, write_entry
from kvspec_reference.files import Recording
from kvspec_reference.growth import whole_signature
from kvspec_reference.store import ENTRY, Store


@dataclass
class ReferenceBlocks:
    """`of` is the module that has them, or one with a fault."""

    of: Any = blocks
    overhead: int = blocks.HEAD

    def empty(self, layout: Layout) -> Any:
        return self.of.Cache(layout)

    def restore(self, layout: Layout, found: Sequence[Any | None]) -> Any:
        return self.of.restore(layout, found)

    def save(self, layout: Layout, block: Any) -> bytes:
        data: bytes = self.of.pack(layout, block)
        return data

    def load(self, layout: Layout, data: bytes) -> Any | None:
        found = self.of.unpack(layout, data)
        return None if isinstance(found, Miss) else found

    def raw(self, layout: Layout, path: str, data: bytes, rows: int | None) -> Any:
        return data

    def data(self, raw: Any) -> bytes:
        return bytes(raw)

    def scribble(self, raw: Any) -> None:
        """Nobody can."""

    def held(self, raw: Any) -> int:
        return memoryview(raw.obj).nbytes if isinstance(raw, memoryview) else len(raw)


@dataclass
class ReferenceShelf:
    """The reference's store in a recorded folder."""

    layout: Layout
    budget: int
    subject: ReferenceBlocks = field(default_factory=ReferenceBlocks)
    files: Recording = field(default_factory=Recording)

    def __post_init__(self) -> None:
        self.reopen()

    def reopen(self) -> None:
        self.store = Store(self.files, self.layout.signature, budget=self.budget, slots=16)

    def save(self, tokens: Sequence[int], cache: Any) -> list[str]:
        try:
            return prefixes.save_prefix(self.store, tokens, cache)
        finally:
            self._write()

    def restore(self, tokens: Sequence[int]) -> Any:
        return prefixes.restore_prefix(self.store, self.layout, tokens)

    def upgrade(self) -> None:
        for key in list(self.store.index):
            self.store.upgrade(key)
            self._write()

    def entry(self, key: str) -> bytes | None:
        there = self.files.folder.get(key + ENTRY)
        return None if there is None else there.now()

    def put(self, key: str, data: bytes) -> None:
        self.files.folder[key + ENTRY].firm = data

    def harmed(self, how: str, key: str, data: bytes) -> bytes:
        if how in ("oldest", "newer"):
            return MAGIC + (b"\0\0\0\1" if how == "oldest" else b"\0\0\0\4") + data[len(MAGIC) + 4 :]
        found = read_entry(data, self.layout.signature, key)
        assert isinstance(found, Entry)
        if how == "older":
            return write_entry(found, self.layout.signature, 2)
        other = found.payload[: blocks.HEAD] + bytes(byte ^ 255 for byte in found.payload[blocks.HEAD :])
        return write_entry(Entry(key, found.parent, found.tokens, other), whole_signature(self.layout))

    def used(self) -> int:
        return sum(len(there.now()) for there in self.files.folder.values())

    def _write(self) -> None:
        while self.store.queue:
            self.store.write_next()
