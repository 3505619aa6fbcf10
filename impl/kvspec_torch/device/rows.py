"""Rows in batches without host waits. Contracts and laws: `kvspec_torch.rows`. Unverified on CUDA.

A batch of ranges is a grid, [batch, width], of entries or positions, and a mask that tells which are meant. What a mask
leaves out, and all of an operation that must not happen, is written to cells to spare: those of the row and of the pin
after the last, and of page 0.
"""

import torch

from kvspec_torch.device.pages import DevicePool
from kvspec_torch.device.report import Verdict
from kvspec_torch.errors import Misuse
from kvspec_torch.states import CACHED, UNWRITTEN

MANY = 2**41
"""More tokens than any pool has; what is asked above it is refused all the same, and the sums do not overflow."""

T = torch.Tensor


class DeviceRows:
    """See `kvspec_torch.Rows`. Arguments have their form; what they ask for is judged on the device."""

    def __init__(self, pool: DevicePool, page_size: int, tensors: dict[str, torch.Tensor]) -> None:
        self.pool = pool
        self.page_size = page_size
        self.table, self.length, self.request = tensors["table"], tensors["length"], tensors["request"]
        self.tokens, self.settled, self.content = tensors["tokens"], tensors["settled"], tensors["content"]
        self.pin_page, self.pin_request = tensors["pin_page"], tensors["pin_request"]
        self.started = tensors["started"]
        self.rows, self.entries = self.table.shape[0] - 1, self.table.shape[1]
        self.positions = self.entries * page_size
        self.pins = len(self.pin_page) - 1
        self._mark = torch.zeros(max(self.rows, self.pins) + 1, dtype=torch.int64, device=pool.device)
        self._places = torch.arange(max(len(self._mark), self.positions), device=pool.device)

    def start(self, rows: T, tokens: T) -> None:
        v = Verdict("row", rows)
        r = self._distinct(v, rows, self.rows)
        v.against(self.request[r] >= 0, "is live already")
        done = self.pool.report.settle("start", v)
        r = torch.where(done, r, self.rows)
        self.request[r] = torch.where(done, self.started + self._places[: rows.numel()], -1)
        self.started += torch.where(done, rows.numel(), 0)
        self.tokens[r] = tokens

    def allocate(self, rows: T, tokens: T, most: int | None) -> tuple[T, T]:
        v, r = self._rows(rows)
        v.against(tokens < 0, "asks for less than nothing or more than there is")
        self._announced(v, tokens, most)
        begin = self.length[r]
        end = begin + tokens.clamp(0, MANY)
        old, new = self._entries(begin), self._entries(end)
        last = self.table[r, (old - 1).clamp(min=0)]
        hole = (tokens > 0) & (begin % self.page_size > 0) & (last == 0)
        v.against(hole, "gave up its last page, and the new positions would begin there")
        refused = (new - old).sum() > self.pool.count
        v.against(~refused & (new > self.entries), "has too few entries")
        done = self.pool.report.settle("allocate", v, refused)
        width = self.positions if most is None else most
        k, which = self._grid(old, new, -(-width // self.page_size))
        pages = self.pool.take(which & done)
        self.content[pages] = UNWRITTEN
        self.table[self._to(which & done, r), self._entry(k)] = pages.to(torch.int32)
        self.length[torch.where(done, r, self.rows)] = end
        return pages, self._slots(r, begin, end, width, done)

    def write(self, rows: T, starts: T, stops: T, draft: bool, most: int | None) -> T:
        v, r = self._rows(rows)
        self._range(v, starts, stops, self.length[r], most)
        width = self.positions if most is None else most
        at, which = self._grid(starts, stops, width)
        at = at.clamp(0, self.positions - 1)
        page = self.table[r[:, None], at // self.page_size].long()
        state = self.pool.state[page]
        v.against(which & (page == 0), "holds no page there")
        v.against(which & (state >= CACHED), "holds a published page there")
        v.against(which & (state != 1), "is not the page's only holder, copy it first")
        if draft:
            v.against(which & self.settled[r[:, None], at], "is settled there, a draft must not overwrite it")
        done = self.pool.report.settle("write", v)
        which = which & done
        written = -1 - at if draft else self.tokens[r[:, None], at]
        self.content[torch.where(which, page, 0), at % self.page_size] = written
        if not draft:
            self.settled[self._to(which, r), at] = True
        return self._slots(r, starts, stops, width, done)

    def read(self, rows: T, starts: T, stops: T, most: int | None) -> tuple[T, T]:
        v, r = self._rows(rows)
        self._range(v, starts, stops, self.length[r], most)
        width = self.positions if most is None else most
        at, which = self._grid(starts, stops, width)
        at = at.clamp(0, self.positions - 1)
        v.against(which & ~self.settled[r[:, None], at], "is not settled there")
        done = self.pool.report.settle("read", v)
        content = self.content[self.table[r[:, None], at // self.page_size], at % self.page_size]
        return self._slots(r, starts, stops, width, done), torch.where(which & done, content, 0)

    def free(self, rows: T, starts: T, stops: T, most: int | None) -> None:
        v, r = self._rows(rows)
        k, which, pages = self._pages(v, r, starts, stops, most)
        which = which & self.pool.report.settle("free", v)
        into = self._to(which, r)
        self.table[into, k] = 0
        self._by_entry(self.settled)[into, k] = False
        self.pool.drop(pages, which)

    def overwrite(self, rows: T, starts: T, stops: T, sources: T, most: int | None) -> T:
        v, r = self._rows(rows)
        self._range(v, starts, stops, self._entries(self.length[r]), most)
        s = self._sources(v, sources)
        v.about("row", rows)
        k, which = self._grid(starts, stops, self.entries if most is None else most)
        here = self.table[r[:, None], self._entry(k)]
        v.against(which & (here > 0), "is live there, so it is not the caller's to overwrite")
        v.against(r == s, "cannot be overwritten with its own pages")
        of_source = self.table[s]
        live = of_source > 0
        number = live.sum(1, keepdim=True)
        v.about("row", sources)
        v.against(number == 0, "holds no page to overwrite with")
        done = self.pool.report.settle("overwrite", v)
        packed = torch.zeros(len(r), self.entries + 1, dtype=torch.int64, device=self.pool.device)
        packed.scatter_(1, torch.where(live, live.cumsum(1) - 1, self.entries), of_source.long())
        pages = packed.gather(1, (k - starts[:, None]) % number.clamp(min=1))
        return torch.where(which & done, pages, 0)

    def trim(self, rows: T, tokens: T, most: int | None) -> None:
        self._trim("trim", rows, tokens, most)

    def finish(self, rows: T, most: int | None) -> None:
        done = self._trim("finish", rows, torch.zeros_like(rows), most)
        self.request[torch.where(done, rows, self.rows)] = -1

    def _trim(self, operation: str, rows: T, tokens: T, most: int | None) -> T:
        v, r = self._rows(rows)
        length = self.length[r]
        v.against((tokens < 0) | (tokens > length), "asks for less than nothing or more than there is")
        first, entries = self._entries(tokens), self._entries(length)
        self._announced(v, entries - first, most)
        done = self.pool.report.settle(operation, v)
        width = self.entries if most is None else most
        at, which = self._grid(tokens, length, min((width + 1) * self.page_size, self.positions))
        self.settled[self._to(which & done, r), at.clamp(0, self.positions - 1)] = False
        k, which = self._grid(first, entries, width)
        pages = self.table[r[:, None], self._entry(k)].long()
        which = which & done & (pages > 0)
        self.table[self._to(which, r), self._entry(k)] = 0
        self.length[torch.where(done, r, self.rows)] = tokens
        self.pool.drop(pages, which)
        return done

    def publish(self, rows: T, starts: T, stops: T, most: int | None) -> None:
        v, r = self._rows(rows)
        k, which, pages = self._pages(v, r, starts, stops, most)
        v.against(which & ~self._by_entry(self.settled)[r[:, None], k].all(2), "is not settled there")
        done = self.pool.report.settle("publish", v)
        self.pool.put(pages, which & done)

    def share(self, rows: T, sources: T, starts: T, stops: T, most: int | None) -> None:
        v, r = self._rows(rows)
        s = self._sources(v, sources)
        k, which, pages = self._pages(v, s, starts, stops, most)
        self._published(v, pages, which)
        v.about("row", rows)
        v.against(self.length[r] != starts * self.page_size, "does not end where the shared pages begin")
        self._same_tokens(v, r, k, pages, which)
        done = self.pool.report.settle("share", v)
        which = which & done
        self.pool.hold(pages, which)
        into = self._to(which, r)
        self.table[into, k] = pages.to(torch.int32)
        self._by_entry(self.settled)[into, k] = True
        self.length[torch.where(done, r, self.rows)] = stops * self.page_size

    def replace(self, rows: T, entries: T, sources: T) -> None:
        v, r = self._rows(rows)
        k, old = self._live(v, r, entries)
        v.against(self.pool.state[old] >= CACHED, "holds a published page there")
        s = self._sources(v, sources)
        _, new = self._live(v, s, entries)
        whole = torch.ones_like(k, dtype=torch.bool)
        self._published(v, new, whole)
        v.about("row", rows)
        self._same_tokens(v, r, k, new, whole)
        v.against(~self._by_entry(self.settled)[r, k].all(1), "is not settled there")
        which = self.pool.report.settle("replace", v).expand(k.shape)
        self.table[torch.where(which, r, self.rows), k] = new.to(torch.int32)
        self.pool.hold(new, which)
        self.pool.drop(old, which)

    def copy(self, rows: T, entries: T) -> T:
        v, r = self._rows(rows)
        k, old = self._live(v, r, entries)
        needed = self.pool.state[old] != 1
        which = needed & self.pool.report.settle("copy", v, needed.sum() > self.pool.count)
        new = self.pool.take(which)
        self.content[new] = self.content[old]
        self.table[torch.where(which, r, self.rows), k] = new.to(torch.int32)
        self.pool.drop(old, which)
        return new

    def pin(self, pins: T, rows: T, entries: T) -> None:
        v, r = self._rows(rows)
        _, page = self._live(v, r, entries)
        request = self.request[r]
        pinned = (self.pin_page[:-1] == page[:, None]) & (self.pin_request[:-1] == request[:, None])
        v.against(pinned, "has pinned this page already")
        v.about("pin", pins)
        p = self._pins(v, pins, False)
        which = self.pool.report.settle("pin", v).expand(p.shape)
        self.pool.hold(page, which)
        p = torch.where(which, p, self.pins)
        self.pin_page[p], self.pin_request[p] = page, request

    def unpin(self, pins: T) -> None:
        v = Verdict("pin", pins)
        p = self._pins(v, pins, True)
        page = self.pin_page[p]
        which = self.pool.report.settle("unpin", v).expand(p.shape)
        self.pin_page[torch.where(which, p, self.pins)] = 0
        self.pool.drop(page, which)

    # What several operations need. A batch's id that does not exist becomes that of the spare row or pin.

    def _distinct(self, v: Verdict, ids: T, limit: int) -> T:
        if ids.numel() > limit:
            raise Misuse(f"{ids.numel()} {v.what}s named, there are {limit}")
        inside = (ids >= 0) & (ids < limit)
        v.against(~inside, "unknown")
        ids = torch.where(inside, ids, limit)
        places = self._places[: ids.numel()]
        self._mark.scatter_(0, ids, places)
        v.against(self._mark.index_select(0, ids) != places, "is named twice in one call")
        return ids

    def _rows(self, rows: T) -> tuple[Verdict, T]:
        v = Verdict("row", rows)
        r = self._distinct(v, rows, self.rows)
        v.against(self.request[r] < 0, "is not live")
        return v, r

    def _sources(self, v: Verdict, sources: T) -> T:
        v.about("row", sources)
        inside = (sources >= 0) & (sources < self.rows)
        v.against(~inside, "unknown")
        s = torch.where(inside, sources, self.rows)
        v.against(self.request[s] < 0, "is not live")
        return s

    def _pins(self, v: Verdict, pins: T, used: bool) -> T:
        p = self._distinct(v, pins, self.pins)
        v.against((self.pin_page[p] > 0) != used, "is not in use" if used else "is in use already")
        return p

    def _announced(self, v: Verdict, sizes: T, most: int | None) -> None:
        if most is not None:
            v.against(sizes > most, "asks for more than was announced")

    def _range(self, v: Verdict, starts: T, stops: T, limit: T, most: int | None) -> None:
        bad = (starts < 0) | (stops < starts) | (stops > limit)
        v.against(bad, "asks for less than nothing or more than there is")
        self._announced(v, stops - starts, most)

    def _pages(self, v: Verdict, r: T, starts: T, stops: T, most: int | None) -> tuple[T, T, T]:
        """The grid of entries [start, stop), all of them live: the entries, the mask and their pages."""
        self._range(v, starts, stops, self._entries(self.length[r]), most)
        k, which = self._grid(starts, stops, self.entries if most is None else most)
        k = self._entry(k)
        pages = self.table[r[:, None], k].long()
        v.against(which & (pages == 0), "holds no page there")
        return k, which, pages

    def _live(self, v: Verdict, r: T, entries: T) -> tuple[T, T]:
        """One entry of each row, and the page there."""
        k = self._entry(entries)
        page = self.table[r, k].long()
        v.against((k != entries) | (page == 0), "holds no page there")
        return k, page

    def _published(self, v: Verdict, pages: T, which: T) -> None:
        v.against(which & (self.pool.state[pages] < CACHED), "holds a page there that is not published")

    def _same_tokens(self, v: Verdict, r: T, k: T, pages: T, which: T) -> None:
        """The pages hold what the rows r are to read at entries k."""
        own = self._by_entry(self.tokens)[r.view(-1, *[1] * (k.dim() - 1)), k]
        v.against(which & (self.content[pages] != own).any(-1), "has other tokens there than the shared page")

    def _entries(self, tokens: T) -> T:
        return -(-tokens // self.page_size)

    def _entry(self, k: T) -> T:
        return k.clamp(0, self.entries - 1)

    def _by_entry(self, positions: T) -> T:
        return positions.view(self.rows + 1, self.entries, self.page_size)

    def _grid(self, starts: T, stops: T, width: int) -> tuple[T, T]:
        at = starts[:, None] + self._places[:width]
        return at, at < stops[:, None]

    def _to(self, which: T, r: T) -> T:
        """The rows to write to, [batch, width]: the spare one where `which` does not hold."""
        return torch.where(which, r[:, None], self.rows)

    def _slots(self, r: T, starts: T, stops: T, width: int, done: T) -> T:
        at, which = self._grid(starts, stops, width)
        at = at.clamp(0, self.positions - 1)
        page = self.table[r[:, None], at // self.page_size].long()
        return torch.where(which & done, page * self.page_size + at % self.page_size, 0)
