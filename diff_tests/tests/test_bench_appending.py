"""What `appending` measures is what it says: blocks behind prefixes of the lengths that it names."""

import pytest
import torch
from kvspec_diff.bench import appending
from kvspec_torch.blocks import Block, Cache


def test_a_round_appends_and_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(appending, "STEPS", 3)
    cut: list[tuple[int, Block]] = []
    block = Cache.block
    monkeypatch.setattr(Cache, "block", lambda self, index: cut.append((index, block(self, index))) or cut[-1][1])
    threads = torch.get_num_threads()
    longer, shorter = appending.measured(2, long=5, short=1)
    assert (len(longer), len(shorter), torch.get_num_threads()) == (2, 2, threads)
    assert min(longer + shorter) > 0
    assert sorted(index for index, _ in cut) == sorted(3 * [5, 6, 7, 1, 2, 3]), "one round more, to warm up"
    assert {one.nbytes for _, one in cut} == {16 * 8 * 2 * 512 + 4 * 2048}
    assert all((tensor == 1).all() for _, one in cut for tensor in one.parts.values())


def test_it_is_measured_behind_64_and_4096_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    init = appending.Growing.__init__
    monkeypatch.setattr(appending.Growing, "__init__", lambda self, blocks: made.append(blocks) or init(self, 1))
    assert [len(side) for side in appending.MEASURED["cut-4096"](1)] == [1, 1]
    assert made == [4096, 64]
