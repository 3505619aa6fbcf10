"""Who holds a page, and when it may be handed out again (R3, O1-O3, O5, O6).

A page is exactly one of: null (page 0), blank, held (one holder or more), or published with no holder. A holder is a
row entry or a pin; the pool counts holders and does not ask who they are. A page whose last holder leaves becomes
blank, unless it is published: then it stays until `evict`.

Every method checks everything before it changes anything. A failure is `Misuse` (the caller's) or `Refused` (there is
not enough), and it leaves the pool as it was.
"""

from collections import OrderedDict
from collections.abc import Iterable

from kvspec.operations import NULL_PAGE, Misuse, Refused


class PagePool:
    """Pages 1..`pages`, each of `page_size` cells; usable alone, without rows.

    Blank pages are handed out in the order they became blank, at the start 1, 2, 3 and so on.
    """

    def __init__(self, pages: int, page_size: int = 1) -> None:
        if pages < 1 or page_size < 1:
            raise Misuse(f"a pool needs a page and a cell: {pages} pages of {page_size} cells")
        self.pages = pages
        self.page_size = page_size
        self.blank: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, pages + 1))  # next one first
        self.refs = dict.fromkeys(range(1, pages + 1), 0)  # how many hold each page (O3)
        self.cached: dict[int, None] = {}  # the published pages, longest published first
        self.contents: dict[tuple[int, int], int] = {}  # (page, offset): what was written there since it was handed out

    @property
    def available(self) -> int:
        """How many pages `allocate` can hand out: the blank ones and no others (O6)."""
        return len(self.blank)

    def allocate(self, n: int) -> tuple[int, ...]:
        """Hand out `n` blank pages with one holder each, in FIFO order; none for n = 0 (O5).

        Raises `Misuse` for n < 0 and `Refused` if n exceeds `available`.
        """
        if n < 0:
            raise Misuse(f"{n} pages cannot be allocated")
        if n > self.available:
            raise Refused(f"{n} pages wanted, {self.available} available")
        pages = tuple(self.blank.popitem(last=False)[0] for _ in range(n))
        for page in pages:
            self.refs[page] = 1
        return pages

    def share(self, pages: Iterable[int]) -> None:
        """Give each of `pages` one more holder (a row entry or a pin). Each must be held or published."""
        for page in (named := self._existing(pages)):
            if self.refs[page] == 0 and page not in self.cached:
                raise Misuse(f"page {page}: {self._why_unheld(page)}, so nobody can share it")
        for page in named:
            self.refs[page] += 1

    def release(self, pages: Iterable[int]) -> tuple[int, ...]:
        """Take one holder from each of `pages`. Returns those that became blank, in the order named (O2).

        Raises `Misuse` if a page is null, unknown, named twice in this call, or has no holder.
        """
        for page in (named := self._existing(pages)):
            if self.refs[page] == 0:
                raise Misuse(f"page {page}: {self._why_unheld(page)}, so nobody can release it")
        for page in named:
            self.refs[page] -= 1
        return self._let_go([page for page in named if self.refs[page] == 0 and page not in self.cached])

    def publish(self, pages: Iterable[int]) -> tuple[int, ...]:
        """Put `pages` into the prefix cache; each must be held or there already. Returns the new ones, in order."""
        for page in (named := self._existing(pages)):
            if self.refs[page] == 0 and page not in self.cached:
                raise Misuse(f"page {page}: {self._why_unheld(page)}, so nobody can publish it")
        new = tuple(page for page in named if page not in self.cached)
        self.cached.update(dict.fromkeys(new))
        return new

    def evict(self, count: int) -> tuple[int, ...]:
        """Make up to `count` published pages without holders blank, longest published first. Returns them in order."""
        if count < 0:
            raise Misuse(f"{count} pages cannot be evicted")
        unheld = [page for page in self.cached if self.refs[page] == 0][:count]
        for page in unheld:
            del self.cached[page]
        self._make_blank(unheld)
        return tuple(unheld)

    def copy_contents(self, old: int, new: int) -> None:
        """Copy every written cell of page `old` to page `new`."""
        for offset in range(self.page_size):
            if (old, offset) in self.contents:
                self.contents[new, offset] = self.contents[old, offset]

    def _existing(self, pages: Iterable[int]) -> list[int]:
        """The pages named, by value: each exists, none is null, none is named twice."""
        named: list[int] = []
        seen: set[int] = set()
        for page in pages:
            if page == NULL_PAGE:
                raise Misuse(f"page {page}: the null page is nobody's")
            if type(page) is not int or page not in self.refs:
                raise Misuse(f"page {page}: unknown, the pool has pages 1 to {self.pages}")
            if page in seen:
                raise Misuse(f"page {page}: named twice in one call")
            seen.add(page)
            named.append(page)
        return named

    def _why_unheld(self, page: int) -> str:
        return "is blank" if page in self.blank else "is published and has no holder"

    def _let_go(self, pages: list[int]) -> tuple[int, ...]:
        """The last holder of these unpublished pages has left. Returns those that are blank now."""
        self._make_blank(pages)
        return tuple(pages)

    def _make_blank(self, pages: list[int]) -> None:
        for page in pages:
            self.blank[page] = None
            for offset in range(self.page_size):
                self.contents.pop((page, offset), None)
