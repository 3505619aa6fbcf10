"""The folder of a store of blocks: what else is in it, and who only reads it (T1, T2)."""

import errno
import os
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from kvspec.members import Layout, Part, Plain, Recurrent
from kvspec_torch.block_store import BlockStore, Unwritten
from kvspec_torch.blocks import Cache
from kvspec_torch.disk import lock
from kvspec_torch.entry_format import Miss, chain, key_of
from kvspec_torch.errors import Misuse, Refused
from kvspec_torch.members.parts import same

LAYOUT = Layout("toy", 2, (Plain((Part("k", (2,), "float16"),)),))
TOKENS = list(range(100, 200))
LARGE = 2**20


def cached(tokens: int) -> Cache:
    cache = Cache(LAYOUT)
    cache.append(tokens, {"0.k": torch.arange(2 * tokens, dtype=torch.float16).view(tokens, 2)})
    return cache


def same_caches(one: Cache, other: Cache) -> bool:
    return one.position == other.position and same(one.read("0.k"), other.read("0.k"))


def test_a_file_that_is_huge_is_not_read(tmp_path: Path) -> None:
    """Whether it became so before the store was opened or after; it takes no memory."""
    with BlockStore(tmp_path, LAYOUT, budget=2**50) as store:
        keys = store.save_prefix(TOKENS[:4], cached(4))
        store.flush()
        os.truncate(tmp_path / f"{keys[1]}.safetensors", 2**40)
        assert store.restore(TOKENS).position == 2
        assert store.load(keys[1]).reason == "length"  # type: ignore[union-attr]
    with BlockStore(tmp_path, LAYOUT, budget=2**50) as store:
        assert store.load(keys[1]).reason == "length"  # type: ignore[union-attr]
        assert (store.stats().foreign_entries, store.stats().foreign_bytes) == (1, 2**40)
    with BlockStore(tmp_path, LAYOUT, budget=2**30) as store:
        assert (store.stats().entries, store.stats().foreign_entries) == (1, 0)


def test_names_of_others_are_left_alone(tmp_path: Path) -> None:
    key = key_of(None, TOKENS[:2], LAYOUT.signature)
    names = ["note.txt", f"{key}.other", key, "x.safetensors", f"{key.upper()}.safetensors", ".hidden"]
    for name in names:
        (tmp_path / name).write_bytes(b"somebody else's")
    outside = tmp_path.parent / f"{tmp_path.name}.outside"
    outside.write_bytes(b"outside")
    (tmp_path / f"{key}.safetensors").symlink_to(outside)
    (tmp_path / f"{key}.temporary").mkdir()
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        assert isinstance(store.load(key), Miss)
        assert store.stats().entries == 0
    BlockStore(tmp_path, LAYOUT, budget=1).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*names, "lock", f"{LAYOUT.signature}.layout", f"{key}.safetensors", f"{key}.temporary"]
    )
    assert outside.read_bytes() == b"outside"
    outside.unlink()


def test_a_closed_store_and_one_that_is_read_only(tmp_path: Path) -> None:
    store = BlockStore(tmp_path, LAYOUT, budget=LARGE)
    key = store.save(None, [1, 2], cached(2).block(0))
    store.close()
    store.close()
    for call in (store.flush, store.write_next):
        with pytest.raises(Misuse, match="closed"):
            call()
    with BlockStore(tmp_path, LAYOUT, budget=LARGE, read_only=True) as reader:
        assert (reader.stats().entries, reader.flush()) == (1, [])
        for wrong in (
            lambda: reader.save(None, [1, 2], cached(2).block(0)),
            lambda: reader.evict(key),
            reader.write_next,
            reader.upgrade,
        ):
            with pytest.raises(Misuse, match="read only"):
                wrong()


def test_a_reader_beside_a_writer_finds_what_is_new(tmp_path: Path) -> None:
    with (
        BlockStore(tmp_path, LAYOUT, budget=LARGE, writer=False) as writer,
        BlockStore(tmp_path, LAYOUT, budget=LARGE, read_only=True) as reader,
    ):
        keys = writer.save_prefix(TOKENS[:6], cached(6))
        assert reader.restore(TOKENS).position == 0
        writer.flush()
        assert same_caches(reader.restore(TOKENS), cached(6))
        for key in keys:
            writer.evict(key)
        assert reader.restore(TOKENS).position == 0


