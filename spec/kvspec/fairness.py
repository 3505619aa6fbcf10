"""Who waits, and that nobody waits for ever (A3, A4, A7): the order of the queue, bypass, preemption, progress.

The order is by priority, then by ticket; with one priority for all it is first come, first served. Progress of the
oldest request: what helps it is enabled (`idle_admits`, `can_go_on`), stays enabled (`nobody_passes`, `goes_first`),
lessens what is left (`one_less`), nothing else raises that (`never_more`); fair is an engine that goes on scheduling.
"""

from kvspec.admission import Admission, Pool
from kvspec.language import *
from kvspec.pages import Request


class Fairness(Admission):
    """Tickets, tokens that are left, and requests that wait for something else than memory."""

    priority = rigid(Map(Request, Nat), 0)  # the lower, the sooner
    patience = rigid(Nat, 1)  # how often a blocked request may be passed
    blocked = state(SetOf(Request))  # by a transfer, a grammar
    ticket, tickets, passed = state(Map(Request, Nat)), state(Nat), state(Map(Request, Nat))
    left, emitted = state(Map(Request, Nat)), state(Map(Request, Nat))  # tokens
    lacks = state(SetOf(Request))  # others were preempted for a page that it has not got yet

    def before(s, a, b):  # a comes before b
        return Or(s.priority[a] < s.priority[b], And(s.priority[a] == s.priority[b], s.ticket[a] < s.ticket[b]))

    def skips(s, r, b):  # to admit r is to pass b
        return And(s.waiting(b), s.before(b, r))

    def sated(s):  # nobody lacks what others were preempted for
        return forall(Request, lambda b: Not(s.lacks[b]))

    @action
    def arrive(s, r: Request, n: Nat):
        """A request of n tokens, of none if only its prompt is computed, takes a ticket."""
        super().arrive(r)
        s.require(Not(s.alive[r]))
        s.ticket[r], s.tickets, s.passed[r], s.left[r], s.emitted[r] = s.tickets, s.tickets + 1, 0, n, 0

    @action
    def block(s, r: Request):
        """A waiting request waits for something else too."""
        s.require(s.waiting(r))
        s.blocked[r] = True

    @action
    def unblock(s, r: Request):
        """It has come."""
        s.blocked[r] = False

    @action
    def admit(s, r: Request):
        """Whoever is passed is blocked, and not passed too often; and nobody lacks what others were preempted for."""
        super().admit(r)
        s.require(Not(s.blocked[r]))
        s.expect(forall(Request, lambda b: Implies(s.skips(r, b), And(s.blocked[b], s.passed[b] < s.patience))), "A3")
        s.expect(s.sated(), "A7")
        s.passed = lambda b: s.passed[b] + bit(s.skips(r, b))

    @action
    def grow(s, r: Request, g: Pool):
        """Now it has what it lacked."""
        super().grow(r, g)
        s.lacks[r] = False

    @action
    def emit(s, r: Request):
        """One token."""
        s.require(And(s.running[r], s.left[r] > 0))
        s.left[r], s.emitted[r] = s.left[r] - 1, s.emitted[r] + 1

    @action
    def preempt(s, r: Request, b: Request, g: Pool):
        """The last in the order that runs makes room."""
        super().preempt(r, b, g)
        s.expect(forall(Request, lambda o: Implies(And(s.running[o], o != r), s.before(o, r))), "A3")
        s.lacks[b], s.lacks[r] = True, False

    @action
    def finish(s, r: Request):
        """It leaves the queue."""
        super().finish(r)
        s.blocked[r], s.lacks[r] = False, False

    @invariant("A3")
    def in_order(s, a: Request, b: Request):
        """No two requests have one ticket, and the next one is behind all."""
        others = Implies(And(s.alive[b], a != b), s.ticket[a] != s.ticket[b])
        return Implies(s.alive[a], And(others, s.ticket[a] < s.tickets))

    @invariant("A3")
    def waits_for_one_thing(s, r: Request):
        """Only a waiting request is blocked, and is passed no more often than it may."""
        return And(Implies(s.blocked[r], s.waiting(r)), s.passed[r] <= s.patience)

    @step("A3", on=("arrive",))
    def begins_anew(s, t, r: Request, n: Nat):
        """Who comes was not there, and has its tokens before it; nobody has passed it yet."""
        return And(Not(s.alive[r]), t.passed[r] == 0, t.left[r] == n, t.emitted[r] == 0)

    @derived("A3")
    def waiting_holds_nothing(s, r: Request, g: Pool):
        """Who waits holds nothing, of no pool, that another one waits for."""
        return Implies(s.waiting(r), And(s.has[r, g] == 0, s.due[r, g] == 0))

    @step("A3", on=("admit",))
    def nobody_passes(s, t, r: Request, b: Request):
        """While a request waits for memory alone, no later one is admitted; else, not too often."""
        return Implies(s.skips(r, b), And(s.blocked[b], s.passed[b] < t.passed[b], t.passed[b] <= s.patience))

    @step("A3", on=("preempt",))
    def goes_first(s, t, r: Request, b: Request):
        """An earlier one runs on, so the oldest stays; who goes makes room for an earlier one, or found none itself."""
        earlier = exists(Request, lambda o: And(s.running[o], s.before(o, r)))
        return And(earlier, Or(b == r, And(s.before(b, r), t.lacks[b])))

    @derived("A3")
    def idle_admits(s, r: Request):
        """When nobody runs, everything is free, and whoever waits can begin."""
        return Implies(And(s.waiting(r), forall(Request, lambda b: Not(s.running[b]))), s.fits(r))

    @derived("A3")
    def can_go_on(s, r: Request, g: Pool):
        """A request that wants a page when there is none finds another one that runs, to be preempted."""
        return Implies(And(s.wants(r, g), s.free(g) < 1), exists(Request, lambda b: And(s.running[b], b != r)))

    @step("A4", unless=("arrive",))
    def tokens_stay(s, t, r: Request):
        """What was emitted stays emitted, whoever is preempted and resumes."""
        return And(t.emitted[r] >= s.emitted[r], t.left[r] + t.emitted[r] == s.left[r] + s.emitted[r])

    @step("A7", on=("emit",))
    def one_less(s, t, r: Request):
        """A token brings its request, which runs, nearer to its end."""
        return And(s.running[r], t.left[r] == s.left[r] - 1)

    @step("A7", unless=("arrive",))
    def never_more(s, t, r: Request):
        """Nothing takes it further away: not preemption, not resuming."""
        return t.left[r] <= s.left[r]

    @step("A7", on=("admit",))
    def room_went_where_it_was_made(s, t, b: Request):
        """What was made free for one is not given to another, and so on for ever."""
        return Not(s.lacks[b])

    @invariant("A7")
    def lacking_runs(s, r: Request):
        """Who lacks a page runs, and so may take it."""
        return Implies(s.lacks[r], s.running[r])
