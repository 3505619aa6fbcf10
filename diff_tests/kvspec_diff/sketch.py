"""The pool that a program is being written for, in its author's head, so that the next operation can mean something.

It numbers pages in its own way and only counts the blank ones, so it fits any policy. It judges nothing: if it is wrong
about a subject, programs get duller, never wrong.
"""

from collections.abc import Sequence

from kvspec.operations import AnyOperation, Begin, Checkpoint, Configuration, End, Overwrite, Pin, Start

from kvspec_diff.caller import Caller, Page, Row


class Sketch(Caller):
    """A caller's knowledge, with answers that a pool of this size would give."""

    def __init__(self, configuration: Configuration) -> None:
        super().__init__(configuration)
        self.blank = configuration.pages
        self.until_reuse: int | None = None  # how many pages a first in, first out pool hands out before a freed one
        self.scribbled = False  # a buffer of the open group was overwritten
        self.started: dict[str, None] = {}  # every row name that was ever used
        self.pinned: dict[str, None] = {}  # every pin name that was ever used
        self._numbers = 0

    def apply(self, operation: AnyOperation, handed: Sequence[int] | None = ()) -> bool:
        """As `Caller.apply`, but with answers of its own: `handed` is not looked at, and no actions are kept."""
        done = super().apply(operation, handed)
        self.actions.clear()
        return done

    def _new_pages(self, n: int) -> list[Page] | None:
        if n > self.blank:
            return None
        self.blank -= n
        if n and self.until_reuse is not None:
            self.until_reuse = None if n > self.until_reuse else self.until_reuse - n
        self._numbers += n
        return [Page(self._numbers - i) for i in range(n)]

    def _evicted(self, count: int) -> Sequence[int]:
        return [number for number, page in self.cache.items() if page.holders == 0][:count]

    def _free(self, page: Page) -> None:
        self.blank += 1

    def start(self, operation: Start) -> bool:
        self.started[operation.row] = None
        return super().start(operation)

    def pin(self, operation: Pin) -> bool:
        self.pinned[operation.name] = None
        return super().pin(operation)

    def checkpoint(self, operation: Checkpoint) -> bool:
        row = self.rows.get(operation.row)
        if row is not None:
            self.handed = [self._standing(row, entry) for entry in range(len(row.entries))]
        return super().checkpoint(operation)

    def _standing(self, row: Row, entry: int) -> int:
        """The page that stands at an entry after a checkpoint: another row's published one that reads the same."""
        page = row.entries[entry]
        if page is not None and not page.cached:
            for other in self.rows.values():
                if self.shareable(row, other, entry):
                    page = other.entries[entry]
        return page.number if page is not None else 0

    def overwrite(self, operation: Overwrite) -> bool:
        done = super().overwrite(operation)
        self.scribbled |= done and self.open and operation.start < operation.stop
        return done

    def begin(self, operation: Begin) -> bool:
        done = super().begin(operation)
        self.scribbled &= not done
        return done

    def end(self, operation: End) -> bool:
        if self.deferred:
            self.until_reuse = self.blank
        return super().end(operation)
