"""Torch's caches and blocks beside the reference's, bit for bit, and faults that this finds (B3-B8, B10, S4)."""

import importlib
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kvspec_reference.blocks as reference
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kvspec.members import (
    WIDTHS,
    Absent,
    Group,
    Layout,
    Member,
    Part,
    Plain,
    Pooled,
    Quantized,
    Recurrent,
    Window,
)
from kvspec.operations import Misuse, Refused
from kvspec_diff import representing
from kvspec_diff.plants import Plant, load
from kvspec_diff.profiles import register
from kvspec_diff.storing import Broken
from kvspec_diff.subjects.torch_blocks import TorchBlocks
from kvspec_reference.blocks import Block, parts_of

register()
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


def spoilt(parts: Any, rng: random.Random) -> dict[str, bytes]:
    """Parts of which one is too long or missing, or that are one too many."""
    parts = dict(parts)
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


@given(st.integers(0, 2**32))
@settings(settings.get_profile("pr"))
def test_torch_does_what_the_reference_does(seed: int) -> None:
    run(TorchBlocks(), seed)


@given(st.randoms(use_true_random=False))
@settings(settings.get_profile("pr"))
def test_torch_against_a_cold_computation(of: random.Random) -> None:
    """The reference's own programs, with the machine `blocks` beside them."""
    representing.run(representing.random_program(of), TorchBlocks())


def test_everything_is_tried() -> None:
    done: Counter[Any] = Counter()
    for seed in range(60):
        done.update(run(TorchBlocks(), seed))
    calls = [(name, kind) for name in ("append", "block", "read", "ring", "restore", "trim") for kind in (None, Misuse)]
    assert {call: done[call] for call in [*calls, ("trim", Refused)] if done[call] < 5 and call[0] != "ring"} == {}
    assert done["ring", None] >= 5


# Planted faults.

FAULTS: dict[str, tuple[str, str, str]] = {
    "a block keeps the whole segment (B6)": (
        "keeping",
        "return self._joined((piece for _, piece in self._pieces(first, last)), last - first)",
        "return next((piece.view(DTYPES[self.part.dtype]) for _, piece in self._pieces(first, last) "
        "if piece.shape[0] == last - first), self._joined((p for _, p in self._pieces(first, last)), last - first))",
    ),
    "a state that is read is the live one (S4)": (
        "keeping",
        "return compact([self._state], self.part.shape, self.part, self.device)",
        "return self._state.view(DTYPES[self.part.dtype])",
    ),
    "a state that is passed is kept (S4)": ("keeping", "self._state.copy_(bits(new))", "self._state = bits(new)"),
    "rows that are passed are kept (S4)": (
        "keeping",
        "            self._segments.append(self._empty(more))\n            self._ends.append(room + more)\n\n"
        "    def write(self, position: int, new: torch.Tensor) -> None:\n",
        "            self._segments.append(self._empty(more))\n            self._ends.append(room + more)\n\n"
        "    def write(self, position: int, new: torch.Tensor) -> None:\n"
        "        if position == 0 and len(new) == self._ends[-1]:\n            self._segments = [bits(new)]\n",
    ),
    "bools are copied as bools (B1)": (
        "parts", "    joined = empty(shape, DTYPES[part.dtype], device)\n    target, at = bits(joined), 0\n",
        "    joined = empty(shape, DTYPES[part.dtype], device)\n    target, at = joined, 0\n"
        "    pieces = [piece.view(joined.dtype) for piece in pieces]\n",
    ),
    "a chunk longer than the ring leaves its first rows (B7)": (
        "keeping", "source = bits(new)[left_out:]", "source = bits(new)[: self.size]"
    ),
    "a ring is written from its first slot after a long chunk (B7)": (
        "keeping", "(position + left_out) % self.size, source", "position % self.size, source"
    ),
    "a ring does not wrap (B7)": ("keeping", "self._slots[: count - before_the_end] = source[before_the_end:]", "pass"),
    "a ring that grows forgets its rows (B7)": ("keeping", "slots[:room] = self._slots", "pass"),
    "a ring is read as it lies (B7)": (
        "keeping", "cursor = position % self.size if position > self.size else 0", "cursor = 0"
    ),
    "room is not given back with the rows that went (B8)": (
        "keeping", "            self._ends[-1] = 2 * rows\n", "            pass\n"
    ),
    "a trim is refused half done (B8)": (
        "blocks", "            if isinstance(leaf, Window) and self.position > leaf.size:\n",
        "            if isinstance(leaf, Window) and self.position > leaf.size:\n"
        "                self.position = position\n",
    ),
    "a window that lost one row is trimmed (B8)": (
        "blocks", "self.position > leaf.size", "self.position > leaf.size + 1"
    ),
    "a block inside has the live states (S3)": ("blocks", "end == self.position or", "True or"),
    "a gap is passed over (B4)": ("blocks", "            break\n", "            continue\n"),
    "one block without states is passed over (B4)": (
        "blocks", "    while leading and not leading[-1].stateful:", "    if leading and not leading[-1].stateful:"
    ),
    "a block of another number is taken (B4)": ("blocks", "block is None or block.index != index", "block is None"),
    "a misfit behind the second block goes unnoticed": (
        "blocks", "    for block in blocks:\n        if block is", "    for block in blocks[:2]:\n        if block is"
    ),
    "the last rows of a prefix are not restored (B5)": (
        "blocks", "                for block in blocks:", "                for block in blocks[:2]:"
    ),
    "a pooled row belongs to the block that begins it (B3)": (
        "keeping", "first, last = self.leaf.rows(start), self.leaf.rows(stop)",
        "first, last = -self.leaf.rows(-start), -self.leaf.rows(-stop)",
    ),
    "a part too many is taken for granted": ("parts", "        if path not in wanted:\n", "        if False:\n"),
}  # fmt: skip
"""By name: the module, a text in it, and what is there instead."""


def faulty(module: str, old: str, new: str) -> TorchBlocks:
    """Torch's caches with a fault."""
    name = f"kvspec_torch.{module}"
    text = Path(importlib.import_module(name).__file__ or "").read_text()
    assert text.count(old) == 1, old
    return TorchBlocks(load(Plant(name, "", "", old, new, text.replace(old, new)), "kvspec_torch.blocks"))


def finds(subject: TorchBlocks) -> str:
    """Who finds a fault in at most 300 programs of both kinds, and what is said."""
    for seed in range(150):
        try:
            representing.run(representing.random_program(random.Random(seed)), subject)
        except (Broken, RuntimeError, IndexError, KeyError, TypeError, ValueError) as error:
            return f"cold computation: {error}"
        try:
            run(subject, seed)
        except (AssertionError, RuntimeError, IndexError, KeyError, TypeError, ValueError) as error:
            return f"reference: {error}"
    return ""


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str) -> None:
    assert finds(faulty(*FAULTS[fault]))
