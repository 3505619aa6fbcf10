"""Torch's caches and blocks beside the reference's: random programs, misuse among them, and all that can be read.

A cache of each is called alike. What is not as it should be raises `AssertionError`.
"""

import random
from collections.abc import Callable
from typing import Any

import kvspec_reference.blocks as reference
import torch
from kvspec.members import WIDTHS, Absent, Group, Layout, Member, Part, Plain, Pooled, Quantized, Recurrent, Window
from kvspec.operations import Misuse, Refused
from kvspec_reference.blocks import Block, parts_of

from kvspec_diff.subjects.torch_blocks import TorchBlocks

STEPS = 30


def member(rng: random.Random, states: int, depth: int = 0) -> Member:
    """Any member, of few and small parts of any dtype."""
    parts = tuple(
        Part(name, tuple(rng.choice([0, 1, 1, 2, 3]) for _ in range(rng.randrange(3))), rng.choice(sorted(WIDTHS)))
        for name in rng.sample(["keys", "values", "scales"], rng.choice([0, 1, 1, 2]))
    )
    members: list[Callable[[], Member]] = [
        lambda: Plain(parts),
        lambda: Quantized(parts, bits=4, group=2),
        lambda: Pooled(parts, ratio=rng.randint(1, 5)),
        lambda: Absent(),
        lambda: Group(tuple(member(rng, states, depth + 1) for _ in range(rng.randrange(3)))),
        lambda: Window(parts, size=rng.randint(1, 9)),
        lambda: Window(parts, size=rng.randint(4, 30)),
        lambda: Recurrent(parts),
    ]
    return rng.choice(members[: 5 if states == 0 else 7 if states == 1 else 8])()


def layout(rng: random.Random) -> Layout:
    """Without states, with windows, or with states of both kinds."""
    states = rng.randrange(3)
    return Layout("toy", rng.randint(1, 5), tuple(member(rng, states) for _ in range(rng.randint(0, 3))))


def outcome(call: Callable[[], Any]) -> Any:
    """What came of it; the words of an error are not compared."""
    try:
        return call()
    except (Misuse, Refused) as error:
        return type(error)


