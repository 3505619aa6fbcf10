"""A comparison: programs over one release's caches; what breaks a law is counted, and made small."""

import random
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from kvspec.laws import OF_CACHES

from kvspec_diff.batched.client import Client
from kvspec_diff.batched.comparison import Batched
from kvspec_diff.batched.fault import Fault, Key
from kvspec_diff.batched.finding import Finding
from kvspec_diff.caches import promises
from kvspec_diff.caches.case import Case
from kvspec_diff.caches.judge import judge
from kvspec_diff.caches.programs import SMALLER, draw, looked_at
from kvspec_diff.caches.promises import Promises
from kvspec_diff.caches.tally import Tally

BATCH = 20
"""Programs in a round trip."""


class Comparison(Batched[Case, Promises]):
    """Compares, within what the release promises and its worker has a way to do."""

    LAWS, SMALLER = OF_CACHES, SMALLER

    def __init__(self, client: Client, *, laws: Collection[str] | None = None, seed: int = 0) -> None:
        super().__init__(client, laws, seed)
        self.tally = Tally()
        self._operations = client.capabilities.get("caches", ())
        self._doubted: list[tuple[Case, Fault]] = []
        self._sure: set[Key] = set()

    def known_of(self, engine: str, version: str) -> Promises:
        """What the release promises."""
        return promises.load(engine, version)

    def judge(self, case: Case, answer: dict[str, Any]) -> list[Fault]:
        """What is wrong with the answer."""
        if "error" in answer:
            return [Fault("raised", "worker", "", f"raised {answer['error']}")]
        return judge(case, answer["calls"], self.table).faults

    def findings(self, known: Collection[Key] = ()) -> list[Finding[Case]]:
        """What was wrong and is not known, each made small, the smallest first.

        What is laid to several operations is not told where one of them was seen to be wrong by itself; nor is what
        turns out, made small, to be laid to fewer, and so to be another.
        """
        everything = {*known, *self.seen}
        explained = [key for key in self.seen if explains(everything, key)]
        found = super().findings({*known, *explained})
        return [each for each in found if not self._simpler(each.case, each.fault)]

    def run(
        self,
        *,
        seconds: float | None = None,
        programs: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Run for so many seconds or programs, whichever ends first; one of them is given."""
        end = None if seconds is None else time.monotonic() + seconds
        rng = random.Random(self._seed)
        sent: list[list[Case]] = []
        drawn = 0

        def wanted() -> bool:
            return (programs is None or drawn < programs) and (end is None or time.monotonic() < end)

        def batches() -> Iterator[list[dict[str, Any]]]:
            nonlocal drawn
            while wanted() and len(self._doubted) <= BATCH:
                size = BATCH if programs is None else min(BATCH, programs - drawn)
                sent.append([draw(self.table, rng, self._operations) for _ in range(size)])
                drawn += size
                yield [case.question for case in sent[-1]]

        while wanted():
            for answers in self._client.answers(batches()):
                for case, answer in zip(sent.pop(0), answers, strict=True):
                    self._follow(case, answer)
                if progress:
                    progress(self.tally.counts["programs"], sum(self.seen.values()))
            self._settle()  # no batch is on its way now

    def _follow(self, case: Case, answer: dict[str, Any]) -> None:
        if "calls" not in answer:
            self.take(case, answer)
            return
        judged = judge(case, answer["calls"], self.table)
        self.tally.add(answer["calls"], judged.marks)
        self._doubted += [(case, fault) for fault in judged.faults]

    def _unsure(self, fault: Fault) -> bool:
        return fault.key not in self._sure and bool(laid_to(fault.key))

    def _simpler(self, case: Case, fault: Fault) -> Fault | None:
        """What the fault is laid to when objects are looked at more often, if that is less."""
        again = looked_at(case) if laid_to(fault.key) else None
        return fewer(fault, self.ask([again])[0]) if again else None

    def _settle(self) -> None:
        """Count the faults, each laid to as few operations as can be told by looking at objects more often."""
        asked = [looked_at(case) if self._unsure(fault) else None for case, fault in self._doubted]
        more = list(dict.fromkeys(each for each in asked if each is not None))
        found = dict(zip(more, self.ask(more), strict=True)) if more else {}
        for (case, fault), again in zip(self._doubted, asked, strict=True):
            simpler = fewer(fault, found[again]) if again else None
            if again is not None and simpler is not None:
                self.count(again, [simpler])
            else:
                self._sure.add(fault.key)
                self.count(case, [fault])
        self._doubted.clear()


def laid_to(key: Key) -> set[str]:
    """The operations that a fault is laid to; none for one that appending alone shows."""
    return {*key[1].split(":")[0].split(", ")} - {"append"}


def fewer(fault: Fault, others: Collection[Fault]) -> Fault | None:
    """Of others, one that is laid to a part of the same operations, the fewest."""
    parts = [each for each in others if laid_to(each.key) < laid_to(fault.key)]
    return min(parts, key=lambda each: len(laid_to(each.key)), default=None)


def explains(keys: Collection[Key], key: Key) -> bool:
    """Whether one of several operations that a fault is laid to was seen to be wrong by itself."""
    operations = laid_to(key)
    return len(operations) > 1 and any(len(alone) == 1 and alone < operations for alone in map(laid_to, keys))
