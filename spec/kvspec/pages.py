"""Who holds a page, and when it may be handed out again (O1-O6, O9, R3)."""

from kvspec.language import *

Page, Request, Entry, Offset, Stop = Sort("Page"), Sort("Request"), Index("Entry"), Index("Offset"), Index("Stop")


class Pages(Machine):
    """Blank pages, the rows of pages that requests hold, share, read and give up, and a prefix cache."""

    null = rigid(Page)  # padding
    blank = state(SetOf(Page), init=lambda s, p: p != s.null)
    cached = state(SetOf(Page))
    released = state(SetOf(Page))  # the last holder left, and it is not blank yet
    live = state(Relation(Request, Entry))  # the entries of a row that name a page
    row = state(Map(Request, Entry, Page))
    place = state(Map(Request, Page, Entry))  # ghost inverse of row
    reading = state(Relation(Request, Page))  # reads that began and have not ended
    refs = count(lambda s, r, p: bit(s.holds(r, p)) + bit(s.reading[r, p]), over=Request, per=Page, law="O3")
    available = total(blank)

    def holds(s, r, p):
        """Page p stands in r's row."""
        return And(s.live[r, s.place[r, p]], s.row[r, s.place[r, p]] == p)

    def last(s, p):
        """One holder is left and no cache: when that one leaves, the page is released."""
        return And(s.refs[p] == 1, Not(s.cached[p]))

    def cuts(s, k, o, stop, j):
        """Giving up the positions from (k, o) on, before entry `stop`, gives up the whole of entry j."""
        return And(j < stop, Or(k < j, And(k == j, o == 0)))

    @action
    def acquire(s, r: Request, k: Entry, p: Page):
        """Hand a blank page to entry k of r."""
        s.require(Not(s.live[r, k]))
        s.expect(s.blank[p], "O5")
        s.blank[p] = False
        s.live[r, k], s.row[r, k], s.place[r, p], s.refs[p] = True, p, k, s.refs[p] + 1

    @action
    def refuse(s, n: Nat):
        """Decline to hand out n pages."""
        s.expect(n > s.available, "O5")

    @action
    def share(s, r: Request, k: Entry, p: Page):
        """Let r hold a cached page at entry k."""
        s.require(And(Not(s.live[r, k]), Not(s.holds(r, p))))
        s.expect(s.cached[p], "O4")
        s.live[r, k], s.row[r, k], s.place[r, p], s.refs[p] = True, p, k, s.refs[p] + 1

    @action
    def begin_read(s, r: Request, p: Page):
        """Begin a read of a page of r's row; the read may outlast the row."""
        s.require(And(s.holds(r, p), Not(s.reading[r, p])))
        s.reading[r, p], s.refs[p] = True, s.refs[p] + 1

    @action
    def end_read(s, r: Request, p: Page):
        """End it; the page is released with its last holder."""
        s.require(s.reading[r, p])
        s.reading[r, p], s.refs[p], s.released[p] = False, s.refs[p] - 1, s.last(p)

    @action
    def release(s, r: Request, k: Entry, o: Offset, stop: Stop):
        """Give up r's positions from (k, o) on, before entry `stop`; a page of which positions remain is kept."""
        gone = lambda p: And(s.holds(r, p), s.cuts(k, o, stop, s.place[r, p]))
        s.live[r] = lambda j: And(s.live[r, j], Not(s.cuts(k, o, stop, j)))
        s.refs = lambda p: s.refs[p] - bit(gone(p))
        s.released = lambda p: Or(s.released[p], And(gone(p), s.last(p)))

    @action
    def publish(s, p: Page):
        """Put a held page into the prefix cache."""
        s.expect(s.refs[p] > 0, "O1")
        s.cached[p] = True

    @action
    def evict(s, p: Page):
        """Take a page that nobody holds out of the cache; it is blank."""
        s.expect(And(s.cached[p], s.refs[p] == 0), "O4")
        s.cached[p], s.blank[p] = False, True

    @action
    def reclaim(s, p: Page):
        """Make a released page blank."""
        s.expect(s.released[p], "O2")
        s.released[p], s.blank[p] = False, True

    places = claim("somewhere")(lambda s, p: Or(p == s.null, s.blank[p], s.cached[p], s.released[p], s.refs[p] > 0))

    @invariant("O1")
    def somewhere(s, p: Page):
        """Every page is accounted for: null, blank, cached, released or held."""
        return s.claimed("somewhere", p)

    @invariant("O1")
    def blank_alone(s, p: Page):
        """A blank page is nothing else."""
        return Implies(s.blank[p], Not(Or(s.cached[p], s.released[p], s.refs[p] > 0)))

    @invariant("O1")
    def released_alone(s, p: Page):
        """A released page is neither held nor cached."""
        return Implies(s.released[p], Not(Or(s.cached[p], s.refs[p] > 0)))

    @step("O2")
    def freed_once(s, t, p: Page):
        """What becomes blank was not, and nobody held it."""
        return Implies(And(t.blank[p], Not(s.blank[p])), And(Or(s.cached[p], s.released[p]), s.refs[p] == 0))

    @invariant("O3")
    def one_place(s, r: Request, k: Entry):
        """A page stands at most once in a row, and `place` tells where."""
        return Implies(s.live[r, k], s.place[r, s.row[r, k]] == k)

    @invariant("R3")
    def null_alone(s):
        """The null page is never handed out, counted, cached or freed."""
        return Not(Or(s.blank[s.null], s.cached[s.null], s.released[s.null], s.refs[s.null] > 0))

    @derived("O4")
    def held_safe(s, r: Request, p: Page):
        """A page with a holder is not blank, not queued for freeing, not evictable."""
        return Implies(Or(s.holds(r, p), s.reading[r, p]), And(s.refs[p] > 0, Not(s.blank[p]), Not(s.released[p])))

    @step("O5", on=("acquire",))
    def one_taken(s, t, p: Page):
        """What is taken was blank and is no more, so that n acquired pages are n distinct ones."""
        return And(s.blank[p], Not(t.blank[p]), t.available == s.available - 1)

    @step("O5", on=("refuse",))
    def refused_rightly(s, t, n: Nat):
        """There was too little, and nothing changed."""
        return And(n > s.available, t.same(s))

    @step("O6", on=("release", "end_read", "refuse"))
    def not_yet_available(s, t):
        """Neither a page given up but not yet blank nor a refusal raises `available`."""
        return t.available == s.available

    @derived("O9")
    def no_leak(s):
        """With no row, no read, an empty cache and nothing released, every page but null is blank."""
        unheld = forall(Request, Entry, Page, lambda r, k, p: Not(Or(s.live[r, k], s.reading[r, p])))
        idle = forall(Page, lambda p: Not(Or(s.cached[p], s.released[p])))
        return Implies(And(unheld, idle), forall(Page, lambda p: Or(s.blank[p], p == s.null)))
