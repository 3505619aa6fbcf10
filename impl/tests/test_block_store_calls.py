"""What a store is given wrong is said in a clear line, and nothing is changed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from kvspec.members import Layout, Part, Plain
from kvspec_torch.block_store import BlockStore
from kvspec_torch.blocks import Block, Cache, restore
from kvspec_torch.disk.files import Folder
from kvspec_torch.errors import Misuse

LAYOUT = Layout("toy", 2, (Plain((Part("k", (), "uint8"),)),))
LARGE = 2**20


@pytest.mark.parametrize("folder", [None, 3, True, b"blocks", ["blocks"], 1.5], ids=repr)
def test_what_is_no_folder(folder: Any) -> None:
    for read_only in (False, True):
        with pytest.raises(Misuse, match="folder: a path is wanted"):
            BlockStore(folder, LAYOUT, budget=LARGE, read_only=read_only)


@pytest.mark.parametrize("name", ["a\0b", "\udfff" * 2])
def test_what_is_no_path(name: str, tmp_path: Path) -> None:
    for folder in (str(tmp_path / name), tmp_path / name):
        with pytest.raises(Misuse, match=r"folder: .* is no path"):
            BlockStore(folder, LAYOUT, budget=LARGE)


def test_a_layer_is_a_folder(tmp_path: Path) -> None:
    files = Folder(tmp_path)
    BlockStore(files, LAYOUT, budget=LARGE).close()
    files.close()


@pytest.mark.parametrize("device", ["meta", "nonsense", "cuda:77", "cpu:x", "", None, 0, 1.5, torch.device("meta")])
def test_a_device_that_is_not_there(device: Any, tmp_path: Path) -> None:
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        for tokens in ([], [1, 2]):
            with pytest.raises(Misuse, match="device: "):
                store.restore(tokens, device)
    if str(device) != "meta":
        for call in (lambda: Cache(LAYOUT, device), lambda: restore(LAYOUT, [], device)):
            with pytest.raises(Misuse, match="device: "):
                call()


def test_tensors_without_bytes(tmp_path: Path) -> None:
    part = torch.zeros(2, dtype=torch.uint8, device="meta")
    cache = Cache(LAYOUT, "meta")
    cache.append(2, {"0.k": part})
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        with pytest.raises(Misuse, match=r"block 0: 0\.k: is on meta, there are no bytes"):
            store.save(None, [1, 2], Block(0, {"0.k": part}, True))
        with pytest.raises(Misuse, match=r"block 0: 0\.k: is on meta, there are no bytes"):
            store.save_prefix([1, 2], cache)
        assert store.stats().queued == 0


@pytest.mark.parametrize("stateful", ["no", 1, None])
def test_a_block_says_whether_it_has_its_states(stateful: Any, tmp_path: Path) -> None:
    block = Block(0, {"0.k": torch.zeros(2, dtype=torch.uint8)}, stateful)
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        with pytest.raises(Misuse, match=f"stateful: True or False is wanted, not {stateful!r}"):
            store.save(None, [1, 2], block)
        with pytest.raises(Misuse, match="a block is wanted, not NoneType"):
            store.save(None, [1, 2], None)  # type: ignore[arg-type]
