"""What `kvspec.deferred_free` checks, written by hand: the yardstick for the compiled monitor's speed.

The same guards and the same state, as somebody would write them who had no specification language: a class, lists, and
a loop over a row's entries where the machine speaks of all pages. What only the machine's proof needs is left out: who
named a queued page, and where it stands.
"""

from collections.abc import Sequence

Prefix = Sequence[Sequence[Sequence[int]]]
"""Tokens by request, entry and offset."""


class Wrong(Exception):
    """A check that failed; nothing was changed."""


class Monitor:
    """Follows events; each method is one, with the machine's name and operands."""

    def __init__(self, pages: int, requests: int, entries: int, offsets: int, prefix: Prefix) -> None:
        """`pages` counts the null page too."""
        self.pages, self.entries, self.offsets, self.prefix = pages, entries, offsets, prefix
        self.blank = [page > 0 for page in range(pages)]
        self.available = pages - 1
        self.cached = [False] * pages
        self.released = [False] * pages
        self.refs = [0] * pages
        self.row = [[0] * entries for _ in range(requests)]
        """The page at each entry, 0 where it is not live."""
        self.reading = [[False] * pages for _ in range(requests)]
        self.content = [[0] * offsets for _ in range(pages)]
        self.written = [[False] * offsets for _ in range(pages)]
        self.settled = [[[False] * offsets for _ in range(entries)] for _ in range(requests)]
        self.open = False
        self.queue: list[int] = []

    def acquire(self, r: int, k: int, p: int) -> None:
        """Hand a blank page to entry k of r."""
        self._inside(r, k, p)
        if self.row[r][k]:
            raise Wrong("the entry is live")
        if not self.blank[p]:
            raise Wrong("the page is not blank")
        self.blank[p] = False
        self.available -= 1
        self.row[r][k] = p
        self.refs[p] += 1
        self.written[p] = [False] * self.offsets

    def refuse(self, n: int) -> None:
        """Decline to hand out n pages."""
        if n <= self.available:
            raise Wrong("there are enough")

    def share(self, r: int, k: int, p: int) -> None:
        """Let r hold a cached page at entry k."""
        self._inside(r, k, p)
        if self.row[r][k] or p in self.row[r]:
            raise Wrong("the entry is live, or the page in the row")
        if not self.cached[p]:
            raise Wrong("the page is not cached")
        if not all(self.written[p]) or self.content[p] != self.prefix[r][k]:
            raise Wrong("the page says something else")
        self.row[r][k] = p
        self.refs[p] += 1
        self.settled[r][k] = [True] * self.offsets

    def begin_read(self, r: int, p: int) -> None:
        """Begin a read."""
        self._inside(r, 0, p)
        if p not in self.row[r] or self.reading[r][p]:
            raise Wrong("the page is not in the row, or is being read")
        self.reading[r][p] = True
        self.refs[p] += 1

    def end_read(self, r: int, p: int, c: int) -> None:
        """End it."""
        self._inside(r, 0, p)
        if not self.reading[r][p]:
            raise Wrong("no read began")
        self.reading[r][p] = False
        self._leave(p)

    def release(self, r: int, k: int, o: int, stop: int, c: int) -> None:
        """Give up positions from (k, o) on, before entry `stop`."""
        self._inside(r, k, 0)
        if not 0 <= o < self.offsets or stop < 0:
            raise Wrong("no such position")
        row, settled = self.row[r], self.settled[r]
        for j in range(k, min(stop, self.entries)):
            if j == k and o > 0:
                settled[j][o:] = [False] * (self.offsets - o)
                continue
            settled[j] = [False] * self.offsets
            p = row[j]
            if p:
                row[j] = 0
                self._leave(p)

    def publish(self, p: int) -> None:
        """Put a held page into the cache."""
        self._inside(0, 0, p)
        if self.refs[p] < 1:
            raise Wrong("nobody holds the page")
        self.cached[p] = True

    def evict(self, p: int) -> None:
        """Take an unheld page out of the cache."""
        self._inside(0, 0, p)
        if not self.cached[p] or self.refs[p]:
            raise Wrong("the page is not cached, or held")
        self.cached[p] = False
        self._make_blank(p)

    def reclaim(self, p: int) -> None:
        """Make a released page blank."""
        self._inside(0, 0, p)
        if not self.released[p]:
            raise Wrong("the page is not released")
        if p in self.queue:
            raise Wrong("the page waits for the end of its group")
        self.released[p] = False
        self._make_blank(p)

    def write(self, r: int, k: int, o: int, t: int) -> None:
        """Write t at a position."""
        p = self._position(r, k, o)
        if self.settled[r][k][o] and t != self.prefix[r][k][o]:
            raise Wrong("something else is settled there")
        if self.refs[p] != 1 or self.cached[p]:
            raise Wrong("the page is not the row's alone")
        self.content[p][o] = t
        self.written[p][o] = True

    def settle(self, r: int, k: int, o: int) -> None:
        """From here on the position may be read."""
        p = self._position(r, k, o)
        if not self.written[p][o]:
            raise Wrong("nothing was written there")
        if self.content[p][o] != self.prefix[r][k][o]:
            raise Wrong("something else was written there")
        self.settled[r][k][o] = True

    def replace(self, r: int, k: int, p: int, c: int) -> None:
        """Swap r's page for a cached one that says the same."""
        self._inside(r, k, p)
        old = self.row[r][k]
        if not old or p in self.row[r]:
            raise Wrong("the entry is not live, or the page in the row")
        if not self.cached[p]:
            raise Wrong("the page is not cached")
        if not all(self.written[p]) or self.content[p] != self.prefix[r][k]:
            raise Wrong("the page says something else")
        self.row[r][k] = p
        self.refs[p] += 1
        self._leave(old)

    def copy(self, r: int, k: int, q: int) -> None:
        """Give r's entry the blank page q with the same contents."""
        self._inside(r, k, q)
        old = self.row[r][k]
        if not old or (self.refs[old] == 1 and not self.cached[old]):
            raise Wrong("the entry is not live, or its page the row's alone")
        if not self.blank[q]:
            raise Wrong("the page is not blank")
        self.blank[q] = False
        self.available -= 1
        self.row[r][k] = q
        self.refs[old] -= 1
        self.refs[q] += 1
        self.content[q], self.written[q] = self.content[old][:], self.written[old][:]

    def begin(self) -> None:
        """Open a group."""
        if self.open:
            raise Wrong("a group is open")
        self.open = True

    def end(self) -> None:
        """Close it."""
        if not self.open:
            raise Wrong("no group is open")
        self.open = False
        for p in self.queue:
            self.released[p] = False
            self._make_blank(p)
        self.queue.clear()

    def overwrite(self, r: int, k: int, p: int) -> None:
        """The caller writes into its own buffer."""
        self._inside(r, k, p)
        if self.row[r][k]:
            raise Wrong("the entry is live")

    def _inside(self, r: int, k: int, p: int) -> None:
        if not (0 <= r < len(self.row) and 0 <= k < self.entries and 0 <= p < self.pages):
            raise Wrong("no such request, entry or page")

    def _position(self, r: int, k: int, o: int) -> int:
        if not (0 <= r < len(self.row) and 0 <= k < self.entries and 0 <= o < self.offsets):
            raise Wrong("no such position")
        p = self.row[r][k]
        if not p:
            raise Wrong("the entry is not live")
        return p

    def _leave(self, p: int) -> None:
        """One holder leaves."""
        self.refs[p] -= 1
        if not self.refs[p] and not self.cached[p]:
            self.released[p] = True
            if self.open:
                self.queue.append(p)

    def _make_blank(self, p: int) -> None:
        self.blank[p] = True
        self.available += 1
