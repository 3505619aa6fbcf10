"""A cache cut into blocks without a copy, and restored from files, read straight into its memory (B4, B5, E5).

Nothing is copied on the way: the operating system puts the rows of each block where they belong, and the checksum is
taken of them there. A block that turns out to be a miss ends the prefix.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from kvspec.members import Leaf

from kvspec_torch.blocks import Block, Cache
from kvspec_torch.disk.files import buffer
from kvspec_torch.disk.frames import Entry, Frame, Header, Tensor, memory, view
from kvspec_torch.entry_format import CHECKSUM, checksum
from kvspec_torch.members.keeping import Ring, Sliced
from kvspec_torch.members.parts import DTYPES
from kvspec_torch.store import ENTRY, Store


def restored(store: Store, keys: Sequence[str], device: torch.device | str) -> Cache:
    """A cache of the longest prefix of a chain that is stored, which ends at a block that has its states."""
    layout = store.format.layout
    headers = _leading(store, keys)
    while headers:
        cache = Cache(layout, device)
        cache.make_room(len(headers) * layout.block_size)
        whole = _fill(store, cache, headers)
        if whole == len(headers):
            cache.position = whole * layout.block_size
            for key in reversed(keys[:whole]):  # without the first ones the others are of no use
                store.use(key)
            return cache
        headers = _to_states(headers[:whole])
    return Cache(layout, device)


def cut(cache: Cache, index: int) -> Block:
    """What `cache.block` gives, but rows that lie in one piece are not copied: for whoever copies them at once."""
    if cache.device.type != "cpu":
        return cache.block(index)
    size, form = cache.layout.block_size, cache.form
    start, stop = index * size, (index + 1) * size
    stateful, parts = stop == cache.position or form.stateless, {}
    for path, part in cache.kept.items():
        if isinstance(part, Sliced):
            pieces = [piece for _, piece in part.pieces(part.leaf.rows(start), part.leaf.rows(stop))]
            parts[path] = pieces[0].view(DTYPES[part.part.dtype]) if len(pieces) == 1 else part.slice(start, stop)
        elif stateful:
            parts[path] = part.lie(cache.position)
    return Block(index, parts, stateful)


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
        part = cache.kept[path]
        if isinstance(part, Sliced):
            part.write(index * size, tensor)
        elif last:
            part.put(tensor)
    return True


@dataclass(frozen=True)
class Place:
    """Where a tensor of an entry goes: to its rows, or to a place of its own, if it is a state."""

    tensor: Tensor
    memory: memoryview
    leaf: Leaf
    row: int  # bytes, 0 of a state

    def at(self, start: int, stop: int) -> memoryview:
        """For the tokens from `start` to `stop`."""
        if not self.row:
            return self.memory[: self.tensor.stop - self.tensor.start]
        return self.memory[self.leaf.rows(start) * self.row : self.leaf.rows(stop) * self.row]


class Into:
    """The memory of a cache, part by part, for files to be read into."""

    def __init__(self, store: Store, cache: Cache) -> None:
        self.store, self.cache, self.format = store, cache, store.format
        self._memory: dict[str, memoryview] = {}
        for path, part in cache.kept.items():
            if not isinstance(part, Sliced):
                self._memory[path] = buffer(part.part.bytes * (part.size if isinstance(part, Ring) else 1))
            elif part.segments:
                self._memory[path] = memory(part.segments[0])
        self._places: dict[int, list[Place]] = {}  # by the frame

    def read(self, header: Header, index: int, last: bool) -> bool:
        """Read one entry; False if it is not what it should be: then there may be anything where it belongs."""
        frame = self.format.frame(index, bool(header.stateful))
        places = self._places.get(id(frame)) or self._find(frame)
        start, stop = index * self.format.layout.block_size, (index + 1) * self.format.layout.block_size
        head, pieces = buffer(header.start), [place.at(start, stop) for place in places]
        try:
            if not self.store.files.read_into(header.key + ENTRY, [head, *pieces]):
                return False
        except OSError:
            return False
        said = self.format.judge(bytes(head), header.size)
        if said != header or checksum([head[: CHECKSUM.start], head[CHECKSUM.stop :], *pieces]) != head[CHECKSUM]:
            return False
        for place, piece in zip(places, pieces, strict=True) if last else ():
            if not place.row:
                self.cache.kept[place.tensor.path].put(view(place.tensor, piece))
        return True

    def _find(self, frame: Frame) -> list[Place]:
        found = []
        for tensor in frame.tensors:
            leaf, part = self.format.members[tensor.path]
            if tensor.stop > tensor.start:
                found.append(Place(tensor, self._memory[tensor.path], leaf, part.bytes if leaf.sliced else 0))
        self._places[id(frame)] = found
        return found
