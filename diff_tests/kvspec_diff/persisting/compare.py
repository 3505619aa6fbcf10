"""A comparison: random caches of a release through a store and back, what breaks a law counted and made small."""

import base64
import binascii
import random
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any

import msgspec
from kvspec.members import Layout

from kvspec_diff.batched.client import Client
from kvspec_diff.batched.comparison import Batched
from kvspec_diff.batched.fault import Fault
from kvspec_diff.beside import Broken
from kvspec_diff.caches import promises
from kvspec_diff.caches.promises import Promises
from kvspec_diff.persisting.case import Case, told
from kvspec_diff.persisting.disk import Disk, Parts
from kvspec_diff.persisting.judge import judge
from kvspec_diff.persisting.programs import SMALLER, draw

BATCH = 20
"""Programs in a round trip."""

LAWS = ("S2", "B1", "B2", "B3", "B4", "B5", "B6", "B7", "E1")
"""What a cache that is stored and restored is held against."""

Answers = list[dict[str, Any]]


class Stored:
    """What a program's first half came to: how much was found, and all that is asked for then."""

    def __init__(self, case: Case, release: str, answers: Answers) -> None:
        """Save and restore. Raises `Broken`."""
        self.tokens: list[int] = []
        self.blocks, self.asked, self.found = 0, 0, 0
        self.parts: Parts = {}
        disk: Disk | None = None
        try:
            for number, answer in enumerate(answers[: len(case.steps)]):
                self.tokens = told(self.tokens, number, answer)
                if answer["status"] == "raised":
                    raise Broken("raised", f"{answer['op'][0]}: {answer['raised']}")
                if "exported" in answer and self.tokens:
                    layout = _layout(release, case.block_size, answer["exported"]["members"])
                    disk = disk or Disk(layout)
                    if disk.layout != layout:
                        raise Broken("E1", "what the cache is made of differs between two exports")
                    disk.save(self.tokens, {path: _bytes(data) for path, data in answer["exported"]["parts"].items()})
            if disk is not None:
                self._restore(case, disk)
        finally:
            if disk is not None:
                disk.close()

    def _restore(self, case: Case, disk: Disk) -> None:
        self.blocks = len(disk.blocks)
        for number in case.lost:
            disk.lose(number)
        asked = self.tokens[: max(0, len(self.tokens) - case.cut)]
        self.asked = len(asked) // case.block_size * case.block_size
        self.found, self.parts = disk.restore(asked)
        self.tokens = self.tokens[: self.found]

    @property
    def given(self) -> dict[str, Any]:
        """As the worker takes it."""
        parts = {path: base64.b64encode(data).decode() for path, data in self.parts.items()}
        return {"position": self.found, "parts": parts}


class Comparison(Batched[Case, Promises]):
    """Compares. `counts` says how many programs there were, blocks that were stored, restores and what they found."""

    LAWS, SMALLER = LAWS, SMALLER

    def __init__(self, client: Client, *, laws: Collection[str] | None = None, seed: int = 0) -> None:
        super().__init__(client, laws, seed)
        self.counts: Counter[str] = Counter()

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
        again = [
            (case, each) for case, each in zip(cases, stored, strict=True) if isinstance(each, Stored) and each.found
        ]
        second = iter(self._client.ask([case.second(each.given) for case, each in again]) if again else [])
        faults: list[list[Fault]] = []
        for case, each in zip(cases, stored, strict=True):
            if isinstance(each, Fault):
                faults.append([each])
            else:
                faults.append(self._followed(case, each, next(second)) if each.found else [])
                self._count(each)
        return faults

    def _stored(self, case: Case, answer: dict[str, Any]) -> "Stored | Fault":
        try:
            return Stored(case, self._client.name, _calls(answer))
        except Broken as broken:
            return _fault(case, "stored", broken)

    def _followed(self, case: Case, stored: "Stored", answer: dict[str, Any]) -> list[Fault]:
        try:
            self._follow(case, stored, _calls(answer))
        except Broken as broken:
            return [_fault(case, "restored", broken)]
        return []

    def run(
        self,
        *,
        seconds: float | None = None,
        programs: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Run for so many seconds or programs, whichever ends first; one of them is given."""
        end = None if seconds is None else time.monotonic() + seconds
        left, rng = programs, random.Random(self._seed)
        while (left is None or left > 0) and (end is None or time.monotonic() < end):
            cases = [draw(self.table, rng) for _ in range(BATCH if left is None else min(BATCH, left))]
            left = None if left is None else left - len(cases)
            for case, faults in zip(cases, self.ask(cases), strict=True):
                self.counts["programs"] += 1
                self.count(case, faults)
            if progress:
                progress(self.counts["programs"], sum(self.seen.values()))

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

    def _count(self, stored: Stored) -> None:
        self.counts["blocks"] += stored.blocks
        self.counts["restores"] += bool(stored.found)
        self.counts["restores of less than was asked for"] += 0 < stored.found < stored.asked


def _calls(answer: dict[str, Any]) -> Answers:
    """What a program answered. Raises `Broken` if it did not run."""
    if "error" in answer:
        raise Broken("raised", answer["error"])
    calls: Answers = answer["calls"]
    return calls


def _layout(release: str, block_size: int, members: Any) -> Layout:
    """Of what the worker says that its cache is made of."""
    try:
        return msgspec.convert({"model": release, "block_size": block_size, "members": members}, Layout)
    except msgspec.ValidationError as error:
        raise Broken("E1", f"the cache says that it is made of what nothing is made of: {error}") from None


def _bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError) as error:
        raise Broken("B1", f"a part is no base64: {error}") from None


def _fault(case: Case, where: str, broken: Broken) -> Fault:
    """The family is what the smallest case is likely to keep: the kinds of layers."""
    kinds = "+".join(sorted({layer.kind for layer in case.setup.every}))
    return Fault(broken.law, where, kinds, str(broken).removeprefix(f"{broken.law}: "))
