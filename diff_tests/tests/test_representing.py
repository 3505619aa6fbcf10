"""The reference's caches and blocks against a cold computation, and in lockstep with the machine `blocks`."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kvspec_reference.blocks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvspec.members import Absent, Group, Layout, Part, Plain, Pooled, Quantized, Recurrent, Window
from kvspec_diff import restoring
from kvspec_diff.profiles import register
from kvspec_diff.representing import Live, Program, Run, Step, random_program, run
from kvspec_diff.storing import Broken
from kvspec_diff.subjects.reference_blocks import ReferenceBlocks
from kvspec_diff.toy_model import Model, random_layout

register()

SOURCE = Path(kvspec_reference.blocks.__file__).read_text()
PROGRAMS = 1_000


@settings(settings.get_profile("pr"))
@given(st.randoms(use_true_random=False))
def test_programs(of: random.Random) -> None:
    run(random_program(of), ReferenceBlocks())


def test_bulk(record_property: Callable[[str, object], None]) -> None:
    seen: Counter[str] = Counter()
    for seed in range(PROGRAMS):
        done = run(random_program(random.Random(seed)), ReferenceBlocks())
        seen.update(done.done)
        seen.update({f"machine: {action}": count for action, count in done.follower.done.items()})
    wanted = {
        "append", "append restored", "trim done", "trim done restored", "trim Refused", "trim Refused restored",
        "trim Misuse", "block with states", "block without states", "save", "save anew", "lose", "restore all",
        "restore less", "restore nothing", "Misuse",
    } | {f"machine: {action}" for action in restoring.compiled().actions}  # fmt: skip
    assert {what: seen[what] for what in wanted if seen[what] < 20} == {}, "these are hardly tried"
    text = f"{PROGRAMS} programs, {seen['restore all'] + seen['restore less']} prefixes restored"
    record_property("say", f"blocks: {text}, {seen['append restored']} times appended to one")


def test_layouts_are_of_every_kind() -> None:
    layouts = [random_layout(random.Random(seed)) for seed in range(300)]
    leaves = [leaf for layout in layouts for leaf in layout.leaves.values()]
    assert {type(leaf) for leaf in leaves} == {Plain, Quantized, Pooled, Window, Recurrent}
    assert {type(member) for layout in layouts for member in layout.members} >= {Absent, Group}
    assert any(part.bytes == 0 for leaf in leaves for part in leaf.parts)
    sizes = {layout.block_size for layout in layouts}
    assert (min(sizes), max(sizes)) == (1, 64)
    windows = [(leaf.size, layout.block_size) for layout in layouts for leaf in layout.leaves.values()
               if isinstance(leaf, Window)]  # fmt: skip
    assert any(window < size for window, size in windows)
    assert any(window > 4 * size for window, size in windows)
    assert any(not layout.leaves for layout in layouts)


def test_the_model_by_hand() -> None:
    """A row depends on the whole prefix, a state is folded, a ring has position i in slot i modulo its size."""
    one = Part("one", (2,), "uint8")
    layout = Layout("toy", 2, (Plain((one,)), Pooled((one,), ratio=2), Window((one,), size=2), Recurrent((one,))))
    model = Model(layout)
    cold, other = model.cold([1, 2, 3]), model.cold([9, 2, 3])
    assert {path: len(data) for path, data in cold.items()} == {"0.one": 6, "1.one": 2, "2.one": 4, "3.one": 2}
    assert all(cold[path][-2:] != other[path][-2:] for path in cold)
    new = model.new([1, 2, 3], 2, {"3.one": model.cold([1, 2])["3.one"]})
    assert new == {"0.one": cold["0.one"][4:], "1.one": b"", "2.one": cold["2.one"][2:], "3.one": cold["3.one"]}
    assert model.ring([1, 2, 3], "2.one") == cold["2.one"][2:] + cold["2.one"][:2]
    assert model.block([1, 2, 3], 0, False) == {"0.one": cold["0.one"][:4], "1.one": cold["1.one"]}
    assert model.cold([])["3.one"] == b"\0\0"


# Planted faults.

FAULTS: dict[str, tuple[str, ...]] = {
    "a state is that of the tokens before (S2)": (
        "                self._held[path] = new[path]\n",
        "                self._held[path] = self._held[path] if self.position else new[path]\n",
    ),
    "the state of the first block is restored (S2)": (
        "cache._held[path] = usable[-1].parts[path]", "cache._held[path] = usable[0].parts.get(path, b'')"
    ),
    "a block inside has the live states (S3)": ("or end == self.position", "or True"),
    "what was read is not a copy (S4)": (
        "        return self._held[path]\n", "        return Alive(self, path)\n"
    ),
    "parts are read in another order than they were written (B1)": (
        "    for path, size in sizes.items():\n        parts[path] = data",
        "    for path, size in reversed(sizes.items()):\n        parts[path] = data",
    ),
    "a window keeps a row less (B2)": ("leaf.rows(end), part)", "max(1, leaf.rows(end) - 1), part)"),
    "a pooled row belongs to the block that begins it (B3)": (
        "held[leaf.rows(start) * part.bytes : leaf.rows(end) * part.bytes]",
        "held[-leaf.rows(-start) * part.bytes : -leaf.rows(-end) * part.bytes]",
    ),
    "a block that is missing is passed over (B4)": (
        "            break\n        usable", "            continue\n        usable"
    ),
    "a restored prefix ends without states (B4)": (
        "    while usable and not usable[-1].stateful:\n", "    while False:\n",
        "usable[-1].parts[path]", "usable[-1].parts.get(path, b'')",
    ),
    "only the last block with states is taken (B4)": (
        "    while usable and not usable[-1].stateful:\n        usable.pop()\n",
        "    if usable and not usable[-1].stateful:\n        usable = []\n",
    ),
    "a member is restored a block short (B5)": (
        'b"".join(block.parts[path] for block in usable)', 'b"".join(block.parts[path] for block in usable[:3])'
    ),
    "a block holds on to the whole cache (B6)": (
        "            held = self._held[path]\n", "            held = memoryview(self._held[path])\n",
        "type(parts[path]) is not bytes", "False",
    ),
    "a block is stored with all before it (B6)": (
        "bytes([block.stateful]) + b\"\".join(parts)",
        "bytes([block.stateful]) + b\"\".join(parts) + bytes(block.index * sum(map(len, parts)))",
    ),
    "a ring begins at its first slot (B7)": (
        "slots[(first + at) % window.size] = rows", "slots[at] = rows"
    ),
    "a ring is put back as it lies (B7)": (
        "[i % window.size for i in range(position - window.rows(position), position)]",
        "list(range(window.rows(position)))",
    ),
    "a ring forgets its offset (B7)": ("part), self.position, cursor", "part), cursor, cursor"),
    "a window that lost rows is trimmed (B8)": (
        "if isinstance(leaf, Window) and self.position > leaf.size", "if False"
    ),
    "a window is never trimmed (B8)": ("self.position > leaf.size:", "self.position > 0:"),
    "a trim is refused half done (B8)": (
        "            if isinstance(leaf, Recurrent):\n                raise Refused",
        "            if isinstance(leaf, Recurrent):\n                self.position = position\n"
        "                raise Refused",
    ),
    "a trim leaves pooled rows (B8)": (
        "[: leaf.rows(position) * part.bytes]", "[: (leaf.rows(position - 1) + 1) * part.bytes]"
    ),
    "too long a trim is no misuse (B8)": ('if _natural("position", position) > self.position:', "if False:"),
    "a placeholder says that it is complete (B10)": (
        "return Block(index, parts, stateful)", "return Block(index, parts, True)"
    ),
    "a block is never complete (B10)": ("or end == self.position", "or False"),
    "what is missing goes unnoticed (answer)": (
        "        _check_sizes(new, new_sizes", "        new = {**dict.fromkeys(self._held, b''), **new}\n"
        "        _check_sizes(new, new_sizes"
    ),
}  # fmt: skip
"""By name, with the law that is broken first; what is replaced in the reference's text, and by what."""

