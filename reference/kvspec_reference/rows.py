"""What a request reads where: rows of pages, and the positions that may be read (R1, R4-R6, O7, O8).

A row is a request's page table. Entry k holds the page of positions k * page_size and on; an entry whose page was given
up early is a hole. A position is settled once the request's own token stands there; only settled positions are read.
The address (slot) of a position is page * page_size + offset, for writing and for reading (R6).

A row gets a blank page, or a published one that stands at the same entry of another row. So a page stands at one entry
only, whichever rows have it, and no row has it twice; and an unpublished page is in one row at most.

Every operation checks everything before it changes anything, and then records the atomic actions it performed, so that
a monitor of the specification can follow. A refusal records ("refuse", n) and nothing else; a misuse records nothing.
"""

from dataclasses import dataclass, field
from typing import Any

from kvspec.operations import Misuse, Outcome, Refused, prompt_token

from kvspec_reference.geometry import given_up, pages_for, place, slot, touched
from kvspec_reference.pages import PagePool

Action = tuple[str | int, ...]
"""An atomic action: its name, then its operands. Requests are counted by `start` from 0."""


@dataclass
class Row:
    """One request's row."""

    name: str
    request: int
    prompt: int
    length: int = 0  # token positions
    pages: dict[int, int] = field(default_factory=dict)  # entry: page, for the live entries
    settled: set[int] = field(default_factory=set)  # positions

    def page(self, entry: int) -> int:
        """The page at a live entry."""
        if entry not in self.pages:
            raise Misuse(f"row {self.name}, entry {entry}: holds no page")
        return self.pages[entry]


