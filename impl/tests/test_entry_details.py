"""What one line of the store is there for: whose fault only a test like one of these notices (B4, B7, E5, T1)."""

from contextlib import closing
from pathlib import Path

import pytest
import torch
from kvspec.members import Layout, Part, Plain, Recurrent, Window
from kvspec_torch.block_store import BlockStore
from kvspec_torch.blocks import Block
from kvspec_torch.disk import layouts
from kvspec_torch.disk.collecting import collect
from kvspec_torch.disk.files import Folder
from kvspec_torch.entry_format import Format, chain
from safetensors import safe_open

PLAIN = Layout("toy", 2, (Plain((Part("k", (), "uint8"),)),))
WINDOWS = Layout("toy", 2, tuple(Window((Part("k", (), "uint8"),), size=size) for size in (2, 8, 5)))
OTHER = "ab" * 32


def block(layout: Layout, index: int) -> Block:
    wanted = Format(layout).block(index, True)
    return Block(
        index, {path: torch.full(shape, index, dtype=torch.uint8) for path, (_, shape) in wanted.items()}, True
    )


class Recorded(Folder):
    """A folder that keeps what was done in it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.done: list[str] = []

    def write(self, name: str, piece: memoryview) -> None:
        super().write(name, piece)
        self.done.append("write")

    def sync(self, name: str) -> None:
        super().sync(name)
        self.done.append("sync")

    def rename(self, old: str, new: str) -> None:
        super().rename(old, new)
        self.done.append("rename")

    def unlink(self, name: str) -> None:
        super().unlink(name)
        self.done.append("unlink")

    def sync_folder(self) -> None:
        super().sync_folder()
        self.done.append("sync folder")


@pytest.mark.parametrize("parent", [None, OTHER])
def test_an_entry_after_another_parent_ends_a_prefix(parent: str | None, tmp_path: Path) -> None:
    """Though it has the right name, the right place and a checksum that fits."""
    keys, form = chain(range(6), 2, PLAIN.signature), Format(PLAIN)
    for at, (key, before) in enumerate(zip(keys, (None, parent, keys[1]), strict=True)):
        (tmp_path / f"{key}.safetensors").write_bytes(form.write(key, before, block(PLAIN, at)))
    with BlockStore(tmp_path, PLAIN, budget=2**20) as store:
        assert store.restore(range(6)).position == 2
        (tmp_path / f"{keys[1]}.safetensors").write_bytes(form.write(keys[1], keys[0], block(PLAIN, 1)))
    with BlockStore(tmp_path, PLAIN, budget=2**20) as store:
        assert store.restore(range(6)).position == 6


def test_the_offset_of_a_window_is_where_its_block_ends(tmp_path: Path) -> None:
    """The position of the next token, from which a reader knows the slot it goes to."""
    with BlockStore(tmp_path, WINDOWS, budget=2**20) as store:
        keys = chain(range(12), 2, WINDOWS.signature)
        for index, key in enumerate(keys):
            store.save(keys[index - 1] if index else None, range(2 * index, 2 * index + 2), block(WINDOWS, index))
            store.flush()
            with safe_open(tmp_path / f"{key}.safetensors", "pt") as file:
                said = file.metadata()
            assert {said[f"offset.{at}"] for at in range(3)} == {str(2 * index + 2)}


def test_a_frame_is_that_of_every_window() -> None:
    """Each grows until it is full, wherever the others are; in any order of asking."""
    for order in (range(8), range(7, -1, -1)):
        form = Format(WINDOWS)
        for index in order:
            shapes = {tensor.path: tensor.shape for tensor in form.frame(index, True).tensors}
            assert shapes == {f"{at}.k": (min(2 * index + 2, size),) for at, size in enumerate((2, 8, 5))}


def test_a_layout_is_on_the_disk_before_it_has_its_name(tmp_path: Path) -> None:
    with closing(Recorded(tmp_path)) as folder:
        layouts.keep(folder, PLAIN)
        assert folder.done == ["write", "sync", "rename", "sync folder"]


def test_what_was_collected_does_not_come_back(tmp_path: Path) -> None:
    """After a loss of power: the folder is synced at the end."""
    with BlockStore(tmp_path, PLAIN, budget=2**20) as store:
        store.save(None, [0, 1], block(PLAIN, 0))
    (tmp_path / f"{OTHER}.temporary").write_bytes(b"part")
    with closing(Recorded(tmp_path)) as folder:
        collect(folder, 1, lambda *_: None)
        assert folder.done == ["unlink", "unlink", "sync folder"]


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float64"])
def test_one_element_may_lie_anywhere(tmp_path: Path, dtype: str) -> None:
    layout = Layout("toy", 1, (Recurrent((Part("s", (1, 1), dtype),)),))
    strided = torch.arange(6, dtype=getattr(torch, dtype)).reshape(1, 2, 3)[:, 1:, ::3]
    assert strided.is_contiguous()
    assert strided.stride() != (1, 1)
    with BlockStore(tmp_path, layout, budget=2**20) as store:
        key = store.save(None, [7], Block(0, {"0.s": strided[0]}, True))
        store.flush()
    with BlockStore(tmp_path, layout, budget=2**20) as store:
        assert store.load(key) == Block(0, {"0.s": torch.tensor([[3]], dtype=strided.dtype)}, True)
