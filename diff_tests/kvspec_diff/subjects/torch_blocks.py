"""Torch's caches and blocks as a subject of `representing`: a part is a tensor.

Every other tensor that is passed has gaps in its memory, and was made where gradients are wanted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import kvspec_torch.blocks
import torch
from kvspec.members import Layout, Part, Recurrent
from kvspec.operations import Misuse, Refused
from kvspec_reference import blocks as reference
from kvspec_reference.entry_format import Miss

INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
JUNK = 0x5A


@dataclass
class TorchBlocks:
    """`of` is the module that has them, or one with a fault. A block is stored as the reference packs it."""

    of: Any = kvspec_torch.blocks
    overhead: int = reference.HEAD
    passed: int = 0

    def empty(self, layout: Layout) -> Any:
        return Said(self.of, self._said(self.of.Cache, layout))

    def restore(self, layout: Layout, found: Sequence[Any | None]) -> Any:
        return Said(self.of, self._said(self.of.restore, layout, found))

    def save(self, layout: Layout, block: Any) -> bytes:
        return reference.pack(layout, self.theirs(block))

    def load(self, layout: Layout, data: bytes) -> Any | None:
        found = reference.unpack(layout, data)
        return None if isinstance(found, Miss) else self.ours(layout, found)

    def raw(self, layout: Layout, path: str, data: bytes, rows: int | None) -> Any:
        self.passed += 1
        return tensor_of(data, reference.parts_of(layout)[path][1], rows, gaps=self.passed % 2 == 0)

    def data(self, raw: Any) -> bytes:
        return bytes_of(raw)

    def scribble(self, raw: Any) -> None:
        raw.detach().view(INTEGERS[raw.element_size()]).fill_(JUNK)

    def held(self, raw: Any) -> int:
        return int(raw.untyped_storage().nbytes())

    def theirs(self, block: Any) -> reference.Block:
        """A block with bytes."""
        return reference.Block(block.index, {at: bytes_of(part) for at, part in block.parts.items()}, block.stateful)

    def ours(self, layout: Layout, block: reference.Block) -> Any:
        """A block with tensors. What is no part of the layout, or has not its size, is a tensor that fits nowhere."""
        members, parts = reference.parts_of(layout), {}
        sizes = reference.sizes_of(layout, max(0, block.index), True)
        for at, data in block.parts.items():
            leaf, part = members.get(at, (None, None))
            if leaf is None or part is None or len(data) != sizes[at]:
                parts[at] = torch.frombuffer(bytearray(data + b"\0"), dtype=torch.uint8)
                continue
            start, end = block.index * layout.block_size, (block.index + 1) * layout.block_size
            rows = leaf.rows(end) - (leaf.rows(start) if leaf.sliced else 0)
            parts[at] = self.raw(layout, at, data, None if isinstance(leaf, Recurrent) else rows)
        return self.of.Block(block.index, parts, block.stateful)

    def _said(self, call: Callable[..., Any], *arguments: Any) -> Any:
        return said(self.of, call, *arguments)


class Said:
    """A cache that raises what the specification has for it."""

    def __init__(self, of: Any, cache: Any) -> None:
        self._of, self._cache = of, cache

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cache, name)
        return (lambda *arguments: said(self._of, found, *arguments)) if callable(found) else found


def said(of: Any, call: Callable[..., Any], *arguments: Any) -> Any:
    """What a call gives; the errors are the specification's."""
    try:
        return call(*arguments)
    except of.Misuse as error:
        raise Misuse(str(error)) from error
    except of.Refused as error:
        raise Refused(str(error)) from error


def bytes_of(tensor: torch.Tensor) -> bytes:
    """All bytes of a tensor on the CPU, in order."""
    integers = tensor.detach().view(INTEGERS[tensor.element_size()])
    return integers.numpy().tobytes()


def tensor_of(data: bytes, part: Part, rows: int | None, gaps: bool = False) -> torch.Tensor:
    """The tensor of a part's rows (None: of its state). With `gaps` its elements do not lie side by side."""
    shape, dtype = part.shape if rows is None else (rows, *part.shape), getattr(torch, part.dtype)
    integers = torch.zeros((*shape, 2), dtype=INTEGERS[dtype.itemsize])[..., 1]
    if data:
        integers.copy_(torch.frombuffer(bytearray(data), dtype=integers.dtype).reshape(shape))
    made = integers.view(dtype) if gaps else integers.contiguous().view(dtype)
    return made.requires_grad_() if gaps and dtype.is_floating_point else made
