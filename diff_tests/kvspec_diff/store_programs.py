"""Programs for stores: drawn, and by hand; stores that forget one fsync, or have a fault in their source."""

import ast
import random
import sys
from collections.abc import Mapping
from typing import Any

from kvspec_reference.files import Recording

from kvspec_diff.storing import REFERENCE, Call, Scope
from kvspec_diff.subjects.stores import StoreSubject

NAMES = ("save", "save", "write", "write", "write", "write", "read", "evict", "crash")


def one(subject: StoreSubject = REFERENCE) -> int:
    """Bytes of the file of an entry."""
    return Scope().sizes(subject)[0]


def random_scope(of: random.Random, subject: StoreSubject = REFERENCE) -> Scope:
    """Two to four entries fit; they are written in several pieces."""
    payloads = of.choice(((20, 20, 20), (20, 40, 270)))
    pieces, size = of.choice((150, 400)), one(subject)
    return Scope(
        payloads, of.randint(2 * size, 4 * size), of.randint(1, 3), of.randint(0, 4 * size), of.randint(1, 2), pieces
    )


def random_call(of: random.Random) -> Call:
    """Often something goes wrong, so that there are few calls between."""

    def perhaps(likely: float, below: int) -> int | None:
        return of.randrange(below) if of.random() < likely else None

    name = of.choice(NAMES)
    failing = frozenset(of.sample(range(11), of.choice((1, 1, 2, 3)))) if of.random() < 0.3 else frozenset[int]()
    killing = None if name == "crash" else perhaps(0.1, 9)
    return Call(name, of.randrange(3), failing, killing, perhaps(0.5, 1000), perhaps(0.3, 5), perhaps(0.5, 1000))


def random_program(of: random.Random, length: int = 30) -> list[Call]:
    """So many calls."""
    return [random_call(of) for _ in range(length)]


# Every fsync is needed.


def small(subject: StoreSubject = REFERENCE) -> Scope:
    """Three entries fit. Without failures a write is: create 0, write 1, sync 2, rename 3, sync of the folder 4."""
    return Scope((20,) * 4, budget=3 * one(subject), piece=1000)


PUT = [Call("save"), Call("write")]
FULL = [call for k in range(3) for call in (Call("save", k), Call("write"))]
SYNCS: Mapping[str, list[Call]] = {
    "an entry is replaced": [*PUT, *PUT],
    "an entry takes the room of another": [*FULL, Call("save", 3), Call("write")],
    "an entry takes the room of one that was evicted before": [
        *FULL, Call("evict", 0), Call("write"), Call("save", 3), Call("write")
    ],
    "an entry is acknowledged late": [Call("save"), Call("write", failing=frozenset({4})), Call("write")],
    "the process dies before the folder is synced": [*PUT, Call("save"), Call("write", killing=4), Call("read")],
}  # fmt: skip
"""Programs that are in order on a `small` store, and lose something on one without a certain fsync."""


class Forgetful:
    """A folder whose fsync does nothing if it is called from one line of the store, or of that line's helper."""

    def __init__(self, files: Recording, line: int) -> None:
        self.files, self.line = files, line

    def __getattr__(self, name: str) -> Any:
        return getattr(self.files, name)

    def sync(self, name: str) -> None:
        """Perhaps."""
        if not self._forgotten():
            self.files.sync(name)

    def sync_folder(self) -> None:
        """Perhaps."""
        if not self._forgotten():
            self.files.sync_folder()

    def _forgotten(self) -> bool:
        return self.line in (sys._getframe(2).f_lineno, sys._getframe(3).f_lineno)


def syncs(source: str) -> dict[int, str]:
    """Where a store's source syncs a file or its folder, or calls `_settle` for that: by line, the method."""
    found = {}
    methods = [each for each in ast.walk(ast.parse(source)) if isinstance(each, ast.FunctionDef)]
    for method in methods:
        for node in ast.walk(method):
            if method.name != "_settle" and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                name = node.func.attr
                if name in ("sync", "sync_folder", "_settle"):
                    found[node.lineno] = f"{method.name}: {name}"
    return found


def faulty(source: str, old: str, new: str, report: type[Any]) -> Any:
    """The store of this source with another text in place of one, which must be there; it answers with `report`."""
    if old not in source:
        raise ValueError(f"not in the source: {old}")
    space: dict[str, Any] = {"__name__": "faulty"}
    exec(compile(source.replace(old, new), "faulty", "exec"), space)
    space["Report"] = report
    return space["Store"]
