"""A comparison: programs on one release's scheduler; what breaks a law is counted, and made small."""

import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import cycle
from typing import Any, get_args

from kvspec.laws import OF_SCHEDULERS

from kvspec_diff.batched.client import Client
from kvspec_diff.batched.comparison import LookingAhead
from kvspec_diff.batched.fault import Fault, declines
from kvspec_diff.schedulers.case import Case, Policy
from kvspec_diff.schedulers.judge import judge
from kvspec_diff.schedulers.programs import SMALLER, draw
from kvspec_diff.schedulers.tally import Tally

BATCH = 50
"""Programs in a round trip."""

PROGRAMS = 2000
"""Programs, when nothing else is asked for."""

POLICIES: tuple[Policy, ...] = get_args(Policy)


def declined(answer: dict[str, Any]) -> bool:
    """Whether the engine says that it does not take such a configuration."""
    return any(declines(each.get("raised", "")) for each in answer.get("calls", ()))


class Comparison(LookingAhead[Case]):
    """Compares. `declined` counts configurations that the engine said it does not take."""

    LAWS, SMALLER = OF_SCHEDULERS, SMALLER

    def __init__(
        self, client: Client, *, policies: Sequence[Policy] = POLICIES, laws: Collection[str] | None = None,
        seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(client, laws, seed)
        self.tally, self.declined = Tally(), 0
        self._policies = policies

    def judge(self, case: Case, answer: dict[str, Any]) -> list[Fault]:
        """What is wrong with the answer."""
        if "error" in answer:
            return [Fault("raised", "worker", "", f"raised {answer['error']}")]
        if declined(answer):
            return []
        return judge(case, answer["calls"], self.table[case.setup.method])

    def run(
        self,
        *,
        seconds: float | None = None,
        programs: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Run for so many seconds or programs, whichever ends first; else `PROGRAMS`."""
        end = None if seconds is None else time.monotonic() + seconds
        left = PROGRAMS if seconds is None and programs is None else programs
        sent: list[list[Case]] = []

        def batches() -> Iterator[list[dict[str, Any]]]:
            rng, policies = random.Random(self._seed), cycle(self._policies)
            count = 0
            while (left is None or count < left) and (end is None or time.monotonic() < end):
                size = BATCH if left is None else min(BATCH, left - count)
                sent.append([draw(next(policies), self.table, rng) for _ in range(size)])
                count += size
                yield [case.question for case in sent[-1]]

        for answers in self._client.answers(batches()):
            for case, answer in zip(sent.pop(0), answers, strict=True):
                if declined(answer):
                    self.declined += 1
                    continue
                self.tally.add(answer.get("calls", []))
                self.take(case, answer)
            if progress:
                progress(self.tally.counts["programs"], sum(self.seen.values()))
