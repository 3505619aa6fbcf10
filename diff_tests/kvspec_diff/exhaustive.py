"""Bounded-exhaustive comparison of the fast implementation with the reference: every reachable state times every
operation.

The reference and its twin are explored together, breadth first: a state is what the reference holds and what the twin
keeps beside it (where its ring begins, what lies in its heap, what finished rows left in its tables). In every state
every operation of the scope, misuse included, is applied to both; outcome and whole state are compared by the one
comparison function, and what was refused or misused must leave both as they were. A twin is brought to a state by its
own `restore` of a backup taken there, never by running a program again.
"""

import pickle
from collections import deque
from collections.abc import Iterator
from hashlib import blake2b
from itertools import product
from typing import Any, Literal

import kvspec_torch
import msgspec
import numpy as np
import torch
from kvspec.operations import (
    Allocate,
    AnyOperation,
    Begin,
    Configuration,
    Copy,
    End,
    Evict,
    Finish,
    Free,
    Outcome,
    Overwrite,
    Pin,
    Publish,
    Read,
    Replace,
    Share,
    Start,
    Trim,
    Unpin,
    Write,
)
from kvspec_reference import Cache

from kvspec_diff.compare import Difference, Errors, compare
from kvspec_diff.program import Program
from kvspec_diff.subjects.reference import _attempt, _observed
from kvspec_diff.subjects.torch import _Run

FAILED = ("refused", "misuse")
KNOWN = 50_000
"""How many of the twin's states are remembered at once, so that each is put into the form for comparing once."""


class Scope(msgspec.Struct, frozen=True):
    """What is explored: the pool, names of rows and pins, prompts, and up to how many entries rows grow.

    States with a longer row are compared and not explored further.
    """

    pages: int
    page_size: int
    rows: str
    entries: int
    pins: str = ""
    prompts: tuple[int, ...] = (0,)

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.pages} pages of {self.page_size}, {len(self.rows)} rows of up to {self.entries} entries, "
            f"{len(self.pins)} pins, {len(self.prompts)} prompts"
        )

    @property
    def configuration(self) -> Configuration:
        """The pool."""
        return Configuration(self.pages, self.page_size)

    def operations(self) -> list[AnyOperation]:
        """Every operation with every operand from the least that means something wrong to one above the most."""
        return [*self._on_rows(), *self._on_pairs(), *map(Evict, range(-1, self.pages + 2)), *map(Unpin, self.pins),
                Begin(), End()]  # fmt: skip

    def _on_rows(self) -> Iterator[AnyOperation]:
        most = self.entries * self.page_size
        for row in self.rows:
            yield from (Start(row, prompt) for prompt in self.prompts)
            yield from (Allocate(row, tokens) for tokens in range(-1, self.pages * self.page_size + 2))
            for start, stop in product(range(most + 2), repeat=2):
                yield from (Write(row, start, stop), Write(row, start, stop, draft=True), Read(row, start, stop))
            for start, stop in product(range(self.entries + 2), repeat=2):
                yield from (Free(row, start, stop), Publish(row, start, stop))
            yield from (Trim(row, tokens) for tokens in range(most + 2))
            yield Finish(row)
            for entry in range(self.entries + 1):
                yield Copy(row, entry)
                yield from (Pin(name, row, entry) for name in self.pins)

    def _on_pairs(self) -> Iterator[AnyOperation]:
        for row, source in product(self.rows, repeat=2):
            for start, stop in product(range(self.entries + 2), repeat=2):
                yield from (Overwrite(row, start, stop, source), Share(row, source, start, stop))
            yield from (Replace(row, entry, source) for entry in range(self.entries + 1))


class Explored(msgspec.Struct, frozen=True):
    """How many states were reached and how many (state, operation) pairs were compared; `complete` unless it stopped
    early. With a difference, `program` reaches it from an empty pool: its last operation is the one that differs."""

    states: int
    pairs: int
    complete: bool
    difference: Difference | None = None
    program: Program | None = None


