"""What the entries of one layout look like: which tensors lie where in the payload, and what the header calls them.

A safetensors file is the length of the header (8 bytes, little-endian), the header, the payload. Given a layout, which
block of the prefix it is and whether its states are there, nothing of the tensors is left open.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
from kvspec.members import WIDTHS, Layout, Leaf, Pooled, Recurrent, Window

from kvspec_torch.blocks import Block
from kvspec_torch.members.parts import DTYPES, Form, bits

START = b'{"__metadata__":{"checksum":"'
"""What every header of versions 2 and 3 begins with; the checksum's digits follow."""

LARGEST = 2**63 - 1
"""No token and no number in a header is larger."""

DIGEST = re.compile(r"[0-9a-f]{64}")
"""A SHA-256 in lower case: a key, a signature."""

CODES = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "int16": "I16",
    "float16": "F16", "bfloat16": "BF16", "int32": "I32", "float32": "F32", "int64": "I64", "float64": "F64",
}  # fmt: skip
"""What safetensors calls a dtype."""

Reason = Literal[
    "absent", "unreadable", "short", "foreign", "version", "header", "signature", "key", "length", "damaged"
]
"""Why there is nothing: it is not in the store; it cannot be read; it is too short; it is no entry; its version is
unknown (E2); its header is not as it should be; it has another signature (E1); it is another entry (E5); its lengths do
not fit the file; its checksum does not (E5)."""


SHORT = 100
"""So many characters of what a file says are in a text about it."""


def short(value: object) -> str:
    """What a file says, in few characters; a text is quoted."""
    if isinstance(value, str | list):
        value = value[: SHORT + 1]
    text = repr(value)
    return text if len(text) <= SHORT else f"{text[: SHORT - 3]}..."


@dataclass(frozen=True)
class Miss:
    """Nothing, and why."""

    reason: Reason
    text: str


@dataclass(frozen=True)
class Entry:
    """What was stored: a block, the `tokens` tokens after those of `parent`."""

    key: str
    parent: str | None
    tokens: int
    block: Block


@dataclass
class Header:
    """What a file of `size` bytes says of itself; `start` is where its payload begins.

    One of an `older` version does not say which block of its prefix it is: that is None till it is known otherwise. Of
    a file that could not be read nothing is known, and `start` is 0.
    """

    key: str
    parent: str | None
    size: int
    start: int
    index: int | None = None
    stateful: bool | None = None
    older: bool = False


@dataclass(frozen=True)
class Tensor:
    """A part in a payload: bytes from `start` to `stop`."""

    path: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Frame:
    """What stays the same from block to block: the tensors in their order, the header's text, bytes of payload."""

    tensors: tuple[Tensor, ...]
    text: bytes
    payload: int


class Frames(Form):
    """The frames of a layout's blocks, each worked out once."""

    def __init__(self, layout: Layout) -> None:
        super().__init__(layout)
        self.signature, leaves = self.layout.signature, self.leaves
        self.windows = sorted(path for path, leaf in leaves.items() if isinstance(leaf, Window))
        self._ratios = sorted({leaf.ratio for leaf in leaves.values() if isinstance(leaf, Pooled)})
        self._sizes = sorted({leaf.size for leaf in leaves.values() if isinstance(leaf, Window)})
        self._known: dict[tuple[int, ...], Frame] = {}
        each = (len(path) + 22 * len(part.shape) + 140 for path, (_, part) in self.members.items())
        self.longest = 1024 + sum(each) + sum(len(path) + 40 for path in self.windows)
        """Bytes that hold any header of this layout."""
        most = (part.bytes * self._most(leaf) for leaf, part in self.members.values())
        self.largest = self.longest + sum(most)
        """No entry of this layout has more bytes."""

    def legal(self, index: int) -> bool:
        """Whether a prefix can be so long."""
        return 0 <= index < LARGEST // self.layout.block_size

    def frame(self, index: int, stateful: bool) -> Frame:
        """What the entry of this block looks like."""
        start, end = index * self.layout.block_size, (index + 1) * self.layout.block_size
        rows = [end // ratio - start // ratio for ratio in self._ratios]
        key = (int(stateful), *rows, *(min(end, size) for size in self._sizes if stateful))
        if key not in self._known:
            return self._known.setdefault(key, self._frame(index, stateful))  # one for all threads
        return self._known[key]

    def _most(self, leaf: Leaf) -> int:
        """So many rows of a leaf are in a block at most."""
        if isinstance(leaf, Window):
            return leaf.size
        return 1 if isinstance(leaf, Recurrent) else leaf.rows(self.layout.block_size) + 1

    def _frame(self, index: int, stateful: bool) -> Frame:
        parts = self.block(index, stateful)
        found, text, at = [], "", 0
        for path, (part, shape) in sorted(parts.items(), key=lambda each: (-WIDTHS[each[1][0].dtype], each[0])):
            end = at + prod(shape) * WIDTHS[part.dtype]
            sides = ",".join(map(str, shape))
            text += f',"{path}":{{"dtype":"{CODES[part.dtype]}","shape":[{sides}],"data_offsets":[{at},{end}]}}'
            found.append(Tensor(path, part.dtype, shape, at, end))
            at = end
        return Frame(tuple(found), text.encode() + b"}", at)


def view(tensor: Tensor, data: memoryview) -> torch.Tensor:
    """A tensor over its bytes, which are not copied."""
    dtype = DTYPES[tensor.dtype]
    if not data:
        return torch.empty(tensor.shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype).view(tensor.shape)


def memory(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the host, which are not copied."""
    # One element is contiguous whatever its stride, and cannot be seen as bytes with another one than 1.
    return bits(tensor).as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy().data


def views(frame: Frame, payload: memoryview) -> dict[str, torch.Tensor]:
    """The tensors of a payload by path."""
    return {each.path: view(each, payload[each.start : each.stop]) for each in frame.tensors}


def entry(header: Header, tokens: int, parts: Mapping[str, torch.Tensor]) -> Entry:
    """An entry of what was read."""
    assert header.index is not None
    assert header.stateful is not None
    return Entry(header.key, header.parent, tokens, Block(header.index, parts, header.stateful))
