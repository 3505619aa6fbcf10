"""Files as older stores on tensors wrote them: what an upgrade is tried on (E1-E3).

Version 2 is described in `kvspec_torch.disk.older`; here it is written by itself, from what a block is. The cumulative
layout has the whole prefix in each block, and a signature that says nothing of members.
"""

import hashlib
import json
from typing import Any

import torch
from kvspec.members import Layout
from kvspec_torch.blocks import Block

CODES = {
    torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2", torch.int16: "I16", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int32: "I32", torch.float32: "F32", torch.int64: "I64", torch.float64: "F64",
}  # fmt: skip


def safetensors(metadata: dict[str, str], tensors: dict[str, torch.Tensor]) -> bytes:
    """A file of these tensors, in the order of their names, with the header's keys sorted and no spaces."""
    header: dict[str, Any] = {"__metadata__": metadata}
    payload = b""
    for name in sorted(tensors):
        data = tensors[name].contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        offsets = [len(payload), len(payload) + len(data)]
        shape = list(tensors[name].shape)
        header[name] = {"dtype": CODES[tensors[name].dtype], "shape": shape, "data_offsets": offsets}
        payload += data
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + payload


def version_2(layout: Layout, key: str, parent: str | None, block: Block, signature: str | None = "") -> bytes:
    """An entry of version 2; with another signature than the layout's, or with none if that is None."""
    tensors = {f"layer_{path.replace('.', '_')}": part.unsqueeze(0) for path, part in block.parts.items()}
    metadata = {
        "format": "kvspec", "key": key, "parent": parent or "", "tokens": str(layout.block_size), "version": "2",
    }  # fmt: skip
    if signature is not None:
        metadata["signature"] = signature or layout.signature
    before, after = safetensors(metadata | {"checksum": "0" * 64}, tensors).split(b"0" * 64, 1)
    return before + hashlib.sha256(before + after).hexdigest().encode() + after


def version_1(layout: Layout, key: str, block: Block) -> bytes:
    """An entry of version 1, which has no signature."""
    tensors = {path.replace(".", "_"): part for path, part in block.parts.items()}
    return safetensors({"format": "kvspec", "key": key, "tokens": str(layout.block_size), "version": "1"}, tensors)


def cumulative(layout: Layout, key: str, parent: str | None, whole: Block) -> bytes:
    """An entry of version 2 with the whole of the prefix in it, and a signature of a layout without members' marks."""
    signature = hashlib.sha256(f"{layout.model} {layout.block_size}".encode()).hexdigest()
    return version_2(layout, key, parent, whole, signature)