LAWS = {"B5": {"B5", "B4"}, "B8": {"B8", "B2", "B5", "B7"}, "B7": {"B7", "B3", "B5"}, "B2": {"B2", "B7"},
        "B10": {"B10", "S3"}, "answer": {"answer"}, "S2": {"S2"}, "B6": {"B6", "B1"}}  # fmt: skip
"""Which other law a fault may be seen as: a ring that is wrong in a block is a wrong slice."""


class Alive:
    """What a cache holds now."""

    def __init__(self, cache: Any, path: str) -> None:
        self.cache, self.path = cache, path

    def __bytes__(self) -> bytes:
        return bytes(self.cache._held[self.path])


def faulty(fault: str) -> ReferenceBlocks:
    """The reference with a fault."""
    text, space = SOURCE, {"__name__": "faulty", "Alive": Alive}
    for old, new in zip(FAULTS[fault][::2], FAULTS[fault][1::2], strict=True):
        assert old in text
        text = text.replace(old, new)
    exec(compile(text, "faulty", "exec"), space)
    return ReferenceBlocks(SimpleNamespace(**space))


def finding(subject: ReferenceBlocks, programs: int = 400) -> tuple[int, str]:
    """The first program that finds a fault, and the law."""
    for seed in range(programs):
        try:
            run(random_program(random.Random(seed)), subject)
        except Broken as error:
            return seed, error.law
        except (KeyError, IndexError, TypeError, ValueError) as error:
            return seed, type(error).__name__
    raise AssertionError("not found")


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str) -> None:
    law = fault.rpartition("(")[2].rstrip(")")
    _, found = finding(faulty(fault))
    assert found in LAWS.get(law, {law}), found


