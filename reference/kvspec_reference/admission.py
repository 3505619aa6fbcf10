"""Who runs, with how many tokens a step, and who waits: admission, growth, preemption, progress (A1-A7, C1-C9).

One `Scheduler` decides step by step: `schedule` says what runs next, `retire` tells it what came of that. A step has
at most `budget` tokens. A prompt is computed in chunks; behind it a step has one token and up to `drafts` drafted ones,
of which some are accepted. The order is by priority (the lower, the sooner), then by arrival; with the policy `fcfs`
by arrival alone. Memory is counted, not addressed: what a request holds of a pool follows from the lengths of its block
tables, which are those of `kvspec_reference.reservation`.

A request is promised the blocks of its prompt when it is admitted; what it needs beyond them it takes page by page.
When there is none, the last of the order that runs is preempted: it gives everything back, waits at its old place, and
computes its prompt and its own tokens again. That is done only for a step which then has all that it needs: so nobody
is preempted in vain, and nobody is admitted to the room that was made for another one (A7).

Every method checks everything before it changes anything: it raises `Misuse` (the caller's) or `Refused` (it can never
be served), and leaves all as it was. Every method records the atomic actions it performed, as (machine, action,
operands), of the machines `fairness`, which counts requests in the order they were submitted, and `speculation`, which
counts admissions: computing again is to it a request of its own, with a longer prompt.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kvspec.operations import Misuse, Refused

from kvspec_reference.demand import Demand, Pool, Request, count
from kvspec_reference.reservation import Limits, null_entries

Action = tuple[str | int, ...]
Policy = Literal["fcfs", "priority"]


@dataclass(frozen=True)
class Scheduled:
    """A request's part of a step: so many certain tokens from position `start` on, then so many drafted ones."""

    name: str
    start: int
    tokens: int
    drafts: int


