"""What a request reads is its own prefix (R1-R6), and what that asks of sharing and freeing (O7, O8, O10, O11).

A position is (entry, offset): in pages of b slots, position i is (i div b, i mod b), exactly: see `address`."""

from kvspec.language import *
from kvspec.pages import Entry, Offset, Page, Pages, Request, Stop

Token = Sort("Token")


class ReadLaw(Pages):
    """Pages with contents: writes, settled positions, copies."""

    prefix = rigid(Map(Request, Entry, Offset, Token))  # fixed by a request's tokens, not by what was written
    content = state(Map(Page, Offset, Token))  # ghost: what was last written
    written = state(Relation(Page, Offset))  # since the page was handed out
    settled = state(Map(Request, Entry, Offset, Bool))  # positions that may be read

    def reads_as(s, r, k, p):
        """The whole of page p says what r's prefix says at entry k."""
        return forall(Offset, lambda o: And(s.written[p, o], s.content[p, o] == s.prefix[r, k, o]))

    @action
    def acquire(s, r: Request, k: Entry, p: Page):
        """A page comes without contents."""
        super().acquire(r, k, p)
        s.written[p] = lambda o: False

    @action
    def write(s, r: Request, k: Entry, o: Offset, t: Token):
        """Write t at a position of r; over a settled one only what it says already."""
        p = s.row[r, k]
        s.require(And(s.live[r, k], Implies(s.settled[r, k, o], t == s.prefix[r, k, o])))
        s.expect(s.last(p), "O7")
        s.content[p, o], s.written[p, o] = t, True

    @action
    def pad(s, o: Offset, t: Token):
        """Padding is written to the null page, where nobody reads."""
        s.content[s.null, o] = t

    @action
    def settle(s, r: Request, k: Entry, o: Offset):
        """From here on the position may be read."""
        s.require(s.live[r, k])
        s.expect(s.written[s.row[r, k], o], "R4")
        s.expect(s.content[s.row[r, k], o] == s.prefix[r, k, o], "R1")
        s.settled[r, k, o] = True

    @action
    def share(s, r: Request, k: Entry, p: Page):
        """Every position of a shared page is settled."""
        super().share(r, k, p)
        s.expect(s.reads_as(r, k, p), "R1")
        s.settled[r, k] = lambda o: True

    @action
    def release(s, r: Request, k: Entry, o: Offset, stop: Stop):
        """The named truncation: positions from (k, o) on are settled no more."""
        super().release(r, k, o, stop)
        s.settled[r] = lambda j, i: And(s.settled[r, j, i], Or(j >= stop, j < k, And(j == k, i < o)))

    @action
    def replace(s, r: Request, k: Entry, p: Page):
        """Swap r's duplicate at entry k for the cached page p that says the same, and give up its own."""
        old = s.row[r, k]
        s.require(And(s.live[r, k], Not(s.holds(r, p))))
        s.expect(s.cached[p], "O4")
        s.expect(s.reads_as(r, k, p), "R1")
        s.row[r, k], s.place[r, p] = p, k
        s.refs[old], s.refs[p], s.released[old] = s.refs[old] - 1, s.refs[p] + 1, s.last(old)

    @action
    def copy(s, r: Request, k: Entry, q: Page):
        """Copy on write: entry k of r, so far shared, gets the blank page q with the same contents."""
        old = s.row[r, k]
        s.require(And(s.live[r, k], Not(s.last(old))))
        s.expect(s.blank[q], "O5")
        s.blank[q], s.row[r, k], s.place[r, q] = False, q, k
        s.refs[old], s.refs[q] = s.refs[old] - 1, s.refs[q] + 1
        s.content[q], s.written[q] = s.content[old], s.written[old]

    @invariant("R1")
    def reads_prefix(s, r: Request, k: Entry, o: Offset):
        """A settled position reads as the request's own prefix."""
        return Implies(s.settled[r, k, o], s.content[s.row[r, k], o] == s.prefix[r, k, o])

    @step("R2")
    def read_undisturbed(s, t, r: Request, p: Page, o: Offset):
        """From its beginning to its end a read sees one content, and nobody is handed the page."""
        return Implies(And(s.reading[r, p], t.reading[r, p]), And(t.content[p, o] == s.content[p, o], Not(t.blank[p])))

    @derived("R3")
    def never_null(s, r: Request, k: Entry, o: Offset):
        """No settled position is read from the null page."""
        return Implies(s.settled[r, k, o], s.row[r, k] != s.null)

    @invariant("R4")
    def read_was_written(s, r: Request, k: Entry, o: Offset):
        """A settled position was written since its page was handed out."""
        return Implies(s.settled[r, k, o], s.written[s.row[r, k], o])

    @step("R4", on=("acquire",))
    def comes_unwritten(s, t, p: Page, o: Offset):
        """What a page's earlier holder wrote does not count."""
        return Not(t.written[p, o])

    @step("R5", unless=("release",))
    def stays_settled(s, t, r: Request, k: Entry, o: Offset):
        """Settled positions shrink only by the named truncation."""
        return Implies(s.settled[r, k, o], t.settled[r, k, o])

    @step("R6")
    def address_kept(s, t, r: Request, k: Entry, o: Offset):
        """A position's address changes only when the new one says the same."""
        same = t.content[t.row[r, k], o] == s.content[s.row[r, k], o]
        return Implies(And(s.settled[r, k, o], t.settled[r, k, o], t.row[r, k] != s.row[r, k]), same)

    @lemma("R6")
    def address(b: Nat, i: Nat, q: Nat, page: Nat):
        """Slot page * b + i mod b, read backwards, gives the page and the offset that were written."""
        slot = page * b + (i - q * b)
        return Implies(And(q * b <= i, i < (q + 1) * b), And(page * b <= slot, slot < (page + 1) * b))

    @step("O7")
    def writes_alone(s, t, p: Page, o: Offset):
        """What changes is a page with one holder and no cache entry, a blank one, or padding."""
        return Implies(t.content[p, o] != s.content[p, o], Or(s.last(p), s.blank[p], p == s.null))

    @step("O8", on=("copy",))
    def others_keep(s, t, r: Request, other: Request, j: Entry, o: Offset):
        """A copy leaves the page and the contents of every other holder."""
        same = And(t.row[other, j] == s.row[other, j], t.content[s.row[other, j], o] == s.content[s.row[other, j], o])
        return Implies(And(other != r, s.live[other, j]), same)

    @invariant("O10")
    def settled_is_held(s, r: Request, k: Entry, o: Offset):
        """A page that still carries a settled position is in the row."""
        return Implies(s.settled[r, k, o], s.live[r, k])

    @lemma("O11")
    def cells_disjoint(b: Nat, p: Nat, q: Nat, i: Nat, j: Nat):
        """Slots of different pages differ."""
        return Implies(And(i < b, j < b, p < q), p * b + i < q * b + j)

    @derived("O11")
    def one_writer(s, r: Request, other: Request, p: Page):
        """Of two requests that hold a page neither may write it."""
        return Implies(And(r != other, s.holds(r, p), s.holds(other, p)), Not(s.last(p)))
