"""The small hybrid cache whose blocks are harmed, and what its blocks hold: any byte tells which one it is of."""

from hashlib import shake_128
from typing import Any

import torch
from kvspec.members import Layout, Part, Plain, Pooled, Recurrent, Window
from kvspec_torch.blocks import Block

TOKENS = 4
LAYOUT = Layout(
    "torture",
    TOKENS,
    (
        Plain((Part("keys", (2,), "bfloat16"), Part("values", (2,), "bfloat16"))),
        Pooled((Part("rows", (1,), "float32"),), ratio=2),
        Window((Part("rows", (2,), "uint8"),), size=6),
        Recurrent((Part("state", (3,), "float32"),)),
    ),
)
LARGE = Layout("torture, large", TOKENS, (Plain((Part("keys", (4096,), "uint8"), Part("values", (4096,), "uint8"))),))
"""Blocks of 32 KiB without states."""


def shapes(layout: Layout, index: int) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """By path, what the parts of a stateful block look like."""
    found = {}
    for path, leaf in layout.leaves.items():
        for part in leaf.parts:
            rows = leaf.rows((index + 1) * layout.block_size)
            if leaf.sliced:
                rows -= leaf.rows(index * layout.block_size)
            shape = part.shape if isinstance(leaf, Recurrent) else (rows, *part.shape)
            found[f"{path}.{part.name}"] = (shape, getattr(torch, part.dtype))
    return found


def block(layout: Layout, index: int, seed: int) -> Block:
    """A stateful block; a different one for each seed."""
    parts = {}
    for path, (shape, dtype) in shapes(layout, index).items():
        data = bytearray(shake_128(b"%d %s" % (seed, path.encode())).digest(torch.empty(shape, dtype=dtype).nbytes))
        parts[path] = torch.frombuffer(data, dtype=dtype).reshape(shape) if data else torch.empty(shape, dtype=dtype)
    return Block(index, parts, True)


def same(found: Any, wanted: Block) -> bool:
    """Whether it is that block, bit for bit."""
    if not isinstance(found, Block) or (found.index, found.stateful) != (wanted.index, wanted.stateful):
        return False
    return found.parts.keys() == wanted.parts.keys() and all(
        tensor.shape == wanted.parts[path].shape and bits(tensor) == bits(wanted.parts[path])
        for path, tensor in found.parts.items()
    )


def bits(tensor: torch.Tensor) -> bytes:
    """Its bytes."""
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""
