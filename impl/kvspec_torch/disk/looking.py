"""What the files of a store's folder are, as far as they tell by themselves: nothing here knows a layout (E2, E5).

A header names the version, the signature, the key and its parent's. Without the layout it cannot be told whether the
tensors are those of the members; that they fill the payload one behind the other, that the header is written in the
one way, and that the checksum is that of the bytes, can.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import sha256
from math import prod
from typing import Any

import xxhash
from kvspec.members import WIDTHS

from kvspec_torch.disk.files import Folder
from kvspec_torch.disk.frames import CODES, DIGEST, LARGEST, short
from kvspec_torch.disk.layouts import LAYOUT
from kvspec_torch.disk.lock import NAME as LOCK
from kvspec_torch.disk.older import CHECKSUM as OLDER_CHECKSUM
from kvspec_torch.disk.older import FIELDS as VERSION_2
from kvspec_torch.disk.older import header_of, in_version_2
from kvspec_torch.entry_format import CHECKSUM, METADATA, Format, Miss
from kvspec_torch.store import ENTRY, TEMPORARY

HEAD = 2**16
"""Bytes that hold nearly any header; of a longer one more is read."""
LONGEST = 2**24
"""A header with more bytes is not read."""
SIDES = 64
"""No tensor has more: a file could say so many that it takes hours to multiply them."""

SIZES = {code: WIDTHS[name] for name, code in CODES.items()}
TENSOR = re.compile(r"[0-9]+(\.[0-9]+)*\.[a-z][a-z0-9_]{0,30}")
OLDER = re.compile(r"layer(_[0-9]+)+_[a-z][a-z0-9_]{0,30}")
FIELDS = ("dtype", "shape", "data_offsets")


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
    """A file under a key: its bytes, when it was last written (seconds of the epoch), what it says, or why nothing."""

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
    """What is in a folder: the keys of entries, temporary files, and how many others, folders and links among them."""

    keys: list[str]
    temporary: list[str]
    others: int


def names(folder: Folder) -> Names:
    """By the names alone."""
    keys, temporary, known = [], [], 0
    for name in (plain := folder.names()):
        key, dot, kind = name.partition(".")
        if not DIGEST.fullmatch(key) or dot + kind not in (ENTRY, TEMPORARY, LAYOUT):
            known += name == LOCK
            continue
        known += 1
        if dot + kind == ENTRY:
            keys.append(key)
        elif dot + kind == TEMPORARY:
            temporary.append(name)
    strange = set(os.listdir(folder.descriptor)) - set(plain)
    return Names(keys, temporary, len(plain) - known + len(strange))


def is_store(folder: Folder) -> bool:
    """Whether a store was here: it leaves its lock, and entries."""
    found = folder.names()
    return LOCK in found or any(DIGEST.fullmatch(name.partition(".")[0]) for name in found)


def useless(miss: Miss) -> bool:
    """Whether it is no damage, but an entry that nobody knows how to read: of another version, or without signature."""
    return miss.reason in ("version", "signature")


def look(folder: Folder, keys: Iterable[str]) -> Iterator[File]:
    """Each entry by its header; one that is gone meanwhile is left out."""
    for key in keys:
        if (file := _by_header(folder, key)) is not None:
            yield file


def whole(folder: Folder, key: str, formats: Mapping[str, Format]) -> File | None:
    """The same with the checksum, and with the tensors if the layout is known; None if it is gone meanwhile.

    What its header says of itself is known by then: a file that is none of a store's is not read.
    """
    file = _by_header(folder, key)
    if file is None or isinstance(file.said, Miss):
        return file
    try:
        with closing(folder.pieces(file.name, LONGEST)) as pieces:
            return _summed(file, pieces, formats)
    except FileNotFoundError:
        return None
    except OSError as error:
        return replace(file, said=Miss("unreadable", error.strerror or str(error)))
    except MemoryError:
        return replace(file, said=Miss("unreadable", "there is not enough memory to read it"))


def _summed(file: File, pieces: Iterator[tuple[memoryview, int]], formats: Mapping[str, Format]) -> File:
    """The same as the file's pieces tell; it may be another one by now."""
    first, size = next(pieces)
    head = bytes(first[: 8 + int.from_bytes(first[:8], "little")])
    said = judge(head, size, file.key)
    if isinstance(said, Miss):
        return replace(file, size=size, said=said)
    older = said.version != "3"
    digits = OLDER_CHECKSUM if older else CHECKSUM
    found = sha256() if older else xxhash.xxh3_128()
    for piece in (first[: digits.start], first[digits.stop :]):
        found.update(piece)
    total = len(first)
    for piece, _ in pieces:
        found.update(piece)
        total += len(piece)
    if total != size:
        return replace(file, size=total, said=Miss("length", f"{total} bytes were read of {size}"))
    if found.hexdigest() != said.checksum:
        text = f"checksum {found.hexdigest()}, the header says {said.checksum}"
        return replace(file, size=size, said=Miss("damaged", text))
    if said.signature in formats:
        fits = formats[said.signature].judge(head, size)
        return replace(file, size=size, said=fits if isinstance(fits, Miss) else said)
    return replace(file, size=size, said=said)


