"""A recurrent state is valid at one position only (S1, S3, S4): after exactly the tokens that it has seen.

`after` is what a state is after a prefix, whoever computed it. Two requests that begin alike have the same prefixes so
far: a snapshot is kept under its prefix, and so under its position.
"""

from kvspec.language import *
from kvspec.pages import Request
from kvspec.quotients import Position

Snapshot = Sort("Snapshot")
Prefix = Sort("Prefix")
Content = Sort("Content")


class Snapshots(Machine):
    """Live states that advance with their requests, and snapshots of them that stay."""

    prefixes = rigid(Map(Request, Position, Prefix))  # of so many tokens of a request
    after = rigid(Map(Prefix, Content))
    running, position = state(SetOf(Request)), state(Map(Request, Position))
    live = state(Map(Request, Content))
    stored = state(SetOf(Snapshot))
    label, content = state(Map(Snapshot, Prefix)), state(Map(Snapshot, Content))

    @assumption
    def has_one_length(s, r: Request, o: Request, n: Position, m: Position):
        """A prefix has one length, whoever's it is."""
        return Implies(n != m, s.prefixes[r, n] != s.prefixes[o, m])

    def fits(s, r, x, n):  # snapshot x is r's state after n tokens
        return And(s.stored[x], s.label[x] == s.prefixes[r, n])

    def put(s, r, n, state):  # r stands at n with this state
        s.running[r], s.position[r], s.live[r] = True, n, state

    @action
    def compute(s, r: Request, n: Position):
        """Compute up to position n, from the first token on or from where it stands."""
        s.put(r, n, s.after[s.prefixes[r, n]])

    @action
    def record(s, r: Request, x: Snapshot, n: Position):
        """Take a snapshot, which is r's state at n."""
        s.require(And(s.running[r], Not(s.stored[x])))
        s.expect(n == s.position[r], "S3")
        s.stored[x], s.label[x], s.content[x] = True, s.prefixes[r, n], s.live[r]

    @action
    def drop(s, x: Snapshot):
        """Delete a snapshot."""
        s.stored[x] = False

    @action
    def restore(s, r: Request, x: Snapshot, n: Position):
        """Start at n, from a snapshot of exactly that prefix."""
        s.expect(s.fits(r, x, n), "S1")
        s.put(r, n, s.content[x])

    @action
    def miss(s, r: Request, n: Position):
        """Say that there is no snapshot for position n."""
        s.expect(forall(Snapshot, lambda x: Not(s.fits(r, x, n))), "S1")

    @action
    def finish(s, r: Request):
        """It needs its state no more."""
        s.running[r] = False

    @invariant("S1")
    def live_is_own(s, r: Request):
        """A request's state is the one after the tokens that it stands behind."""
        return Implies(s.running[r], s.live[r] == s.after[s.prefixes[r, s.position[r]]])

    @step("S1", on=("miss",))
    def none_fits(s, t, r: Request, n: Position, x: Snapshot):
        """A snapshot that fits is found, one of no token too."""
        return Implies(s.stored[x], s.label[x] != s.prefixes[r, n])

    @invariant("S3")
    def stored_is_labelled(s, x: Snapshot):
        """A snapshot is the state after the prefix that it is kept under, and after no other."""
        return Implies(s.stored[x], s.content[x] == s.after[s.label[x]])

    @step("S4")
    def stays_as_it_is(s, t, x: Snapshot):
        """Whatever its request does later, a snapshot stays as it was."""
        same = And(t.content[x] == s.content[x], t.label[x] == s.label[x])
        return Implies(And(s.stored[x], t.stored[x]), same)