class Rows:
    """The rows of a pool. Each operation has the name and the fields of its struct in `kvspec.operations`."""

    def __init__(self, pool: PagePool) -> None:
        self.pool = pool
        self.rows: dict[str, Row] = {}
        self.pins: dict[str, tuple[int, int]] = {}  # name: (request, page)
        self._started = 0
        self._actions: list[Action] = []

    def take_actions(self) -> list[Action]:
        """The atomic actions performed since the last call of this method."""
        actions, self._actions = self._actions, []
        return actions

    # A row begins, grows, is written and is read.

    def start(self, row: str, prompt: int) -> Outcome:
        """Begin an empty row for a request whose tokens are those of `prompt`. The name must not be in use."""
        if row in self.rows:
            raise Misuse(f"row {row}: is live already")
        if prompt < 0:
            raise Misuse(f"row {row}: there is no prompt {prompt}")
        self.rows[row] = Row(row, self._started, prompt)
        self._started += 1
        return Outcome("done")

    def allocate(self, row: str, tokens: int) -> Outcome:
        """Reserve `tokens` more positions: the new pages in order, and the slots of the new positions (O5).

        Takes no page that the last one has room for. Refused if the pages needed exceed what is available.
        """
        into = self._row(row)
        if tokens < 0:
            raise Misuse(f"row {row}: {tokens} tokens cannot be allocated")
        entries, begin, end = self._entries(into), into.length, into.length + tokens
        if tokens and begin % self.pool.page_size and entries - 1 not in into.pages:
            raise Misuse(f"row {row}, entry {entries - 1}: was given up, and the new positions would begin on it")
        pages = self._take_blank(pages_for(end, self.pool.page_size) - entries)
        for entry, page in enumerate(pages, entries):
            into.pages[entry] = page
            self._actions.append(("acquire", into.request, entry, page))
        into.length = end
        return Outcome("done", pages=pages, slots=self._slots(into, begin, end))

    def write(self, row: str, start: int, stop: int, draft: bool = False) -> Outcome:
        """Write the prompt's tokens at positions [start, stop) and settle them; gives their slots.

        The row must be the only holder of the pages, and they must not be published (O7). A draft writes junk, on
        unsettled positions only, and settles nothing.
        """
        into = self._row(row)
        self._check_range(into, start, stop, into.length, "positions")
        for entry in touched(start, stop, self.pool.page_size):
            page = into.page(entry)
            if page in self.pool.cached:
                raise Misuse(f"row {row}, entry {entry}: page {page} is published, copy it first")
            if self.pool.refs[page] != 1:
                raise Misuse(f"row {row}, entry {entry}: page {page} has {self.pool.refs[page]} holders, copy it first")
        if draft and not into.settled.isdisjoint(range(start, stop)):
            at = min(into.settled.intersection(range(start, stop)))
            raise Misuse(f"row {row}, position {at}: is settled, a draft must not overwrite it")
        for position in range(start, stop):
            entry, offset = place(position, self.pool.page_size)
            token = -1 - position if draft else prompt_token(into.prompt, position)
            self.pool.contents[into.pages[entry], offset] = token
            self._actions.append(("write", into.request, entry, offset, token))
            if not draft:
                into.settled.add(position)
                self._actions.append(("settle", into.request, entry, offset))
        return Outcome("done", slots=self._slots(into, start, stop))

    def read(self, row: str, start: int, stop: int) -> Outcome:
        """Read the settled positions [start, stop): their slots and what stands there (R1, R4)."""
        of = self._row(row)
        self._check_range(of, start, stop, of.length, "positions")
        self._check_settled(of, start, stop)
        cells = [place(position, self.pool.page_size) for position in range(start, stop)]
        tokens = tuple(self.pool.contents[of.pages[entry], offset] for entry, offset in cells)
        return Outcome("done", slots=self._slots(of, start, stop), tokens=tokens)

    # A row gives up pages: some of them, its end, or all.

    def free(self, row: str, start: int, stop: int) -> Outcome:
        """Give up the pages of entries [start, stop), all of them live; their positions are not settled any more."""
        of = self._row(row)
        self._check_range(of, start, stop, self._entries(of), "entries")
        for entry in range(start, stop):
            of.page(entry)
        self._give_up(of, start, 0, stop)
        return Outcome("done")

    def overwrite(self, row: str, start: int, stop: int, source: str) -> Outcome:
        """The caller overwrites its own buffer at the given-up entries [start, stop) with `source`'s page ids (D5).

        Entry start + i gets the i-th live page of `source`, and the first again after the last. The buffer is not the
        pool's, so nothing changes.
        """
        of, other = self._row(row), self._row(source)
        self._check_range(of, start, stop, self._entries(of), "entries")
        for entry in range(start, stop):
            if entry in of.pages:
                raise Misuse(f"row {row}, entry {entry}: is live, so it is not the caller's to overwrite")
        if other is of:
            raise Misuse(f"row {row}: cannot be overwritten with its own pages")
        pages = [page for _, page in sorted(other.pages.items())]
        if not pages:
            raise Misuse(f"row {source}: holds no page to overwrite with")
        for i, entry in enumerate(range(start, stop)):
            self._actions.append(("overwrite", of.request, entry, pages[i % len(pages)]))
        return Outcome("done")

    def trim(self, row: str, tokens: int) -> Outcome:
        """Keep the first `tokens` positions; the pages that hold none of them are given up (R5, O10)."""
        of = self._row(row)
        if not 0 <= tokens <= of.length:
            raise Misuse(f"row {row}: has {of.length} positions, {tokens} of them cannot be kept")
        self._give_up(of, *place(tokens, self.pool.page_size), self._entries(of))
        of.length = tokens
        return Outcome("done")

    def finish(self, row: str) -> Outcome:
        """Give up the whole row; its name may be started again. Pins that it began stay."""
        self.trim(row, 0)
        del self.rows[row]
        return Outcome("done")

    # Pages are published, found again by other rows, copied before they are written, and evicted.

    def publish(self, row: str, start: int, stop: int) -> Outcome:
        """Put the pages of entries [start, stop) into the prefix cache; every position of them must be settled."""
        of = self._row(row)
        self._check_range(of, start, stop, self._entries(of), "entries")
        pages = [of.page(entry) for entry in range(start, stop)]
        self._check_settled(of, start * self.pool.page_size, stop * self.pool.page_size)
        self._actions += [("publish", page) for page in self.pool.publish(pages)]
        return Outcome("done")

    def share(self, row: str, source: str, start: int, stop: int) -> Outcome:
        """Append the published pages of `source`'s entries [start, stop), which hold the row's own next tokens."""
        into, other = self._row(row), self._row(source)
        self._check_range(other, start, stop, self._entries(other), "entries")
        if into.length != start * self.pool.page_size:
            raise Misuse(f"row {row}: has {into.length} positions, so entry {start} is not its next")
        pages = [self._published(other, entry, into) for entry in range(start, stop)]
        self.pool.share(pages)
        for entry, page in enumerate(pages, start):
            into.pages[entry] = page
            self._actions.append(("share", into.request, entry, page))
        into.length = stop * self.pool.page_size
        into.settled.update(range(start * self.pool.page_size, into.length))
        return Outcome("done")

    def replace(self, row: str, entry: int, source: str) -> Outcome:
        """Swap the row's own page at `entry`, a duplicate, for `source`'s published page of the same tokens there."""
        of, other = self._row(row), self._row(source)
        old = of.page(entry)
        if old in self.pool.cached:
            raise Misuse(f"row {row}, entry {entry}: page {old} is published, so it is no duplicate")
        new = self._published(other, entry, of)
        self._check_settled(of, entry * self.pool.page_size, (entry + 1) * self.pool.page_size)
        self.pool.share([new])
        of.pages[entry] = new
        self._actions.append(("replace", of.request, entry, new, self._call()))
        self._release([old])
        return Outcome("done")

    def copy(self, row: str, entry: int) -> Outcome:
        """Copy on write: give the row a page of its own at `entry`; nothing to do if it has one (O7, O8).

        The page has other holders or is published, so it does not become blank. Refused if no page is available.
        """
        of = self._row(row)
        old = of.page(entry)
        if self.pool.refs[old] == 1 and old not in self.pool.cached:
            return Outcome("done")
        pages = self._take_blank(1)
        self.pool.copy_contents(old, pages[0])
        of.pages[entry] = pages[0]
        self._actions.append(("copy", of.request, entry, pages[0]))
        self._release([old])
        return Outcome("done", pages=pages)

    def evict(self, count: int) -> Outcome:
        """Take up to `count` published pages that nobody holds out of the cache, the longest published first."""
        pages = self.pool.evict(count)
        self._actions += [("evict", page) for page in pages]
        return Outcome("done", pages=pages)

    # A read that outlasts a call keeps its page.

    def pin(self, name: str, row: str, entry: int) -> Outcome:
        """Begin a read, called `name`, of the page at `entry`; a row pins a page once at a time (R2)."""
        of = self._row(row)
        page = of.page(entry)
        if name in self.pins:
            raise Misuse(f"pin {name}: is in use already")
        if (of.request, page) in self.pins.values():
            raise Misuse(f"row {row}, entry {entry}: page {page} is pinned by this row already")
        self.pool.share([page])
        self.pins[name] = (of.request, page)
        self._actions.append(("begin_read", of.request, page))
        return Outcome("done")

    def unpin(self, name: str) -> Outcome:
        """End the read called `name`."""
        if name not in self.pins:
            raise Misuse(f"pin {name}: there is none")
        request, page = self.pins.pop(name)
        self._actions.append(("end_read", request, page, self._call()))
        self._release([page])
        return Outcome("done")

    def snapshot(self) -> dict[str, Any]:
        """The whole state; what is empty or zero is left out. Lists are in the order that matters, else sorted."""
        size = self.pool.page_size
        return {
            "blank": list(self.pool.blank),
            "cached": list(self.pool.cached),
            "released": [],
            "refs": {page: n for page, n in self.pool.refs.items() if n},
            "rows": {row.request: dict(row.pages) for row in self.rows.values() if row.pages},
            "settled": {
                row.request: [place(position, size) for position in sorted(row.settled)]
                for row in self.rows.values()
                if row.settled
            },
            "content": dict(self.pool.contents),
            "reading": sorted(self.pins.values()),
            "open": False,
        }

    # What several operations need.

    def _row(self, name: str) -> Row:
        if name not in self.rows:
            raise Misuse(f"row {name}: there is none")
        return self.rows[name]

    def _entries(self, row: Row) -> int:
        return pages_for(row.length, self.pool.page_size)

    def _slots(self, row: Row, start: int, stop: int) -> tuple[int, ...]:
        size = self.pool.page_size
        cells = (place(position, size) for position in range(start, stop))
        return tuple(slot(row.pages[entry], offset, size) for entry, offset in cells)

    def _check_range(self, row: Row, start: int, stop: int, limit: int, what: str) -> None:
        if not 0 <= start <= stop <= limit:
            raise Misuse(f"row {row.name}: has {limit} {what}, [{start}, {stop}) is no range of them")

    def _check_settled(self, row: Row, start: int, stop: int) -> None:
        for position in range(start, stop):
            if position not in row.settled:
                raise Misuse(f"row {row.name}, position {position}: is not settled")

    def _published(self, source: Row, entry: int, row: Row) -> int:
        """The page at `source`'s entry, which `row` may read at the same entry."""
        page = source.page(entry)
        if page not in self.pool.cached:
            raise Misuse(f"row {source.name}, entry {entry}: page {page} is not published")
        for offset in range(self.pool.page_size):
            position = entry * self.pool.page_size + offset
            if self.pool.contents[page, offset] != prompt_token(row.prompt, position):
                raise Misuse(f"row {row.name}, position {position}: page {page} holds another token there")
        return page

    def _take_blank(self, n: int) -> tuple[int, ...]:
        try:
            return self.pool.allocate(n)
        except Refused:
            self._actions.append(("refuse", n))
            raise

    def _give_up(self, row: Row, entry: int, offset: int, stop: int) -> None:
        """Unsettle the positions from (entry, offset) on and give up the entries wholly after it, up to `stop`."""
        size = self.pool.page_size
        row.settled.difference_update(range(entry * size + offset, stop * size))
        pages = [row.pages.pop(k) for k in given_up(entry, offset, stop) if k in row.pages]
        self._actions.append(("release", row.request, entry, offset, stop, self._call()))
        self._release(pages)

    def _release(self, pages: list[int]) -> None:
        self._actions += [("reclaim", page) for page in self.pool.release(pages)]

    def _call(self) -> int:
        """Which deferring call of its group this is; 0 outside of groups."""
        return 0
