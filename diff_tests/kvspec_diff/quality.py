"""How much a run exercises: counted from its operations and outcomes, over all runs of a session."""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from kvspec.operations import Allocate, Checkpoint, Copy, End, Evict, Outcome, Overwrite

from kvspec_diff.caller import Caller
from kvspec_diff.program import Program


class Quality(NamedTuple):
    """What one run contains. Each step after the first is of the same page, in this order."""

    length: int
    deferred: bool
    """A page was given up in a group by its last holder."""
    overwritten: bool
    """While the group was open, the buffer that had named the page was overwritten."""
    ended: bool
    """The group ended."""
    reused: bool
    """The page was handed out again."""


def quality(program: Program, outcomes: Sequence[Outcome]) -> Quality:
    """What the run contains, as far as its outcomes tell."""
    caller = Caller(program.configuration)
    overwritten: set[int] = set()
    flushed: set[int] = set()
    deferred = ended = reused = scribbled = False
    for operation, outcome in zip(program.operations, outcomes, strict=False):
        if outcome.status != "done":
            continue
        reused = reused or (isinstance(operation, Allocate | Copy) and not flushed.isdisjoint(outcome.pages))
        if isinstance(operation, End):
            flushed |= overwritten
            ended = ended or bool(overwritten)
            overwritten.clear()
        before = len(caller.deferred)
        caller.apply(operation, handed(operation, outcome))
        deferred = deferred or bool(caller.deferred)
        if caller.open and isinstance(operation, Overwrite):
            lost = {page.number for page in caller.deferred}
            named = range(operation.start, operation.stop)
            buffers = {page.number for row, entry, page in caller.given_up if row == operation.row and entry in named}
            overwritten |= buffers & lost
        elif caller.open and isinstance(operation, Checkpoint):
            overwritten |= {page.number for page in caller.deferred[before:]}
        scribbled = scribbled or bool(overwritten)
    return Quality(len(program.operations), deferred, scribbled, ended, reused)


def handed(operation: object, outcome: Outcome) -> Sequence[int] | None:
    """The pages that came back, as `Caller.apply` takes them."""
    if outcome.status == "refused":
        return None
    return outcome.pages if isinstance(operation, Allocate | Copy | Evict | Checkpoint) else ()


class Tally:
    """Sums up the quality of many runs."""

    def __init__(self) -> None:
        self._lengths: list[int] = []
        self._steps = [0, 0, 0, 0]

    def add(self, found: Quality) -> None:
        """Count one run in."""
        self._lengths.append(found.length)
        for i, contained in enumerate(found[1:]):
            self._steps[i] += contained

    def figures(self) -> dict[str, float]:
        """`runs`, `operations`, `median_length`, and the share of runs (0 to 1) that contain each step."""
        runs = len(self._lengths)
        counts = zip(Quality._fields[1:], self._steps, strict=True)
        shares = {name: count / runs if runs else 0.0 for name, count in counts}
        return {
            "runs": runs,
            "operations": sum(self._lengths),
            "median_length": median(self._lengths) if runs else 0,
            **shares,
        }

    def __str__(self) -> str:
        """One line for a person."""
        figures = self.figures()
        return (
            f"{figures['runs']:,} traces, median {figures['median_length']:g} operations; "
            f"{figures['deferred']:.0%} contain a deferred free, {figures['overwritten']:.0%} then an overwrite of its "
            f"buffer, {figures['ended']:.0%} then the flush, {figures['reused']:.0%} then a reuse of the page"
        )