def _by_header(folder: Folder, key: str) -> File | None:
    size, written = 0, 0.0
    try:
        found = os.stat(key + ENTRY, dir_fd=folder.descriptor, follow_symlinks=False)
        size, written = found.st_size, found.st_mtime
        head, size = folder.head(key + ENTRY, HEAD)
        length = 8 + int.from_bytes(head[:8], "little")
        if HEAD < length <= min(size, LONGEST):
            head, size = folder.head(key + ENTRY, length)
    except FileNotFoundError:
        return None
    except OSError as error:
        return File(key, size, written, Miss("unreadable", error.strerror or str(error)))
    except MemoryError:
        return File(key, size, written, Miss("unreadable", "there is not enough memory to read it"))
    return File(key, size, written, judge(head, size, key))


def judge(head: bytes, size: int, key: str) -> Said | Miss:
    """What a file of `size` bytes says of itself, from its header and perhaps more."""
    if size < 10 or len(head) < 10:
        return Miss("short", f"{size} bytes, the shortest entry has more")
    header = header_of(head, size, LONGEST)
    if isinstance(header, Miss):
        return header
    said = _said(head, header, 8 + int.from_bytes(head[:8], "little"))
    if isinstance(said, Miss):
        return said
    if said.key != key:
        return Miss("key", f"key {said.key}, {key} is wanted")
    return _fills(header, size - said.start, said.version) or (said if _written(head, header, said) else _ODD)


_ODD = Miss("header", "is not written in the one way")


def _said(head: bytes, header: dict[str, Any], start: int) -> Said | Miss:
    metadata = header["__metadata__"]
    version = metadata.get("version")
    if version == "3":
        found = METADATA.match(head, 8)
        if found is None:
            return _ODD
        check, index, key, parent, signature, stateful, tokens = (each.decode() for each in found.groups())
        return Said("3", signature, key, parent or None, int(tokens), start, check, int(index), stateful == "1")
    if version not in ("1", "2"):
        return Miss("version", f"version {short(version)}, only 2 and 3 are known")
    if version == "1" or "signature" not in metadata:
        return Miss("version" if version == "1" else "signature", "has no signature: nobody knows what it means")
    if metadata.keys() != VERSION_2 or not all(
        DIGEST.fullmatch(metadata[name]) for name in ("key", "checksum", "signature")
    ):
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
            return Miss("header", f"does not say what {short(name)} is")
        dtype, shape, offsets = (each[field] for field in FIELDS)
        right = isinstance(dtype, str) and dtype in SIZES and _naturals(shape, SIDES) and _naturals(offsets, 2)
        if not right or len(offsets) != 2 or offsets[1] - offsets[0] != prod(shape) * SIZES[dtype]:
            wrong = f"is {short(dtype)} of shape {short(shape)}, and lies at {short(offsets)}"
            return Miss("header", f"{short(name)} {wrong}")
        lie.append((offsets[0], offsets[1]))
    ends = [0, *(stop for _, stop in sorted(lie))]
    if [start for start, _ in sorted(lie)] != ends[:-1]:
        return Miss("header", "its tensors are not one behind the other")
    return None if ends[-1] == payload else Miss("length", f"a payload of {payload} bytes, {ends[-1]} are told of")


def _written(head: bytes, header: dict[str, Any], said: Said) -> bool:
    """Whether it is written in the one way of its version."""
    if said.version != "3":
        return head.startswith(in_version_2(header))
    once = json.dumps(header, separators=(",", ":")).encode()
    return head[8 : said.start] == once.ljust(-len(once) // 8 * -8)


def _naturals(value: Any, most: int) -> bool:
    """Whether it is a list of at most so many natural numbers."""
    small = type(value) is list and len(value) <= most
    return small and all(type(each) is int and 0 <= each <= LARGEST for each in value)
