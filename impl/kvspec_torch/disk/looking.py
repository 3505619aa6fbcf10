"""What the files of a store's folder are, as far as they tell by themselves: nothing here knows a layout (E2, E5).

A header names the version, the signature, the key and its parent's. Without the layout it cannot be told whether the
tensors are those of the members; that they fill the payload one behind the other, that the header is written in the
one way, and that the checksum is that of the bytes, can.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from kvspec.members import WIDTHS

from kvspec_torch.disk.files import Folder
from kvspec_torch.disk.frames import CODES
from kvspec_torch.disk.layouts import LAYOUT
from kvspec_torch.disk.lock import NAME as LOCK
from kvspec_torch.disk.older import checksum_of_version_2
from kvspec_torch.entry_format import CHECKSUM, DIGEST, METADATA, Format, Miss, checksum
from kvspec_torch.store import ENTRY, TEMPORARY

HEAD = 2**16
"""Bytes that hold nearly any header; of a longer one more is read."""

SIZES = {code: WIDTHS[name] for name, code in CODES.items()}
TENSOR = re.compile(r"[0-9]+(\.[0-9]+)*\.[a-z][a-z0-9_]{0,30}")
OLDER = re.compile(r"layer(_[0-9]+)+_[a-z][a-z0-9_]{0,30}")
FIELDS = ("dtype", "shape", "data_offsets")
OLDER_FIELDS = {"checksum", "format", "key", "parent", "signature", "tokens", "version"}


@dataclass(frozen=True)
class Said:
    """What an entry says of itself; its payload begins at `start`. Version 2 has neither `index` nor `stateful`."""

    version: str
    signature: str
    key: str
    parent: str | None
    tokens: int
    start: int
    checksum: str
    index: int | None = None
    stateful: bool | None = None


@dataclass(frozen=True)
class File:
    """A file under a key: how large, when it was last written, and what it says, or why it says nothing."""

    key: str
    size: int
    written: float
    said: Said | Miss

    @property
    def name(self) -> str:
        """In the folder."""
        return self.key + ENTRY


@dataclass(frozen=True)
class Names:
    """What is in a folder: the keys of entries, temporary files, and how many files of somebody else."""

    keys: list[str]
    temporary: list[str]
    others: int


def names(folder: Folder) -> Names:
    """By the names alone."""
    keys, temporary, others = [], [], 0
    for name in folder.names():
        key, dot, kind = name.partition(".")
        if not DIGEST.fullmatch(key) or dot + kind not in (ENTRY, TEMPORARY, LAYOUT):
            others += name != LOCK
        elif dot + kind == ENTRY:
            keys.append(key)
        elif dot + kind == TEMPORARY:
            temporary.append(name)
    return Names(keys, temporary, others)


def is_store(folder: Folder) -> bool:
    """Whether a store was here: it leaves its lock, and entries."""
    found = folder.names()
    return LOCK in found or any(DIGEST.fullmatch(name.partition(".")[0]) for name in found)


def useless(miss: Miss) -> bool:
    """Whether it is no damage, but an entry that nobody knows how to read: of another version, or without signature."""
    return miss.reason in ("version", "signature")


def look(folder: Folder, keys: list[str]) -> Iterator[File]:
    """Each entry by its header; one that is gone meanwhile is left out."""
    for key in keys:
        try:
            written = os.stat(key + ENTRY, dir_fd=folder.descriptor, follow_symlinks=False).st_mtime
            head, size = folder.head(key + ENTRY, HEAD)
            length = int.from_bytes(head[:8], "little")
            if HEAD < 8 + length <= size:
                head, size = folder.head(key + ENTRY, 8 + length)
        except FileNotFoundError:
            continue
        except OSError as error:
            yield File(key, 0, 0, Miss("unreadable", error.strerror or str(error)))
            continue
        yield File(key, size, written, judge(head, size, key))


def whole(folder: Folder, key: str, formats: Mapping[str, Format]) -> File | None:
    """The same with the checksum, and with the tensors if the layout is known; None if it is gone meanwhile."""
    try:
        data = folder.read(key + ENTRY)
    except FileNotFoundError:
        return None
    except OSError as error:
        return File(key, 0, 0, Miss("unreadable", error.strerror or str(error)))
    said = judge(bytes(data[: 8 + min(int.from_bytes(data[:8], "little"), len(data))]), len(data), key)
    if isinstance(said, Said):
        if said.version == "3":
            found = checksum([data[: CHECKSUM.start], data[CHECKSUM.stop :]]).decode()
        else:
            found = checksum_of_version_2(data)
        if found != said.checksum:
            said = Miss("damaged", f"checksum {found}, the header says {said.checksum}")
    if isinstance(said, Said) and said.signature in formats:
        fits = formats[said.signature].judge(bytes(data[: said.start]), len(data))
        said = fits if isinstance(fits, Miss) else said
    return File(key, len(data), 0, said)


def judge(head: bytes, size: int, key: str) -> Said | Miss:
    """What a file of `size` bytes says of itself, from its header and more."""
    if size < 10 or len(head) < 10:
        return Miss("short", f"{size} bytes, the shortest entry has more")
    length = int.from_bytes(head[:8], "little")
    if head[8:9] != b"{":
        return Miss("foreign", "does not begin like an entry")
    if 8 + length > len(head):
        return Miss("length", f"a header of {length} bytes in {size}")
    text = head[8 : 8 + length]
    try:
        header = json.loads(text.decode(), object_pairs_hook=_once, parse_float=_no, parse_constant=_no)
    except (ValueError, RecursionError) as error:
        return Miss("header", f"cannot be read: {error}")
    said = _said(head, header, 8 + length)
    if isinstance(said, Miss):
        return said
    if said.key != key:
        return Miss("key", f"key {said.key}, {key} is wanted")
    return _fills(header, size - said.start, said.version) or (said if _written(text, header, said) else _ODD)


_ODD = Miss("header", "is not written in the one way")


def _said(head: bytes, header: Any, start: int) -> Said | Miss:
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or metadata.get("format") != "kvspec":
        return Miss("foreign", "is no entry of a store")
    version = metadata.get("version")
    if version == "3":
        found = METADATA.match(head, 8)
        if found is None:
            return _ODD
        check, index, key, parent, signature, stateful, tokens = (each.decode() for each in found.groups())
        return Said("3", signature, key, parent or None, int(tokens), start, check, int(index), stateful == "1")
    if version not in ("1", "2"):
        return Miss("version", f"version {version!r}, only 2 and 3 are known")
    if version == "1" or "signature" not in metadata:
        return Miss("version" if version == "1" else "signature", "has no signature: nobody knows what it means")
    right = metadata.keys() == OLDER_FIELDS and all(type(each) is str for each in metadata.values())
    if not right or not all(DIGEST.fullmatch(metadata[name]) for name in ("key", "checksum", "signature")):
        return _ODD
    parent, tokens = metadata["parent"], metadata["tokens"]
    if (parent and not DIGEST.fullmatch(parent)) or not (tokens.isascii() and tokens.isdigit() and len(tokens) < 20):
        return _ODD
    return Said("2", metadata["signature"], metadata["key"], parent or None, int(tokens), start, metadata["checksum"])


def _fills(header: dict[str, Any], payload: int, version: str) -> Miss | None:
    """None if the tensors lie one behind the other and fill the payload."""
    pattern = TENSOR if version == "3" else OLDER
    lie = []
    for name, each in header.items():
        if name == "__metadata__":
            continue
        if (
            not pattern.fullmatch(name)
            or not isinstance(each, dict)
            or each.keys() != {"dtype", "shape", "data_offsets"}
        ):
            return Miss("header", f"does not say what {name!r} is")
        dtype, shape, offsets = (each[field] for field in FIELDS)
        right = isinstance(dtype, str) and dtype in SIZES and _naturals(shape) and _naturals(offsets)
        if not right or len(offsets) != 2 or offsets[1] - offsets[0] != prod(shape) * SIZES[dtype]:
            return Miss("header", f"{name} is {dtype!r} of shape {shape!r}, and lies at {offsets!r}")
        lie.append((offsets[0], offsets[1]))
    ends = [0, *(stop for _, stop in sorted(lie))]
    if [start for start, _ in sorted(lie)] != ends[:-1]:
        return Miss("header", "its tensors are not one behind the other")
    return None if ends[-1] == payload else Miss("length", f"a payload of {payload} bytes, {ends[-1]} are told of")


def _written(text: bytes, header: dict[str, Any], said: Said) -> bool:
    """Whether it is written in the one way, of version 3: shortest JSON, spaces up to a multiple of eight."""
    once = json.dumps(header, separators=(",", ":")).encode()
    return said.version != "3" or text == once.ljust(-len(once) // 8 * -8)


def _naturals(value: Any) -> bool:
    return type(value) is list and all(type(each) is int and 0 <= each < 2**63 for each in value)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError("a field is there twice")
    return found


def _no(text: str) -> Any:
    raise ValueError(f"{text} is no integer")