class Scheduler:
    """Schedules requests over `pools`; each request has at most `depth` steps that have not retired.

    Raises `Misuse` for a budget that does not hold a token and its drafts, and for negative numbers.
    """

    def __init__(
        self,
        pools: Sequence[Pool],
        limits: Limits,
        *,
        budget: int,
        drafts: int = 0,
        depth: int = 1,
        policy: Policy = "fcfs",
        patience: int = 0,
    ) -> None:
        for name, value in (("budget", budget), ("drafts", drafts), ("depth", depth), ("patience", patience)):
            count(name, value)
        if drafts >= budget:
            raise Misuse(f"a step of {budget} tokens has no room for a token and {drafts} drafts")
        if depth < 1:
            raise Misuse("a request has at least 1 step at a time: depth is 0")
        if policy not in ("fcfs", "priority"):
            raise Misuse(f"there is no policy {policy!r}: fcfs and priority are")
        self.pools, self.limits = tuple(pools), limits
        self.demand = Demand(pools, limits, depth * budget)
        self.budget, self.drafts, self.depth = budget, drafts, depth
        self.policy, self.patience = policy, patience
        self.free = [pool.pages - pool.apart for pool in self.pools]  # neither held nor promised
        self.requests: dict[str, Request] = {}  # by name: those that wait or run
        self._submitted = self._tickets = self._runs = 0
        self._actions: list[Action] = [("fairness", "start")]

    def take_actions(self) -> list[Action]:
        """The atomic actions performed since the last call of this method."""
        actions, self._actions = self._actions, []
        return actions

    # What a caller says: a request comes, waits for something else, goes; a step has come to its end.

    def submit(self, name: str, prompt: int, tokens: int, priority: int = 0) -> None:
        """Queue a request of `prompt` tokens that ends with `tokens` more. Refused if it can never be served (A6)."""
        if name in self.requests:
            raise Misuse(f"request {name}: is there already")
        for what, value in (("prompt", prompt), ("tokens", tokens)):
            if count(what, value) < 1:
                raise Misuse(f"request {name}: {what} is {value}, at least 1 is wanted")
        count("priority", priority)
        if priority and self.policy == "fcfs":
            raise Misuse(f"request {name}: priority {priority}, but who comes first is served first")
        if prompt + tokens > self.limits.length:
            text = f"{prompt} tokens and {tokens} to come are more than {self.limits.length}, the longest sequence"
            raise Misuse(f"request {name}: {text}")
        most = self.demand.most(prompt + tokens - 1)
        number = self._submitted
        self._submitted += 1
        for at, pool in enumerate(self.pools):
            if most[at] > pool.pages - pool.apart:
                self._did("fairness", "reject", number)
                text = f"needs {most[at]} pages of pool {at}, which has {pool.pages - pool.apart} for requests"
                raise Refused(f"request {name}: can never be served, it {text}")
        self._did("fairness", "arrive", number, tokens)
        order, first = (priority, self._tickets), self.demand.first(prompt, most)
        request = Request(name, number, prompt, tokens, order, first, most)
        self._hold_nothing(request)
        self.requests[name] = request
        self._tickets += 1

    def block(self, name: str) -> None:
        """A waiting request waits for something else too: a transfer, a grammar."""
        request = self._request(name)
        if request.running:
            raise Misuse(f"request {name}: runs, so it waits for nothing")
        request.blocked = True
        self._did("fairness", "block", request.number)

    def unblock(self, name: str) -> None:
        """What it waited for has come."""
        request = self._request(name)
        if not request.blocked:
            raise Misuse(f"request {name}: is not blocked")
        request.blocked = False
        self._did("fairness", "unblock", request.number)

    def cancel(self, name: str) -> None:
        """End a request: at once, or when its last step has retired."""
        request = self._request(name)
        request.cancelled = True
        self._finish_if_over(request)

    def retire(self, name: str, accepted: int = 0, emitted: int | None = None) -> None:
        """The oldest step of a request has ended, `accepted` of its drafts are right, so many tokens were `emitted`.

        That is one more than were accepted (the default), fewer if the request stops here, and none inside the prompt
        (C8). After its end, what late steps bring counts for nothing.
        """
        request = self._request(name)
        if not request.flight:
            raise Misuse(f"request {name}: no step is left to retire")
        tokens, drafts = request.flight[0]
        if type(accepted) is not int or not 0 <= accepted <= drafts:
            raise Misuse(f"request {name}: {accepted} of {drafts} drafts cannot be accepted")
        possible = accepted + 1 if request.settled + tokens >= request.known else 0
        emitted = possible if emitted is None else emitted
        if type(emitted) is not int or not 0 <= emitted <= possible:
            raise Misuse(f"request {name}: {emitted} tokens cannot be emitted, at most {possible}")
        if request.over:
            accepted = emitted = 0
        request.flight.popleft()
        request.settled += tokens + accepted
        request.ahead -= drafts - accepted
        request.emitted += emitted
        request.stopped = request.stopped or (possible > 0 and emitted < accepted + 1)
        self._did("speculation", "retire", request.run, tokens, drafts, accepted, emitted)
        for _ in range(emitted):
            self._did("fairness", "emit", request.number)
        self._give_back(request)
        self._finish_if_over(request)

    # What the scheduler decides.

    def schedule(self) -> list[Scheduled]:
        """The next step: first who runs, in order; then, if all of them got what they wanted, who waits."""
        step: list[Scheduled] = []
        for request in self._in_order(running=True):
            if not request.running or request.over or len(request.flight) == self.depth:
                continue  # preempted just now, or nothing to do
            if not self._add(request, step):
                return step
        for request in self._in_order(running=False):
            if request.blocked:
                continue
            if any(other.passed == self.patience for other in self._passed_by(request)):
                break
            if self._left(step) == 0 or not self._admit(request) or not self._add(request, step):
                break
        return step

    def _add(self, request: Request, step: list[Scheduled]) -> bool:
        """Give it a part of the step, if some is left and it needs one. False: for want of memory it gets none."""
        tokens, drafts = self._wanted(request, self._left(step))
        if tokens == 0:
            return True
        if not self._reserve(request, request.ahead + tokens + drafts):
            return False
        step.append(Scheduled(request.name, request.ahead, tokens, drafts))
        request.ahead += tokens + drafts
        request.flight.append((tokens, drafts))
        self._did("speculation", "schedule", request.run, tokens, drafts)
        return True

    def _wanted(self, request: Request, left: int) -> tuple[int, int]:
        """Tokens and drafts of its next step, of which `left` fit: a chunk, or one token and drafts up to its end."""
        if request.ahead < request.known:
            return min(left, request.known - request.ahead), 0
        room = min(left, request.end - request.ahead)
        return min(1, room), min(self.drafts, max(0, room - 1))

    def _admit(self, request: Request) -> bool:
        """Let it begin, or resume, if the pages that it is promised are free and the watermark stays (A1)."""
        runs = any(other.running for other in self.requests.values())
        for at, pool in enumerate(self.pools):
            if request.first[at] + (pool.watermark if runs else 0) > self.free[at]:
                self._did("fairness", "decline", request.number)
                return False
        self._did("fairness", "admit", request.number)
        for other in self._passed_by(request):
            other.passed += 1
        request.running, request.due = True, list(request.first)
        self.free = [free - first for free, first in zip(self.free, request.first, strict=True)]
        request.run, request.known = self._runs, request.prompt + request.emitted
        self._runs += 1
        self._did("speculation", "admit", request.run, 0)
        self._take(request, [pool.each for pool in self.pools])
        self._reserve(request, 0)
        return True

    def _reserve(self, request: Request, ahead: int) -> bool:
        """Make its tables long enough for a step that ends at `ahead`, all of them or none; preempt others for it."""
        longer = [max(0, wanted - has) for wanted, has in zip(self.demand.lengths(ahead), request.entries, strict=True)]
        pages = self.demand.by_pool(longer)
        if not self._can_have(request, pages):
            return False
        self._take(request, pages)
        request.entries = [has + more for has, more in zip(request.entries, longer, strict=True)]
        return True

    def _can_have(self, request: Request, pages: list[int]) -> bool:
        """Whether so many pages are due to it, free, or held by later requests that have no step on its way."""
        free, behind = list(self.free), self._behind(request)
        while any(more > due + left for more, due, left in zip(pages, request.due, free, strict=True)):
            if not behind or behind[-1].flight:
                return False
            free = [left + held for left, held in zip(free, self.demand.held(behind.pop()), strict=True)]
        return True

    def _take(self, request: Request, pages: list[int]) -> None:
        """Hand out pages, which can be had: first those that it was promised, then free ones, then others'."""
        for at, more in enumerate(pages):
            promised = min(more, request.due[at])
            if promised:
                request.due[at] -= promised
                self._did("fairness", "take", request.number, at, promised)
            for _ in range(more - promised):
                while self.free[at] == 0:
                    self._preempt(self._behind(request)[-1], request, at)
                self.free[at] -= 1
                self._did("fairness", "grow", request.number, at)

    def _preempt(self, victim: Request, wants: Request, at: int) -> None:
        """Take everything from the last that runs. It waits at its old place and keeps the tokens that it emitted."""
        self._did("fairness", "preempt", victim.number, wants.number, at)
        self._drop(victim)

    def _drop(self, request: Request) -> None:
        """It stops running, and all that it holds and was promised is free."""
        self._did("speculation", "finish", request.run)
        self.free = [free + held for free, held in zip(self.free, self.demand.held(request), strict=True)]
        self._hold_nothing(request)

    def _give_back(self, request: Request) -> None:
        """Free the pages before its window, and those that only refused drafts needed."""
        before = self.demand.tables(request)
        nulls = [null_entries(group, request.settled) for _, group in self.demand.groups]
        request.lost = [max(pair) for pair in zip(request.lost, nulls, strict=True)]
        self._did("speculation", "slide", request.run)
        request.entries = self.demand.lengths(request.ahead)
        self._did("speculation", "trim", request.run)
        after = self.demand.tables(request)
        for at, (had, has) in enumerate(zip(before, after, strict=True)):
            if had > has:
                self.free[at] += had - has
                self._did("fairness", "give_back", request.number, at, had - has)

    def _finish_if_over(self, request: Request) -> None:
        """It leaves when it is over and no step is left that may write."""
        if request.over and not request.flight:
            if request.running:
                self._drop(request)
            self._did("fairness", "finish", request.number)
            del self.requests[request.name]

    # What several of these need.

    def _hold_nothing(self, request: Request) -> None:
        request.running, request.settled, request.ahead = False, 0, 0
        request.due = [0] * len(self.pools)
        request.entries, request.lost = [0] * len(self.demand.groups), [0] * len(self.demand.groups)

    def _request(self, name: str) -> Request:
        if name not in self.requests:
            raise Misuse(f"request {name}: there is none")
        return self.requests[name]

    def _did(self, *action: str | int) -> None:
        self._actions.append(action)

    def _in_order(self, running: bool) -> list[Request]:
        """Those that run, or wait, the first in the order first."""
        chosen = [request for request in self.requests.values() if request.running == running]
        return sorted(chosen, key=lambda request: request.order)

    def _behind(self, request: Request) -> list[Request]:
        """Those that run and come after it, in order."""
        return [other for other in self._in_order(running=True) if other.order > request.order]

    def _passed_by(self, request: Request) -> list[Request]:
        """Those that wait and come before it."""
        return [other for other in self._in_order(running=False) if other.order < request.order]

    def _left(self, step: list[Scheduled]) -> int:
        """Tokens of the budget that the step has not used."""
        return self.budget - sum(part.tokens + part.drafts for part in step)
