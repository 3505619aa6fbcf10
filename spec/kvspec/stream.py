"""A single-stream speculative decode (J1-J3): what it emits, what it feeds, and who has its cache.

A plain step emits the next input, feeds it, and samples another one. A cycle feeds the last token and a draft; what is
accepted of that is queued, and one token more.
"""

from kvspec.language import *

Owner = Sort("Owner")


class Stream(Machine):
    """The tokens of one request, counted behind its prompt, and the owners of its cache."""

    drafts, pause = rigid(Nat, 2), rigid(Nat, 1)  # tokens of a draft, plain steps of a cool-down
    stream, keeper = rigid(Owner), rigid(Owner)  # keeper: of what is finished, for other requests
    live, speculates, owns = state(Bool), state(Bool), state(SetOf(Owner))
    committed, queued, emitted, fed, rest = state(Nat), state(Nat), state(Nat), state(Nat), state(Nat)

    @assumption
    def is_no_keeper(s):
        """A stream is no keeper."""
        return s.stream != s.keeper

    def advance(s):  # by a plain step; `rest` of them are left of a cool-down
        s.emitted, s.fed, s.committed = s.emitted + 1, s.fed + 1, s.committed + 1
        s.rest = If(s.rest > 0, s.rest - 1, 0)

    def end(s, exported):  # of the request: its cache goes to the keeper, or to nobody
        s.live, s.speculates, s.owns = False, False, lambda o: And(exported, o == s.keeper)

    @action
    def begin(s):
        """A request begins alone, with the token that its prompt yields."""
        s.require(Not(s.live))
        s.live, s.owns = True, lambda o: o == s.stream
        s.committed, s.queued, s.emitted, s.fed, s.rest = 1, 1, 0, 0, 0

    @action
    def speculate(s):
        """From now on tokens are drafted."""
        s.require(s.owns[s.stream])
        s.expect(s.rest == 0, "J4")
        s.speculates = True

    @action
    def cycle(s, a: Nat):
        """With nothing queued: draft and verify; a tokens are accepted, and what was fed behind them is cut."""
        s.require(And(s.speculates, s.queued == 0, a <= s.drafts))
        s.committed, s.fed, s.queued = s.committed + a + 1, s.fed + a + 1, a + 1

    @action
    def emit(s):
        """One of the queue."""
        s.require(And(s.speculates, s.queued > 0))
        s.queued, s.emitted = s.queued - 1, s.emitted + 1

    @action
    def park(s):
        """Too little was accepted: the last one queued is the next input of plain steps."""
        s.require(And(s.speculates, s.queued == 1))
        s.speculates, s.rest = False, s.pause

    @action
    def decode(s):
        """A plain step."""
        s.require(And(s.live, Not(s.speculates)))
        s.advance()

    @action
    def cancel(s):
        """Its cache is dropped: it may be ahead of what was emitted, or behind."""
        s.require(s.live)
        s.end(False)

    @action
    def finish(s):
        """It has its last token; what is queued behind that was never asked for, and is cut from the cache."""
        s.require(s.live)
        s.end(True)
        s.fed = If(s.queued > 1, s.emitted, s.fed)

    @step("J1", on=("begin",))
    def begins_anew(s, t):
        """Nothing of a request is emitted or fed when it begins, and no other one is there."""
        return And(Not(s.live), t.live, t.emitted == 0, t.fed == 0)

    @invariant("J1")
    def each_once(s):
        """Each token is emitted, or queued, once: none is lost or repeated."""
        return Implies(s.live, s.emitted + s.queued == s.committed)

    @invariant("J1")
    def fed_once(s):
        """The cache has each token but the last one, once."""
        return Implies(s.live, s.fed + 1 == s.committed)

    @step("J1", on=("cycle",))
    def verifies(s, t, a: Nat):
        """No more is accepted than was drafted; and a cycle emits nothing."""
        return And(s.speculates, a <= s.drafts, t.emitted == s.emitted)

    @step("J1", unless=("begin",))
    def one_by_one(s, t):
        """Tokens are emitted one by one, and what was emitted stays so."""
        return And(s.emitted <= t.emitted, t.emitted <= s.emitted + 1)

    @invariant("J2")
    def next_input(s):
        """Who does not speculate has one token queued, which is its next input."""
        return Implies(And(s.live, Not(s.speculates)), s.queued == 1)

    @step("J2", on=("decode",))
    def emits_what_it_feeds(s, t):
        """So a plain step emits the token that it feeds."""
        return And(s.live, s.queued == 1, t.queued == 1, t.fed == t.emitted)

    @invariant("J3")
    def one_owner(s, a: Owner, b: Owner):
        """No two have the cache."""
        return Implies(And(s.owns[a], s.owns[b]), a == b)

    @invariant("J3")
    def somebodys(s):
        """Somebody has the cache of a request, as long as it is there."""
        return Implies(s.live, exists(Owner, lambda o: And(s.owns[o], o != s.keeper)))

    @invariant("J3")
    def owned_while_live(s, o: Owner):
        """Of one that ended, the keeper alone may have it; only a stream speculates."""
        return And(Implies(s.owns[o], s.live == (o != s.keeper)), Implies(s.speculates, s.owns[s.stream]))

    @step("J3", on=("cancel",))
    def exports_nothing(s, t, o: Owner):
        """What is cancelled was there, and leaves its cache to nobody."""
        return And(s.live, Not(t.owns[o]))

    @step("J3", on=("finish",))
    def exports_what_was_emitted(s, t):
        """What is finished was there, and leaves to the keeper what was emitted, no token more."""
        return And(s.live, t.owns[s.keeper], t.fed <= t.emitted)

    @step("J4", on=("speculate", "park"))
    def rests(s, t):
        """After a cool-down alone tokens are drafted again."""
        return If(t.speculates, s.rest == 0, And(s.speculates, t.rest == s.pause))
