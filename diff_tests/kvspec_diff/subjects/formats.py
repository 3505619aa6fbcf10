"""Formats of entries that can be tried on bytes: the reference's, and the safetensors files of the store on tensors.

What an entry means is its parent, how many tokens it covers and its payload. The store on tensors keeps it as a block
of one recurrent member.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import kvspec_reference.entry_format as reference_format
import kvspec_torch.entry_format as torch_format
import numpy as np
import torch
from kvspec_torch.blocks import Block

from kvspec_diff.framings import Framing, ReferenceFraming, TensorFraming
from kvspec_diff.older_entries import version_1, version_2
from kvspec_diff.subjects.names import LAYOUTS, PLACES, SIGNATURES

Meaning = tuple[str | None, int, bytes]
"""Parent, tokens, payload."""


class Written(NamedTuple):
    """What an entry says of itself; before version 2 it has no signature."""

    version: int
    signature: str | None
    key: str
    meaning: Meaning


class FormatSubject(Protocol):
    """A format, and its reader, whose signature is `SIGNATURES[0]`."""

    @property
    def framing(self) -> Framing:
        """How an entry is put together."""

    def key_of(self, parent: str | None, tokens: Sequence[int], signature: str) -> str:
        """The name of an entry."""

    def write(self, entry: Written) -> bytes:
        """An entry of version 0 to 4, as somebody writes it. Nobody here knows of 0, which is like 1, and 4, like 3."""

    def version(self, data: bytes) -> int:
        """What an entry says of its version. Raises anything for what is no entry."""

    def with_version(self, data: bytes, version: int) -> bytes:
        """The entry with another version and nothing else changed."""

    def read(self, data: bytes, key: str) -> Meaning | None:
        """What the reader takes the entry of this key for; None for a miss."""

    def upgrade(self, data: bytes, key: str) -> bytes | None:
        """What the file of this key is upgraded to, one of the newest version itself; None for a miss."""


def header(framing: Framing, data: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """An entry's header, and the object in it that has the digests."""
    whole = inner = json.loads(framing.split(data)[0])
    for name in framing.levels(whole)[0]:
        inner = inner[name]
    return whole, inner


def with_field(framing: Framing, data: bytes, name: str, value: str) -> bytes:
    """The entry with another value in its header, and the checksum that it had."""
    whole, inner = header(framing, data)
    inner[name] = value
    return framing.join(data, json.dumps(whole, separators=(",", ":")).encode())


def said(subject: FormatSubject, data: bytes) -> Written:
    """What an entry says, read without its reader. Raises anything for what is no entry."""
    of, payload = header(subject.framing, data)[1], subject.framing.split(data)[1]
    meaning = (of["parent"] or None, int(of["tokens"]), payload)
    return Written(subject.version(data), of.get("signature"), of["key"], meaning)


@dataclass(frozen=True)
class ReferenceFormat:
    """The reference's."""

    framing = ReferenceFraming()

    def key_of(self, parent: str | None, tokens: Sequence[int], signature: str) -> str:
        return reference_format.key_of(parent, tokens, signature)

    def write(self, entry: Written) -> bytes:
        """Version 1 is as somebody may have written it: as 2, without a signature."""
        version, signature, key, (parent, tokens, payload) = entry
        whole = reference_format.Entry(key, parent, tokens, payload)
        of = 3 if version > 3 else max(version, 2)
        data = self.with_version(reference_format.write_entry(whole, signature or SIGNATURES[0], of), version)
        if signature is not None:
            return data
        named = {name: value for name, value in header(self.framing, data)[0].items() if name != "signature"}
        return self.framing.join(data, reference_format.canonical(named))

    def version(self, data: bytes) -> int:
        return int.from_bytes(data[8:12], "big")

    def with_version(self, data: bytes, version: int) -> bytes:
        return data[:8] + version.to_bytes(4, "big") + data[12:]

    def read(self, data: bytes, key: str) -> Meaning | None:
        return self.taken(reference_format.read_entry(data, SIGNATURES[0], key))

    def taken(self, found: reference_format.Entry | reference_format.Miss) -> Meaning | None:
        """What was read."""
        return None if isinstance(found, reference_format.Miss) else (found.parent, found.tokens, found.payload)

    def upgrade(self, data: bytes, key: str) -> bytes | None:
        """Of other signatures too it could upgrade; the store asks for none."""
        if reference_format.claimed_signature(data) != SIGNATURES[0]:
            return None
        found = reference_format.upgrade(data)
        return None if isinstance(found, reference_format.Miss) else found


@dataclass(frozen=True)
class TensorFormat:
    """That of the store on tensors; `make` makes one of a layout, perhaps a faulty one."""

    make: type[torch_format.Format] = torch_format.Format
    framing = TensorFraming()

    def key_of(self, parent: str | None, tokens: Sequence[int], signature: str) -> str:
        return torch_format.key_of(parent, tokens, signature)

    def write(self, entry: Written) -> bytes:
        version, signature, key, (parent, _, payload) = entry
        layout = LAYOUTS[SIGNATURES.index(signature)] if signature else LAYOUTS[0]
        state = torch.from_numpy(np.frombuffer(payload, np.uint8).copy())
        block = Block(PLACES[parent], {"0.state": state}, True)
        if version < 2:
            data = with_field(self.framing, version_1(layout, key, block), "parent", parent or "")
            return self.with_version(data, version)
        if version == 2:
            return version_2(layout, key, parent, block)
        data = bytes(torch_format.Format(layout).write(key, parent, block))
        if version > 3:
            data = self.with_version(data, version)
            whole = header(self.framing, data)[0]
            self.framing.summed(data, whole)
            data = self.framing.join(data, json.dumps(whole, separators=(",", ":")).encode())
        return data

    def version(self, data: bytes) -> int:
        return int(header(self.framing, data)[1]["version"])

    def with_version(self, data: bytes, version: int) -> bytes:
        return with_field(self.framing, data, "version", str(version))

    def read(self, data: bytes, key: str) -> Meaning | None:
        found = self._read(data, key)
        if found is None:
            return None
        return found.parent, found.tokens, found.block.parts["0.state"].numpy().tobytes()

    def upgrade(self, data: bytes, key: str) -> bytes | None:
        """As the store does it: what is older is read, and written anew."""
        of = self.make(LAYOUTS[0])
        told = of.judge(data[: of.longest], len(data))
        if isinstance(told, torch_format.Miss):
            return None
        if not told.older:
            return data
        found = self._read(data, key)
        return None if found is None else bytes(of.write(found.key, found.parent, found.block))

    def _read(self, data: bytes, key: str) -> torch_format.Entry | None:
        """Where an older one has its place its parent says."""
        of = self.make(LAYOUTS[0])
        told = of.judge(data[: of.longest], len(data))
        index = PLACES.get(told.parent) if isinstance(told, torch_format.Header) else None
        found = of.read(memoryview(bytearray(data)), key, index)
        return None if isinstance(found, torch_format.Miss) else found
