"""The row table that the implementations use, as a refinement of `pages`.

A table of page ids by request and entry, where the null page marks a hole, and the number of entries of each row. The
relation `live` of `pages` goes along as a ghost; the invariants here say that the table tells the same.
"""

from kvspec.language import *
from kvspec.pages import Entry, Offset, Page, Pages, Request, Stop


class RowTable(Pages, algorithm=True):
    """Rows as lengths and page ids; a row grows at its end."""

    table = state(Map(Request, Entry, Page), init=lambda s, r, k: s.null)
    length = state(Map(Request, Nat))  # entries in use, holes included

    def append(s, r, k, p):
        """The next entry of r is p."""
        s.expect(k == s.length[r], "O11")
        s.table[r, k], s.length[r] = p, k + 1

    @action
    def acquire(s, r: Request, k: Entry, p: Page):
        """A page goes to the end of a row."""
        super().acquire(r, k, p)
        s.append(r, k, p)

    @action
    def share(s, r: Request, k: Entry, p: Page):
        """So does a shared one."""
        super().share(r, k, p)
        s.append(r, k, p)

    @action
    def release(s, r: Request, k: Entry, o: Offset, stop: Stop):
        """What is given up becomes holes; when it reaches the end, the row is shorter."""
        super().release(r, k, o, stop)
        s.table[r] = lambda j: If(s.cuts(k, o, stop, j), s.null, s.table[r, j])
        kept = If(o == 0, k, k + 1)
        s.length[r] = If(And(stop >= s.length[r], kept < s.length[r]), kept, s.length[r])

    @invariant("O11")
    def table_tells(s, r: Request, k: Entry):
        """An entry is live when the table has a page there, and then it is the row's page."""
        is_page = s.table[r, k] != s.null
        return And(s.live[r, k] == is_page, Implies(is_page, s.table[r, k] == s.row[r, k]))

    @invariant("O11")
    def ends_at_length(s, r: Request, k: Entry):
        """Behind its length a row has nothing."""
        return Implies(k >= s.length[r], s.table[r, k] == s.null)

    @derived("O11")
    def end_is_free(s, r: Request, k: Entry):
        """Where a row grows, `pages` allows it: nothing is live there."""
        return Implies(k == s.length[r], Not(s.live[r, k]))
