"""What was seen to be wrong: how often, by key, and the smallest case of each; made smaller when it is told."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Generic

from kvspec_diff.batched.fault import Fault, Key
from kvspec_diff.batched.finding import C

SHOWN = 12
"""Faults of different keys that are made small."""

Judge = Callable[[list[C]], list[list[Fault]]]
"""What is wrong with each of these cases, when they are asked now."""

Smaller = Callable[[C], Iterable[C]]
"""Cases that are a little smaller than this one, the smallest first."""


class Seen(Generic[C]):
    """Faults by key."""

    def __init__(self) -> None:
        self.counts: dict[Key, int] = {}
        self._first: dict[Key, tuple[C, Fault]] = {}

    def take(self, case: C, faults: Iterable[Fault]) -> None:
        """Count them; a case that is smaller than the one that is kept is kept in its place."""
        for fault in faults:
            self.counts[fault.key] = self.counts.get(fault.key, 0) + 1
            first = self._first.get(fault.key)
            if first is None or case.weight < first[0].weight:
                self._first[fault.key] = case, fault

    def small(
        self, judge: Judge[C], smaller: Sequence[Smaller[C]], known: Collection[Key] = ()
    ) -> list[tuple[C, Fault]]:
        """The faults that are not known, each in a small case, the smallest first."""
        keys = [key for key in self.counts if key not in known][:SHOWN]
        return sorted((shrink(*self._first[key], judge, smaller) for key in keys), key=lambda each: each[0].weight)


def shrink(case: C, fault: Fault, judge: Judge[C], smaller: Sequence[Smaller[C]]) -> tuple[C, Fault]:
    """The smallest case with a fault of the same key that changes lead to, one kind of them after the other."""
    going = True
    while going:
        going = False
        for change in smaller:
            candidates = list(dict.fromkeys(change(case)))
            judged = judge(candidates) if candidates else []
            for candidate, faults in zip(candidates, judged, strict=True):
                same = [each for each in faults if each.key == fault.key]
                if same:
                    case, fault, going = candidate, same[0], True
                    break
    return case, fault


def below(value: int, least: int) -> list[int]:
    """Smaller values to try, the smallest first."""
    return sorted(
        {number for number in (least, least + 1, least + 2, value // 2, value - 1) if least <= number < value}
    )
