"""Frees that wait for the end of their group (D1-D6).

While a group is open, a page whose last holder leaves is neither held nor blank: it is deferred. The end of the group
makes the deferred pages blank in the order they were deferred. What is deferred is the page that was named when the
call was made, by value: what the caller does to its buffers or rows afterwards changes nothing (D1, D5). A page cannot
be deferred twice, since only a holder can give it up (D2); it is not handed out before the end (D3), and an exception
between the two loses nothing. Groups do not nest (D4).
"""

from typing import Any

from kvspec.operations import Misuse, Outcome

from kvspec_reference.pages import PagePool
from kvspec_reference.rows import Rows


class DeferredPagePool(PagePool):
    """A pool with groups of deferred frees."""

    def __init__(self, pages: int, page_size: int = 1) -> None:
        super().__init__(pages, page_size)
        self.open = False
        self.released: list[int] = []  # the deferred pages, first deferred first

    def begin(self) -> None:
        """Open a group; one at a time."""
        if self.open:
            raise Misuse("a group is open already")
        self.open = True

    def end(self) -> tuple[int, ...]:
        """Close the group: the deferred pages become blank, in the order they were deferred. Returns them."""
        if not self.open:
            raise Misuse("no group is open")
        pages, self.released, self.open = self.released, [], False
        self._make_blank(pages)
        return tuple(pages)

    def _let_go(self, pages: list[int]) -> tuple[int, ...]:
        if not self.open:
            return super()._let_go(pages)
        self.released += pages
        return ()

    def _why_unheld(self, page: int) -> str:
        return "was freed already in the open group" if page in self.released else super()._why_unheld(page)


class Cache(Rows):
    """Everything at once: rows over a pool with deferred frees; the object that every implementation is compared with.

    >>> cache = Cache(pages=4, page_size=2)
    >>> cache.start("a", prompt=0).status
    'done'
    >>> cache.allocate("a", tokens=3).slots
    (2, 3, 4)
    >>> cache.take_actions()
    [('acquire', 0, 0, 1), ('acquire', 0, 1, 2)]
    """

    def __init__(self, pages: int, page_size: int = 1) -> None:
        self.groups = DeferredPagePool(pages, page_size)
        super().__init__(self.groups)
        self._calls = 0  # deferring calls of the open group

    def begin(self) -> Outcome:
        """Open a group of deferred frees."""
        self.groups.begin()
        self._actions.append(("begin",))
        return Outcome("done")

    def end(self) -> Outcome:
        """Close the group: everything named in it is freed, once."""
        self.groups.end()
        self._calls = 0
        self._actions.append(("end",))
        return Outcome("done")

    def snapshot(self) -> dict[str, Any]:
        """The whole state of `Rows.snapshot`, the deferred pages and whether a group is open."""
        return super().snapshot() | {"released": list(self.groups.released), "open": self.groups.open}

    def _call(self) -> int:
        if not self.groups.open:
            return 0
        self._calls += 1
        return self._calls - 1
