"""Judges what was seen of a decoder: by plain decoding, by counting, and by the machine `drain` beside it (J1-J5)."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kvspec_reference.drain import Model

from kvspec_diff.beside import Beside, Broken
from kvspec_diff.draining.schedule import Operation, Schedule
from kvspec_diff.draining.subject import Owner, Seen, Subject, Token

MACHINE = "drain"
OWNERS: tuple[Owner, ...] = ("stream", "handoff", "batch", "keeper")


@dataclass
class Request:
    """What a request has emitted, and what it should."""

    prompt: tuple[int, ...]
    plain: list[Token]
    emitted: list[Token] = field(default_factory=list)


class Finding(NamedTuple):
    """The law that is broken, in which operation of a schedule, and how. Of no law: `state`, `error`, `misuse`."""

    law: str
    operation: int
    text: str
    schedule: Schedule

    def __str__(self) -> str:
        """The finding, and the operations up to it."""
        done = "; ".join(map(str, self.schedule.operations[: self.operation + 1]))
        return f"{self.law}: {self.text}\n  {done}"


class Judge:
    """Follows one run, operation by operation; raises `Broken` with the law."""

    def __init__(self, schedule: Schedule) -> None:
        self.schedule, self.model = schedule, Model(schedule.seed)
        self.requests: dict[str, Request] = {}
        self.began = self.arrived = self.waited = self.failed = 0
        self.live = self.waiting = self.joined = False
        self.before = Seen()
        rigid = {owner: place for place, owner in enumerate(OWNERS)}
        sizes = {"Owner": len(OWNERS), "Nat": schedule.drafts + 1}
        self.beside = Beside(MACHINE, sizes, rigid | {"drafts": schedule.drafts, "pause": schedule.pause})

    @property
    def request(self) -> Request:
        """The one that began last."""
        return self.requests[f"request {self.began - 1}"]

    def judge(self, operation: Operation, seen: Seen) -> None:
        """What is seen after an operation is right."""
        if seen.error:
            raise Broken("error", seen.error)
        self._happen(operation)
        self._join(seen)
        self._emitted(seen)
        self._cache(seen)
        self._owners(operation, seen)
        self._clock(operation, seen)
        self._pin(seen)
        if seen.actions is not None:
            self._follow(operation, seen)
        self.before = seen

    def _happen(self, operation: Operation) -> None:
        """What the operation means for who is there."""
        if operation.name in ("begin", "arrive"):
            kind = {"begin": f"request {self.began}", "arrive": f"late {self.arrived}"}[operation.name]
            prompt = self.schedule.prompt(kind)
            plain = self.model.plain(prompt, len(self.schedule.operations) + self.schedule.drafts + 2)
            self.requests[kind] = Request(prompt, [(each.token, each.probability) for each in plain])
        if operation.name == "begin":
            self.began, self.live = self.began + 1, True
        elif operation.name == "arrive":
            self.arrived, self.waiting, self.waited, self.failed = self.arrived + 1, True, 0, 0
        elif operation.name == "withdraw":
            self.waiting = False
        elif operation.name in ("cancel", "finish"):
            self.live = self.waiting = False

    def _join(self, seen: Seen) -> None:
        """A request joins if one waits, and with at most one token queued."""
        if not self.waiting and "batch" in seen.owners - self.before.owners:
            raise Broken("J3", "the batch has the cache, and no request waits to join")
        self.joined = self.waiting and "batch" in seen.owners
        if self.joined and self.before.queued > 1:
            raise Broken("J2", f"a request joins while {self.before.queued} tokens are to be emitted")

    def _emitted(self, seen: Seen) -> None:
        """Each request emits what plain decoding yields, token by token."""
        for name, tokens in seen.emitted.items():
            request = self.requests[name]
            start = len(request.emitted)
            request.emitted += tokens
            wanted = request.plain[start : len(request.emitted)]
            if tokens != wanted:
                raise Broken("J1", f"{name} emits {tokens}, plain decoding yields {wanted}")

    def _cache(self, seen: Seen) -> None:
        """The cache has each token that is known but the last, once and in order."""
        if not self.live or seen.cache is None:
            return
        request = self.request
        known = (*request.prompt, *(token for token, _ in request.plain))
        wanted = known[: len(request.prompt) + len(request.emitted) + seen.queued - 1]
        if seen.cache != wanted:
            raise Broken("J1", f"the cache has {list(seen.cache)}, what is known but the last is {list(wanted)}")

    def _owners(self, operation: Operation, seen: Seen) -> None:
        """One has the cache while the request is there, afterwards the keeper or nobody."""
        wanted = {"cancel": "nobody", "finish": "the keeper"}.get(operation.name, "one")
        right = {
            "nobody": not seen.owners, "the keeper": seen.owners == {"keeper"},
            "one": len(seen.owners) == 1 and "keeper" not in seen.owners,
        }[wanted]  # fmt: skip
        if not right or len(seen.kept) != (wanted == "the keeper"):
            raise Broken("J3", f"{sorted(seen.owners) or 'nobody'} has the cache, {len(seen.kept)} kept: not {wanted}")
        for tokens, rows in seen.kept:
            known = (*self.request.prompt, *(token for token, _ in self.request.emitted))
            if tokens != rows or rows != known[: len(rows)]:
                raise Broken("J3", f"a cache of {list(rows)} is kept under {list(tokens)}; {list(known)} was emitted")
        if seen.merging and (seen.merging[0] != {"handoff"}):
            raise Broken("J3", f"{sorted(seen.merging[0])} has the cache while it is handed over")

    def _clock(self, operation: Operation, seen: Seen) -> None:
        """Each step emits a token; an arrival joins in time, and no cycle starts while it waits."""
        if operation.name == "step" and not seen.emitted.get(f"request {self.began - 1}"):
            raise Broken("J4", "a step emits nothing")
        if not self.waiting or operation.name == "arrive":
            return
        if seen.cycles:
            raise Broken("J4", "a speculative cycle starts while a request waits")
        self.waited, self.failed = self.waited + 1, self.failed + seen.failed
        owed = 0 if self.joined else max(seen.queued, 1)
        most = self.schedule.drafts + 1 + self.failed
        if self.waited + owed > most:
            raise Broken("J4", f"after {self.waited} steps, {owed} more are needed; {most} in all are allowed")
        self.waiting = not self.joined

    def _pin(self, seen: Seen) -> None:
        """The batch is pinned while a cache is handed over, and not after a step."""
        if seen.pinned:
            raise Broken("J5", "the batch is still pinned after the step")
        if seen.merging and not seen.merging[1]:
            raise Broken("J5", "the batch is not pinned while a cache is handed over")

    def _follow(self, operation: Operation, seen: Seen) -> None:
        """The machine takes the same steps, and is then in the same state; what is no step is one action."""
        if operation.name != "step" and seen.actions != ((operation.name,),):
            raise Broken("state", f"{operation} is reported as the actions {list(seen.actions or ())}")
        for name, *arguments in seen.actions or ():
            self.beside.step(str(name), *map(int, arguments))
        at, request = self.beside.state, self.request
        shown = {
            "live": self.live, "owns": [owner in seen.owners for owner in OWNERS], "queued": seen.queued,
            "emitted": len(request.emitted), "waiting": self.waiting, "pinned": seen.pinned,
            "fed": len(seen.cache or ()) - len(request.prompt),
            "committed": len(request.emitted) + seen.queued,
            "speculates": (seen.inner or (at.speculates, 0))[0], "rest": (seen.inner or (0, at.rest))[1],
        }  # fmt: skip
        if not self.live:  # of one that ended nobody cares what was queued
            del shown["queued"], shown["committed"]
        if self.waiting:
            shown |= {"waited": self.waited, "failed": self.failed}
        for part, there in shown.items():
            if getattr(at, part) != there:
                raise Broken("state", f"{part} is {there}, the specification has {getattr(at, part)}")
        self.beside.agrees()


def judged(schedule: Schedule, answers: Sequence[Seen]) -> tuple[Judge, Finding | None]:
    """A run, judged up to the first law that it breaks."""
    judge = Judge(schedule)
    for place, operation in enumerate(schedule.operations):
        try:
            judge.judge(operation, answers[place])
        except Broken as broken:
            return judge, Finding(broken.law, place, str(broken).removeprefix(f"{broken.law}: "), schedule)
    return judge, None


@dataclass
class Compared:
    """How many schedules were run, in how many steps, how often what happened; and the first finding, if any."""

    schedules: int = 0
    steps: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    finding: Finding | None = None

    def __str__(self) -> str:
        """One line."""
        told = f"{self.schedules:,} schedules, {self.steps:,} steps"
        return f"{told}, {self.happened['join']:,} joins, {self.happened['fail']:,} failed hand-offs"


def compare(subject: Subject, schedules: Iterable[Schedule]) -> Compared:
    """Run every schedule on a subject, until one breaks a law."""
    found = Compared()
    for schedule in schedules:
        judge, found.finding = judged(schedule, subject.run(schedule))
        found.schedules += 1
        found.steps += sum(operation.name == "step" for operation in schedule.operations)
        found.happened += judge.beside.done
        if found.finding:
            break
    return found
