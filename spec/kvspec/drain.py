"""A late request joins a single-stream speculative decode (J1-J5): the queue is drained, and the cache handed over.

Progress of an arrival: what helps it is enabled (`always_a_step`), lessens what is owed (`nearer`), stays enabled, and
nothing else raises what is owed (`nothing_else`); fair is an engine that goes on stepping. That a hand-off succeeds is
nobody's promise: those that fail are counted (`in_time`).
"""

from kvspec.language import *
from kvspec.stream import Owner, Stream


class Drain(Stream):
    """An arrival that waits, what it has waited for, and the pin that holds the batch while a cache is handed over."""

    handoff, batch = rigid(Owner), rigid(Owner)
    waiting, pinned = state(Bool), state(Bool)
    waited, failed = state(Nat), state(Nat)  # since it came: steps of the engine, hand-offs that failed

    @assumption
    def differ(s):
        """These owners are others."""
        return And(s.handoff != s.batch, *[o != p for o in (s.handoff, s.batch) for p in (s.stream, s.keeper)])

    def owed(s):  # steps until it joins, if no hand-off fails
        return If(s.queued > 1, s.queued, 1)

    @action
    def arrive(s):
        """Another request comes."""
        s.require(And(s.owns[s.stream], Not(s.waiting)))
        s.waiting, s.waited, s.failed = True, 0, 0

    @action
    def withdraw(s):
        """It goes again."""
        s.require(s.owns[s.stream])
        s.waiting = False

    @action
    def cycle(s, a: Nat):
        """No speculative cycle starts while it waits."""
        super().cycle(a)
        s.expect(Not(s.waiting), "J4")

    @action
    def emit(s):
        """The last one queued is left to it."""
        super().emit()
        s.expect(Or(s.queued > 1, Not(s.waiting)), "J4")
        s.waited = s.waited + bit(s.waiting)

    @action
    def decode(s):
        """While it waits, the next input is left to it too."""
        super().decode()
        s.expect(Not(s.waiting), "J4")

    @action
    def take(s):
        """The hand-off begins: the last one queued is the next input, and no forward pass is needed."""
        s.require(And(s.waiting, s.owns[s.stream]))
        s.expect(s.queued == 1, "J2")
        s.owns[s.stream], s.owns[s.handoff], s.pinned, s.speculates = False, True, True, False

    @action
    def forward(s):
        """Or, with nothing queued: one pass over the last token yields the next input."""
        s.require(And(s.waiting, s.queued == 0))
        s.committed, s.fed, s.queued = s.committed + 1, s.fed + 1, 1
        s.owns[s.stream], s.owns[s.handoff], s.pinned, s.speculates = False, True, True, False

    @action
    def join(s):
        """The batch has the cache, and the arrival beside it."""
        s.require(s.owns[s.handoff])
        s.owns[s.handoff], s.owns[s.batch], s.pinned, s.waiting = False, True, False, False

    @action
    def fail(s):
        """The hand-off raises: the stream has its cache again, and makes a plain step."""
        s.require(s.owns[s.handoff])
        s.owns[s.handoff], s.owns[s.stream], s.pinned = False, True, False
        s.failed, s.waited = s.failed + 1, s.waited + 1
        s.advance()

    @action
    def leave(s):
        """The others in the batch are gone."""
        s.require(s.owns[s.batch])
        s.owns[s.batch], s.owns[s.stream] = False, True

    @action
    def cancel(s):
        """Not within a hand-off; who waited for it begins alone."""
        super().cancel()
        s.require(Not(s.pinned))
        s.waiting = False

    @action
    def finish(s):
        """Likewise."""
        super().finish()
        s.require(Not(s.pinned))
        s.waiting = False

    @step("J2", on=("take", "forward"))
    def hands_over(s, t):
        """The stream hands over when at most one token is to be emitted, and that one is the next input."""
        return And(s.owns[s.stream], s.queued <= 1, t.queued == 1, t.emitted == s.emitted)

    @invariant("J3")
    def pinned_in_hand(s):
        """The batch is pinned while a cache is handed over, which is for one that waits."""
        return And(s.pinned == s.owns[s.handoff], Implies(s.pinned, s.waiting))

    @invariant("J4")
    def in_time(s):
        """It joins within as many steps as a cycle queues tokens, and one more for each hand-off that failed."""
        bounded = s.waited + s.owed() <= s.drafts + 1 + s.failed
        return And(s.queued <= s.drafts + 1, Implies(s.waiting, bounded))

    @invariant("J4")
    def always_a_step(s):
        """Who waits, waits for a stream that can emit or be handed over, or for a hand-off that can join."""
        drains = And(s.owns[s.stream], Or(s.queued <= 1, s.speculates))
        return Implies(s.waiting, Or(s.owns[s.handoff], drains))

    @step("J4", unless=("begin", "emit", "take", "forward", "join", "fail"))
    def nothing_else(s, t):
        """Nothing else has a step in between, takes the cache away or adds to what is owed."""
        kept = And(t.owns[s.stream] == s.owns[s.stream], t.queued == s.queued, t.emitted == s.emitted)
        return Implies(And(s.waiting, t.waiting), kept)

    @step("J4", on=("emit", "fail"))
    def nearer(s, t):
        """A step without a join ticks; it brings it nearer, or a hand-off has failed, which adds nothing."""
        nearer = Or(t.owed() < s.owed(), And(t.failed > s.failed, t.owed() == s.owed()))
        return Implies(s.waiting, And(t.waiting, t.waited == s.waited + 1, nearer))

    @step("J4", on=("arrive",))
    def comes_anew(s, t):
        """Nobody was waiting, and the clock begins."""
        return And(Not(s.waiting), t.waiting, t.waited == 0, t.failed == 0)

    @derived("J5")
    def released(s, o: Owner):
        """Whoever has the cache then, by a join or by an exception, holds no pin."""
        return Implies(And(s.owns[o], o != s.handoff), Not(s.pinned))
