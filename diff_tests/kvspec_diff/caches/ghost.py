"""What each object of a program holds: the tokens of its rows, told from the steps that were done.

An object is `doubtful` when nothing that it shows is judged any more: it was wrong before, or an operation that is
not promised touched it, or what it comes from. `since` lists what was done with it, appending aside, since it was last
read rightly; what is wrong with it then is laid to that.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kvspec_record import toy

from kvspec_diff.caches.case import Setup
from kvspec_diff.caches.promises import HANDED, Promises

BLAMELESS = (*HANDED, "copy", "file", "reblock")
"""Operations that do nothing with an object that holds nothing."""

REFUSED = " refused"
"""Behind the name of an operation that was refused."""


@dataclass
class Object:
    """A cache: the tokens of each row, by position; it came to be at the step `made` (-1: the start), by `by`.

    By `restore`, if that is how anything came to be that it was made of: what shares memory with it does so for that.
    """

    rows: list[list[int]]
    batch: bool = False
    made: int = -1
    since: tuple[str, ...] = ()
    doubtful: bool = False
    by: str = "fresh"

    def touch(self, name: str) -> None:
        """An operation was done with it; what hands out or copies nothing is not to blame for anything."""
        if name in BLAMELESS and not any(self.rows):
            return
        self.since = tuple(dict.fromkeys((*self.since, name)))


@dataclass
class Kept:
    """What a step handed out: `tied` are the objects that may share memory with it, first the one that it is of."""

    name: str
    of: Object
    source: int
    tied: list[int] = field(default_factory=list)


class Ghost:
    """The objects, and what was handed out, by the step that did it."""

    def __init__(self, setup: Setup, promises: Promises) -> None:
        self.setup, self.promises = setup, promises
        self.objects = [Object([[] for _ in range(setup.rows)], promises.batched(setup))]
        self.states: list[Kept] = []
        self.handed: dict[int, Kept] = {}
        self.owner: dict[int, int] = {}  # of a step that appended: the object

    def number(self, given: int) -> int:
        """The object that a number means."""
        return given % len(self.objects)

    def subjects(self, op: list[Any]) -> list[Object]:
        """The objects, or the kept state, that an operation is done with."""
        name, *numbers = op
        if name == "restore":
            return [self.states[numbers[0] % len(self.states)].of] if self.states else []
        given = numbers[:2] if name in ("merge", "extend") else numbers[:1]
        return [self.objects[self.number(each)] for each in given]

    def refuse(self, op: list[Any]) -> None:
        """An operation was refused: nothing has changed."""
        for each in self.subjects(op):
            each.touch(op[0] + REFUSED)

    def changed(self, step: int) -> Kept:
        """What a step handed out is not what it was: nothing that came or comes of it is judged."""
        kept = self.handed[step]
        kept.of.doubtful = True
        self._doubt(kept.tied[1:])
        return kept

    def doubt(self, op: list[Any]) -> None:
        """An operation was done, or broken off, that nothing is promised of."""
        if op[0] != "restore":
            for each in self.subjects(op):
                each.doubtful = True

    def do(self, step: int, answer: dict[str, Any]) -> None:
        """An operation was done."""
        name, *numbers = answer["op"]
        some = self.subjects(answer["op"])
        if name in HANDED:
            self._hand_out(step, name, some[0], self.number(numbers[0]))
        elif "made" in answer:
            self._make(step, name, some, answer)
            if name == "restore":
                self._tie(self.states[numbers[0] % len(self.states)])
        else:
            self._change(step, name, some, answer)
            self._untie(self.number(numbers[0]))
        for each in some if name not in ("append", "restore") else ():
            each.touch(name)

    def _hand_out(self, step: int, name: str, of: Object, source: int) -> None:
        of = Object([list(row) for row in of.rows], of.batch, step, of.since, of.doubtful)
        self.handed[step] = Kept(name, of, source, [source])
        if name == "state":
            self.states.append(self.handed[step])

    def _make(self, step: int, name: str, some: list[Object], answer: dict[str, Any]) -> None:
        rows = [list(row) for each in some for row in each.rows]
        if name == "extract":
            rows = [rows[answer["rows"][0]]]
        batch = {"merge": True, "extract": False}.get(name, some[0].batch)
        by = "restore" if any(each.by == "restore" for each in some) else name
        made = Object(rows, batch, step, (), any(each.doubtful for each in some), by)
        for each in some:
            made.since += each.since
        made.touch(name)
        self.objects.append(made)

    def _change(self, step: int, name: str, some: list[Object], answer: dict[str, Any]) -> None:
        made = some[0]
        if name in ("append", "padded"):
            self.owner[step] = self.objects.index(made)
            for r, length in enumerate(answer["lengths"][: len(made.rows)]):
                made.rows[r] += [toy.token(step, r, j) for j in range(length)]
        elif name == "trim":
            made.rows = [row[: max(len(row) - answer["count"], 0)] for row in made.rows]
        elif name == "reset":
            made.rows = [[] for _ in made.rows]
        elif name == "extend":
            made.rows += [list(row) for row in some[1].rows]
            made.since += some[1].since
            made.doubtful = made.doubtful or some[1].doubtful
        else:
            made.rows = [list(made.rows[r]) for r in answer["rows"]]

    def _tie(self, kept: Kept) -> None:
        """An object was made of a state: where that is no copy, what shared the memory before goes on no more."""
        if not self._isolated(kept):
            self._doubt(kept.tied)
        kept.tied.append(len(self.objects) - 1)

    def _isolated(self, kept: Kept) -> bool:
        return self.promises.verdict(self.setup, kept.of.batch, "isolate_restore") in ("promised", "optional")

    def _untie(self, number: int) -> None:
        """An object was changed: what shares memory with it, by a state that something was restored from, is not
        judged."""
        for kept in self.states:
            if number in kept.tied and len(kept.tied) > 1 and not self._isolated(kept):
                self._doubt(each for each in kept.tied if each != number)

    def _doubt(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.objects[number].doubtful = True
