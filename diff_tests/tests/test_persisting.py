"""Caches of an example engine through a `BlockStore` and back: right ones hold, every planted fault breaks its law."""

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from kvspec.members import Layout
from kvspec_diff.batched.fault import Fault
from kvspec_diff.batched.finding import Finding
from kvspec_diff.beside import Broken
from kvspec_diff.caches import example as caches
from kvspec_diff.caches import promises
from kvspec_diff.caches.case import Layer, Setup
from kvspec_diff.persisting import disk
from kvspec_diff.persisting.case import Case
from kvspec_diff.persisting.compare import LAWS, Comparison
from kvspec_diff.persisting.disk import Disk
from kvspec_diff.persisting.example import FAULTS, Client
from kvspec_diff.persisting.programs import draw
from kvspec_diff.recipes import EngineError
from kvspec_torch.block_store import BlockStore, Stats
from kvspec_torch.blocks import Block, Cache, restore
from kvspec_torch.entry_format import Miss

SEED, PROGRAMS = 3, 60
MEMBERS = [{"type": "plain", "parts": [{"name": "rows", "shape": [], "dtype": "uint8"}]}]
LAYOUT = msgspec.convert({"model": "toy", "block_size": 2, "members": MEMBERS}, Layout)


@pytest.fixture(autouse=True)
def of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "load", lambda engine, version: caches.promises())


@pytest.fixture
def kept() -> Iterator[Disk]:
    made = Disk(LAYOUT)
    yield made
    made.close()


def compared(fault: str = "", laws: tuple[str, ...] | None = None) -> Comparison:
    comparison = Comparison(Client(plants=(fault,) if fault else ()), seed=SEED, laws=laws)
    comparison.run(programs=PROGRAMS)
    return comparison


def test_what_is_right_comes_back() -> None:
    comparison = compared()
    assert comparison.seen == {}
    counts = comparison.counts
    assert counts["programs"] == PROGRAMS
    assert counts["blocks"] > 2 * PROGRAMS
    assert counts["restores"] > counts["restores of less than was asked for"] > 5


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_breaks_its_law(fault: str) -> None:
    laws = {law for law, _, _ in compared(fault).seen}
    assert FAULTS[fault] in laws


def test_every_law_but_those_of_the_store_is_broken_by_some_fault() -> None:
    assert {*FAULTS.values()} - {"raised"} == {*LAWS} - {"B4", "B6"}


def test_laws_that_are_not_asked_for_are_not_told() -> None:
    assert compared("takes_zeros", laws=("B7",)).seen == {}


def test_a_finding_is_small_and_can_be_asked_again() -> None:
    comparison = compared("forgets_the_kept")
    finding = next(each for each in comparison.findings() if each.fault.law == "B1")
    assert len(finding.case.setup.layers) == 1
    assert len(finding.case.steps) <= 3
    again = msgspec.json.decode(msgspec.json.encode(finding.case), type=Case)
    assert again == finding.case
    assert finding.fault.key in {fault.key for fault in comparison.replay(finding)}


def test_what_is_drawn_has_blocks_windows_and_prefixes_of_all_sizes() -> None:
    rng = random.Random(SEED)
    cases = [draw(caches.promises(), ("full", "window", "state", "list"), rng) for _ in range(500)]
    assert {1, 64} < {case.block_size for case in cases}
    assert all(1 <= case.block_size <= 64 for case in cases)
    sizes = [(dict(layer.parameters)["size"], sum(int(step[1]) for step in case.steps if step[0] == "append"))
             for case in cases for layer in case.setup.every if layer.kind == "window"]  # fmt: skip
    assert sum(window > length for window, length in sizes) > 50
    assert sum(window < length for window, length in sizes) > 50


