"""Programs for the reference scheduler: a configuration, and calls that are chosen by numbers; drawn from a seed."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from kvspec_reference.admission import Scheduler
from kvspec_reference.demand import Pool
from kvspec_reference.reservation import Group, Kind, Limits

from kvspec_diff.scheduling import Recorder

KINDS: tuple[Kind, ...] = ("full", "window", "chunk", "none", "all", "align", "cross")
SPANNED = ("window", "chunk")
METHODS = ("submit", "submit", "round", "round", "round", "schedule", "retire", "retire", "block", "unblock", "cancel")

Numbers = tuple[int, int, int, int]
Program = Iterable[tuple[str, Numbers]]
Make = Callable[..., Any]


@dataclass(frozen=True)
class Configuration:
    """A scheduler to be."""

    size: int
    kinds: tuple[tuple[tuple[Kind, int], ...], ...]
    """By pool: kinds of groups, and their spans."""
    pages: tuple[int, ...]
    watermark: int
    rows: int
    limits: Limits
    budget: int
    drafts: int
    depth: int
    policy: Any
    patience: int

    def scheduler(self, make: Make = Scheduler) -> Any:
        """The scheduler, of the class `make`; one pool more is of rows, of which each request has one."""
        pools = [
            Pool(pages, self.groups(kinds), watermark=self.watermark, apart=at)
            for at, (pages, kinds) in enumerate(zip(self.pages, self.kinds, strict=True))
        ]
        pools += [Pool(self.rows, each=1)]
        return make(
            pools, self.limits, budget=self.budget, drafts=min(self.drafts, self.budget - 1), depth=self.depth,
            policy=self.policy, patience=self.patience,
        )  # fmt: skip

    def groups(self, kinds: tuple[tuple[Kind, int], ...]) -> tuple[Group, ...]:
        """The groups of a pool."""
        return tuple(Group(kind, self.size, span if kind in SPANNED else 0) for kind, span in kinds)


def recorded(seed: int, length: int = 60) -> Recorder:
    """A run of the reference: a configuration and a program of so many calls that follow from the seed."""
    of = random.Random(seed)
    recorder = Recorder(random_configuration(of).scheduler())
    run(recorder, random_program(of, length))
    return recorder


def random_configuration(of: random.Random) -> Configuration:
    """Small pools, so that there is preemption."""
    kinds = tuple(
        tuple((of.choice(("full", "full", *KINDS)), of.randint(1, 6)) for _ in range(of.randint(1, 2)))
        for _ in range(of.randint(1, 2))
    )
    size, longest = of.randint(1, 4), of.randint(4, 20)
    limits = Limits(longest, of.randint(0, 2), of.randint(0, 2), of.randint(0, 2))
    pages = tuple(len(pool) * (longest // size + 3) + at + of.randint(-3, 3) for at, pool in enumerate(kinds))
    return Configuration(
        size, kinds, pages, of.choice((0, 0, 1)), of.randint(2, 4), limits, of.randint(1, 10), of.randint(0, 3),
        of.randint(1, 3), of.choice(("fcfs", "priority")), of.randint(0, 2),
    )  # fmt: skip


def random_program(of: random.Random, length: int) -> Program:
    """Calls, each with four numbers."""
    return [(of.choice(METHODS), tuple(of.randrange(32) for _ in range(4))) for _ in range(length)]  # type: ignore[misc]


def run(recorder: Recorder, program: Program) -> None:
    """Call what the numbers say, on requests that are there."""
    of = recorder.scheduler
    for number, (method, (which, a, b, c)) in enumerate(program):
        names = sorted(of.requests)
        name = names[which % len(names)] if names else "none"
        if method == "submit":
            prompt = 1 + a % (of.limits.length // 2)
            tokens = 1 + b % (of.limits.length - prompt)
            recorder.call("submit", f"r{number}", prompt, tokens, c % 3 if of.policy == "priority" else 0)
        elif method == "round":
            once(recorder, a + b)
        elif method == "schedule":
            recorder.call("schedule")
        elif method == "retire" and name in of.requests:
            retire(recorder, name, a, stops=b < 4)
        elif method != "cancel" or a < 8:
            recorder.call(method, name)


def once(recorder: Recorder, accepted: int = 0) -> None:
    """A step, and the end of all steps."""
    recorder.call("schedule")
    for name in sorted(recorder.scheduler.requests):
        while name in recorder.scheduler.requests and recorder.scheduler.requests[name].flight:
            retire(recorder, name, accepted)


def retire(recorder: Recorder, name: str, accepted: int, stops: bool = False) -> None:
    """The oldest step of a request ends, if there is one; the number says how many of its drafts are right."""
    flight = recorder.scheduler.requests[name].flight
    count = accepted % (flight[0][1] + 1) if flight else 0
    recorder.call("retire", name, count, *[0] * stops)
