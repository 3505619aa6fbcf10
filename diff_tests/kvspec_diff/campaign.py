"""A campaign: generated programs on several targets in turn, and what they break, made small."""

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import cycle, islice
from typing import NamedTuple

from kvspec_diff.program import Program
from kvspec_diff.quality import Tally, quality
from kvspec_diff.shrink import shrink
from kvspec_diff.targets import Examined, Fault, Target

TURN = 16
"""Programs on one target before the next has its turn."""

EXAMPLES = 4
"""From how many targets a failure of one kind is kept, to be made small."""

WORKERS_LOST = 20
"""A campaign ends when so many workers were lost: there is no more to learn from it."""

SHRINK_SECONDS = 20.0
"""The most time that is spent on making one failure small."""


class Key(NamedTuple):
    """Failures with one key are taken for one: the law, the operation that shows it, the part of the subject."""

    law: str
    operation: str
    part: str


class Failure(NamedTuple):
    """A failure made small, the target that has it, and how many runs failed in this way."""

    target: Target
    examined: Examined
    fault: Fault
    runs: int


class Campaign:
    """Drives targets; `known` failures are counted and not kept."""

    def __init__(self, targets: Sequence[Target], *, seed: int = 0, known: Collection[Key] = ()) -> None:
        self.tally = Tally()
        self.runs = 0
        self.seen: dict[Key, int] = {}
        """How many runs failed in each way, known ones included."""
        self._known = known
        self._targets = targets
        self._programs = [target.generator.bulk(seed * len(targets) + i) for i, target in enumerate(targets)]
        self._examples: dict[Key, dict[str, tuple[Target, Examined]]] = {}

    def run(
        self,
        *,
        seconds: float | None = None,
        traces: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Run for so many seconds or traces, whichever ends first; `progress` gets the runs and the failed ones."""
        end = None if seconds is None else time.monotonic() + seconds
        left = traces
        for target, programs in cycle(zip(self._targets, self._programs, strict=True)):
            for examined in target.examine(islice(programs, TURN if left is None else min(TURN, left))):
                self._take(target, examined)
                if progress:
                    progress(self.runs, sum(self.seen.values()))
                if end is not None and time.monotonic() >= end:
                    return
            if traces is not None:
                left = traces - self.runs
            lost = sum(count for key, count in self.seen.items() if key.law == "worker")
            if left == 0 or lost >= WORKERS_LOST:
                return

    def _take(self, target: Target, examined: Examined) -> None:
        self.runs += 1
        meaningful = None if examined.fault is None else examined.fault.index + 1
        self.tally.add(quality(examined.program, examined.outcomes[:meaningful]))
        if examined.fault is None or examined.fault.unchecked:
            return
        key = key_of(target, examined.fault)
        self.seen[key] = self.seen.get(key, 0) + 1
        if key not in self._known:
            examples = self._examples.setdefault(key, {})
            if len(examples) < EXAMPLES:
                examples.setdefault(target.name, (target, examined))

    def failures(self) -> Iterator[Failure]:
        """Each kind of failure that is not known, as the smallest program found for it."""
        for key, examples in self._examples.items():
            deadline = time.monotonic() + SHRINK_SECONDS
            small = [minimized(target, examined, deadline) for target, examined in examples.values()]
            target, examined = min(small, key=lambda each: len(each[1].program.operations))
            assert examined.fault is not None
            yield Failure(target, examined, examined.fault, self.seen[key])


def key_of(target: Target, fault: Fault) -> Key:
    """What failures are told apart by."""
    return Key(fault.law, fault.operation, target.part)


def minimized(target: Target, examined: Examined, deadline: float) -> tuple[Target, Examined]:
    """A smaller run that breaks the same law; what it is when the time (of `time.monotonic`) is over."""
    assert examined.fault is not None
    law = examined.fault.law
    best = examined

    def fails(program: Program) -> bool:
        nonlocal best
        if time.monotonic() >= deadline:
            return False
        (again,) = target.examine((program,))
        if again.fault is None or again.fault.unchecked or again.fault.law != law:
            return False
        best = again
        return True

    shrink(examined.program, fails)
    return target, best
