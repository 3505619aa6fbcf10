"""Frees that wait for the end of their group (D1-D4); what was named is freed, not what the caller's buffer says later.

An entry of the queue, (call, entry), keeps the page that was named and the row it was read from; without both, D1 would
hold of an engine that looks the page up again at the end. A page's own `call` and `spot` invert the queue.
"""

from kvspec.language import *
from kvspec.pages import Entry, Offset, Page, Request, Stop
from kvspec.read_law import ReadLaw

Call = Index("Call")


class DeferredFree(ReadLaw):
    """Groups of frees: inside a group, released pages wait for its end."""

    open = state(Bool)
    queued = state(Relation(Call, Entry))
    value = state(Map(Call, Entry, Page))  # the page that was named
    source = state(Map(Call, Request))  # whose row it was read from
    call = state(Map(Page, Call))  # ghost inverse of the queue
    spot = state(Map(Page, Entry))

    def named(s, p):
        """A queued entry names p."""
        return And(s.queued[s.call[p], s.spot[p]], s.value[s.call[p], s.spot[p]] == p)

    def unused(s, c):
        """Nothing is queued under call c."""
        return forall(Entry, lambda j: Not(s.queued[c, j]))

    def queue(s, c, j, p, when):
        """Inside a group, name p at entry j of call c when its last holder leaves."""
        s.queued[c, j] = And(s.open, when)
        s.value[c, j] = p
        s.call[p], s.spot[p] = If(when, c, s.call[p]), If(when, j, s.spot[p])

    @action
    def begin(s):
        """Open a group; groups do not nest."""
        s.require(Not(s.open), "D4")
        s.open = True

    @action
    def release(s, r: Request, k: Entry, o: Offset, stop: Stop, c: Call):
        """One call names all the pages that it gives up."""
        super().release(r, k, o, stop)
        s.require(s.unused(c))
        gone = lambda p, j: And(s.live[r, j], s.cuts(k, o, stop, j), s.last(p))
        freed = lambda p: And(s.holds(r, p), gone(p, s.place[r, p]))
        s.queued[c] = lambda j: And(s.open, gone(s.row[r, j], j))
        s.value[c], s.source[c] = s.row[r], r
        s.call = lambda p: If(freed(p), c, s.call[p])
        s.spot = lambda p: If(freed(p), s.place[r, p], s.spot[p])

    @action
    def replace(s, r: Request, k: Entry, p: Page, c: Call):
        """The duplicate waits for the end of the group, while the row goes on with p."""
        old = s.row[r, k]
        super().replace(r, k, p)
        s.require(s.unused(c))
        s.source[c] = r
        s.queue(c, k, old, s.last(old))

    @action
    def end_read(s, r: Request, p: Page, c: Call):
        """A page that its last read leaves waits too."""
        super().end_read(r, p)
        s.require(s.unused(c))
        s.source[c] = r
        s.queue(c, s.place[r, p], p, s.last(p))

    @action
    def reclaim(s, p: Page):
        """What is queued waits for the end."""
        super().reclaim(p)
        s.expect(Not(s.named(p)), "D3")

    @action
    def end(s):
        """Close the group: every page named in it is blank."""
        s.require(s.open, "D3")
        s.end_with(s.named)

    def end_with(s, freed):
        """Close the group, making blank the pages for which `freed` holds."""
        s.open = False
        s.blank = lambda p: Or(s.blank[p], freed(p))
        s.released = lambda p: And(s.released[p], Not(freed(p)))
        s.queued = lambda c, j: False

    @action
    def overwrite(s, r: Request, k: Entry, p: Page):
        """The caller writes into its own buffer, at an entry that it gave up."""
        s.require(Not(s.live[r, k]))
        s.row[r, k] = p

    @step("D1", on=("end",))
    def frees_what_was_named(s, t, p: Page):
        """The end of a group frees what was named when it was named: those pages and no others."""
        named = exists(Call, Entry, lambda c, j: And(s.queued[c, j], s.value[c, j] == p))
        return t.blank[p] == Or(s.blank[p], named)

    @step("D1", unless=("end",))
    def named_by_value(s, t, c: Call, j: Entry):
        """Nothing changes a queued entry before the end."""
        return Implies(s.queued[c, j], And(t.queued[c, j], t.value[c, j] == s.value[c, j]))

    @step("D3")
    def is_named(s, t, p: Page):
        """What the last holder leaves inside a group is named, so that the end will free it."""
        return Implies(And(s.open, t.released[p], Not(s.released[p])), t.named(p))

    @step("D3", on=("end",))
    def ends_once(s, t):
        """A group that ends was open, and is open no more."""
        return And(s.open, Not(t.open))

    @invariant("D2")
    def named_once(s, c: Call, j: Entry):
        """A page has one queued entry, however many calls name it."""
        p = s.value[c, j]
        return Implies(s.queued[c, j], And(s.call[p] == c, s.spot[p] == j))

    @invariant("D3")
    def waits(s, c: Call, j: Entry):
        """A queued page is released and not blank, until the group ends."""
        return Implies(s.queued[c, j], And(s.open, s.released[s.value[c, j]]))

    @step("D3", on=("end",))
    def nothing_lost(s, t, c: Call, j: Entry):
        """After the end, the queue is empty and everything in it is blank."""
        return And(Not(t.queued[c, j]), Implies(s.queued[c, j], t.blank[s.value[c, j]]))

    @step("D4", on=("begin",))
    def no_nesting(s, t):
        """A group begins only when none is open."""
        return And(Not(s.open), t.open)
