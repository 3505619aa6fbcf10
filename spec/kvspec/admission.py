"""Who is given memory, and that it is there when it is asked for: promises, pools, preemption (A1, A2, A4-A6)."""

from kvspec.language import *
from kvspec.pages import Request

Pool = Sort("Pool")


class Admission(Machine):
    """Requests that are promised what they need to begin, take it and grow; pools of pages, rows, encoder entries."""

    pages, apart = rigid(Map(Pool, Nat), 3), rigid(Map(Pool, Nat), 1)  # all of a pool, and what start-up keeps of it
    watermark = rigid(Map(Pool, Nat), 0)  # what admission leaves free while somebody runs
    first, most = rigid(Map(Request, Pool, Nat), 1), rigid(Map(Request, Pool, Nat), 2)  # to begin with, and ever
    started, alive, running = state(Bool), state(SetOf(Request)), state(SetOf(Request))
    has, due = state(Map(Request, Pool, Nat)), state(Map(Request, Pool, Nat))  # pages, and promised ones
    used = count(lambda s, r, g: s.has[r, g], over=Request, per=Pool, law="A4")
    promised = count(lambda s, r, g: s.due[r, g], over=Request, per=Pool, law="A1")

    @assumption
    def begins_with_a_part(s, r: Request, g: Pool):
        """What a request begins with is a part of what it may ever need."""
        return s.first[r, g] <= s.most[r, g]

    def room(s, g):  # what requests may have of a pool, all together
        return s.pages[g] - s.apart[g]

    def free(s, g):
        return s.room(g) - s.used[g] - s.promised[g]

    def waiting(s, r):
        return And(s.alive[r], Not(s.running[r]))

    def fits(s, r):  # what r needs to begin is free in every pool, and the watermark stays unless nobody runs
        kept = lambda g: If(exists(Request, lambda b: s.running[b]), s.watermark[g], 0)
        return forall(Pool, lambda g: s.first[r, g] + kept(g) <= s.free(g))

    def servable(s, r):  # all that r may ever need is there, if it runs alone
        return forall(Pool, lambda g: s.most[r, g] <= s.room(g))

    def wants(s, r, g):
        return And(s.running[r], s.has[r, g] + s.due[r, g] < s.most[r, g])

    def drop(s, r):  # r gives back all that it has and was promised
        s.used, s.promised = lambda g: s.used[g] - s.has[r, g], lambda g: s.promised[g] - s.due[r, g]
        s.running[r], s.has[r], s.due[r] = False, lambda g: 0, lambda g: 0

    @action
    def start(s):
        """Start up, if every pool has room beyond what is kept apart."""
        s.expect(forall(Pool, lambda g: s.apart[g] < s.pages[g]), "A5")
        s.started = True

    @action
    def arrive(s, r: Request):
        """Queue a request that can be served."""
        s.require(s.started)
        s.expect(s.servable(r), "A6")
        s.alive[r] = True

    @action
    def reject(s, r: Request):
        """Turn away a request that can never be served."""
        s.expect(Not(s.servable(r)), "A6")

    @action
    def admit(s, r: Request):
        """Let it begin, or resume, and promise what it needs for that."""
        s.expect(And(s.waiting(r), s.fits(r)), "A1")
        s.running[r], s.due[r], s.promised = True, s.first[r], lambda g: s.promised[g] + s.first[r, g]

    @action
    def decline(s, r: Request):
        """Let it wait: there is too little."""
        s.expect(And(s.waiting(r), Not(s.fits(r))), "A1")

    @action
    def take(s, r: Request, g: Pool, z: Nat):
        """Hand out z of the promised pages."""
        s.require(z <= s.due[r, g])
        s.has[r, g], s.due[r, g] = s.has[r, g] + z, s.due[r, g] - z
        s.used[g], s.promised[g] = s.used[g] + z, s.promised[g] - z

    @action
    def grow(s, r: Request, g: Pool):
        """Hand out one page more."""
        s.require(s.wants(r, g))
        s.expect(s.free(g) >= 1, "A1")
        s.has[r, g], s.used[g] = s.has[r, g] + 1, s.used[g] + 1

    @action
    def give_back(s, r: Request, g: Pool, z: Nat):
        """Take back z pages that it needs no more: those before its window, those for drafts that were refused."""
        s.require(z <= s.has[r, g])
        s.has[r, g], s.used[g] = s.has[r, g] - z, s.used[g] - z

    @action
    def preempt(s, r: Request, b: Request, g: Pool):
        """Take everything from r, because b wants a page of pool g and there is none; b may be r, if another runs."""
        s.require(And(s.running[r], s.wants(b, g), s.free(g) < 1))
        s.expect(exists(Request, lambda o: And(s.running[o], o != r)), "A6")
        s.drop(r)

    @action
    def finish(s, r: Request):
        """It has all its tokens, or is cancelled."""
        s.alive[r] = False
        s.drop(r)

    @invariant("A1")
    def promises_fit(s, g: Pool):
        """What is in use and what is promised fit into the pool together."""
        return s.used[g] + s.promised[g] <= If(s.started, s.room(g), 0)

    @derived("A1")
    def promised_is_there(s, r: Request, g: Pool):
        """Whoever was admitted can take what it was promised."""
        return Implies(s.running[r], s.due[r, g] <= s.room(g) - s.used[g])

    @step("A2", on=("reject", "decline"))
    def refused(s, t, r: Request):
        """A refusal changes nothing; who waits is refused for want of memory now, another one for want of it ever."""
        return And(t.same(s), If(s.waiting(r), Not(s.fits(r)), Not(s.servable(r))))

    @step("A4", on=("preempt", "finish"))
    def returned_once(s, t, r: Request, g: Pool):
        """All that it had comes back, once, and it keeps nothing and does not run."""
        back = And(t.used[g] == s.used[g] - s.has[r, g], t.promised[g] == s.promised[g] - s.due[r, g])
        return And(back, t.has[r, g] == 0, t.due[r, g] == 0, Not(t.running[r]))

    @step("A4", on=("preempt",))
    def for_want(s, t, r: Request, b: Request, g: Pool):
        """Only who runs is preempted, and only for a page that is wanted and is not there."""
        return And(s.running[r], s.wants(b, g), s.free(g) < 1)

    @invariant("A5")
    def room_for_one(s, g: Pool):
        """Start-up left room in every pool."""
        return Implies(s.started, s.apart[g] < s.pages[g])

    @invariant("A6")
    def all_servable(s, r: Request, g: Pool):
        """Every request in the queue can be served; those that cannot were turned away, alone."""
        return Implies(s.alive[r], And(s.started, s.most[r, g] <= s.room(g)))

    @invariant("A6")
    def within_most(s, r: Request, g: Pool):
        """None has more than it said it would need; who does not run has nothing."""
        return And(s.has[r, g] + s.due[r, g] <= If(s.running[r], s.most[r, g], 0), Implies(s.running[r], s.alive[r]))
