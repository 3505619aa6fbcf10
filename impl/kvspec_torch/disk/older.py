"""Entries of older layouts, and what else is found in a store's folder (E2-E4).

- Version 1 has no signature: a miss.
- Version 2 is read and upgraded. It has one SHA-256 over all bytes but its own, an axis of one batch before all others,
  and names such as `layer_2_1_state` for `2.1.state`. It says neither which block of its prefix it is nor whether it
  has the states: the one follows from its place in the chain, the other from the tensors that are there.
- What was written without a model or a block size has no signature: it is forgotten.
- Any other signature is a miss, that of the cumulative layout too, in which a block holds the whole state.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from math import prod
from typing import Any

from kvspec.members import WIDTHS

from kvspec_torch.disk.files import buffer
from kvspec_torch.disk.frames import (
    CODES,
    DIGEST,
    LARGEST,
    START,
    Entry,
    Frame,
    Frames,
    Header,
    Miss,
    entry,
    short,
    views,
)

DIGITS = 20
"""No number in a header has more."""

FIELDS = {"checksum", "format", "key", "parent", "signature", "tokens", "version"}
CHECKSUM = slice(8 + len(START), 8 + len(START) + 64)
"""Where in a file of version 2 the checksum stands."""


def name_in_version_2(path: str) -> str:
    """What version 2 called a part."""
    return "layer_" + path.replace(".", "_")


def in_version_2(header: Mapping[str, Any]) -> bytes:
    """The one way in which version 2 wrote what is before the payload."""
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text = text.ljust(-(-len(text) // 8) * 8)
    return len(text).to_bytes(8, "little") + text


def checksum_of_version_2(data: memoryview) -> str:
    """Over all bytes of a file but the checksum's own 64 digits (E5)."""
    found = sha256(data[: CHECKSUM.start])
    found.update(data[CHECKSUM.stop :])
    return found.hexdigest()


def judge_other(frames: Frames, head: bytes, size: int) -> Header | Miss:
    """What a file is that does not begin as entries of the newest version do: one of version 2, or a miss."""
    header = header_of(head, size, frames.longest)
    if isinstance(header, Miss):
        return header
    metadata = header["__metadata__"]
    version = metadata.get("version")
    if version == "3":
        return Miss("header", "is not written in the one way")
    if version != "2":
        return Miss("version", f"version {short(version)}, only 2 and 3 are known")
    if "signature" not in metadata:
        return Miss("signature", "has none: nobody knows what its bytes mean")
    if metadata.keys() != FIELDS:
        return Miss("header", f"has not exactly the fields {', '.join(sorted(FIELDS))}")
    if metadata["signature"] != frames.signature:
        return Miss("signature", f"signature {short(metadata['signature'])}, {frames.signature} is wanted")
    parent = metadata["parent"] or None
    digests = [metadata["key"], metadata["checksum"], *([] if parent is None else [parent])]
    if not all(map(DIGEST.fullmatch, digests)):
        return Miss("header", "its keys and its checksum are no SHA-256 in lower case")
    if metadata["tokens"] != str(frames.layout.block_size):
        return Miss("header", f"{short(metadata['tokens'])} tokens")
    if not head.startswith(in_version_2(header)):
        return Miss("header", "is not written in the one way")
    if size > frames.largest:
        return Miss("length", f"{size} bytes, the largest entry has {frames.largest}")
    stateful = frames.stateless or len(header) - 1 == len(frames.members)
    return Header(metadata["key"], parent, size, 8 + int.from_bytes(head[:8], "little"), None, stateful, older=True)


