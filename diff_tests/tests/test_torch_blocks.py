"""Torch's caches and blocks beside the reference's, bit for bit, and faults that this finds (B3-B8, B10, S4)."""

import importlib
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvspec.operations import Misuse, Refused
from kvspec_diff import representing
from kvspec_diff.beside import Broken
from kvspec_diff.plants import Plant, load
from kvspec_diff.profiles import register
from kvspec_diff.side_by_side import run
from kvspec_diff.subjects.torch_blocks import TorchBlocks

register()


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
        "members.keeping",
        "return self._joined((piece for _, piece in self.pieces(first, last)), last - first)",
        "return next((piece.view(DTYPES[self.part.dtype]) for _, piece in self.pieces(first, last) "
        "if piece.shape[0] == last - first), self._joined((p for _, p in self.pieces(first, last)), last - first))",
    ),
    "a state that is read is the live one (S4)": (
        "members.keeping",
        "return compact([self._state], self.part.shape, self.part, self.device)",
        "return self._state.view(DTYPES[self.part.dtype])",
    ),
    "a state that is passed is kept (S4)": (
        "members.keeping", "self._state.copy_(bits(state))", "self._state = bits(state)"
    ),
    "rows that are passed are kept (S4)": (
        "members.keeping",
        "            self.segments.append(self._empty(more))\n            self._ends.append(room + more)\n\n"
        "    def write(self, position: int, new: torch.Tensor) -> None:\n",
        "            self.segments.append(self._empty(more))\n            self._ends.append(room + more)\n\n"
        "    def write(self, position: int, new: torch.Tensor) -> None:\n"
        "        if position == 0 and len(new) == self._ends[-1]:\n            self.segments = [bits(new)]\n",
    ),
    "bools are copied as bools (B1)": (
        "members.parts", "    joined = empty(shape, DTYPES[part.dtype], device)\n    target, at = bits(joined), 0\n",
        "    joined = empty(shape, DTYPES[part.dtype], device)\n    target, at = joined, 0\n"
        "    pieces = [piece.view(joined.dtype) for piece in pieces]\n",
    ),
    "a chunk longer than the ring leaves its first rows (B7)": (
        "members.keeping", "source = bits(new)[left_out:]", "source = bits(new)[: self.size]"
    ),
    "a ring is written from its first slot after a long chunk (B7)": (
        "members.keeping", "(position + left_out) % self.size, source", "position % self.size, source"
    ),
    "a ring does not wrap (B7)": (
        "members.keeping", "self._slots[: count - before_the_end] = source[before_the_end:]", "pass"
    ),
    "a ring that grows forgets its rows (B7)": ("members.keeping", "slots[:room] = self._slots", "pass"),
    "a ring is read as it lies (B7)": (
        "members.keeping", "cursor = position % self.size if position > self.size else 0", "cursor = 0"
    ),
    "room is not given back with the rows that went (B8)": (
        "members.keeping", "            self._ends[-1] = 2 * rows\n", "            pass\n"
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
        "members.keeping", "first, last = self.leaf.rows(start), self.leaf.rows(stop)",
        "first, last = -self.leaf.rows(-start), -self.leaf.rows(-stop)",
    ),
    "a part too many is taken for granted": (
        "members.parts", "        if path not in wanted:\n", "        if False:\n"
    ),
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