class Twin(_Run):
    """A cache of the fast implementation that can be put into any state it was in before."""

    def __init__(self, scope: Scope, path: Literal["host", "device"], package: Any) -> None:
        entries = scope.entries + scope.pages  # as long as an operation can make a row that is to be explored
        steps = [Start(row, 0) for row in scope.rows] + [Allocate(scope.rows[0], scope.page_size)] * entries
        pins = [Pin(name, scope.rows[0], 0) for name in scope.pins]
        super().__init__(Program(scope.configuration, (*steps, *pins)), path, package)
        self._staged = self._cache.backup()
        self._cells = [tensor.numpy().reshape(-1).view(np.uint8) for tensor in self._staged.values()]
        pool = self._cache.pool._path
        kept = [*self._cache._tensors.values(), *vars(pool).values(), *vars(getattr(pool, "evictable", pool)).values()]
        self._views = [tensor.numpy() for tensor in kept if isinstance(tensor, torch.Tensor)]
        self._numbers_of = [name for name, value in vars(pool).items() if isinstance(value, int)]
        self._known: dict[bytes, dict[str, Any]] = {}

    def attempt(self, operation: AnyOperation) -> Outcome:
        """Do one operation with a hostile caller. What it raises beside misuse and refusals is an error."""
        self._done = 0  # backups are taken here, not in between
        try:
            outcome = self.perform(operation, "end")
        except Exception as error:
            outcome = Outcome("error", reason=repr(error))
        self._returned.clear()
        return outcome

    def observed(self, outcome: Outcome, glance: bytes) -> Outcome:
        """The outcome with the whole state, which is asked for once for each `glance()`: what that gives now."""
        try:
            state = self._known.get(glance)
            if state is None:
                if len(self._known) >= KNOWN:
                    self._known.clear()
                state = self._known[glance] = self._cache.snapshot()
            available = int(self._cache.pool.available)
        except Exception as error:
            return Outcome("error", reason=repr(error))
        return msgspec.structs.replace(outcome, blank=tuple(state["blank"]), available=available, state=state)

    def glance(self) -> bytes:
        """All that the twin's tensors and numbers hold now; it differs whenever anything was changed."""
        pool = self._cache.pool._path
        numbers = [getattr(pool, name) for name in self._numbers_of]
        heap = getattr(pool, "_evictable", ())
        return b"".join([view.tobytes() for view in self._views]) + repr((numbers, heap)).encode()

    def memory(self) -> bytes:
        """Everything that a backup keeps, then the heap of evictable pages, which it does not."""
        saved = b"".join([tensor.numpy().tobytes() for tensor in self._cache.backup().values()])
        pool = self._cache.pool._path
        return saved + pickle.dumps((getattr(pool, "_evictable", []), bytes(getattr(pool, "_listed", b""))))

    def recall(self, memory: bytes) -> None:
        """Go back to the state of that `memory`."""
        at = 0
        for cells in self._cells:
            cells[:] = np.frombuffer(memory, np.uint8, cells.size, at)
            at += cells.size
        self._cache.restore(self._staged)
        heap, listed = pickle.loads(memory[at:])
        if listed:
            pool = self._cache.pool._path
            pool._evictable[:], pool._listed[:] = heap, listed

    def beside(self) -> tuple[object, ...]:
        """What the twin keeps that the reference's state does not say, in a form that is the same in twin states."""
        pool, tensors = self._cache.pool._path, self._cache._tensors
        kept = [tensors[name][:-1].numpy().tobytes() for name in ("table", "length", "settled", "pin_page")]
        return int(pool.head), bytes(getattr(pool, "_listed", b"")), *kept


class _Node(msgspec.Struct, frozen=True):
    """A state: both sides of it, and where it came from."""

    reference: bytes
    memory: bytes
    parent: "_Node | None" = None
    operation: AnyOperation | None = None

    def operations(self) -> tuple[AnyOperation, ...]:
        """From the empty pool to here."""
        found: list[AnyOperation] = []
        node: _Node | None = self
        while node is not None and node.operation is not None:
            found.append(node.operation)
            node = node.parent
        return tuple(reversed(found))


def explore(
    scope: Scope, path: Literal["host", "device"] = "host", package: Any = kvspec_torch, most: int | None = None
) -> Explored:
    """Compare the twin with the reference in every state of the scope, or in the first `most`, until they differ."""
    reference, twin = Cache(scope.pages, scope.page_size), Twin(scope, path, package)
    operations = scope.operations()
    queue = deque([_Node(pickle.dumps(reference), twin.memory())])
    seen = {_digest(reference, twin)}
    states = pairs = 0
    while queue and (most is None or states < most):
        node = queue.popleft()
        states += 1
        reference = pickle.loads(node.reference)
        twin.recall(node.memory)
        before, calm = reference.snapshot(), twin.glance()
        for operation in operations:
            pairs += 1
            expected, outcome = _attempt(reference, operation), twin.attempt(operation)
            glance = twin.glance()
            if expected.status in FAILED and glance == calm and reference.snapshot() == before:
                found = compare([expected], [outcome], Errors.SAME_STATUS)  # neither moved
            else:
                expected = _observed(reference, expected, whole=True)
                found = compare([expected], [twin.observed(outcome, glance)], Errors.SAME_STATUS)
                if found is None and expected.status in FAILED:
                    found = _unchanged(before, expected, path == "device" or glance == calm)
            if found is not None:
                program = Program(scope.configuration, (*node.operations(), operation))
                difference = found._replace(operation=len(program.operations) - 1)
                return Explored(states, pairs, False, difference, program)
            if expected.status in FAILED:
                if path == "device":
                    twin.recall(node.memory)
                continue
            reference.take_actions()
            if all(row.length <= scope.entries * scope.page_size for row in reference.rows.values()):
                digest = _digest(reference, twin)
                if digest not in seen:
                    seen.add(digest)
                    queue.append(_Node(pickle.dumps(reference), twin.memory(), node, operation))
            if glance != calm:
                twin.recall(node.memory)
            reference = pickle.loads(node.reference)
    return Explored(states, pairs, not queue)


def _unchanged(before: dict[str, Any], expected: Outcome, memory: bool) -> Difference | None:
    """What failed leaves the reference's state as it was, and everything that the twin remembers."""
    if expected.state != before:
        return Difference(0, f"state after {expected.status}", before, expected.state)
    return None if memory else Difference(0, f"memory after {expected.status}", "as it was", "changed")


def _digest(reference: Cache, twin: Twin) -> bytes:
    """The same for two states that nothing can tell apart: requests are numbered by rank, calls are not counted."""
    pool, rows, pins = reference.groups, reference.rows.values(), reference.pins
    requests = sorted({row.request for row in rows} | {request for request, _ in pins.values()})
    rank = {request: number for number, request in enumerate(requests)}
    key = (
        list(pool.blank), list(pool.cached), pool.released, pool.open, sorted(pool.contents.items()),
        sorted((name, rank[request], page) for name, (request, page) in pins.items()),
        sorted((row.name, rank[row.request], row.prompt, row.length, sorted(row.pages.items()), sorted(row.settled))
               for row in rows),
        twin.beside(),
    )  # fmt: skip
    return blake2b(repr(key).encode(), digest_size=16).digest()