def test_a_store_is_opened_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There it is wanted most: what is temporary goes. Who holds the lock is then not known by number."""
    (tmp_path / f"{LAYOUT.signature}.temporary").write_bytes(b"x" * 100)

    def full(*given: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(lock.os, "pwrite", full)
    with BlockStore(tmp_path, LAYOUT, budget=LARGE):
        assert list(tmp_path.glob("*.temporary")) == []
        with pytest.raises(Refused, match="in use by process unknown"):
            BlockStore(tmp_path, LAYOUT, budget=LARGE)


def test_a_reader_goes_on_finding_what_a_writer_saves_anew(tmp_path: Path) -> None:
    """A block whose states come later; one that was evicted, or damaged, when the reader wanted it."""
    layout = Layout("toy", 2, (*LAYOUT.members, Recurrent((Part("s", (), "float32"),))))

    def both(tokens: int) -> Cache:
        cache = Cache(layout)
        rows = torch.arange(2 * tokens, dtype=torch.float16).view(tokens, 2)
        cache.append(tokens, {"0.k": rows, "1.s": torch.tensor(float(tokens))})
        return cache

    with (
        BlockStore(tmp_path, layout, budget=LARGE, writer=False) as writer,
        BlockStore(tmp_path, layout, budget=LARGE, read_only=True) as reader,
    ):
        keys = writer.save_prefix(TOKENS[:4], both(4))
        writer.flush()
        assert reader.restore(TOKENS[:3]).position == 0
        writer.save_prefix(TOKENS[:2], both(2))
        writer.flush()
        assert reader.restore(TOKENS[:3]).position == 2
        writer.evict(keys[1])
        assert reader.restore(TOKENS).position == 2
        writer.save_prefix(TOKENS[:4], both(4))
        writer.flush()
        assert reader.restore(TOKENS).position == 4
        path = tmp_path / f"{keys[1]}.safetensors"
        data = path.read_bytes()
        path.write_bytes(data[:-1] + b"!")
        assert reader.restore(TOKENS).position == 2
        path.write_bytes(data)
        assert reader.restore(TOKENS).position == 4


def test_a_reader_meets_what_is_no_file(tmp_path: Path) -> None:
    """Links and folders that are there since it was opened are misses."""
    BlockStore(tmp_path, LAYOUT, budget=LARGE).close()
    with BlockStore(tmp_path, LAYOUT, budget=LARGE, read_only=True) as reader:
        path = tmp_path / f"{key_of(None, TOKENS[:2], LAYOUT.signature)}.safetensors"
        path.symlink_to("lock")
        assert reader.restore(TOKENS).position == 0
        path.unlink()
        path.mkdir()
        assert reader.restore(TOKENS).position == 0


@pytest.mark.parametrize("writer", [False, True])
@pytest.mark.parametrize("ending", ["temporary", "safetensors"])
def test_a_folder_in_the_way_of_an_entry_stops_no_other(ending: str, writer: bool, tmp_path: Path) -> None:
    """It fails alone, the report says why; it is written when the folder is gone."""
    keys = chain(TOKENS, 2, LAYOUT.signature)
    (tmp_path / f"{keys[1]}.{ending}").mkdir()
    with BlockStore(tmp_path, LAYOUT, budget=LARGE, slots=3, writer=writer) as store:
        assert store.save_prefix(TOKENS[:20], cached(20)) == keys[:10]
        with pytest.raises(Unwritten, match=r"directory|File exists") as failed:
            store.flush()
        told = {report.key: report for report in failed.value.reports if report.status == "failed"}
        assert list(told) == [keys[1]]
        assert "cannot be deleted" not in told[keys[1]].reason
        assert (store.stats().queued, store.stats().entries) == (1, 9)
        assert same_caches(store.restore(TOKENS), cached(20)), "the queue has it"
        other = store.save(None, [1, 2], cached(2).block(0))
        with pytest.raises(Unwritten):
            store.flush()
        assert (tmp_path / f"{other}.safetensors").is_file()
        (tmp_path / f"{keys[1]}.{ending}").rmdir()
    with BlockStore(tmp_path, LAYOUT, budget=LARGE, read_only=True) as store:
        assert same_caches(store.restore(TOKENS), cached(20))


@pytest.mark.parametrize("ending", ["temporary", "safetensors"])
def test_a_store_with_a_folder_in_the_way_is_closed(ending: str, tmp_path: Path) -> None:
    keys = chain(TOKENS, 2, LAYOUT.signature)
    (tmp_path / f"{keys[0]}.{ending}").mkdir()
    store = BlockStore(tmp_path, LAYOUT, budget=LARGE, writer=False)
    store.save_prefix(TOKENS[:6], cached(6))
    with pytest.raises(Unwritten, match="1 entries are queued"):
        store.close()
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        assert store.stats().entries == 2


@pytest.mark.parametrize("kind", ["folder", "link", "FIFO", "socket"])
def test_a_lock_that_is_no_file(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is short
    (tmp_path / "target").write_bytes(b"somebody else's")
    with socket.socket(socket.AF_UNIX) as bound:
        make: dict[str, Any] = {"folder": os.mkdir, "link": partial(os.symlink, "target"), "FIFO": os.mkfifo}
        (make | {"socket": bound.bind})[kind]("lock")
        with pytest.raises(Refused, match=f"lock in it is a {kind}, a plain file is wanted"):
            BlockStore(tmp_path, LAYOUT, budget=LARGE)
    BlockStore(tmp_path, LAYOUT, budget=LARGE, read_only=True).close()
    assert (tmp_path / "target").read_bytes() == b"somebody else's"


@pytest.mark.parametrize("read_only", [False, True])
def test_a_file_that_somebody_deleted_is_absent(read_only: bool, tmp_path: Path) -> None:
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        keys = store.save_prefix(TOKENS[:4], cached(4))
    with BlockStore(tmp_path, LAYOUT, budget=LARGE, read_only=read_only) as store:
        (tmp_path / f"{keys[1]}.safetensors").unlink()
        for _ in range(2):
            found = store.load(keys[1])
            assert isinstance(found, Miss)
            assert found.reason == "absent"
            assert "Errno" not in found.text
            assert store.restore(TOKENS).position == 2
        if not read_only:
            assert store.save_prefix(TOKENS[:4], cached(4)) == keys
            assert same_caches(store.restore(TOKENS), cached(4))


@pytest.mark.parametrize("ending", ["layout", "temporary"])
def test_a_folder_in_the_way_of_a_layout_stops_nothing(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"{LAYOUT.signature}.{ending}").mkdir()
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        keys = store.save_prefix(TOKENS[:4], cached(4))
        assert [report.status for report in store.flush()] == ["acknowledged"] * len(keys)
