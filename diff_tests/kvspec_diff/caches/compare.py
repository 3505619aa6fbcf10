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

Doubted = tuple[Case, Fault, Case]
"""A case, what is wrong with it, and the case with the objects looked at more often."""


class Comparison(Batched[Case, Promises]):
    """Compares, within what the release promises and its worker has a way to do."""

    LAWS, SMALLER = OF_CACHES, SMALLER

    def __init__(self, client: Client, *, laws: Collection[str] | None = None, seed: int = 0) -> None:
        super().__init__(client, laws, seed)
        self.tally = Tally()
        self._operations = client.capabilities.get("caches", ())
        self._doubted: list[Doubted] = []
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
        sent: list[tuple[list[Case], list[Doubted]]] = []

        def batches() -> Iterator[list[dict[str, Any]]]:
            rng = random.Random(self._seed)
            count = 0
            while (programs is None or count < programs) and (end is None or time.monotonic() < end):
                if len(self._doubted) > BATCH:
                    sent.append(self._look_again())
                else:
                    size = BATCH if programs is None else min(BATCH, programs - count)
                    sent.append(([draw(self.table, rng, self._operations) for _ in range(size)], []))
                    count += size
                yield [case.question for case in sent[-1][0]]

        for answers in self._client.answers(batches()):
            cases, doubted = sent.pop(0)
            if doubted:
                self._settle(doubted, [self.judge(*each) for each in zip(cases, answers, strict=True)])
            else:
                self._take(cases, answers)
            if progress:
                progress(self.tally.counts["programs"], sum(self.seen.values()))
        while self._doubted:
            cases, doubted = self._look_again()
            self._settle(doubted, self.ask(cases))

    def _take(self, cases: list[Case], answers: list[dict[str, Any]]) -> None:
        """Judge programs; what is laid to operations, for the first time, waits until it was looked at again."""
        for case, answer in zip(cases, answers, strict=True):
            if "calls" not in answer:
                self.take(case, answer)
                continue
            judged = judge(case, answer["calls"], self.table)
            self.tally.add(answer["calls"], judged.marks)
            for fault in judged.faults:
                again = looked_at(case) if self._unsure(fault) else None
                if again is None:
                    self.count(case, [fault])
                else:
                    self._doubted.append((case, fault, again))

    def _look_again(self) -> "tuple[list[Case], list[Doubted]]":
        doubted, self._doubted = self._doubted[: 2 * BATCH], self._doubted[2 * BATCH :]
        return [again for _, _, again in doubted], doubted

    def _settle(self, doubted: "list[Doubted]", faults: list[list[Fault]]) -> None:
        """Count faults, each laid to as few operations as looking at the objects more often can tell."""
        for (case, fault, again), others in zip(doubted, faults, strict=True):
            simpler = fewer(fault, others)
            if simpler is None:
                self._sure.add(fault.key)
            self.count(case if simpler is None else again, [simpler or fault])

    def _unsure(self, fault: Fault) -> bool:
        return fault.key not in self._sure and bool(laid_to(fault.key))

    def _simpler(self, case: Case, fault: Fault) -> Fault | None:
        """What the fault is laid to when objects are looked at more often, if that is less."""
        again = looked_at(case) if laid_to(fault.key) else None
        return fewer(fault, self.ask([again])[0]) if again else None


def laid_to(key: Key) -> set[str]:
    """The operations that a fault is laid to; none for one that appending alone shows."""
    return {*key[1].split(":")[0].split(", ")} - {"append"}


def fewer(fault: Fault, others: Collection[Fault]) -> Fault | None:
    """Of others, one that is laid to a part of the same operations, the fewest."""
    parts = [each for each in others if laid_to(each.key) < laid_to(fault.key)]
    return min(parts, key=lambda each: len(laid_to(each.key)), default=None)


def explains(keys: Collection[Key], key: Key) -> bool:
    """Whether one of several operations that a fault is laid to was seen to be wrong by itself, in the same family."""
    operations = laid_to(key)
    alone = [laid_to(each) for each in keys if each[2] == key[2]]
    return len(operations) > 1 and any(len(each) == 1 and each < operations for each in alone)