# What each law is about, in one program.

ALL = Layout(
    "toy",
    4,
    (
        Plain((Part("keys", (2,), "float16"), Part("nothing", (0, 3), "int8"))),
        Quantized((Part("values", (2,), "uint8"), Part("scales", (1,), "float16")), bits=4, group=4),
        Group((Window((Part("keys", (1,), "bfloat16"),), size=6), Absent())),
        Recurrent((Part("state", (), "float64"),)),
        Pooled((Part("mean", (1,), "float32"),), ratio=3),
    ),
)


def grown(*steps: Step, fault: str = "") -> Run:
    return run(Program(ALL, steps), faulty(fault) if fault else ReferenceBlocks())


def named(law: str) -> str:
    """The first fault that breaks a law."""
    return next(fault for fault in FAULTS if f"({law})" in fault)


def everything(live: Live) -> dict[str, Any]:
    """All that can be read of a cache, and its blocks."""
    cache, blocks = live.cache, range(len(live.tokens) // ALL.block_size)
    return {path: cache.read(path) for path in Model(ALL).parts} | {
        "ring": cache.ring("2.0.keys"), "blocks": [cache.block(index).parts for index in blocks]
    }  # fmt: skip


def test_a_state_is_that_of_computing_anew() -> None:
    """A recurrent state at a boundary is as if the tokens up to it were computed anew, and so is all after it (S2)."""
    steps = [Step("append", 0, 7), Step("append", 0, 5), Step("save"), Step("append", 0, 3), Step("restore")]
    of = grown(*steps, Step("append", 1, 5))
    assert [len(live.tokens) for live in of.live] == [15, 17]
    assert everything(of.live[1]) == everything(grown(Step("append", 0, 12), Step("append", 0, 5)).live[0])
    with pytest.raises(Broken, match="S2"):
        grown(*steps, fault=named("S2"))


def test_what_is_loaded_is_what_was_saved() -> None:
    """Values, absent and empty members, with states and without (B1)."""
    of = grown(Step("append", 0, 9), Step("save"), Step("fill"), Step("save"))
    assert [(each.index, each.stateful) for each in of.stored.values()] == [(0, False), (1, False), (2, True)]
    with pytest.raises(Broken, match="B1"):
        grown(Step("fill"), Step("save"), fault=named("B1"))


def test_what_is_restored_goes_on_like_what_it_was_saved_from() -> None:
    """The same steps give the same reads, the same blocks and the same refusals (B2)."""
    steps = [Step("append", 0, 8), Step("save"), Step("restore"), Step("append", 0, 5), Step("append", 1, 5)]
    of = grown(*steps, Step("trim", 0, 1), Step("trim", 1, 1))
    assert of.live[1].restored
    assert (of.done["trim Refused"], of.done["trim Refused restored"]) == (1, 1)
    assert everything(of.live[0]) == everything(of.live[1])
    with pytest.raises(Broken, match=r"B2|B7"):
        grown(*steps, fault=named("B2"))