def upgraded(frames: Frames, data: memoryview, header: Header, index: int | None) -> Entry | Miss:
    """The entry of version 2 in `data`, as one of the newest version, with the same meaning (E3)."""
    if index is None:
        return Miss("header", "does not say which block of its prefix it is, and its parents are not all there")
    told = header_of(bytes(data[: frames.longest]), len(data), frames.longest)
    if isinstance(told, Miss):
        return told
    frame = frames.frame(index, bool(header.stateful))
    starts = _starts(frame, told)
    if isinstance(starts, Miss):
        return starts
    if len(data) != header.start + frame.payload:
        return Miss("length", f"{len(data)} bytes, {header.start + frame.payload} are wanted")
    found, wanted = checksum_of_version_2(data), told["__metadata__"]["checksum"]
    if found != wanted:
        return Miss("damaged", f"checksum {found}, the header says {wanted}")
    old = data[header.start :]
    payload = buffer(frame.payload)
    for tensor, start in zip(frame.tensors, starts, strict=True):
        payload[tensor.start : tensor.stop] = old[start : start + tensor.stop - tensor.start]
    return entry(replace(header, index=index), frames.layout.block_size, views(frame, payload))


def _starts(frame: Frame, told: Mapping[str, Any]) -> list[int] | Miss:
    """Where each tensor of the frame begins, if the header's tensors are these and fill the payload without a gap."""
    found = []
    for tensor in frame.tensors:
        said = told.get(name_in_version_2(tensor.path))
        if not isinstance(said, dict) or said.keys() != {"dtype", "shape", "data_offsets"}:
            return Miss("header", f"does not say what {tensor.path} is")
        offsets = said["data_offsets"]
        if said["dtype"] != CODES[tensor.dtype] or not _are(said["shape"], [1, *tensor.shape]):
            return Miss("header", f"{tensor.path} is {short(said['dtype'])} of shape {short(said['shape'])}")
        size = prod(tensor.shape) * WIDTHS[tensor.dtype]
        if type(offsets) is not list or len(offsets) != 2 or not _are(offsets, [offsets[0], offsets[0] + size]):
            return Miss("header", f"{tensor.path} lies at {short(offsets)}")
        found.append((offsets[0], offsets[1]))
    inner = sorted(found)
    if len(told) - 1 != len(found) or [start for start, _ in inner] != [0, *(stop for _, stop in inner)][:-1]:
        return Miss("header", "its tensors are not one behind the other")
    return [start for start, _ in found]


def header_of(head: bytes, size: int, longest: int) -> dict[str, Any] | Miss:
    """The header at the start of a file of `size` bytes, an object with metadata of the format, or why there is none.

    `head` has the first `longest` bytes of the file, or all of its header.
    """
    if head[8:9] != b"{":
        return Miss("foreign", "does not begin like an entry")
    length, most = int.from_bytes(head[:8], "little"), min(size, longest) - 8
    if length > most:
        return Miss("length", f"a header of {length} bytes in {size}, where at most {most} are read")
    try:
        header = json.loads(
            head[8 : 8 + length].decode(), object_pairs_hook=_once, parse_float=_no, parse_constant=_no, parse_int=_int
        )
    except UnicodeDecodeError as error:
        return Miss("header", f"cannot be read: byte {error.start} is no UTF-8")
    except json.JSONDecodeError as error:
        return Miss("header", f"cannot be read: is no JSON from character {error.pos} on")
    except RecursionError:
        return Miss("header", "cannot be read: is nested too deeply")
    except _Odd as error:
        return Miss("header", f"cannot be read: {error}")
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or metadata.get("format") != "kvspec":
        return Miss("foreign", "is no entry of a store")
    if not all(isinstance(value, str) for value in metadata.values()):
        return Miss("header", "metadata are strings")
    return dict(header)


def _are(value: Any, wanted: list[Any]) -> bool:
    """Whether it is a list of these natural numbers, no bools among them."""
    whole = type(value) is list and all(type(each) is int and 0 <= each <= LARGEST for each in value)
    return whole and value == wanted


class _Odd(Exception):
    """JSON that no store writes."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) != len(pairs):
        raise _Odd("a field is there twice")
    return found


def _no(text: str) -> Any:
    raise _Odd(f"{text[:30]} is no integer")


def _int(text: str) -> int:
    if len(text) > DIGITS:
        raise _Odd(f"a number has {len(text)} digits")
    return int(text)
