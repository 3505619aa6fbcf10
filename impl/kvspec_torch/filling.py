"""A cache restored from the files of its blocks, read straight into its memory (B4, B5, E5).

Nothing is copied on the way: the operating system puts the rows of each block where they belong, and the checksum is
taken of them there. A block that turns out to be a miss ends the prefix.
"""

from collections.abc import Sequence

import torch

from kvspec_torch.blocks import Cache
from kvspec_torch.entry_format import CHECKSUM, checksum
from kvspec_torch.files import buffer
from kvspec_torch.frames import Entry, Header, view
from kvspec_torch.keeping import Kept, Ring, Sliced
from kvspec_torch.parts import bits
from kvspec_torch.store import ENTRY, Store


def restored(store: Store, keys: Sequence[str], device: torch.device | str) -> Cache:
    """A cache of the longest prefix of a chain that is stored, which ends at a block that has its states."""
    layout = store.format.layout
    headers = _leading(store, keys)
    while headers:
        cache = Cache(layout, device)
        cache._make_room(len(headers) * layout.block_size)
        whole = _fill(store, cache, headers)
        if whole == len(headers):
            cache.position = whole * layout.block_size
            for key in reversed(keys[:whole]):  # without the first ones the others are of no use
                store.use(key)
            return cache
        headers = _to_states(headers[:whole])
    return Cache(layout, device)


def _leading(store: Store, keys: Sequence[str]) -> list[Header]:
    """What the entries of these keys say of themselves, up to the first that is not there, or not of this chain."""
    found: list[Header] = []
    for index, key in enumerate(keys):
        header = store.header(key)
        if header is None or header.parent != (keys[index - 1] if index else None):
            break
        if header.index is not None and header.index != index:
            break
        found.append(header)
    return _to_states(found)


def _to_states(headers: list[Header]) -> list[Header]:
    """Up to the last that has its states, or may have them."""
    while headers and headers[-1].stateful is False:
        headers = headers[:-1]
    return headers


def _fill(store: Store, cache: Cache, headers: Sequence[Header]) -> int:
    """Read these entries into a cache that has room for them. How many of them are what they should be."""
    into = Into(store, cache) if cache.device.type == "cpu" else None
    for index, header in enumerate(headers):
        last = index + 1 == len(headers)
        if into is not None and not header.older and store.filed(header.key) and into.read(header, index, last):
            continue
        found = store.peek(header.key)
        if not _put(cache, found, index, last):
            return index
    return len(headers)


def _put(cache: Cache, found: object, index: int, last: bool) -> bool:
    """Copy a block to where it belongs."""
    if not isinstance(found, Entry) or found.block.index != index or (last and not found.block.stateful):
        return False
    size = cache.layout.block_size
    for path, tensor in found.block.parts.items():
        part = cache._kept[path]
        if isinstance(part, Sliced):
            part.write(index * size, tensor)
        elif last:
            _put_state(part, (index + 1) * size, tensor)
    return True


def _put_state(part: Kept, position: int, tensor: torch.Tensor) -> None:
    if isinstance(part, Ring):
        part.put(position, tensor)
    else:
        part.write(0, tensor)


class Into:
    """The memory of a cache, part by part, for files to be read into."""

    def __init__(self, store: Store, cache: Cache) -> None:
        self.store, self.cache, self.format = store, cache, store.format
        self._rows: dict[str, memoryview] = {}
        self._states: dict[str, memoryview] = {}
        for path, part in cache._kept.items():
            if isinstance(part, Sliced):
                if part._segments:
                    self._rows[path] = _bytes(part._segments[0])
            else:
                self._states[path] = buffer(part.part.bytes * (part.size if isinstance(part, Ring) else 1))

    def read(self, header: Header, index: int, last: bool) -> bool:
        """Read one entry; False if it is not what it should be: then there may be anything where it belongs."""
        frame = self.format.frame(index, bool(header.stateful))
        head, pieces = buffer(header.start), []
        start, stop = index * self.format.layout.block_size, (index + 1) * self.format.layout.block_size
        for tensor in frame.tensors:
            if tensor.path in self._states:
                pieces.append(self._states[tensor.path][: tensor.stop - tensor.start])
                continue
            leaf, part = self.format.members[tensor.path]
            if tensor.stop > tensor.start:
                pieces.append(self._rows[tensor.path][leaf.rows(start) * part.bytes : leaf.rows(stop) * part.bytes])
        try:
            if not self.store.files.read_into(header.key + ENTRY, [head, *pieces]):
                return False
        except OSError:
            return False
        said = self.format.judge(bytes(head), header.size)
        if said != header or checksum([head[: CHECKSUM.start], head[CHECKSUM.stop :], *pieces]) != head[CHECKSUM]:
            return False
        for tensor in frame.tensors if last else ():
            if tensor.path in self._states:
                state = view(tensor, self._states[tensor.path][: tensor.stop - tensor.start])
                _put_state(self.cache._kept[tensor.path], stop, state)
        return True


def _bytes(tensor: torch.Tensor) -> memoryview:
    """The memory of a contiguous tensor."""
    return bits(tensor).reshape(-1).view(torch.uint8).numpy().data
