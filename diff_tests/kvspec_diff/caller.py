"""What a caller knows of a pool: from its operations and from what came back, and from nothing else.

`Caller.apply` takes one operation and what was handed out for it, says whether the caller was within its contract, and
emits the atomic actions of the specification's machine that the operation amounts to. The generator uses the same model
with page numbers of its own (`Sketch`), so that what it makes is meaningful on any policy.
"""

from collections.abc import Sequence

from kvspec.operations import (
    BRANCH_AT,
    Allocate,
    AnyOperation,
    Begin,
    Checkpoint,
    Configuration,
    Copy,
    End,
    Evict,
    Finish,
    Free,
    Overwrite,
    Pin,
    Publish,
    Read,
    Replace,
    Share,
    Start,
    Trim,
    Unpin,
    Write,
    prompt_token,
)

from kvspec_diff.program import OPERATIONS

Action = tuple[str | int, ...]
"""An atomic action: its name, then its operands. Requests are counted from 0 by the starts that were done."""


NAMES = {kind: name for name, kind in OPERATIONS.items()}


class Page:
    """A page that was handed out: its number, how many entries and pins hold it, whether it is in the cache."""

    __slots__ = ("cached", "holders", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.holders = 1
        self.cached = False


class Row:
    """A live row. `settled` has one bit a position; an entry is None where its page was given up."""

    __slots__ = ("entries", "length", "prompt", "request", "settled")

    def __init__(self, request: int, prompt: int) -> None:
        self.request = request
        self.prompt = prompt
        self.length = 0
        self.entries: list[Page | None] = []
        self.settled = 0


def span(start: int, stop: int) -> int:
    """The bits of positions [start, stop)."""
    return (1 << stop) - (1 << start)


def agree(one: int, other: int, stop: int) -> bool:
    """Whether two prompts have the same tokens at positions [0, stop)."""
    return one == other or (one // 4 == other // 4 and stop <= BRANCH_AT)


class Caller:
    """Rows, pins, the cache and the open group, as far as outcomes tell. Knows nothing of which pages are blank."""

    def __init__(self, configuration: Configuration) -> None:
        self.page_size = configuration.page_size
        self.rows: dict[str, Row] = {}
        self.requests = 0
        self.pins: dict[str, tuple[Row, Page]] = {}
        self.cache: dict[int, Page] = {}
        self.open = False
        self.calls = 0
        self.deferred: list[Page] = []
        self.given_up: list[tuple[str, int, Page]] = []
        self.actions: list[Action] = []
        self.handed: Sequence[int] | None = ()

    def apply(self, operation: AnyOperation, handed: Sequence[int] | None = ()) -> bool:
        """Take in an operation that was done, with the pages that came back, or that was refused (`handed` is None).

        False, and nothing changes, if the caller's contract forbids the operation. `actions` grows by what happened.
        """
        self.handed = handed
        return bool(getattr(self, NAMES[type(operation)])(operation))

    def take_actions(self) -> list[Action]:
        """The actions since the last call of this method."""
        actions, self.actions = self.actions, []
        return actions

    def writable(self, row: Row, entry: int) -> bool:
        """Whether the row may write on the page at `entry`: it alone has it (O7)."""
        page = row.entries[entry]
        return page is not None and page.holders == 1 and not page.cached

    def whole(self, row: Row, entry: int) -> bool:
        """Whether every position of the page at `entry` is settled."""
        mask = span(entry * self.page_size, (entry + 1) * self.page_size)
        return row.settled & mask == mask

    def shareable(self, row: Row, source: Row, entry: int) -> bool:
        """Whether `source` has at `entry` a published page that reads as `row` needs, and that `row` has not."""
        page = source.entries[entry] if entry < len(source.entries) else None
        return (
            page is not None
            and page.cached
            and page not in row.entries
            and agree(row.prompt, source.prompt, (entry + 1) * self.page_size)
        )

    def _new_pages(self, n: int) -> list[Page] | None:
        """The `n` pages that came back for a call that needs `n`; None if it was refused."""
        if self.handed is None:
            self.actions.append(("refuse", n))
            return None
        return [Page(number) for number in self.handed]

    def _evicted(self, count: int) -> Sequence[int]:
        return self.handed or ()

    def _call(self) -> int:
        """Which deferring call of the open group this is; 0 outside of groups."""
        if not self.open:
            return 0
        self.calls += 1
        return self.calls - 1

    def _drop(self, page: Page) -> None:
        page.holders -= 1
        if page.holders == 0 and not page.cached:
            if self.open:
                self.deferred.append(page)
            else:
                self._free(page)
                self.actions.append(("reclaim", page.number))

    def _free(self, page: Page) -> None:
        """The page is blank."""

    def start(self, operation: Start) -> bool:
        if operation.row in self.rows:
            return False
        self.rows[operation.row] = Row(self.requests, operation.prompt)
        self.requests += 1
        return True

    def allocate(self, operation: Allocate) -> bool:
        row = self.rows.get(operation.row)
        if row is None or operation.tokens < 0:
            return False
        if operation.tokens and row.length % self.page_size and row.entries[-1] is None:
            return False
        pages = self._new_pages(self.needs(row, operation.tokens))
        if pages is not None:
            for page in pages:
                self.actions.append(("acquire", row.request, len(row.entries), page.number))
                row.entries.append(page)
            row.length += operation.tokens
        return True

    def needs(self, row: Row, tokens: int) -> int:
        """How many pages `tokens` more positions take."""
        return -(-(row.length + tokens) // self.page_size) - len(row.entries)

    def write(self, operation: Write) -> bool:
        row, start, stop = self.rows.get(operation.row), operation.start, operation.stop
        if row is None or not start <= stop <= row.length:
            return False
        size = self.page_size
        if start < stop and not all(self.writable(row, entry) for entry in range(start // size, -(-stop // size))):
            return False
        if operation.draft and row.settled & span(start, stop):
            return False
        for position in range(start, stop):
            entry, offset = divmod(position, size)
            token = -1 - position if operation.draft else prompt_token(row.prompt, position)
            self.actions.append(("write", row.request, entry, offset, token))
            if not operation.draft:
                self.actions.append(("settle", row.request, entry, offset))
        if not operation.draft:
            row.settled |= span(start, stop)
        return True

    def read(self, operation: Read) -> bool:
        row = self.rows.get(operation.row)
        if row is None or not operation.start <= operation.stop <= row.length:
            return False
        mask = span(operation.start, operation.stop)
        return row.settled & mask == mask

    def free(self, operation: Free) -> bool:
        row, start, stop = self.rows.get(operation.row), operation.start, operation.stop
        if row is None or not start <= stop <= len(row.entries) or None in row.entries[start:stop]:
            return False
        self._give_up(operation.row, row, start, 0, stop)
        return True

    def _give_up(self, name: str, row: Row, entry: int, offset: int, stop: int) -> None:
        """Give up the positions from (entry, offset) on, before entry `stop`, and the pages that hold none any more."""
        self.actions.append(("release", row.request, entry, offset, stop, self._call()))
        row.settled &= ~span(min(entry * self.page_size + offset, stop * self.page_size), stop * self.page_size)
        for gone in range(entry if offset == 0 else entry + 1, stop):
            page = row.entries[gone]
            if page is not None:
                row.entries[gone] = None
                self._drop(page)
                if self.open:
                    self.given_up.append((name, gone, page))

    def overwrite(self, operation: Overwrite) -> bool:
        row, source, start, stop = (
            self.rows.get(operation.row), self.rows.get(operation.source), operation.start, operation.stop
        )  # fmt: skip
        if row is None or source is None or row is source or not start <= stop <= len(row.entries):
            return False
        pages = [page.number for page in source.entries if page is not None]
        if any(row.entries[start:stop]) or not pages:
            return False
        for i in range(stop - start):
            self.actions.append(("overwrite", row.request, start + i, pages[i % len(pages)]))
        return True

    def trim(self, operation: Trim) -> bool:
        row = self.rows.get(operation.row)
        if row is None or operation.tokens > row.length:
            return False
        entry, offset = divmod(operation.tokens, self.page_size)
        self._give_up(operation.row, row, entry, offset, len(row.entries))
        del row.entries[entry + (offset > 0) :]
        row.length = operation.tokens
        return True

    def finish(self, operation: Finish) -> bool:
        if operation.row not in self.rows:
            return False
        self.trim(Trim(operation.row, 0))
        del self.rows[operation.row]
        return True

    def publish(self, operation: Publish) -> bool:
        row, start, stop = self.rows.get(operation.row), operation.start, operation.stop
        if row is None or not start <= stop <= len(row.entries):
            return False
        pages = [page for page in row.entries[start:stop] if page is not None]
        if len(pages) < stop - start or not all(self.whole(row, entry) for entry in range(start, stop)):
            return False
        for page in pages:
            self._publish(page)
        return True

    def _publish(self, page: Page) -> None:
        if not page.cached:
            page.cached = True
            self.cache[page.number] = page
            self.actions.append(("publish", page.number))

    def share(self, operation: Share) -> bool:
        row, source, start, stop = (
            self.rows.get(operation.row), self.rows.get(operation.source), operation.start, operation.stop
        )  # fmt: skip
        if row is None or source is None or not start <= stop <= len(source.entries):
            return False
        if row.length != start * self.page_size:
            return False
        if not all(self.shareable(row, source, entry) for entry in range(start, stop)):
            return False
        for page in source.entries[start:stop]:
            assert page is not None, "it is shareable"
            page.holders += 1
            self.actions.append(("share", row.request, len(row.entries), page.number))
            row.entries.append(page)
        row.length = stop * self.page_size
        row.settled |= span(start * self.page_size, row.length)
        return True

    def replace(self, operation: Replace) -> bool:
        row, source, entry = self.rows.get(operation.row), self.rows.get(operation.source), operation.entry
        if row is None or source is None or entry >= len(row.entries):
            return False
        old = row.entries[entry]
        if old is None or old.cached or not self.whole(row, entry) or not self.shareable(row, source, entry):
            return False
        new = source.entries[entry]
        assert new is not None, "it is shareable"
        self._swap(operation.row, row, entry, new)
        return True

    def _swap(self, name: str, row: Row, entry: int, new: Page) -> None:
        """Put the published page `new` in the place of the row's own."""
        old = row.entries[entry]
        assert old is not None, "a page is swapped for a page"
        new.holders += 1
        row.entries[entry] = new
        self.actions.append(("replace", row.request, entry, new.number, self._call()))
        self._drop(old)
        if self.open:
            self.given_up.append((name, entry, old))

    def copy(self, operation: Copy) -> bool:
        row, entry = self.rows.get(operation.row), operation.entry
        page = row.entries[entry] if row is not None and entry < len(row.entries) else None
        if row is None or page is None:
            return False
        pages = self._new_pages(0 if self.writable(row, entry) else 1)
        if pages:
            row.entries[entry] = pages[0]
            self.actions.append(("copy", row.request, entry, pages[0].number))
            self._drop(page)
        return True

    def evict(self, operation: Evict) -> bool:
        if operation.count < 0:
            return False
        for number in self._evicted(operation.count):
            self.actions.append(("evict", number))
            page = self.cache.pop(number, None)
            if page is not None:
                page.cached = False
                self._free(page)
        return True

    def pin(self, operation: Pin) -> bool:
        row, entry = self.rows.get(operation.row), operation.entry
        if row is None or operation.name in self.pins or entry >= len(row.entries):
            return False
        page = row.entries[entry]
        if page is None or (row, page) in self.pins.values():
            return False
        page.holders += 1
        self.pins[operation.name] = (row, page)
        self.actions.append(("begin_read", row.request, page.number))
        return True

    def unpin(self, operation: Unpin) -> bool:
        if operation.name not in self.pins:
            return False
        row, page = self.pins.pop(operation.name)
        self.actions.append(("end_read", row.request, page.number, self._call()))
        self._drop(page)
        return True

    def begin(self, _: Begin) -> bool:
        if self.open:
            return False
        self.open, self.calls = True, 0
        self.given_up.clear()
        self.actions.append(("begin",))
        return True

    def end(self, _: End) -> bool:
        if not self.open:
            return False
        self.open = False
        for page in self.deferred:
            self._free(page)
        self.deferred.clear()
        self.actions.append(("end",))
        return True

    def checkpoint(self, operation: Checkpoint) -> bool:
        """What came back is the whole row: another page at an entry is the published one, swapped in for a duplicate.

        A radix cache takes the row's settled beginning: nothing from the first entry on that is not whole.
        """
        row = self.rows.get(operation.row)
        if row is None:
            return False
        for entry, number in enumerate((self.handed or ())[: len(row.entries)]):
            page = row.entries[entry]
            if page is None or not self.whole(row, entry):
                break
            if number == page.number:
                self._publish(page)
            else:
                self._swap(operation.row, row, entry, self.cache.get(number) or Page(number))
        return True
