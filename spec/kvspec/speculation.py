"""Steps with drafts, of which some are refused (C2, C4, C7, C8, R4): what they write is inside what was reserved."""

from kvspec.language import *
from kvspec.pages import Request
from kvspec.quotients import Position
from kvspec.reservation import Group, Reservation


class Speculation(Reservation):
    """Which positions ahead are only drafted, what was emitted, and who has stopped."""

    stopped = state(SetOf(Request))
    drafted = state(Map(Request, Nat))  # drafts between what is settled and what is ahead
    emitted = state(Map(Request, Nat))

    def fresh(s, r):
        """Nothing of r is drafted or emitted."""
        s.stopped[r], s.drafted[r], s.emitted[r] = False, 0, 0

    def sampled(s, r, n):
        """The oldest step, of n positions, ends behind the prompt and yields a token."""
        return s.settled[r] + n >= s.prompt[r]

    @action
    def admit(s, r: Request, t: Position):
        """An admitted request begins with nothing emitted."""
        super().admit(r, t)
        s.fresh(r)

    @action
    def warm(s, r: Request, t: Position):
        """So does one of the warm-up."""
        super().warm(r, t)
        s.fresh(r)

    @action
    def schedule(s, r: Request, n: Nat, k: Nat):
        """A step has a certain position; a chunk of the prompt has no drafts; who stopped has no more steps."""
        super().schedule(r, n, k)
        s.require(And(n > 0, Not(s.stopped[r]), Or(k == 0, s.ahead[r] + n >= s.prompt[r])))
        s.drafted[r] = s.drafted[r] + k

    @action
    def retire(s, r: Request, n: Nat, k: Nat, a: Nat, e: Nat):
        """With e tokens emitted: one more than was accepted, or the request stops; none inside the prompt."""
        super().retire(r, n, k, a)
        s.require(And(n > 0, k <= s.drafted[r], s.settled[r] + s.drafted[r] + n <= s.ahead[r]))
        s.expect(e <= If(s.sampled(r, n), a + 1, 0), "C8")
        s.drafted[r], s.emitted[r] = s.drafted[r] - k, s.emitted[r] + e
        s.stopped[r] = Or(s.stopped[r], And(s.sampled(r, n), e < a + 1))

    @invariant("C4")
    def only_drafts_may_go(s, r: Request):
        """What is ahead of the settled positions is certain or drafted, and only drafts are taken back."""
        return Implies(s.running[r], s.settled[r] + s.drafted[r] <= s.ahead[r])

    @invariant("C8")
    def drafts_follow_the_prompt(s, r: Request):
        """Nothing of the prompt is drafted."""
        return Implies(s.drafted[r] > 0, s.prompt[r] + s.drafted[r] <= s.ahead[r])

    @invariant("C8")
    def each_of_a_position(s, r: Request):
        """Each token comes of a settled position of its own, the first one of the prompt's last."""
        return Or(s.emitted[r] == 0, s.emitted[r] + s.prompt[r] <= s.settled[r] + 1)

    @derived("C4")
    def writes_inside(s, r: Request, g: Group, i: Position):
        """What steps that have not retired may write is inside the table."""
        return Implies(And(s.running[r], Not(s.crossed[g]), i < s.ahead[r]), s.whole[i] < s.entries[r, g])

    @derived("C2")
    def drafter_inside(s, r: Request, g: Group, i: Position):
        """What a drafter writes past its step is inside the table."""
        written = And(i < s.ahead[r] + s.lookahead, i < s.limit, Not(s.crossed[g]), Not(s.aligned[g]))
        return Implies(And(s.running[r], written), s.whole[i] < s.entries[r, g])

    @derived("C7")
    def state_has_spares(s, r: Request, g: Group, i: Position):
        """In every mode a recurrent group has a state for each block that is written, and those for drafts."""
        written = And(s.running[r], s.recurrent[g], Not(s.crossed[g]), i < s.ahead[r])
        return Implies(written, s.whole[i] + s.spares < s.entries[r, g])

    @step("C8", on=("admit", "warm"))
    def begins_anew(s, t, r: Request):
        """What an earlier request of this number drafted, emitted and ended with is gone."""
        return And(Not(t.stopped[r]), t.drafted[r] == 0, t.emitted[r] == 0)

    @step("C8", on=("schedule",))
    def certain_part(s, t, r: Request):
        """Who stopped has no more steps; and each one has a part that stays, whatever becomes of its drafts."""
        return And(Not(s.stopped[r]), t.ahead[r] - t.drafted[r] > s.ahead[r] - s.drafted[r])

    @step("C8", on=("retire",))
    def accepts(s, t, r: Request, k: Nat, a: Nat, e: Nat):
        """No more is accepted than was drafted, one token more is emitted or the request stops, and all is covered."""
        emits = Or(e == 0, And(e <= a + 1, Or(e == a + 1, t.stopped[r])))
        covered = forall(Group, lambda g: t.entries[r, g] >= t.need(r, g, t.ahead[r]))
        return And(a <= k, emits, t.emitted[r] == s.emitted[r] + e, covered)

    @derived("R4")
    def reads_inside(s, r: Request, g: Group, i: Position):
        """What the next step reads is in no entry that was given back."""
        return Implies(And(s.running[r], s.since[g, s.settled[r]] <= i), s.lost[r, g] <= s.whole[i])
