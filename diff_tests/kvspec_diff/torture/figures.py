"""What came of each way to harm a store, and how a run of it says so."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

SHOWN = 5
"""So many of what went wrong are told."""

Tell = Callable[[int, int | None, str], None]
"""Progress: how much is done, of how much, and what is at hand."""


class Part(msgspec.Struct, frozen=True):
    """One way to harm a store. `lost`: acknowledged entries that were not found again. `misread`: what was shown and
    was never saved like that. `failed`: any other promise that was not kept. `wrong` tells the first of each.
    """

    name: str
    what: str
    ok: bool
    figures: dict[str, int]
    lost: int
    misread: int
    failed: int
    wrong: list[str]
    seconds: float = 0


@dataclass
class Tally:
    """Counts while a part runs."""

    name: str
    what: str
    tell: Tell
    figures: dict[str, int] = field(default_factory=dict)
    wrong: dict[str, list[str]] = field(default_factory=dict)
    bad: dict[str, int] = field(default_factory=dict)
    _start: float = field(default_factory=time.monotonic)

    def count(self, what: str, more: int = 1) -> None:
        """More of something."""
        self.figures[what] = self.figures.get(what, 0) + more

    def least(self, what: str, value: int, least: int) -> None:
        """A figure that must not be too small: what was hardly tried shows nothing."""
        self.figures[what] = value
        if value < least:
            self.fault("failed", f"{what}: {value}, at least {least} were to be tried")

    def fault(self, kind: str, text: str) -> None:
        """Something went wrong: `lost`, `misread` or `failed`."""
        self.bad[kind] = self.bad.get(kind, 0) + 1
        told = self.wrong.setdefault(kind, [])
        if len(told) < SHOWN:
            told.append(f"{kind}: {' '.join(text.split())}"[:500])

    def part(self) -> Part:
        """What came of it."""
        wrong = [each for kind in ("lost", "misread", "failed") for each in self.wrong.get(kind, [])]
        lost, misread, failed = (self.bad.get(kind, 0) for kind in ("lost", "misread", "failed"))
        seconds = round(time.monotonic() - self._start, 1)
        return Part(self.name, self.what, not wrong, self.figures, lost, misread, failed, wrong, seconds)
