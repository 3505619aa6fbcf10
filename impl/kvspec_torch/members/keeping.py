"""How a live cache keeps the parts of its members: rows in segments, rings, states (B6-B8, S4).

Each of them has its tokens up to the cache's position, which only the cache knows. Room is made first, for all parts;
writing then cannot fail. Everything read is a copy.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator

import torch
from kvspec.members import Leaf, Part, Recurrent, Window

from kvspec_torch.members.parts import DTYPES, INTEGERS, bits, compact, empty


class Kept:
    """One part of a member."""

    def __init__(self, leaf: Leaf, part: Part, device: torch.device) -> None:
        self.leaf, self.part, self.device = leaf, part, device

    def shape(self, position: int, count: int) -> tuple[int, ...]:
        """Of what `count` tokens more bring."""
        return (count, *self.part.shape)

    def make_room(self, position: int) -> None:
        """For so many tokens."""

    def write(self, position: int, new: torch.Tensor) -> None:
        """Append what comes behind `position`."""
        raise NotImplementedError

    def read(self, position: int) -> torch.Tensor:
        """All rows in the order of positions, or the state."""
        raise NotImplementedError

    def lie(self, position: int) -> torch.Tensor:
        """A state as a block has it: of a window the rows in the order of their slots."""
        return self.read(position)

    def put(self, state: torch.Tensor) -> None:
        """Take over what `lie` gave; there is room for it."""
        raise NotImplementedError

    def trim(self, to: int) -> None:
        """Give up memory that is not needed once tokens behind `to` are taken away."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that it keeps from being freed."""
        return sum(tensor.untyped_storage().nbytes() for tensor in self._memory())

    def _memory(self) -> Iterable[torch.Tensor]:
        """What it holds."""
        raise NotImplementedError

    def _empty(self, rows: int) -> torch.Tensor:
        """Integers for so many rows."""
        dtype = INTEGERS[DTYPES[self.part.dtype].itemsize]
        return empty((rows, *self.part.shape), dtype, self.device)

    def _shortened(self, rows: torch.Tensor, count: int) -> torch.Tensor:
        """The first so many, in memory of their own."""
        return self._empty(count).copy_(rows[:count])

    def _joined(self, pieces: Iterable[torch.Tensor], rows: int) -> torch.Tensor:
        return compact(pieces, (rows, *self.part.shape), self.part, self.device)


class Sliced(Kept):
    """Rows that stay what they are, in segments.

    A new segment is as long as all before it together: appending copies nothing but what is new, whatever there is.
    There is memory for up to twice the rows, after a trim for four times: what is trimmed and appended again finds it.
    """

    def __init__(self, leaf: Leaf, part: Part, device: torch.device) -> None:
        super().__init__(leaf, part, device)
        self.segments: list[torch.Tensor] = []
        self._ends = [0]  # where each begins and, one further, where it ends

    def shape(self, position: int, count: int) -> tuple[int, ...]:
        return (self.leaf.rows(position + count) - self.leaf.rows(position), *self.part.shape)

    def make_room(self, position: int) -> None:
        rows, room = self.leaf.rows(position), self._ends[-1]
        if rows > room:
            more = max(rows - room, room)
            self.segments.append(self._empty(more))
            self._ends.append(room + more)

    def write(self, position: int, new: torch.Tensor) -> None:
        first, source = self.leaf.rows(position), bits(new)
        for at, place in self.pieces(first, first + source.shape[0]):
            place.copy_(source[at - first : at - first + place.shape[0]])

    def read(self, position: int) -> torch.Tensor:
        return self.slice(0, position)

    def slice(self, start: int, stop: int) -> torch.Tensor:
        """The rows that the tokens [start, stop) completed."""
        first, last = self.leaf.rows(start), self.leaf.rows(stop)
        return self._joined((piece for _, piece in self.pieces(first, last)), last - first)

    def trim(self, to: int) -> None:
        rows = self.leaf.rows(to)
        while self.segments and self._ends[-2] >= 2 * rows:
            self.segments.pop()
            self._ends.pop()
        if self._ends[-1] > 4 * rows:
            self.segments[-1] = self._shortened(self.segments[-1], 2 * rows - self._ends[-2])
            self._ends[-1] = 2 * rows

    def _memory(self) -> Iterable[torch.Tensor]:
        return self.segments

    def pieces(self, first: int, last: int) -> Iterator[tuple[int, torch.Tensor]]:
        """The rows [first, last) where they lie, in order, each piece after the number of its first row."""
        number = bisect_right(self._ends, first) - 1
        while first < last:
            begin, end = self._ends[number], min(self._ends[number + 1], last)
            yield first, self.segments[number][first - begin : end - begin]
            first, number = end, number + 1


class Ring(Kept):
    """The rows of the last `size` tokens: that of token i stands in slot i modulo `size` (B7).

    There is memory for the slots that are in use, up to twice, after a trim four times as much, and never for more.
    """

    def __init__(self, leaf: Window, part: Part, device: torch.device) -> None:
        super().__init__(leaf, part, device)
        self.size = leaf.size
        self._slots = self._empty(0)

    def make_room(self, position: int) -> None:
        wanted, room = min(position, self.size), self._slots.shape[0]
        if wanted > room:
            slots = self._empty(min(self.size, max(wanted, 2 * room)))
            slots[:room] = self._slots
            self._slots = slots

    def write(self, position: int, new: torch.Tensor) -> None:
        left_out = max(0, new.shape[0] - self.size)
        source = bits(new)[left_out:]
        slot, count = (position + left_out) % self.size, source.shape[0]
        before_the_end = min(count, self.size - slot)
        self._slots[slot : slot + before_the_end] = source[:before_the_end]
        self._slots[: count - before_the_end] = source[before_the_end:]

    def read(self, position: int) -> torch.Tensor:
        cursor = position % self.size if position > self.size else 0
        rows = self.leaf.rows(position)
        return self._joined([self._slots[cursor:rows], self._slots[:cursor]], rows)

    def lie(self, position: int) -> torch.Tensor:
        rows = self.leaf.rows(position)
        return self._joined([self._slots[:rows]], rows)

    def put(self, state: torch.Tensor) -> None:
        self._slots[: state.shape[0]] = bits(state)

    def trim(self, to: int) -> None:
        if self._slots.shape[0] > 4 * to:
            self._slots = self._shortened(self._slots, 2 * to)

    def _memory(self) -> Iterable[torch.Tensor]:
        return [self._slots]


class State(Kept):
    """The state of a recurrent member; zeros before the first token."""

    def __init__(self, leaf: Recurrent, part: Part, device: torch.device) -> None:
        super().__init__(leaf, part, device)
        self._state = self._empty(1)[0].zero_()

    def shape(self, position: int, count: int) -> tuple[int, ...]:
        return self.part.shape

    def write(self, position: int, new: torch.Tensor) -> None:
        self.put(new)

    def put(self, state: torch.Tensor) -> None:
        self._state.copy_(bits(state))

    def read(self, position: int) -> torch.Tensor:
        return compact([self._state], self.part.shape, self.part, self.device)

    def _memory(self) -> Iterable[torch.Tensor]:
        return [self._state]


def kept(leaf: Leaf, part: Part, device: torch.device) -> Kept:
    """What keeps this part."""
    if isinstance(leaf, Window):
        return Ring(leaf, part, device)
    if isinstance(leaf, Recurrent):
        return State(leaf, part, device)
    return Sliced(leaf, part, device)
