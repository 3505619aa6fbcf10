"""The reference's caches and blocks as a subject of `representing`: its parts are bytes already."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvspec.members import Layout
from kvspec_reference import blocks
from kvspec_reference.entry_format import Miss


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
