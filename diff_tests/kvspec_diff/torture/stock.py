"""A store's folder with many small entries, written at once: to see what the commands make of it."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import msgspec
from kvspec.members import Layout
from kvspec_torch.blocks import Block
from kvspec_torch.entry_format import Format, chain
from safetensors.torch import save

from kvspec_diff.torture import toys

DEEP = 50
"""Blocks of each prefix."""


def stock(
    folder: Path, count: int, *, older: bool = False, layout: Layout = toys.LAYOUT, known: bool = True
) -> list[str]:
    """So many entries in prefixes of 50 blocks, of version 2 if `older`; their keys. Nothing is synced.

    `known`: the folder knows the layout.
    """
    folder.mkdir(exist_ok=True)
    (folder / "lock").touch()
    if known:
        (folder / f"{layout.signature}.layout").write_bytes(msgspec.json.encode(layout, order="sorted"))
    form, keys = Format(layout), []
    blocks = [toys.block(layout, index, index) for index in range(min(DEEP, count))]
    for number, (key, parent) in enumerate(links(count, layout)):
        block = blocks[number % DEEP]
        data = version_2(layout, key, parent, block) if older else bytes(form.write(key, parent, block))
        (folder / f"{key}.safetensors").write_bytes(data)
        keys.append(key)
    return keys


def links(count: int, layout: Layout) -> Iterator[tuple[str, str | None]]:
    """Keys and their parents'."""
    for start in range(0, count, DEEP):
        tokens = [start + place // toys.TOKENS for place in range(min(DEEP, count - start) * toys.TOKENS)]
        keys = chain(tokens, toys.TOKENS, layout.signature)
        yield from zip(keys, [None, *keys], strict=False)


def version_2(layout: Layout, key: str, parent: str | None, block: Block) -> bytes:
    """An entry as version 2 had it."""
    tensors = {f"layer_{path.replace('.', '_')}": tensor[None].clone() for path, tensor in block.parts.items()}
    metadata = {"format": "kvspec", "version": "2", "signature": layout.signature, "key": key, "parent": parent or "",
                "tokens": str(layout.block_size), "checksum": ""}  # fmt: skip
    data = save(tensors, metadata)
    payload = data[8 + int.from_bytes(data[:8], "little") :]
    return save(tensors, metadata | {"checksum": sha256(payload).hexdigest()})
