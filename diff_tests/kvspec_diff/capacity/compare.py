"""A comparison: methods, then configurations cell by cell, on one release; what disagrees is kept and made small."""

import random
import time
from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Any, NamedTuple

from kvspec.laws import OF_CAPACITY

from kvspec_diff.batched.client import Client
from kvspec_diff.batched.comparison import LookingAhead
from kvspec_diff.batched.fault import Fault, declines
from kvspec_diff.capacity import programs
from kvspec_diff.capacity.case import SMALLER, Case, judged
from kvspec_diff.capacity.configuration import MOST_DRAFTS, Cell, Configuration, cells, distinct

EACH = 500
"""Configurations in each cell, when nothing else is asked for."""

SLICE = 25
"""Configurations of one cell in a round trip, with one warm-up among them."""


class Count(NamedTuple):
    """What was done in a cell."""

    cell: Cell
    configurations: int
    warmups: int


class Comparison(LookingAhead[Case]):
    """Compares. `declined` counts configurations that the engine said it does not take: they are in no cell."""

    LAWS, SMALLER = OF_CAPACITY, SMALLER

    def __init__(self, client: Client, *, laws: Collection[str] | None = None, seed: int = 0) -> None:
        super().__init__(client, laws, seed)
        self.cells = cells(tuple(self.table))
        self.configurations = dict.fromkeys(self.cells, 0)
        self.warmups = dict.fromkeys(self.cells, 0)
        self.calls = self.declined = 0

    def judge(self, case: Case, answer: dict[str, Any]) -> list[Fault]:
        """What is wrong with the answer."""
        return judged(case, answer, self.table)

    @property
    def counts(self) -> list[Count]:
        """Per cell."""
        return [Count(cell, self.configurations[cell], self.warmups[cell]) for cell in self.cells]

    def methods(self) -> None:
        """Ask how far the release looks ahead, for each method and number of drafts."""
        blank = Configuration((("full", 1, 0),), "none", 0, 0, 3, 0, 1, False)
        asked = [
            Case("lookahead", _of(blank, method, drafts))
            for method in self.table
            for drafts in ((0,) if method == "none" else range(1, MOST_DRAFTS + 1))
        ]
        for case, answer in zip(asked, self._client.ask([each.question for each in asked]), strict=True):
            self.take(case, answer)

    def run(
        self,
        *,
        seconds: float | None = None,
        configurations: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Run for so many seconds or configurations, whichever ends first; else `EACH` in every cell."""
        end = None if seconds is None else time.monotonic() + seconds
        total = configurations if configurations is not None or seconds is not None else EACH * len(self.cells)
        sent: list[tuple[Cell, list[Case]]] = []

        def batches() -> Iterator[list[dict[str, object]]]:
            for cell, cases in self._slices(total):
                if end is not None and time.monotonic() >= end:
                    return
                sent.append((cell, cases))
                yield [case.question for case in cases]

        for answers in self._client.answers(batches()):
            cell, cases = sent.pop(0)
            for case, answer in zip(cases, answers, strict=True):
                if case.do == "program" and any(
                    isinstance(each, str) and declines(each) for each in answer.get("calls", ())
                ):
                    self.declined += 1
                    continue
                self.configurations[cell] += case.do == "program"
                self.warmups[cell] += case.do == "warmup"
                self.calls += len(case.steps)
                self.take(case, answer)
            if progress:
                progress(sum(self.configurations.values()), sum(self.seen.values()))

    def _slices(self, total: int | None) -> Iterator[tuple[Cell, list[Case]]]:
        """A slice of each cell in turn, until there were so many configurations or no cell has another."""
        rng = random.Random(self._seed)
        drawn = {cell: distinct(cell, self._seed) for cell in rng.sample(self.cells, len(self.cells))}
        most = SLICE if total is None else max(min(SLICE, total // len(self.cells)), 1)
        left = total
        while drawn:
            for cell in list(drawn):
                some = list(islice(drawn[cell], most if left is None else min(most, left)))
                if not some:
                    del drawn[cell]
                    continue
                cases = [Case("program", each, tuple(programs.draw(each, rng))) for each in some]
                yield cell, [*cases, Case("warmup", some[0])]
                if left is not None:
                    left -= len(some)
                    if left == 0:
                        return


def _of(configuration: Configuration, method: str, drafts: int) -> Configuration:
    made = configuration
    return Configuration(made.groups, method, drafts, 0, made.length, 0, made.pool, False)