class Faulty(BlockStore):
    """A store with a fault."""

    fault = ""

    def restore(self, tokens: Any, device: Any = "cpu") -> Cache:
        found = super().restore(tokens, device)
        if self.fault == "restores_less" and found.position:
            return restore(found.layout, [found.block(i) for i in range(found.position // 2 - 1)])
        return found

    def load(self, key: str) -> Block | Miss:
        found = super().load(key)
        if self.fault == "forgets":
            return Miss("absent", "gone")
        if self.fault == "flips" and isinstance(found, Block):
            found.parts["0.rows"][0] ^= 1
        return found

    def stats(self) -> Stats:
        stats = super().stats()
        return Stats(1, 10**6, 0, 0, 0, 0) if self.fault == "is_large" else stats


@pytest.mark.parametrize(
    ("fault", "law"), [("restores_less", "B4"), ("forgets", "B1"), ("flips", "B1"), ("is_large", "B6")]
)
def test_a_fault_of_the_store_breaks_its_law(fault: str, law: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "BlockStore", Faulty)
    monkeypatch.setattr(Faulty, "fault", fault)
    made = Disk(LAYOUT)
    with pytest.raises(Broken) as broken:  # noqa: PT012
        made.save([5, 6, 7, 8, 9], {"0.rows": b"\1\2\3\4\5"})
        made.restore([5, 6, 7, 8])
    made.close()
    assert broken.value.law == law


def test_a_gap_ends_what_is_restored(kept: Disk) -> None:
    kept.save([5, 6, 7, 8, 9, 10], {"0.rows": b"\1\2\3\4\5\6"})
    assert kept.restore([5, 6, 7, 8, 9, 10]) == (6, {"0.rows": b"\1\2\3\4\5\6"})
    kept.lose(1)
    assert kept.restore([5, 6, 7, 8, 9, 10]) == (2, {"0.rows": b"\1\2"})
    kept.save([5, 6, 7, 8], {"0.rows": b"\1\2\3\4"})
    assert kept.restore([5, 6, 7, 8, 9, 10, 11]) == (6, {"0.rows": b"\1\2\3\4\5\6"})
    assert kept.restore([5, 6, 7, 9]) == (2, {"0.rows": b"\1\2"})


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({}, r"E1: has the parts \[\]"),
        ({"0.rows": b"\1"}, r"B5: 0\.rows: 1 bytes after 2 tokens, 2 are right"),
    ],
)
def test_what_does_not_fit_its_members_is_told(kept: Disk, parts: dict[str, bytes], says: str) -> None:
    with pytest.raises(Broken, match=says):
        kept.save([1, 2], parts)


def test_a_block_that_is_cut_otherwise_later_is_told(kept: Disk) -> None:
    kept.save([1, 2], {"0.rows": b"\1\2"})
    with pytest.raises(Broken, match=r"B3: 0\.rows of block 0"):
        kept.save([1, 2, 3], {"0.rows": b"\1\3\4"})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"block_size": 0}, "block_size"),
        ({"block_size": 65}, "block_size"),
        ({"steps": [["append", 65]]}, "a step appends 1 to 64 tokens"),
        ({"steps": [["append", 64]] * 9}, "512 at most"),
        ({"steps": [["merge", 1]]}, "step 0 is no operation"),
        ({"then": [["save"]]}, "step 0 is no operation"),
        ({"lost": [-1]}, "lost"),
        ({"setup": {"layers": [["full"]], "rows": 2}}, "has one row"),
        ({"more": 1}, "more"),
    ],
)
def test_a_malformed_case_is_refused(change: dict[str, Any], says: str) -> None:
    right = {"do": "persist", "setup": {"layers": [["full"]]}, "block_size": 2, "steps": [["append", 3], ["save"]]}
    assert msgspec.convert(right, Case).question["steps"] == [["append", 0, 3], ["export", 0]]
    with pytest.raises(msgspec.ValidationError, match=says):
        msgspec.convert(right | change, Case)


def test_an_engine_that_hands_nothing_out_is_told() -> None:
    with pytest.raises(EngineError, match="no way to hand out what is to be stored"):
        Comparison(caches.Client())  # type: ignore[arg-type]


def test_a_case_of_layers_that_are_not_stored_is_refused() -> None:
    chunk = Layer("chunk", (("size", 2),))
    case = Case("persist", Setup((Layer("full"), chunk)), 2, (("append", 3), ("save",)))
    finding = Finding("vllm", "0.33.0", Fault("B1", "stored", "", ""), case)
    with pytest.raises(EngineError, match="no layer of kind 'chunk' is stored; those of full, window, state, list are"):
        Comparison(Client()).replay(finding)


def test_a_kind_that_nothing_is_promised_of_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Client, "capabilities", {**Client.capabilities, "stores": ("full", "heap")})
    with pytest.raises(EngineError, match="its worker stores 'heap', of which its promises say nothing"):
        Comparison(Client())  # type: ignore[arg-type]
