"""The first-in first-out free list that the implementations use, as a refinement of `pages`.

A fixed array, a head and a count. The set of blank pages of `pages` goes along as a ghost: `pages` decides what may
happen, the ring decides which page is next, and the invariants here say that the two agree.
"""

from kvspec.language import *
from kvspec.pages import Entry, Page, Pages, Request

Slot = Index("Slot")


class Ring(Pages, algorithm=True):
    """Blank pages in the order they became blank; handed out from the head, put back behind the tail."""

    pages = cardinal(Page)  # null included
    order = rigid(Map(Slot, Page))  # in which the pages are handed out first
    rank = rigid(Map(Page, Slot))  # its inverse
    ring = state(Map(Slot, Page), init=lambda s, i: s.order[i])
    at = state(Map(Page, Slot), init=lambda s, p: s.rank[p])  # where a listed page stands
    head = state(Slot)
    listed = state(Nat, init=lambda s: s.pages - 1)  # how many, from the head on, around the end

    @assumption
    def begins_in_order(s, p: Page, i: Slot):
        """Every page but null has a place in the order, and every place a page."""
        page = Implies(p != s.null, And(s.rank[p] < s.pages - 1, s.order[s.rank[p]] == p))
        return And(page, Implies(i < s.pages - 1, And(s.rank[s.order[i]] == i, s.order[i] != s.null)))

    def wrapped(s, i):
        """Index i, at most once past the end, back in the array, which has room for all pages but null."""
        return If(i >= s.pages - 1, i - (s.pages - 1), i)

    def inside(s, i):
        """Index i is among the listed ones."""
        return And(i < s.pages - 1, If(i >= s.head, i - s.head < s.listed, i + s.pages - 1 - s.head < s.listed))

    def lists(s, p):
        return And(s.inside(s.at[p]), s.ring[s.at[p]] == p)

    def put_back(s, p):
        """Behind the tail."""
        tail = s.wrapped(s.head + s.listed)
        s.ring[tail], s.at[p], s.listed = p, tail, s.listed + 1

    @action
    def acquire(s, r: Request, k: Entry, p: Page):
        """The page at the head is handed out."""
        super().acquire(r, k, p)
        s.expect(And(s.listed > 0, p == s.ring[s.head]), "O5")
        s.head, s.listed = s.wrapped(s.head + 1), s.listed - 1

    @action
    def refuse(s, n: Nat):
        """More is asked than is listed."""
        super().refuse(n)
        s.expect(n > s.listed, "O5")

    @action
    def evict(s, p: Page):
        """An evicted page goes behind the tail."""
        super().evict(p)
        s.put_back(p)

    @action
    def reclaim(s, p: Page):
        """So does a released one."""
        super().reclaim(p)
        s.put_back(p)

    @invariant("O1")
    def lists_the_blank(s, p: Page):
        """The ring lists the blank pages and no others."""
        return s.blank[p] == s.lists(p)

    @invariant("O2")
    def listed_once(s, i: Slot):
        """No page is listed twice."""
        return Implies(s.inside(i), s.at[s.ring[i]] == i)

    @invariant("O6")
    def counts_the_blank(s):
        """What is listed is what is available."""
        return s.listed == s.available

    @invariant("O2")
    def head_inside(s):
        """The head stands in the array, which has a place when there is a page besides null."""
        return Implies(s.pages > 1, s.head < s.pages - 1)

    @derived("O2")
    def has_room(s):
        """There is a place for every page but null."""
        return s.listed <= s.pages - 1

    @derived("O5")
    def head_is_blank(s):
        """What the ring hands out, `pages` allows: with something listed, the head is blank."""
        return Implies(s.listed > 0, s.blank[s.ring[s.head]])

    @derived("O5")
    def refuses_rightly(s, n: Nat):
        """What the ring refuses, `pages` allows to refuse, and nothing else."""
        return (n > s.listed) == (n > s.available)
