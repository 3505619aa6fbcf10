"""What a growing prefix costs: block by block as here, or as it was done before, whole each time (B6).

In the cumulative layout a block stores all that is before it, too. Each block is then as large as the prefix, and a
prefix of twice as many blocks has four times the bytes. It is written here to be measured against, and is never read:
its signature is another one.
"""

import hashlib

from kvspec.members import Layout

from kvspec_reference.blocks import Cache, new_sizes, pack, parts_of


def whole_signature(layout: Layout) -> str:
    """The signature of the cumulative layout of the same members."""
    return hashlib.sha256(b"kvspec layout of wholes\0" + layout.signature.encode()).hexdigest()


def whole(cache: Cache) -> bytes:
    """All that a cache holds, as the cumulative layout stores it with each of its blocks."""
    return cache.position.to_bytes(8, "big") + b"".join(map(cache.read, parts_of(cache.layout)))


def totals(layout: Layout, blocks: int) -> list[tuple[int, int]]:
    """The bytes of all payloads stored so far, after each of so many blocks: by members, and whole."""
    cache, by_members, wholes = Cache(layout), 0, 0
    found = []
    for index in range(blocks):
        sizes = new_sizes(layout, cache.position, cache.position + layout.block_size)
        cache.append(layout.block_size, {path: bytes(size) for path, size in sizes.items()})
        by_members += len(pack(layout, cache.block(index)))
        wholes += len(whole(cache))
        found.append((by_members, wholes))
    return found
