"""Stores that can be tried on a recorded folder: the reference's, and the one on tensors and safetensors files.

What is saved is a payload of bytes, whose length the key decides. The store on tensors keeps it as a block of one
recurrent member, which is as long.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import kvspec.operations
import kvspec_reference.entry_format as reference_format
import kvspec_reference.store as reference_store
import kvspec_torch.disk.reports
import kvspec_torch.entry_format as torch_format
import kvspec_torch.errors
import kvspec_torch.store as torch_store
import numpy as np
import torch
from kvspec.members import Layout, Part, Recurrent
from kvspec_reference.files import Contents, Recording
from kvspec_torch.blocks import Block

SIGNATURE = Layout("toy", 4, ()).signature

Lengths = Mapping[str, int]
"""Bytes of the payload, by key."""


class StoreSubject(Protocol):
    """A store, and what its entries look like."""

    @property
    def entry(self) -> str:
        """How the names of entries' files end."""

    @property
    def temporary(self) -> str:
        """How those of temporary files do."""

    @property
    def misuse(self) -> type[Exception]:
        """What it raises if the caller is wrong."""

    @property
    def refused(self) -> type[Exception]:
        """What it raises if there is no room."""

    @property
    def report(self) -> type[Any]:
        """What `write_next` answers."""

    def recording(self, state: Mapping[str, bytes]) -> Recording:
        """A recorded folder with these files, all of it on the disk."""

    def open(self, files: Any, lengths: Lengths, **options: int) -> Any:
        """A store on a folder; `options` are those of the reference's."""

    def save(self, store: Any, key: str, payload: bytes) -> None:
        """Have a payload saved, without a parent."""

    def index(self, store: Any) -> Container[str]:
        """The keys that have a file, as the store knows it."""

    def data(self, key: str, payload: bytes) -> bytes:
        """The bytes of the entry."""

    def read(self, key: str, data: bytes, length: int) -> Any:
        """What the store would find in a file with these bytes: an entry or a miss."""

    def payload(self, key: str, found: Any) -> bytes | None:
        """The payload of an entry, if it is one of this key without a parent; otherwise None."""


@dataclass(frozen=True)
class ReferenceStore:
    """The reference; `make` makes a store, perhaps a faulty one."""

    make: Callable[..., Any] = reference_store.Store
    entry = reference_store.ENTRY
    temporary = reference_store.TEMPORARY
    misuse: type[Exception] = kvspec.operations.Misuse
    refused: type[Exception] = kvspec.operations.Refused
    report: type[Any] = reference_store.Report

    def recording(self, state: Mapping[str, bytes]) -> Recording:
        return Recording.of(state)

    def open(self, files: Any, lengths: Lengths, **options: int) -> Any:
        return self.make(files, SIGNATURE, **options)

    def save(self, store: Any, key: str, payload: bytes) -> None:
        store.save(key, payload, tokens=3)

    def index(self, store: Any) -> Container[str]:
        found: Container[str] = store.index
        return found

    def data(self, key: str, payload: bytes) -> bytes:
        return reference_format.write_entry(reference_format.Entry(key, None, 3, payload), SIGNATURE)

    def read(self, key: str, data: bytes, length: int) -> Any:
        return reference_format.read_entry(data, SIGNATURE, key)

    def payload(self, key: str, found: Any) -> bytes | None:
        whole = isinstance(found, reference_format.Entry) and (found.key, found.parent, found.tokens) == (key, None, 3)
        return found.payload if whole else None


class Buffers(Recording):
    """A recorded folder for a store that reads and writes buffers."""

    def write(self, name: str, piece: bytes | memoryview) -> None:
        super().write(name, bytes(piece))

    def read(self, name: str) -> Any:
        return memoryview(bytearray(super().read(name)))

    def read_into(self, name: str, pieces: Sequence[memoryview]) -> bool:
        """As the store's own `Folder` does it."""
        data = super().read(name)
        if len(data) != sum(map(len, pieces)):
            return False
        for piece in pieces:
            piece[:], data = data[: len(piece)], data[len(piece) :]
        return True

    def head(self, name: str, most: int) -> tuple[bytes, int]:
        """As the store's own `Folder` does it."""
        data = super().read(name)
        return data[:most], len(data)


@cache
def format_of(length: int) -> torch_format.Format:
    """The format of blocks that are a state of so many bytes."""
    return torch_format.Format(Layout("toy", 4, (Recurrent((Part("state", (length,), "uint8"),)),)))


@dataclass(frozen=True)
class Several:
    """A format for each key: the store takes it for one."""

    lengths: Lengths

    @property
    def longest(self) -> int:
        """Bytes that hold any header."""
        return max(format_of(length).longest for length in self.lengths.values())

    def judge(self, head: bytes, size: int) -> Any:
        """What the first format says that takes the file for its own."""
        said = [format_of(length).judge(head, size) for length in {0, *self.lengths.values()}]
        return next((each for each in said if isinstance(each, torch_format.Header)), said[0])

    def read(self, data: memoryview, key: str, index: int | None = None) -> Any:
        """As the format of the key reads it."""
        return format_of(self.lengths[key]).read(data, key, index)


@dataclass(frozen=True)
class TorchStore:
    """The store on tensors; `make` makes one, perhaps a faulty one."""

    make: Callable[..., Any] = torch_store.Store
    entry = torch_store.ENTRY
    temporary = torch_store.TEMPORARY
    misuse: type[Exception] = kvspec_torch.errors.Misuse
    refused: type[Exception] = kvspec_torch.errors.Refused
    report: type[Any] = kvspec_torch.disk.reports.Report

    def recording(self, state: Mapping[str, bytes]) -> Recording:
        return Buffers({name: Contents(data) for name, data in state.items()})

    def open(self, files: Any, lengths: Lengths, **options: int) -> Any:
        return self.make(files, Several(lengths), **options)

    def save(self, store: Any, key: str, payload: bytes) -> None:
        store.save(key, self._data(key, payload))

    def index(self, store: Any) -> Container[str]:
        found: Container[str] = store.shelf.entries
        return found

    def data(self, key: str, payload: bytes) -> bytes:
        return bytes(self._data(key, payload))

    def read(self, key: str, data: bytes, length: int) -> Any:
        return format_of(length).read(memoryview(bytearray(data)), key)

    def payload(self, key: str, found: Any) -> bytes | None:
        if not isinstance(found, torch_format.Entry) or (found.key, found.parent, found.tokens) != (key, None, 4):
            return None
        whole = found.block.index == 0 and found.block.stateful and list(found.block.parts) == ["0.state"]
        return found.block.parts["0.state"].numpy().tobytes() if whole else None

    def _data(self, key: str, payload: bytes) -> memoryview:
        state = torch.from_numpy(np.frombuffer(payload, np.uint8).copy())
        return format_of(len(payload)).write(key, None, Block(0, {"0.state": state}, True))
