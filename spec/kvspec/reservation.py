"""How many blocks a step needs, and that all who compute it agree (C1-C7, C9, R4): warm-up, scheduler, allocator.

Steps are scheduled ahead of what is settled, and may retire late, with drafts refused.
"""

from kvspec.language import *
from kvspec.pages import Request
from kvspec.quotients import Position, Quotients

Group = Sort("Group")


class Reservation(Quotients):
    """Block tables, one for each group of layers, and the steps that write into them."""

    limit = rigid(Position, 3)  # positions in the longest sequence
    lookahead = rigid(Nat, 1)  # positions that a drafter writes past its step
    spares = rigid(Nat, 1)  # state blocks for drafts that may be refused
    crossed, recurrent, aligned = rigid(SetOf(Group)), rigid(SetOf(Group)), rigid(SetOf(Group))
    prompt, encoded = rigid(Map(Request, Position), 1), rigid(Map(Request, Position), 2)
    since = rigid(Map(Group, Position, Position))  # where a step at this position begins to read
    running = state(SetOf(Request))
    settled = state(Map(Request, Position))  # positions whose step has retired
    ahead = state(Map(Request, Position))  # where the last step ends if no draft is refused
    entries = state(Map(Request, Group, Nat))  # length of the table
    lost = state(Map(Request, Group, Nat))  # entries before the window: null
    charged = state(Map(Request, Group, Nat))  # the scheduler's own account of what r will give back
    used = count(lambda s, r, g: s.more(s.entries[r, g], s.lost[r, g]), over=Request, per=Group, law="C9")

    @assumption
    def windows(s, g: Group, t: Position, u: Position):
        """A window moves forward and begins before the step; cross-attention has none."""
        behind = And(s.since[g, t] <= t, Implies(s.crossed[g], s.since[g, t] == 0))
        return And(behind, Implies(t <= u, s.since[g, t] <= s.since[g, u]))

    def more(s, a, b):
        return If(a > b, a - b, 0)

    def need(s, r, g, t):
        """Blocks that the table must have when the last step ends at t."""
        capped = If(t + s.lookahead < s.limit, s.blocks[t + s.lookahead], s.blocks[s.limit])
        held = If(s.crossed[g], s.blocks[s.encoded[r]], If(s.aligned[g], s.blocks[t], capped))
        return held + If(s.recurrent[g], s.spares, 0)

    def planned(s, r, g, n, k):
        """Blocks that the allocator wants a table to have for a step of n positions and k drafts."""
        return s.need(r, g, s.ahead[r] + n + k)

    def reserve(s, r, entries, paid):
        """Set how long r's tables are, a function of the group; `paid` is what the scheduler charges more, or less."""
        s.used = lambda g: s.used[g] + s.more(entries(g), s.lost[r, g]) - s.more(s.entries[r, g], s.lost[r, g])
        s.entries[r], s.charged[r] = entries, lambda g: s.charged[r, g] + paid(g)

    def forget(s, r, gone):
        """So many more of r's entries, a function of the group, become null, and the scheduler reckons them free."""
        s.used, s.lost[r] = lambda g: s.used[g] - gone(g), lambda g: s.lost[r, g] + gone(g)
        s.charged[r] = lambda g: s.charged[r, g] - gone(g)

    def begin(s, r, t, ahead, entries):
        """Let r run with these tables, t positions settled and its first step scheduled to end at `ahead`."""
        s.require(And(Not(s.running[r]), ahead <= s.prompt[r], s.prompt[r] <= s.limit))
        s.running[r], s.settled[r], s.ahead[r] = True, t, ahead
        s.reserve(r, entries, lambda g: s.need(r, g, ahead))

    @action
    def admit(s, r: Request, t: Position):
        """Start a request of which t positions are settled: a prefix that was found."""
        s.begin(r, t, t, lambda g: s.need(r, g, t))

    @action
    def warm(s, r: Request, t: Position):
        """Start-up runs a first step of t positions for a request of its own."""
        s.begin(r, 0, t, lambda g: s.need(r, g, t))

    @action
    def schedule(s, r: Request, n: Nat, k: Nat):
        """A step of n positions and k drafts, cut at the limit; a table never shrinks for it."""
        s.require(s.running[r])
        s.expect(s.ahead[r] + n + k <= s.limit, "C4")
        s.ahead[r] = s.ahead[r] + n + k
        longer = lambda g: s.more(s.planned(r, g, n, k), s.entries[r, g])
        s.reserve(r, lambda g: s.entries[r, g] + longer(g), longer)

    @action
    def retire(s, r: Request, n: Nat, k: Nat, a: Nat):
        """The oldest step, of n positions and k drafts, settles with a drafts accepted."""
        s.require(s.settled[r] + n + k <= s.ahead[r])
        s.expect(a <= k, "C8")
        s.settled[r], s.ahead[r] = s.settled[r] + n + a, s.ahead[r] - k + a

    @action
    def slide(s, r: Request):
        """Entries before the settled window become null."""
        s.require(s.running[r])
        s.forget(r, lambda g: s.more(s.whole[s.since[g, s.settled[r]]], s.lost[r, g]))

    @action
    def trim(s, r: Request):
        """Give back what refused drafts had made longer."""
        s.require(s.running[r])
        s.reserve(r, lambda g: s.need(r, g, s.ahead[r]), lambda g: s.need(r, g, s.ahead[r]) - s.entries[r, g])

    @action
    def finish(s, r: Request):
        """Give everything back, when no step is left that may write."""
        s.expect(s.settled[r] == s.ahead[r], "C4")
        s.running[r] = False
        s.used = lambda g: s.used[g] - s.charged[r, g]
        s.entries[r], s.lost[r], s.charged[r] = lambda g: 0, lambda g: 0, lambda g: 0

    @invariant("C1")
    def covers(s, r: Request, g: Group):
        """A running request's table is at least as long as its last step needs."""
        return Implies(s.running[r], s.entries[r, g] >= s.need(r, g, s.ahead[r]))

    @invariant("C9")
    def idle_has_none(s, r: Request, g: Group):
        """Who does not run has no table."""
        return Implies(Not(s.running[r]), s.entries[r, g] == 0)

    @step("C3", on=("warm", "admit"))
    def all_agree(s, t, r: Request, g: Group):
        """Warm-up and allocator reserve what the scheduler reckons with, for the same step."""
        return And(t.entries[r, g] == s.need(r, g, t.ahead[r]), t.charged[r, g] == t.entries[r, g])

    @invariant("C3")
    def charged_as_held(s, r: Request, g: Group):
        """The scheduler's account of a request is what the allocator gave it."""
        return And(s.lost[r, g] <= s.entries[r, g], s.charged[r, g] == s.entries[r, g] - s.lost[r, g])

    @invariant("C4")
    def within_limit(s, r: Request):
        """What is settled lies before where the last step ends, within the limit; who does not run has no step left."""
        return If(s.running[r], And(s.settled[r] <= s.ahead[r], s.ahead[r] <= s.limit), s.settled[r] == s.ahead[r])

    @step("C5", on=("admit", "warm", "schedule", "trim"))
    def tight(s, t, r: Request, g: Group):
        """A table that was made longer would not do with one block fewer."""
        return Implies(t.entries[r, g] > s.entries[r, g], t.entries[r, g] == s.need(r, g, t.ahead[r]))

    @step("C9", on=("finish",))
    def gives_all_back(s, t, r: Request, g: Group):
        """What comes back is what was reserved, not what was computed."""
        return t.used[g] == s.used[g] - (s.entries[r, g] - s.lost[r, g])

    @invariant("R4")
    def keeps_the_window(s, r: Request, g: Group):
        """No entry that the next step reads is null."""
        return Implies(s.running[r], s.lost[r, g] <= s.whole[s.since[g, s.settled[r]]])
