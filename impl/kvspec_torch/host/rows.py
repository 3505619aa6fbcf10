"""Rows in batches on NumPy views. Contracts and laws: `kvspec_torch.rows`.

A batch of ranges is spread into two flat arrays, `i` (which row of the batch) and `k` or `at` (which entry or position
of it), in batch order; everything is gathered, judged and scattered through those.
"""

import numpy as np
import torch
from numpy.typing import NDArray

from kvspec_torch.errors import Misuse, Refused
from kvspec_torch.host.pages import HostPool, Ids
from kvspec_torch.states import CACHED, UNWRITTEN

Flags = NDArray[np.bool_]
MANY = 2**41
"""More tokens than any pool has; what is asked above it is refused all the same, and the sums do not overflow."""


def spread(starts: Ids, stops: Ids) -> tuple[Ids, Ids]:
    """Ranges [start, stop) as (which range, which number), flat and in order."""
    sizes = stops - starts
    ends = sizes.cumsum()
    which = np.repeat(np.arange(len(sizes)), sizes)
    return which, np.arange(ends[-1] if len(ends) else 0) + (starts - ends + sizes)[which]


class HostRows:
    """See `kvspec_torch.Rows`. Arguments have their form; what they ask for is judged here."""

    def __init__(self, pool: HostPool, page_size: int, tensors: dict[str, torch.Tensor]) -> None:
        self.pool = pool
        self.page_size = page_size
        view = {name: tensor.numpy() for name, tensor in tensors.items()}
        self.table: NDArray[np.int32] = view["table"][:-1]
        self.length: Ids = view["length"][:-1]
        self.request: Ids = view["request"][:-1]
        self.tokens: Ids = view["tokens"][:-1]
        self.settled: Flags = view["settled"][:-1]
        self.content: Ids = view["content"]
        self.pin_page: Ids = view["pin_page"][:-1]
        self.pin_request: Ids = view["pin_request"][:-1]
        self.started: Ids = view["started"]  # of one number: how many requests began
        self._mark = np.zeros(max(len(self.table), len(self.pin_page)), dtype=np.int64)
        self._places = np.arange(len(self._mark))

    def start(self, rows: torch.Tensor, tokens: torch.Tensor) -> None:
        r = self._distinct("row", rows, len(self.table))
        self._judge("row", r, self.request[r] >= 0, "is live already")
        self.request[r] = self.started + self._places[: len(r)]
        self.started += len(r)
        self.tokens[r] = tokens.numpy()

    def allocate(self, rows: torch.Tensor, tokens: torch.Tensor, most: int | None) -> tuple[torch.Tensor, torch.Tensor]:
        r, more = self._rows(rows), tokens.numpy()
        self._judge("row", r, more < 0, "cannot be allocated a negative number of tokens")
        self._judge_most(r, more, most)
        begin = self.length[r]
        end = begin + np.minimum(more, MANY)
        old, new = self._entries(begin), self._entries(end)
        hole = (more > 0) & (begin % self.page_size > 0) & (self.table[r, old - 1] == 0)
        self._judge("row", r, hole, "gave up its last page, and the new positions would begin there")
        wanted = int((new - old).sum())
        if wanted > self.pool.available:
            raise Refused(f"{wanted} pages wanted, {self.pool.available} available")
        self._judge("row", r, new > self.table.shape[1], f"has only {self.table.shape[1]} entries")
        pages = self.pool.take(wanted)
        self.content[pages] = UNWRITTEN
        i, k = spread(old, new)
        self.table[r[i], k] = pages
        self.length[r] = end
        width = -(-self._width(more, most) // self.page_size)
        handed_out = self._pad(i, k - old[i], pages, len(r), width)
        return handed_out, self._slots(r, begin, end, most)

    def write(
        self, rows: torch.Tensor, starts: torch.Tensor, stops: torch.Tensor, draft: bool, most: int | None
    ) -> torch.Tensor:
        r, start, stop = self._ranges(rows, starts, stops, most, "positions")
        i, at = spread(start, stop)
        row, k, offset = r[i], at // self.page_size, at % self.page_size
        page = self._live(row, k)
        state = self.pool._state[page]
        self._judge("row", row, state >= CACHED, "holds a published page there, copy it first")
        self._judge("row", row, state != 1, "is not the page's only holder, copy it first")
        if draft:
            self._judge("row", row, self.settled[row, at], "is settled there, a draft must not overwrite it")
            self.content[page, offset] = -1 - at
        else:
            self.content[page, offset] = self.tokens[row, at]
            self.settled[row, at] = True
        return self._slots(r, start, stop, most)

    def read(
        self, rows: torch.Tensor, starts: torch.Tensor, stops: torch.Tensor, most: int | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        r, start, stop = self._ranges(rows, starts, stops, most, "positions")
        i, at = spread(start, stop)
        row = r[i]
        self._judge("row", row, ~self.settled[row, at], "is not settled there")
        tokens = self.content[self.table[row, at // self.page_size], at % self.page_size]
        padded = self._pad(i, at - start[i], tokens, len(r), self._width(stop - start, most))
        return self._slots(r, start, stop, most), padded

    def free(self, rows: torch.Tensor, starts: torch.Tensor, stops: torch.Tensor, most: int | None) -> None:
        r, start, stop = self._ranges(rows, starts, stops, most, "entries")
        i, k = spread(start, stop)
        pages = self._live(r[i], k)
        self.table[r[i], k] = 0
        self._by_entry(self.settled)[r[i], k] = False
        self.pool.drop(pages)

    def overwrite(
        self, rows: torch.Tensor, starts: torch.Tensor, stops: torch.Tensor, sources: torch.Tensor, most: int | None
    ) -> torch.Tensor:
        r, start, stop = self._ranges(rows, starts, stops, most, "entries")
        s = self._sources(sources)
        i, k = spread(start, stop)
        self._judge("row", r[i], self.table[r[i], k] > 0, "is live there, so it is not the caller's to overwrite")
        self._judge("row", r, np.equal(r, s), "cannot be overwritten with its own pages")
        live = self.table[s] > 0
        number: Ids = live.sum(1)
        self._judge("row", s, ~live.any(1), "holds no page to overwrite with")
        packed = np.argsort(~live, axis=1, kind="stable")  # the live entries of each source first
        column = k - start[i]
        pages = self.table[s[i], packed[i, column % number[i]]]
        return self._pad(i, column, pages, len(r), self._width(stop - start, most))

    def trim(self, rows: torch.Tensor, tokens: torch.Tensor, most: int | None) -> None:
        r, keep = self._rows(rows), tokens.numpy()
        length = self.length[r]
        self._judge("row", r, (keep < 0) | (keep > length), "has not so many positions to keep")
        first, entries = self._entries(keep), self._entries(length)
        self._judge_most(r, entries - first, most)
        i, at = spread(keep, length)
        self.settled[r[i], at] = False
        i, k = spread(first, entries)
        pages: Ids = self.table[r[i], k].astype(np.int64)
        self.table[r[i], k] = 0
        self.length[r] = keep
        self.pool.drop(pages[pages > 0])

    def finish(self, rows: torch.Tensor, most: int | None) -> None:
        self.trim(rows, torch.zeros_like(rows), most)
        self.request[rows.numpy()] = -1

    def publish(self, rows: torch.Tensor, starts: torch.Tensor, stops: torch.Tensor, most: int | None) -> None:
        r, start, stop = self._ranges(rows, starts, stops, most, "entries")
        i, k = spread(start, stop)
        pages = self._live(r[i], k)
        self._judge("row", r[i], ~self._by_entry(self.settled)[r[i], k].all(1), "is not settled there")
        self.pool.put(pages)

    def share(
        self, rows: torch.Tensor, sources: torch.Tensor, starts: torch.Tensor, stops: torch.Tensor, most: int | None
    ) -> None:
        r, s, start, stop = self._rows(rows), self._sources(sources), starts.numpy(), stops.numpy()
        self._judge_range(s, start, stop, self._entries(self.length[s]), "entries")
        self._judge_most(r, stop - start, most)
        elsewhere = np.not_equal(self.length[r], start * self.page_size)
        self._judge("row", r, elsewhere, "does not end where the shared pages begin")
        i, k = spread(start, stop)
        pages = self._published(r[i], s[i], k)
        self.pool.hold(pages)
        self.table[r[i], k] = pages
        self._by_entry(self.settled)[r[i], k] = True
        self.length[r] = stop * self.page_size

    def replace(self, rows: torch.Tensor, entries: torch.Tensor, sources: torch.Tensor) -> None:
        r, s, k = self._rows(rows), self._sources(sources), entries.numpy()
        old = self._live(r, k)
        self._judge("row", r, self.pool._state[old] >= CACHED, "holds a published page there, no duplicate")
        new = self._published(r, s, k)
        self._judge("row", r, ~self._by_entry(self.settled)[r, k].all(1), "is not settled there")
        self.table[r, k] = new
        self.pool.hold(new)
        self.pool.drop(old)

    def copy(self, rows: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
        r, k = self._rows(rows), entries.numpy()
        old = self._live(r, k)
        needed = self.pool._state[old] != 1
        r, k, old = r[needed], k[needed], old[needed]
        new = self.pool.take(len(r))
        self.content[new] = self.content[old]
        self.table[r, k] = new
        self.pool.drop(old)
        pages = np.zeros(len(needed), np.int64)
        pages[needed] = new
        return torch.from_numpy(pages)

    def pin(self, pins: torch.Tensor, rows: torch.Tensor, entries: torch.Tensor) -> None:
        r, p = self._rows(rows), self._distinct("pin", pins, len(self.pin_page))
        pages = self._live(r, entries.numpy())
        self._judge("pin", p, self.pin_page[p] > 0, "is in use already")
        request = self.request[r]
        pinned = (self.pin_page == pages[:, None]) & (self.pin_request == request[:, None])
        self._judge("row", r, pinned.any(1), "has pinned this page already")
        self.pool.hold(pages)
        self.pin_page[p], self.pin_request[p] = pages, request

    def unpin(self, pins: torch.Tensor) -> None:
        p = self._distinct("pin", pins, len(self.pin_page))
        pages = self.pin_page[p]
        self._judge("pin", p, pages == 0, "is not in use")
        self.pin_page[p] = 0
        self.pool.drop(pages)

    # What several operations need.

    def _judge(self, what: str, ids: Ids, bad: Flags | np.bool, reason: str) -> None:
        if bad.any():
            raise Misuse(f"{what} {int(ids[bad.argmax()])}: {reason}")

    def _judge_range(self, r: Ids, start: Ids, stop: Ids, limit: Ids, what: str) -> None:
        bad = (start < 0) | (stop < start) | (stop > limit)
        if bad.any():
            b = int(bad.argmax())
            raise Misuse(f"row {r[b]}: has {limit[b]} {what}, [{start[b]}, {stop[b]}) is no range of them")

    def _judge_most(self, r: Ids, sizes: Ids, most: int | None) -> None:
        if most is not None:
            self._judge("row", r, sizes > most, f"asks for more than the {most} announced")

    def _width(self, sizes: Ids, most: int | None) -> int:
        return most if most is not None else int(sizes.max(initial=0))

    def _distinct(self, what: str, ids: torch.Tensor, limit: int) -> Ids:
        """Ids below `limit`, no two the same."""
        view: Ids = ids.numpy()
        self._judge(what, view, (view < 0) | (view >= limit), f"unknown, there are {limit}, from 0 on")
        if len(view) > 1:
            if len(view) > limit:
                raise Misuse(f"{len(view)} {what}s named, there are {limit}")
            self._mark[view] = self._places[: len(view)]
            self._judge(what, view, self._mark[view] != self._places[: len(view)], "is named twice in one call")
        return view

    def _rows(self, rows: torch.Tensor) -> Ids:
        r = self._distinct("row", rows, len(self.table))
        self._judge("row", r, self.request[r] < 0, "is not live")
        return r

    def _sources(self, sources: torch.Tensor) -> Ids:
        s: Ids = sources.numpy()
        self._judge("row", s, (s < 0) | (s >= len(self.table)), f"unknown, there are {len(self.table)}, from 0 on")
        self._judge("row", s, self.request[s] < 0, "is not live")
        return s

    def _ranges(
        self, rows: torch.Tensor, starts: torch.Tensor, stops: torch.Tensor, most: int | None, what: str
    ) -> tuple[Ids, Ids, Ids]:
        r, start, stop = self._rows(rows), starts.numpy(), stops.numpy()
        length = self.length[r]
        self._judge_range(r, start, stop, length if what == "positions" else self._entries(length), what)
        self._judge_most(r, stop - start, most)
        return r, start, stop

    def _entries(self, tokens: Ids) -> Ids:
        return -(-tokens // self.page_size)

    def _by_entry(self, positions: NDArray[np.generic]) -> NDArray[np.generic]:
        return positions.reshape(len(positions), -1, self.page_size)

    def _live(self, r: Ids, k: Ids) -> Ids:
        """The pages at live entries."""
        inside = (k >= 0) & (k < self.table.shape[1])
        pages: Ids = self.table[r, np.where(inside, k, 0)].astype(np.int64)
        self._judge("row", r, ~inside | (pages == 0), "holds no page there")
        return pages

    def _published(self, r: Ids, s: Ids, k: Ids) -> Ids:
        """The pages at entries k of the rows s, which the rows r may read at the same entries."""
        pages = self._live(s, k)
        self._judge("row", s, self.pool._state[pages] < CACHED, "holds a page there that is not published")
        same = (self.content[pages] == self._by_entry(self.tokens)[r, k]).all(1)
        self._judge("row", r, ~same, "has other tokens there than the shared page")
        return pages

    def _slots(self, r: Ids, start: Ids, stop: Ids, most: int | None) -> torch.Tensor:
        i, at = spread(start, stop)
        slots = self.table[r[i], at // self.page_size].astype(np.int64) * self.page_size + at % self.page_size
        return self._pad(i, at - start[i], slots, len(r), self._width(stop - start, most))

    def _pad(self, i: Ids, column: Ids, values: Ids, height: int, width: int) -> torch.Tensor:
        padded = np.zeros((height, width), np.int64)
        padded[i, column] = values
        return torch.from_numpy(padded)
