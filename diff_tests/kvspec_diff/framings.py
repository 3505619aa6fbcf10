"""How an entry's header and its payload are put together: so that damage can be done to any format."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

from kvspec_reference.entry_format import FIXED, MAGIC
from kvspec_reference.entry_format import checksum as reference_checksum
from xxhash import xxh3_128

Level = tuple[str, ...]
"""The way to an object of a header, from the outermost one."""


class Framing(Protocol):
    """A format whose header is JSON, which may have objects in it."""

    @property
    def frame(self) -> Sequence[tuple[int, int]]:
        """Where the fields before the header begin, and their bytes."""

    @property
    def digests(self) -> Sequence[str]:
        """The header's fields that are digests."""

    @property
    def numbers(self) -> Sequence[str]:
        """Those that are numbers."""

    def levels(self, header: Mapping[str, Any]) -> Sequence[Level]:
        """The header's objects; digests and numbers are in the first."""

    def number(self, value: int) -> bytes:
        """How a number is written."""

    def split(self, entry: bytes) -> tuple[bytes, bytes]:
        """Header and payload."""

    def join(self, entry: bytes, text: bytes) -> bytes:
        """The entry with another header."""

    def summed(self, entry: bytes, header: dict[str, Any]) -> None:
        """Put the checksum into a header of the entry's payload, if there is one that goes with it."""


@dataclass(frozen=True)
class ReferenceFraming:
    """Entries of the reference."""

    digests = ("key", "parent", "signature", "checksum")
    numbers = ("tokens", "payload")
    frame = ((0, len(MAGIC)), (len(MAGIC), 4), (FIXED - 4, 4))

    def levels(self, header: Mapping[str, Any]) -> Sequence[Level]:
        return [()]

    def number(self, value: int) -> bytes:
        return b"%d" % value

    def split(self, entry: bytes) -> tuple[bytes, bytes]:
        length = int.from_bytes(entry[FIXED - 4 : FIXED], "big")
        return entry[FIXED : FIXED + length], entry[FIXED + length :]

    def join(self, entry: bytes, text: bytes) -> bytes:
        return entry[: FIXED - 4] + len(text).to_bytes(4, "big") + text + self.split(entry)[1]

    def summed(self, entry: bytes, header: dict[str, Any]) -> None:
        version = int.from_bytes(entry[len(MAGIC) : len(MAGIC) + 4], "big")
        header["checksum"] = reference_checksum(header, self.split(entry)[1], version)


@dataclass(frozen=True)
class TensorFraming:
    """Safetensors files of the store on tensors; `older` are those of version 2, with a SHA-256."""

    older: bool = False
    digests = ("key", "parent", "signature", "checksum")
    frame = ((0, 8), (0, 1), (1, 1))

    @property
    def numbers(self) -> Sequence[str]:
        return ["tokens"] if self.older else ["tokens", "index"]

    def levels(self, header: Mapping[str, Any]) -> Sequence[Level]:
        return [("__metadata__",), (), *((name,) for name in header if name != "__metadata__")]

    def number(self, value: int) -> bytes:
        return b'"%d"' % value

    def split(self, entry: bytes) -> tuple[bytes, bytes]:
        length = 8 + int.from_bytes(entry[:8], "little")
        return entry[8:length].rstrip(b" "), entry[length:]

    def join(self, entry: bytes, text: bytes) -> bytes:
        text = text.ljust(-(-len(text) // 8) * 8)
        return len(text).to_bytes(8, "little") + text + self.split(entry)[1]

    def summed(self, entry: bytes, header: dict[str, Any]) -> None:
        blank = "0" * (64 if self.older else 32)
        header["__metadata__"]["checksum"] = blank
        data = self.join(entry, json.dumps(header, separators=(",", ":")).encode())
        before, _, after = data.partition(blank.encode())
        found = sha256(before + after).hexdigest() if self.older else xxh3_128(before + after).hexdigest()
        header["__metadata__"]["checksum"] = found
