"""A comparison: random caches of a release through a store and back, what breaks a law counted and made small."""

import random
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

from kvspec_diff.batched.client import Client
from kvspec_diff.batched.comparison import Batched
from kvspec_diff.batched.fault import Fault
from kvspec_diff.batched.finding import Finding
from kvspec_diff.beside import Broken
from kvspec_diff.caches import promises
from kvspec_diff.caches.promises import Promises
from kvspec_diff.persisting.case import Case
from kvspec_diff.persisting.judge import judge
from kvspec_diff.persisting.programs import SMALLER, draw
from kvspec_diff.persisting.stored import Answers, Stored
from kvspec_diff.recipes import EngineError

BATCH = 20
"""Programs in a round trip."""

LAWS = ("S2", "B1", "B2", "B3", "B4", "B5", "B6", "B7", "E1")
"""What a cache that is stored and restored is held against."""


class Comparison(Batched[Case, Promises]):
    """Compares. `counts` says how many programs there were, blocks that were stored, restores and what they found."""

    LAWS, SMALLER = LAWS, SMALLER

    def __init__(self, client: Client, *, laws: Collection[str] | None = None, seed: int = 0) -> None:
        super().__init__(client, laws, seed)
        self.counts: Counter[str] = Counter()
        self._kinds = client.capabilities.get("stores", ())
        if not self._kinds:
            raise EngineError(f"{client.name}: its worker has no way to hand out what is to be stored")
        for kind in self._kinds:
            if kind not in self.table.kinds:
                raise EngineError(f"{client.name}: its worker stores {kind!r}, of which its promises say nothing")

    def known_of(self, engine: str, version: str) -> Promises:
        """What the release promises."""
        return promises.load(engine, version)

    def judge(self, case: Case, answer: dict[str, Any]) -> list[Fault]:
        """What is wrong with the first half, up to what is restored."""
        stored = self._stored(case, answer)
        return [stored] if isinstance(stored, Fault) else []

    def ask(self, cases: list[Case]) -> list[list[Fault]]:
        """Both halves of each case, asked now: what is wrong with it."""
        first = self._client.ask([case.question for case in cases])
        stored = [self._stored(case, answer) for case, answer in zip(cases, first, strict=True)]
        found = _found(list(zip(cases, stored, strict=True)))
        second = iter(self._client.ask(_questions(found)) if found else [])
        return [
            [each] if isinstance(each, Fault) else self._followed(case, each, next(second)) if each.found else []
            for case, each in zip(cases, stored, strict=True)
        ]

    def replay(self, finding: Finding[Case]) -> list[Fault]:
        """What is wrong with a finding's case now. `EngineError` for a layer that the worker cannot hand out, too."""
        kinds = [layer.kind for layer in finding.case.setup.every if layer.kind not in self._kinds]
        if kinds:
            there = ", ".join(self._kinds)
            raise EngineError(f"{self._client.name}: no layer of kind {kinds[0]!r} is stored; those of {there} are")
        return super().replay(finding)

    def run(
        self,
        *,
        seconds: float | None = None,
        programs: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Run for so many seconds or programs, whichever ends first; one of them is given."""
        end = None if seconds is None else time.monotonic() + seconds
        rng, left = random.Random(self._seed), [sys.maxsize if programs is None else programs]
        sent: deque[Callable[[Answers], None]] = deque()
        ready: deque[list[tuple[Case, Stored]]] = deque()

        def first(cases: list[Case], answers: Answers) -> None:
            stored = [(case, self._stored(case, answer)) for case, answer in zip(cases, answers, strict=True)]
            for case, each in stored:
                self.count(case, [each] if isinstance(each, Fault) else [])
                self._tell(each)
            ready.extend([found] if (found := _found(stored)) else [])

        def second(halves: list[tuple[Case, Stored]], answers: Answers) -> None:
            for (case, stored), answer in zip(halves, answers, strict=True):
                self.count(case, self._followed(case, stored, answer))

        def batches() -> Iterator[list[dict[str, Any]]]:
            """Second halves that are ready, else new cases: so neither side waits for the other."""
            while ready or (left[0] > 0 and (end is None or time.monotonic() < end)):
                if ready:
                    halves = ready.popleft()
                    sent.append(partial(second, halves))
                    yield _questions(halves)
                else:
                    cases = [draw(self.table, self._kinds, rng) for _ in range(min(BATCH, left[0]))]
                    left[0] -= len(cases)
                    sent.append(partial(first, cases))
                    yield [case.question for case in cases]

        going = True
        while going:
            for answers in self._client.answers(batches()):
                sent.popleft()(answers)
                if progress:
                    progress(self.counts["programs"], sum(self.seen.values()))
            going = bool(ready)

    def _stored(self, case: Case, answer: dict[str, Any]) -> Stored | Fault:
        try:
            return Stored(case, self._client.name, _calls(answer))
        except Broken as broken:
            return _fault("stored", broken)

    def _followed(self, case: Case, stored: Stored, answer: dict[str, Any]) -> list[Fault]:
        try:
            self._follow(case, stored, _calls(answer))
        except Broken as broken:
            return [_fault("restored", broken)]
        return []

    def _follow(self, case: Case, stored: Stored, answers: Answers) -> None:
        """The second half: the cache that was made, and all that it answers."""
        at = len(case.steps)
        if answers[at]["status"] != "done":
            raise Broken("B2", f"no cache can be made of what was restored: {answers[at].get('raised')}")
        again, given = answers[at]["exported"]["parts"], stored.given["parts"]
        for path in given:
            if again.get(path) != given[path]:
                raise Broken("B1", f"{path}: what is made of what was restored hands out something else")
        on_it = [(number, answer) for number, answer in enumerate(answers) if number > at and answer["op"][1] == 1]
        judge(self.table, case.setup, stored.tokens, on_it)

    def _tell(self, each: Stored | Fault) -> None:
        self.counts["programs"] += 1
        if isinstance(each, Stored):
            self.counts["blocks"] += each.blocks
            self.counts["restores"] += bool(each.found)
            self.counts["restores of less than was asked for"] += 0 < each.found < each.asked


def _found(halves: list[tuple[Case, Stored | Fault]]) -> list[tuple[Case, Stored]]:
    """Those in which something was restored, and that have a second half therefore."""
    return [(case, each) for case, each in halves if isinstance(each, Stored) and each.found]


def _questions(halves: list[tuple[Case, Stored]]) -> list[dict[str, Any]]:
    return [case.second(stored.given) for case, stored in halves]


def _calls(answer: dict[str, Any]) -> Answers:
    """What a program answered. Raises `Broken` if it did not run."""
    if "error" in answer:
        raise Broken("raised", answer["error"])
    calls: Answers = answer["calls"]
    return calls


def _fault(where: str, broken: Broken) -> Fault:
    return Fault(broken.law, where, "", str(broken).removeprefix(f"{broken.law}: "))
