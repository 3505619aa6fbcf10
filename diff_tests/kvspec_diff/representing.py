"""Caches, their blocks and what is restored, held against a cold computation from the tokens (B1-B8, B10, S2-S4).

A program is a list of steps on a few live caches of one layout: tokens are appended in chunks, caches trimmed, blocks
taken, saved, lost and restored. After each step every live cache reads as if a model had computed its tokens from the
first on; what was read earlier is what it was; and the machine `blocks` took the same steps.

The subject is a parameter: any caches with the methods of the reference's. Parts cross the boundary as bytes.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from kvspec.members import Layout, Recurrent, Window
from kvspec.operations import Misuse, Refused

from kvspec_diff.restoring import Follower
from kvspec_diff.storing import Broken
from kvspec_diff.toy_model import Model, random_layout


class Subject(Protocol):
    """What is tested: caches and blocks with the reference's attributes and methods, and what goes between.

    A raw part is a value as the subject takes and returns it; `rows` is None for the state of a recurrent member.
    """

    overhead: int
    """A block as bytes has at most so many more than its parts."""

    def empty(self, layout: Layout) -> Any:
        """A cache that has seen nothing."""

    def restore(self, layout: Layout, blocks: Sequence[Any | None]) -> Any:
        """The cache of the longest prefix that blocks make up."""

    def save(self, layout: Layout, block: Any) -> bytes:
        """A block as it is stored."""

    def load(self, layout: Layout, data: bytes) -> Any | None:
        """A block from what was stored, or None."""

    def raw(self, layout: Layout, path: str, data: bytes, rows: int | None) -> Any:
        """A part from its bytes."""

    def data(self, raw: Any) -> bytes:
        """The bytes of a part."""

    def scribble(self, raw: Any) -> None:
        """Overwrite a part in place, if that is possible."""

    def held(self, raw: Any) -> int:
        """How many bytes of memory the part keeps from being freed."""


Name = Literal["append", "fill", "trim", "block", "save", "lose", "restore", "keep", "scribble", "misuse"]


@dataclass(frozen=True)
class Step:
    """One step, on the live cache of number `at`; all numbers are taken modulo what there is.

    append: `by` tokens, of which `branch` chooses one of two continuations. fill: as many as complete the block. trim:
    by so many tokens, less than none too. block: take the one of number `by`. save: all whole blocks. lose: the stored
    block of number `by`. restore: what is stored of the cache's tokens, less the last `by`; the cache that this makes
    is a new one. keep: all that can be read, to see whether it stays. scribble: over all that can be read. misuse: the
    call of number `by` that is to be refused.
    """

    name: Name
    at: int = 0
    by: int = 0
    branch: int = 0


@dataclass(frozen=True)
class Program:
    """Steps on caches of a layout."""

    layout: Layout
    steps: Sequence[Step]


def random_program(of: random.Random, length: int = 24) -> Program:
    """Layout and steps; many of them at the ends of blocks."""
    layout = random_layout(of)
    size = layout.block_size
    names = [*get_args(Name), "append", "append", "fill", "fill", "save", "restore"]
    steps: list[Step] = []
    while len(steps) < length:
        name, at = of.choice(names), of.randrange(4)
        by = of.choice((0, 1, 2, size - 1, size, size + 1, 2 * size, of.randrange(3 * size)))
        if name == "trim":
            by = of.choice((0, 1, 1, 2, size, -1, of.randrange(2 * size), 10_000))
        if name == "restore":
            by = of.choice((0, 0, 0, 1, size))
            steps += [Step("save", at)] * of.randrange(2)
        steps.append(Step(name, at, by, of.choice((0, 0, 0, 1))))
        if name == "restore" and of.random() < 0.3:
            steps.append(Step("trim", -1, of.choice((0, size, size, 2 * size, -size))))
    return Program(layout, steps)


@dataclass
class Live:
    """A cache, and the tokens that it has seen."""

    cache: Any
    tokens: list[int]
    restored: bool = False


@dataclass
class Stored:
    """A block as bytes, and what it is to be."""

    index: int
    data: bytes
    stateful: bool


LIVE = 4
"""At most so many caches live; a new one takes the place of the oldest."""


@dataclass
class Run:
    """Runs a program on a subject, the machine beside it; raises `Broken` with the law."""

    layout: Layout
    subject: Subject
    done: dict[str, int] = field(default_factory=dict)
    """How often each thing was done and answered."""

    def __post_init__(self) -> None:
        self.model, self.size = Model(self.layout), self.layout.block_size
        self.longest = 4 * self.size + 6
        self.stateless = all(leaf.sliced for leaf in self.layout.leaves.values())
        self.live = [Live(self.subject.empty(self.layout), [])]
        self.stored: dict[tuple[int, ...], Stored] = {}  # by the tokens up to a block's end
        self.kept: list[tuple[Any, bytes, str]] = []  # what was read, what it was, and of what
        self.follower = Follower(self.model, [4 * n for n in range(self.longest)], self.subject)
        self._check("B2")

    def step(self, step: Step) -> None:
        """One step, and everything after it."""
        live = self.live[step.at % len(self.live)]
        getattr(self, f"_{step.name}")(live, step)
        self._check("S4" if step.name in ("keep", "scribble", "block", "save") else "B2")

    # The steps.

    def _append(self, live: Live, step: Step, count: int | None = None) -> None:
        count = step.by if count is None else count
        start = len(live.tokens)
        if not 0 < count <= self.longest - start:
            return
        tokens = live.tokens + [4 * n + step.branch for n in range(start, start + count)]
        states = {path: self.subject.data(live.cache.read(path)) for path in self._paths(Recurrent)}
        new = self.raw(self.model.new(tokens, start, states), start, len(tokens))
        live.cache.append(count, new)
        for raw in new.values():
            self.subject.scribble(raw)  # they are the caller's
        live.tokens = tokens
        self.follower.appended(live.cache)
        self._count("append restored" if live.restored else "append")

    def _fill(self, live: Live, step: Step) -> None:
        self._append(live, step, self.size - len(live.tokens) % self.size)

    def _trim(self, live: Live, step: Step) -> None:
        before, to = len(live.tokens), len(live.tokens) - step.by
        wanted = self._may_trim(before, to)
        answer = _answer(lambda: live.cache.trim(to))
        if answer != wanted:
            raise Broken("B8", f"trim from {before} to {to}: {answer}, {wanted} is right")
        if answer == "done":
            live.tokens = live.tokens[:to]
        self.follower.trimmed(live.cache, to, answer)
        self._count(f"trim {answer}{' restored' if live.restored else ''}")

    def _may_trim(self, before: int, to: int) -> str:
        """What is right: windows that have lost rows and recurrent members go nowhere."""
        if not 0 <= to <= before:
            return "Misuse"
        stuck = any(
            isinstance(leaf, Recurrent) or (isinstance(leaf, Window) and before > leaf.size)
            for leaf in self.layout.leaves.values()
        )
        return "Refused" if stuck and to < before else "done"

    def _block(self, live: Live, step: Step) -> None:
        whole = len(live.tokens) // self.size
        index = step.by % (whole + 2)
        if index >= whole:
            self._refused("Misuse", f"block {index} of {whole}", lambda: live.cache.block(index))
            return
        block = self._judged_block(live, index)
        for path, raw in block.parts.items():
            self.kept.append((raw, self.subject.data(raw), f"{path} of block {index}"))

    def _judged_block(self, live: Live, index: int) -> Any:
        """A block of a cache, if it is as it should be (B3, B6, B10, S3)."""
        block, at_end = live.cache.block(index), len(live.tokens) == (index + 1) * self.size
        stateful = self.stateless or at_end
        self._judge_parts(live.tokens, index, stateful, block, "B3")
        for path, raw in block.parts.items():
            if self.subject.held(raw) > len(self.subject.data(raw)):
                raise Broken("B6", f"{path} of block {index}: holds on to {self.subject.held(raw)} bytes")
        self._count("block with states" if stateful else "block without states")
        return block

    def _judge_parts(self, tokens: Sequence[int], index: int, stateful: bool, block: Any, law: str) -> None:
        if (block.index, block.stateful) != (index, stateful):
            law = "S3" if block.stateful > stateful else "B10"
            raise Broken(law, f"block {index} of {len(tokens)} tokens: is {block.index}, stateful {block.stateful}")
        wanted = self.model.block(tokens, index, stateful)
        if block.parts.keys() != wanted.keys():
            raise Broken("B10", f"block {index}: has {sorted(block.parts)}, {sorted(wanted)} is right")
        for path, data in wanted.items():
            if (found := self.subject.data(block.parts[path])) != data:
                raise Broken(law, f"{path} of block {index}: {_short(found)}, {_short(data)} is right")

    def _save(self, live: Live, step: Step) -> None:
        for index in range(len(live.tokens) // self.size):
            until = tuple(live.tokens[: (index + 1) * self.size])
            there = self.stored.get(until)
            stateful = self.stateless or len(until) == len(live.tokens)
            if there is None or (stateful and not there.stateful):
                block = self._judged_block(live, index)
                data = self.subject.save(self.layout, block)
                again = self.subject.load(self.layout, data)
                if again is None:
                    raise Broken("B1", f"block {index}: what was saved cannot be read")
                self._judge_parts(until, index, stateful, again, "B1")
                room = sum(map(len, self.model.block(until, index, stateful).values())) + self.subject.overhead
                if len(data) > room:
                    raise Broken("B6", f"block {index}: {len(data)} bytes, of which its parts and all else have {room}")
                self.stored[until] = Stored(index, data, stateful)
                self.follower.stored(until, again, len(data))
                self._count("save" if there is None else "save anew")

    def _lose(self, live: Live, step: Step) -> None:
        if self.stored:
            until = sorted(self.stored)[step.by % len(self.stored)]
            del self.stored[until]
            self.follower.lost(until)
            self._count("lose")

    def _restore(self, live: Live, step: Step) -> None:
        asked = live.tokens[: max(0, len(live.tokens) - step.by)]
        found = [self.stored.get(tuple(asked[:end])) for end in range(self.size, len(asked) + 1, self.size)]
        blocks = [None if each is None else self.subject.load(self.layout, each.data) for each in found]
        whole = next((index for index, each in enumerate(found) if each is None), len(found))
        while whole and not found[whole - 1].stateful:  # type: ignore[union-attr]
            whole -= 1
        given = [
            (raw, self.subject.data(raw), f"{path} of a block that was given")
            for block in blocks
            if block is not None
            for path, raw in block.parts.items()
        ]
        cache = self.subject.restore(self.layout, blocks)
        if cache.position != whole * self.size:
            raise Broken("B4", f"restored {cache.position} tokens, {whole * self.size} is right")
        new = Live(cache, asked[: whole * self.size], restored=True)
        self.judge_cache(new, "B5")
        self.follower.restored(asked, cache)
        self.kept = (self.kept + given)[-200:]
        self.live = [*self.live, new][-LIVE:]
        self._count(f"restore {'nothing' if not whole else 'all' if whole == len(found) else 'less'}")

    def _keep(self, live: Live, step: Step) -> None:
        for path in self._paths():
            raw = live.cache.read(path)
            self.kept.append((raw, self.subject.data(raw), path))
        for path in self._paths(Window):
            raw = live.cache.ring(path)[0]
            self.kept.append((raw, self.subject.data(raw), f"ring of {path}"))
        self.kept = self.kept[-200:]

    def _scribble(self, live: Live, step: Step) -> None:
        for path in self._paths():
            self.subject.scribble(live.cache.read(path))
        for path in self._paths(Window):
            self.subject.scribble(live.cache.ring(path)[0])
        if len(live.tokens) >= self.size:
            for raw in live.cache.block(len(live.tokens) // self.size - 1).parts.values():
                self.subject.scribble(raw)

    def _misuse(self, live: Live, step: Step) -> None:
        cache, position = live.cache, len(live.tokens)
        tokens = [*live.tokens, 4 * position]
        states = {path: self.subject.data(cache.read(path)) for path in self._paths(Recurrent)}
        good = self.raw(self.model.new(tokens, position, states), position, position + 1)
        calls: list[tuple[str, Callable[[], object]]] = [
            ("a negative count", lambda: cache.append(-1, good)),
            ("no part of any layout", lambda: cache.append(1, {**good, "9.none": b""})),
            ("a negative block", lambda: cache.block(-1)),
            ("an unknown part", lambda: cache.read("9.none")),
            ("the ring of an unknown part", lambda: cache.ring("9.none")),
        ]
        for path in good:
            fewer = {name: raw for name, raw in good.items() if name != path}
            calls.append((f"{path} is missing", lambda fewer=fewer: cache.append(1, fewer)))  # type: ignore[misc]
        what, call = calls[step.by % len(calls)]
        self._refused("Misuse", what, call)

    def _refused(self, wanted: str, what: str, call: Callable[[], object]) -> None:
        if (answer := _answer(call)) != wanted:
            raise Broken("answer", f"{what}: {answer}, {wanted} is right")
        self._count(wanted)

    # What is looked at after each step.

    def _check(self, law: str) -> None:
        for live in self.live:
            self.judge_cache(live, law)
        for raw, was, what in self.kept:
            if (now := self.subject.data(raw)) != was:
                raise Broken("S4", f"{what}: was read as {_short(was)}, and became {_short(now)}")

    def judge_cache(self, live: Live, law: str) -> None:
        """Position, every part and every ring are what a cold computation has (B2, B5, B7, S2)."""
        cache = live.cache
        if cache.position != len(live.tokens):
            raise Broken("B5", f"position is {cache.position} after {len(live.tokens)} tokens")
        for path, data in self.model.cold(live.tokens).items():
            if (found := self.subject.data(cache.read(path))) != data:
                whose = "S2" if isinstance(self.model.parts[path][0], Recurrent) else law
                raise Broken(whose, f"{path} after {len(live.tokens)}: {_short(found)}, {_short(data)} is right")
        for path in self._paths(Window):
            window = self.model.parts[path][0]
            assert isinstance(window, Window)
            rows, offset, cursor = cache.ring(path)
            wanted = (self.model.ring(live.tokens, path), len(live.tokens), len(live.tokens) % window.size)
            if (self.subject.data(rows), offset, cursor) != wanted:
                raise Broken("B7", f"ring of {path}: {(_short(self.subject.data(rows)), offset, cursor)}")

    # What several of these need.

    def _paths(self, kind: type = object) -> list[str]:
        return [path for path, (leaf, _) in self.model.parts.items() if isinstance(leaf, kind)]

    def raw(self, parts: Mapping[str, bytes], start: int, end: int) -> dict[str, Any]:
        """The new parts of the tokens from `start` to `end` as the subject takes them."""
        found = {}
        for path, data in parts.items():
            leaf, rows = self.model.parts[path][0], end - start
            if leaf.sliced:
                rows = leaf.rows(end) - leaf.rows(start)
            found[path] = self.subject.raw(self.layout, path, data, None if isinstance(leaf, Recurrent) else rows)
        return found

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1


def run(program: Program, subject: Subject) -> Run:
    """Run a program; raises `Broken` with the law."""
    of = Run(program.layout, subject)
    for step in program.steps:
        of.step(step)
    return of


def _answer(call: Callable[[], object]) -> str:
    try:
        call()
    except (Misuse, Refused) as error:
        return type(error).__name__
    return "done"


def _short(data: bytes) -> str:
    """The bytes, or how many there are of them and what they begin with."""
    return data.hex() if len(data) <= 8 else f"{data[:8].hex()}… of {len(data)} bytes"
