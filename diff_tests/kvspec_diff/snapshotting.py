"""Recurrent states and snapshots of them in lockstep with the compiled machine `snapshots` (S1, S3, S4).

Two documents begin alike and then part. Requests compute one of them on live caches; snapshots are taken and restored
by the name of a prefix and a position. What a state is shows in its bytes: the machine's `after` is what a cold
computation has, and a live state is folded out of the one before.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from kvspec.members import Layout, Part, Recurrent
from kvspec.operations import Misuse
from kvspec_reference.blocks import Cache
from kvspec_reference.snapshots import Snapshots

from kvspec_diff.beside import Beside, Broken
from kvspec_diff.toy_model import Model

PATH = "0.state"
LAYOUT = Layout("toy", 4, (Recurrent((Part("state", (3,), "uint8"),)),))
REQUESTS, LENGTH, PARTING = 3, 8, 3
"""Requests; tokens of a document; and after how many the two documents part. Request 1 has a document of its own."""

Name = Literal["begin", "advance", "record", "misplaced", "drop", "restore", "finish"]


@dataclass(frozen=True)
class Step:
    """A step of a request; `position` is one of 0 to `LENGTH`. misplaced: record at a position where it is not."""

    name: Name
    request: int
    position: int = 0


def random_steps(of: random.Random, length: int = 40) -> list[Step]:
    """Steps at any positions, most of them close to the beginning."""
    names = [*get_args(Name), "advance", "record", "restore"]
    return [
        Step(of.choice(names), of.randrange(REQUESTS), of.choice((*range(PARTING + 2), of.randrange(LENGTH + 1))))
        for _ in range(length)
    ]


def tokens(request: int) -> list[int]:
    """The document that a request computes."""
    return [n if n < PARTING else 10 * (request == 1) + n for n in range(LENGTH)]


def prefix(request: int, position: int) -> str:
    """What so many tokens of it are called: the same where two documents are the same."""
    return "both" if position <= PARTING else "one" if request == 1 else "other"


@dataclass
class Run:
    """Live states and snapshots that run steps, the machine beside them; raises `Broken` with the law."""

    make: Callable[[Layout], Any] = Snapshots
    live: dict[int, Cache] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model, self.kept = Model(LAYOUT), self.make(LAYOUT)
        positions = range(LENGTH + 1)
        self.places = sorted({(prefix(r, n), n) for r in range(REQUESTS) for n in positions})  # one is one prefix
        after = {(prefix(r, n), n): self._cold(r, n) for r in range(REQUESTS) for n in positions}
        self.contents = sorted(set(after.values()))
        numbers = [[self.places.index((prefix(r, n), n)) for n in positions] for r in range(REQUESTS)]
        sizes = {"Request": REQUESTS, "Position": LENGTH + 1, "Content": len(self.contents) + 1}
        sizes |= {"Snapshot": len(self.places), "Prefix": len(self.places)}
        rigid = {"prefixes": numbers, "after": [self.contents.index(after[place]) for place in self.places]}
        self.beside = Beside("snapshots", sizes, rigid)

    def step(self, step: Step) -> None:
        """One step, and the whole state after it."""
        getattr(self, f"_{step.name}")(step.request, step.position)
        self._compare()

    def _begin(self, r: int, n: int) -> None:
        self.live[r] = Cache(LAYOUT)
        self._take("compute", r, 0)

    def _advance(self, r: int, n: int) -> None:
        if r in self.live and self.live[r].position < n:
            live = self.live[r]
            live.append(n - live.position, self.model.new(tokens(r)[:n], live.position, {PATH: live.read(PATH)}))
            self._take("compute", r, n)

    def _record(self, r: int, n: int) -> None:
        if r in self.live:
            n = self.live[r].position
            x = self.places.index((prefix(r, n), n))
            if self.beside.state.stored[x]:
                self._take("drop", x)
            self.kept.record(prefix(r, n), n, self.live[r])
            self._take("record", r, x, n)

    def _misplaced(self, r: int, n: int) -> None:
        """A live state is taken for that of another position: that is to be refused (S3)."""
        if r in self.live and n != self.live[r].position:
            try:
                self.kept.record(prefix(r, n), n, self.live[r])
            except Misuse:
                self._count("misuse")
                return
            self._take("record", r, self.places.index((prefix(r, n), n)), n)

    def _drop(self, r: int, n: int) -> None:
        self.kept.drop(prefix(r, n), n)
        self._take("drop", self.places.index((prefix(r, n), n)))

    def _restore(self, r: int, n: int) -> None:
        found = self.kept.find(prefix(r, n), n)
        if found is None:
            self._take("miss", r, n)
            return
        live = self.live[r] = Cache(LAYOUT)
        live.append(n, found)
        places = [
            x for x, stored in enumerate(self.beside.state.stored) if stored and self.places[x] == (prefix(r, n), n)
        ]
        self._take("restore", r, *(places or [0]), n)

    def _finish(self, r: int, n: int) -> None:
        self.live.pop(r, None)
        self._take("finish", r)

    # The machine.

    def _take(self, action: str, *arguments: int) -> None:
        self.beside.step(action, *arguments)
        self._count(action)

    def _compare(self) -> None:
        """Who runs where with which state, and every snapshot, found where it is looked for."""
        for r in range(REQUESTS):
            live = self.live.get(r)
            if (live is not None) != self.beside.state.running[r]:
                raise Broken("state", f"request {r}: {live}, the specification has {self.beside.state.running[r]}")
            if live is not None:
                found, wanted = (
                    (live.position, self._number(live.read(PATH))),
                    (self.beside.state.position[r], self.beside.state.live[r]),
                )
                if found != wanted:
                    raise Broken("S1", f"request {r}: position and state are {found}, {wanted} is right")
        for x, (name, n) in enumerate(self.places):
            state = self.kept.find(name, n)
            if (state is not None) != self.beside.state.stored[x]:
                raise Broken("S1", f"snapshot of {name} at {n}: {state}, stored: {self.beside.state.stored[x]}")
            if state is not None and self._number(state[PATH]) != self.beside.state.content[x]:
                raise Broken("S4", f"snapshot of {name} at {n}: {state[PATH].hex()} is another state")
        self.beside.agrees()

    def _number(self, state: bytes) -> int:
        state = bytes(state)
        return self.contents.index(state) if state in self.contents else len(self.contents)

    def _cold(self, r: int, n: int) -> bytes:
        return self.model.cold(tokens(r)[:n])[PATH]

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1


def run(steps: Sequence[Step], make: Callable[[Layout], Any] = Snapshots) -> Run:
    """Run steps with the machine beside them; raises `Broken` with the law."""
    of = Run(make)
    for step in steps:
        of.step(step)
    return of
