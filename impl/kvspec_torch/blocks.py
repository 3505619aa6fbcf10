"""A live cache, cut into blocks, and restored from blocks (B3-B8, B10, S3, S4), on torch tensors.

The contract is `kvspec_reference.blocks`, bit for bit; there parts are bytes, here they are tensors on one device. To
append a block and to cut it costs what a block costs, however long the prefix is. No host waits for a device in here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from kvspec.members import Layout, Recurrent, Window

from kvspec_torch.errors import Misuse, Refused
from kvspec_torch.members.keeping import Kept, Ring, Sliced, kept
from kvspec_torch.members.parts import Form, Parts, count_of, device_of, fit, same_parts

LARGEST = 2**63 - 1
"""The largest number of a block."""


@dataclass(frozen=True, eq=False)
class Block:
    """The parts of block `index` of a prefix, by path: the slices, and if it is `stateful` the states at its end.

    A window's state is its ring in the order of the slots. Equal are blocks that are so bit for bit.
    """

    index: int
    parts: Parts
    stateful: bool

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Block):
            return NotImplemented
        alike = (self.index, self.stateful) == (other.index, other.stateful)
        return alike and same_parts(self.parts, other.parts)

    __hash__ = None  # type: ignore[assignment]

    @property
    def nbytes(self) -> int:
        """Bytes of memory that its tensors keep from being freed."""
        storages = [tensor.untyped_storage() for tensor in self.parts.values()]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


class Cache:
    """A live cache of `layout` on `device`, at first at position 0.

    What it is given it copies, and what it gives is a copy of nothing but what was asked for (S4, B6). `form`, `kept`
    and `make_room` are for a store, which fills a cache in place.
    """

    def __init__(self, layout: Layout, device: torch.device | str = "cpu") -> None:
        self.form = Form(layout)
        self.layout = self.form.layout
        self.position = 0
        self.device = device_of(device)
        self.kept = {path: kept(leaf, part, self.device) for path, (leaf, part) in self.form.members.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of memory that its tensors take."""
        return sum(part.nbytes for part in self.kept.values())

    def append(self, count: int, new: Parts) -> None:
        """`count` more tokens. `new` has each part: of plain, quantized and window members a row a token, of pooled
        ones the rows that these tokens complete, of recurrent ones the state after them.

        Raises `Misuse`, which names the path, for anything else, and for tensors on another device.
        """
        count = count_of("count", count)
        fit("append", new, {path: (part.part, part.shape(self.position, count)) for path, part in self.kept.items()})
        for path, tensor in new.items():
            if tensor.device != self.device:
                raise Misuse(f"append: {path}: is on {tensor.device}, the cache is on {self.device}")
        self.make_room(self.position + count)
        for path, part in self.kept.items():
            part.write(self.position, new[path])
        self.position += count

    def trim(self, position: int) -> None:
        """Keep the first so many tokens, of all members or of none (B8).

        Raises `Misuse` for a position that the cache has not reached. Raises `Refused`, which names the member, if a
        window has lost rows that it would need, or a recurrent member would have to go back.
        """
        position = count_of("position", position)
        if position > self.position:
            raise Misuse(f"position: {position} is behind the cache's end, {self.position}")
        if position == self.position:
            return
        for path, leaf in self.form.leaves.items():
            if isinstance(leaf, Recurrent):
                raise Refused(f"member {path}: its state is the one after {self.position} tokens, not after {position}")
            if isinstance(leaf, Window) and self.position > leaf.size:
                raise Refused(f"member {path}: rows before {self.position - leaf.size} have left the window")
        self.position = position
        for part in self.kept.values():
            part.trim(position)

    def read(self, path: str) -> torch.Tensor:
        """All rows of a part in the order of positions, of a window the last ones; or the state."""
        return self._at(path).read(self.position)

    def ring(self, path: str) -> tuple[torch.Tensor, int, int]:
        """A window's rows as they lie, up to `size`; the position of the next token; the slot it goes to (B7)."""
        part = self._at(path)
        if not isinstance(part, Ring):
            raise Misuse(f"{path}: only a window has a ring")
        return part.lie(self.position), self.position, self.position % part.size

    def block(self, index: int) -> Block:
        """Block `index`, which must be whole in the cache; its states only if the cache stands at its end (B10, S3)."""
        size = self.layout.block_size
        start = count_of("index", index) * size
        end = start + size
        if end > self.position:
            raise Misuse(f"block {index}: ends at {end}, the cache is at {self.position}")
        parts = {path: part.slice(start, end) for path, part in self.kept.items() if isinstance(part, Sliced)}
        stateful = end == self.position or self.form.stateless
        if stateful:
            parts = {
                path: parts[path] if path in parts else part.lie(self.position) for path, part in self.kept.items()
            }
        return Block(start // size, parts, stateful)

    def _at(self, path: str) -> Kept:
        if path not in self.kept:
            raise Misuse(f"{path!r}: the cache has no such part")
        return self.kept[path]

    def make_room(self, position: int) -> None:
        """For so many tokens, everywhere: after that nothing can fail."""
        for part in self.kept.values():
            part.make_room(position)

    def _fill(self, blocks: Sequence[Block]) -> None:
        """Stand where these blocks end."""
        size = self.layout.block_size
        self.make_room(len(blocks) * size)
        for path, part in self.kept.items():
            if isinstance(part, Sliced):
                for block in blocks:
                    part.write(block.index * size, block.parts[path])
            else:
                part.put(blocks[-1].parts[path])
        self.position = len(blocks) * size


def restore(layout: Layout, blocks: Sequence[Block | None], device: torch.device | str = "cpu") -> Cache:
    """A cache of the longest prefix that the blocks, from the first on, make up without a gap (B4, B5).

    It ends at a block that has its states. None stands for a block that is not there, as a wrong index does. The
    blocks may be on any device. Raises `Misuse` for blocks whose parts are not those of the layout.
    """
    cache = Cache(layout, device)
    for block in blocks:
        if block is not None:
            fit_block(cache.form, block)
    leading: list[Block] = []
    for index, block in enumerate(blocks):
        if block is None or block.index != index:
            break
        leading.append(block)
    while leading and not leading[-1].stateful:
        leading.pop()
    if leading:
        cache._fill(leading)
    return cache


def fit_block(form: Form, block: Any) -> None:
    """See to it that a block has the parts that its layout wants: `Misuse` names the first that is wrong."""
    if not isinstance(block, Block):
        raise Misuse(f"a block is wanted, not {type(block).__name__}")
    if type(block.stateful) is not bool:
        raise Misuse(f"stateful: True or False is wanted, not {block.stateful!r}")
    index = count_of("index", block.index)
    if index > LARGEST:
        raise Misuse(f"index: {index} is too large")
    if not block.stateful and form.stateless:
        raise Misuse(f"block {index}: lacks states, and this layout has none")
    fit(f"block {index}", block.parts, form.block(index, block.stateful))
