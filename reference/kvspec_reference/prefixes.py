"""Prefixes in a store: each whole block of tokens is an entry, found by the key of its chain (B4, B10, E4, E6)."""

from collections.abc import Sequence

from kvspec.members import Layout
from kvspec.operations import Misuse

from kvspec_reference.blocks import Block, Cache, pack, restore, unpack
from kvspec_reference.entry_format import Entry, Miss, chain
from kvspec_reference.store import Store


def save_prefix(store: Store, tokens: Sequence[int], cache: Cache) -> list[str]:
    """Queue the whole blocks of a cache of exactly these tokens; their keys.

    A block that is there already is not written again, unless what is there lacks the states and this one has them: a
    block without them never takes the place of one with them (B10). Raises `Refused` if the queue is full: what was
    queued before stays, and the same call after `write_next` goes on from there.
    """
    layout = _layout(store, cache.layout)
    if len(tokens) != cache.position:
        raise Misuse(f"{len(tokens)} tokens, the cache has {cache.position}")
    keys = chain(tokens, layout.block_size, layout.signature)
    for index, key in enumerate(keys):
        block, there = cache.block(index), load_block(store, layout, keys, index)
        if isinstance(there, Miss) or (block.stateful and not there.stateful):
            parent = keys[index - 1] if index else None
            store.save(key, pack(layout, block), parent=parent, tokens=layout.block_size)
    return keys


def restore_prefix(store: Store, layout: Layout, tokens: Sequence[int]) -> Cache:
    """The cache of the longest prefix of these tokens that the store has whole (B4).

    A block that cannot be read ends it, be it damaged, of another signature or of an unknown version: a chain has one
    layout (E4).
    """
    keys = chain(tokens, _layout(store, layout).block_size, layout.signature)
    blocks: list[Block | None] = []
    for index in range(len(keys)):
        if isinstance(block := load_block(store, layout, keys, index), Miss):
            break
        blocks.append(block)
    return restore(layout, blocks)


def load_block(store: Store, layout: Layout, keys: Sequence[str], index: int) -> Block | Miss:
    """The block of this number in a chain of keys, or why there is none."""
    found = store.read(keys[index])
    if isinstance(found, Miss):
        return found
    wanted = Entry(keys[index], keys[index - 1] if index else None, layout.block_size, found.payload)
    if found != wanted:
        return Miss("key", f"covers {found.tokens} tokens after {found.parent}, which is not this place in the chain")
    block = unpack(layout, found.payload)
    if isinstance(block, Block) and block.index != index:
        return Miss("key", f"is block {block.index}, {index} is wanted")
    return block


def _layout(store: Store, layout: Layout) -> Layout:
    if store.signature != layout.signature:
        raise Misuse(f"the store has signature {store.signature}, the layout {layout.signature}")
    return layout