class Both:
    """Two caches that are called alike."""

    def __init__(self, subject: Any, of: Layout, rng: random.Random) -> None:
        self.subject, self.layout, self.rng = subject, of, rng
        self.theirs, self.ours = reference.Cache(of), subject.empty(of)
        self.blocks: list[Block | None] = []
        self.done: set[Any] = set()

    def step(self) -> None:
        name = self.rng.choice(["append"] * 4 + ["block", "trim"] * 2 + ["restore", "wrong"])
        getattr(self, name)()
        self.compare()

    def both(self, name: str, call: Callable[[Any], Any], ours: Callable[[Any], Any] | None = None) -> Any:
        theirs, found = outcome(lambda: call(self.theirs)), outcome(lambda: (ours or call)(self.ours))
        assert self.as_bytes(found) == theirs, name
        self.done.add((name, theirs if isinstance(theirs, type) else None))
        return theirs

    def as_bytes(self, found: Any) -> Any:
        if isinstance(found, torch.Tensor):
            return self.subject.data(found)
        if isinstance(found, tuple):
            return tuple(self.as_bytes(each) for each in found)
        return self.subject.theirs(found) if hasattr(found, "parts") else found

    def append(self, count: int | None = None, spoil: bool = False) -> None:
        count = self.rng.choice([0, 1, 1, 2, 5, 20, 60]) if count is None else count
        start, end = self.theirs.position, self.theirs.position + max(0, count)
        theirs, ours = {}, {}
        for path, (leaf, part) in parts_of(self.layout).items():
            rows = leaf.rows(end) - leaf.rows(start) if leaf.sliced else end - start
            state = isinstance(leaf, Recurrent)
            theirs[path] = self.rng.randbytes((1 if state else rows) * part.bytes)
            ours[path] = self.subject.raw(self.layout, path, theirs[path], None if state else rows)
        if spoil:
            path = self.rng.choice([*theirs, "9.keys"])
            if self.rng.random() < 0.5:
                theirs[path] = theirs.get(path, b"") + b"\0"
                ours[path] = torch.frombuffer(bytearray(theirs[path]), dtype=torch.uint8)
                ours[path] = ours[path][None].view(1, 1, 1, -1)
            else:
                theirs.pop(path, None)
                ours.pop(path, None)
        self.both("append", lambda cache: cache.append(count, theirs), lambda cache: cache.append(count, ours))
        for tensor in ours.values():
            self.subject.scribble(tensor)

    def trim(self) -> None:
        end = self.theirs.position
        few, any_ = max(0, end - self.rng.randint(0, 3)), self.rng.randint(-1, end + 1)
        position = self.rng.choice([few, few, any_, self.rng.randint(0, 3)])
        if self.both("trim", lambda cache: cache.trim(position)) is None:
            del self.blocks[position // self.layout.block_size :]

    def block(self) -> None:
        index = self.rng.randint(-1, self.theirs.position // self.layout.block_size)
        whole = self.theirs.position // self.layout.block_size - 1
        found = self.both("block", lambda cache: cache.block(whole if index % 2 else index))
        if isinstance(found, Block):
            self.blocks += [None] * (found.index + 1 - len(self.blocks))
            self.blocks[found.index] = found

    def restore(self) -> None:
        """From what was kept, with a block that is missing, stands elsewhere, or has something wrong in it."""
        for index in range(self.theirs.position // self.layout.block_size):
            found = self.both("block", lambda cache, index=index: cache.block(index))  # type: ignore[misc]
            self.blocks += [None] * (index + 1 - len(self.blocks))
            if self.blocks[index] is None or (found.stateful and not self.blocks[index].stateful):  # type: ignore[union-attr]
                self.blocks[index] = found
        given = list(self.blocks)
        at = self.rng.randrange(len(given)) if given else 0
        change = self.rng.choice(["none", "none", "missing", "moved", "flag", "part"]) if given else "none"
        old = given[at] if given else None
        if change == "missing":
            given[at] = None
        elif old is not None and change == "moved":
            given[at] = self.theirs.block(self.rng.randrange(self.theirs.position // self.layout.block_size))
        elif old is not None and change == "flag":
            given[at] = Block(old.index, old.parts, not old.stateful)
        elif old is not None and change == "part":
            given[at] = Block(old.index, spoilt(old.parts, self.rng), old.stateful)
        theirs = outcome(lambda: reference.restore(self.layout, given))
        passed = [None if block is None else self.subject.ours(self.layout, block) for block in given]
        ours = outcome(lambda: self.subject.restore(self.layout, passed))
        self.done.add(("restore", theirs if isinstance(theirs, type) else None))
        for tensor in (tensor for block in passed if block is not None for tensor in block.parts.values()):
            self.subject.scribble(tensor)
        if isinstance(theirs, type):
            assert ours is theirs, "restore"
        else:
            self.theirs, self.ours = theirs, ours
            del self.blocks[self.theirs.position // self.layout.block_size :]

    def wrong(self) -> None:
        """What is no part of the contract: nothing changes."""
        self.append(self.rng.randint(-1, 3), spoil=True)
        self.both("read", lambda cache: cache.read("9.keys"))

    def compare(self) -> None:
        """All that can be read."""
        assert self.ours.position == self.theirs.position
        for path, (leaf, _) in parts_of(self.layout).items():
            self.both("read", lambda cache, path=path: cache.read(path))  # type: ignore[misc]
            if isinstance(leaf, Window) or self.rng.random() < 0.1:
                self.both("ring", lambda cache, path=path: cache.ring(path))  # type: ignore[misc]


def spoilt(given: Any, rng: random.Random) -> dict[str, bytes]:
    """Parts of which one is too long or missing, or that are one too many."""
    parts: dict[str, bytes] = dict(given)
    path = rng.choice([*parts, "9.keys"])
    if rng.random() < 0.5:
        parts[path] = parts.get(path, b"") + b"\0"
    else:
        parts.pop(path, None)
    return parts


def run(subject: TorchBlocks, seed: int) -> set[Any]:
    """One program; what was done."""
    rng = random.Random(seed)
    both = Both(subject, layout(rng), rng)
    for _ in range(STEPS):
        both.step()
    return both.done
