"""A store's folder with many small entries, written at once: to see what the commands make of it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
from kvspec.members import Layout
from kvspec_torch.entry_format import Format, chain

from kvspec_diff.older_entries import version_2
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
