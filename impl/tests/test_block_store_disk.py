"""The store of blocks where the disk or another process is in the way: a clear error, nothing lost (T1, T4, T6)."""

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from kvspec.members import Layout, Part, Plain
from kvspec_torch.block_store import BlockStore, Unwritten
from kvspec_torch.blocks import Block
from kvspec_torch.disk import lock
from kvspec_torch.disk.files import Folder
from kvspec_torch.disk.reports import Report
from kvspec_torch.entry_format import Miss, chain
from kvspec_torch.errors import Refused
from kvspec_torch.store import Store

LAYOUT = Layout("toy", 1, (Plain((Part("k", (16,), "uint8"),)),))
LARGE = 2**20
KEYS = chain(range(20), 1, LAYOUT.signature)


def block(index: int) -> Block:
    return Block(index, {"0.k": torch.full((1, 16), index, dtype=torch.uint8)}, True)


def save(store: BlockStore, index: int) -> None:
    assert store.save(KEYS[index - 1] if index else None, [index], block(index)) == KEYS[index]


class Faulty(Folder):
    """A folder on whose disk the operations of `failing` fail with `error`; a write after it has written a half."""

    def __init__(self, path: Path, error: int = errno.ENOSPC) -> None:
        super().__init__(path)
        self.failing: set[str] = set()
        self.error = error
        self.gate = threading.Event()
        self.gate.set()

    def _perhaps(self, operation: str) -> None:
        self.gate.wait()
        if operation in self.failing:
            raise OSError(self.error, os.strerror(self.error))

    def create(self, name: str) -> None:
        self._perhaps("create")
        super().create(name)

    def write(self, name: str, piece: memoryview) -> None:
        if "write" in self.failing:
            super().write(name, piece[: len(piece) // 2])
        self._perhaps("write")
        super().write(name, piece)

    def sync(self, name: str) -> None:
        self._perhaps("sync")
        super().sync(name)

    def rename(self, old: str, new: str) -> None:
        self._perhaps("rename")
        super().rename(old, new)

    def sync_folder(self) -> None:
        self._perhaps("sync_folder")
        super().sync_folder()

    def unlink(self, name: str) -> None:
        self._perhaps("unlink")
        super().unlink(name)

    def read(self, name: str) -> memoryview:
        self._perhaps("read")
        return super().read(name)

    def read_into(self, name: str, pieces: Sequence[memoryview]) -> bool:
        self._perhaps("read")
        return super().read_into(name, pieces)


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_folder"])
@pytest.mark.parametrize("writer", [False, True])
def test_a_full_disk_loses_nothing(operation: str, writer: bool, tmp_path: Path) -> None:
    """It is reported once, by flush; what is queued can be read, and is written once there is room."""
    files = Faulty(tmp_path)
    store = BlockStore(files, LAYOUT, budget=LARGE, writer=writer)
    save(store, 0)
    store.flush()
    files.failing = {operation}
    for index in (1, 2):
        save(store, index)
    with pytest.raises(Unwritten, match="No space left on device") as raised:
        store.flush()
    assert raised.value.errno == errno.ENOSPC
    assert {report.status for report in raised.value.reports if report.reason} <= {"failed", "waiting", "unsettled"}
    assert [store.load(KEYS[index]) for index in range(3)] == [block(index) for index in range(3)]
    assert store.restore(range(20)).position == 3
    assert sorted(path.name for path in tmp_path.glob("*.temporary")) == []
    files.failing = set()
    store.flush()
    assert (store.stats().queued, store.stats().acknowledged) == (0, 3)
    assert store.flush() == []
    store.close()
    files.close()
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as again:
        assert [again.load(KEYS[index]) for index in range(3)] == [block(index) for index in range(3)]


def test_what_others_save_meanwhile_is_not_taken_for_what_fails(tmp_path: Path) -> None:
    """One entry cannot be written, and for each that can be there is soon another one: flush says so."""

    class Busy(Faulty):
        more = 0

        def create(self, name: str) -> None:
            self.failing = {"create"} if name.startswith(KEYS[0]) else set()
            super().create(name)

        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            if self.more:
                self.more -= 1
                save(store, 18 - self.more)

    files = Busy(tmp_path)
    store = BlockStore(files, LAYOUT, budget=LARGE, writer=False)
    for index in range(3):
        save(store, index)
    files.more = 10
    with pytest.raises(Unwritten, match="No space left on device"):
        store.flush()
    assert list(store._core.queue) == [KEYS[0]]
    store._core.queue.clear()
    store.close()
    files.close()


def test_closing_on_a_full_disk_says_what_is_not_there(tmp_path: Path) -> None:
    files = Faulty(tmp_path)
    store = BlockStore(files, LAYOUT, budget=LARGE)
    files.failing = {"write"}
    save(store, 0)
    with pytest.raises(Unwritten, match="1 entries are queued") as raised:
        store.close()
    assert {report.key for report in raised.value.reports} == {KEYS[0]}
    store.close()
    files.close()
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as again:
        assert isinstance(again.load(KEYS[0]), Miss)


def test_a_temporary_file_that_cannot_be_deleted_still_counts(tmp_path: Path) -> None:
    files = Faulty(tmp_path)
    store = BlockStore(files, LAYOUT, budget=LARGE, writer=False)
    save(store, 0)
    files.failing = {"write", "unlink"}
    with pytest.raises(Unwritten, match="temporary file cannot be deleted"):
        store.flush()
    assert (store.stats().queued, store.load(KEYS[0])) == (1, block(0))
    files.failing = set()
    assert [report.status for report in store.flush()] == ["acknowledged"]
    store.close()
    files.close()


def test_a_disk_that_cannot_be_read_is_a_miss(tmp_path: Path) -> None:
    files = Faulty(tmp_path, errno.EIO)
    store = BlockStore(files, LAYOUT, budget=LARGE, writer=False)
    save(store, 0)
    store.flush()
    files.failing = {"read"}
    found = store.load(KEYS[0])
    assert isinstance(found, Miss)
    assert (found.reason, store.restore([0]).position) == ("unreadable", 0)
    files.failing = set()
    assert store.load(KEYS[0]) == block(0)
    store.close()
    files.close()


def test_a_full_queue_refuses(tmp_path: Path) -> None:
    """Also when one is being written: it has a slot to come back to."""
    files = Faulty(tmp_path)
    store = BlockStore(files, LAYOUT, budget=LARGE, slots=2)
    files.gate.clear()
    save(store, 0)
    while not store._core.writing:
        pass
    assert store.load(KEYS[0]) == block(0), "what is being written can be read"
    save(store, 1)
    with pytest.raises(Refused, match="the queue is full, it has 2 slots"):
        save(store, 2)
    save(store, 1)
    assert isinstance(store.load(KEYS[2]), Miss)
    files.gate.set()
    store.flush()
    save(store, 2)
    store.close()
    files.close()
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as again:
        assert again.restore(range(20)).position == 3


def test_saving_a_long_prefix_waits_for_the_disk(tmp_path: Path) -> None:
    files = Faulty(tmp_path)
    store = BlockStore(files, LAYOUT, budget=LARGE, slots=2, writer=False)
    for index in range(10):
        save(store, index)
        store.flush()
    cache = store.restore(range(10))
    for key in KEYS[:10]:
        store.evict(key)
    assert store.save_prefix(range(10), cache) == KEYS[:10]
    store.flush()
    for key in KEYS[:10]:
        store.evict(key)
    files.failing = {"write"}
    with pytest.raises(Refused, match="queue is full and cannot be written"):
        store.save_prefix(range(10), cache)
    files.failing = set()
    assert store.save_prefix(range(10), cache) == KEYS[:10]
    store.close()
    files.close()


def test_an_entry_larger_than_the_budget_is_refused(tmp_path: Path) -> None:
    with BlockStore(tmp_path, LAYOUT, budget=100) as store, pytest.raises(Refused, match="the budget is 100"):
        save(store, 0)


def test_reports_do_not_grow_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what went well the last are kept, of what went wrong the last and one of each kind, without the bytes."""
    monkeypatch.setattr("kvspec_torch.block_store.KEPT", 5)
    files = Faulty(tmp_path)
    store = BlockStore(files, LAYOUT, budget=LARGE, writer=False)
    files.failing = {"create"}
    save(store, 0)
    for _ in range(50):
        store.write_next()
    with pytest.raises(Unwritten) as raised:
        store.flush()
    assert len(raised.value.reports) == 1
    assert raised.value.reports[0].error is not None
    assert raised.value.reports[0].error.__traceback__ is None
    for index in range(1, 20):
        save(store, index)
        store.write_next()
    with pytest.raises(Unwritten) as raised:
        store.flush()
    assert len(raised.value.reports) == 5
    files.failing = set()
    store.close()
    files.close()


def test_waiting_for_room_is_nothing_that_went_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When several entries have to go for one, their reports do not grow without end, either."""
    monkeypatch.setattr("kvspec_torch.block_store.KEPT", 5)
    for key in chain(range(1000, 1060), 1, LAYOUT.signature):
        (tmp_path / f"{key}.safetensors").write_bytes(b"x" * 100)
    with BlockStore(tmp_path, LAYOUT, budget=6000, writer=False, evictions=1) as store:
        for index in range(5):
            save(store, index)
            while store.write_next().status == "waiting":
                pass
        assert store.stats().foreign_entries < 50
        assert len(store.flush()) == 5


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One clear error, however it cannot; it can be read."""
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        save(store, 0)

    def refused(*given: Any, **more: Any) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(lock.os, "open", refused)
    with pytest.raises(Refused, match=r"cannot be opened: .*Read-only file system"):
        BlockStore(tmp_path, LAYOUT, budget=LARGE)
    monkeypatch.undo()
    real = os.open

    def only_read(path: Any, flags: int, *given: Any, **more: Any) -> int:
        return refused() if flags & (os.O_CREAT | os.O_RDWR | os.O_WRONLY) else real(path, flags, *given, **more)

    monkeypatch.setattr(lock.os, "open", only_read)
    with pytest.raises(Refused, match=r"cannot be written, it can only be read: .*Read-only file system"):
        BlockStore(tmp_path, LAYOUT, budget=LARGE)
    with BlockStore(tmp_path, LAYOUT, budget=LARGE, read_only=True) as store:
        assert store.load(KEYS[0]) == block(0)
    monkeypatch.undo()
    files = Faulty(tmp_path, errno.EROFS)
    files.failing = {"sync_folder"}
    with pytest.raises(Refused, match=r"cannot be looked after: .*Read-only"):
        BlockStore(files, LAYOUT, budget=LARGE)
    files.close()
    with pytest.raises(Refused, match="No such file"):
        BlockStore(tmp_path / "none", LAYOUT, budget=LARGE)


def test_a_fault_of_the_writer_is_not_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Store) -> Report:
        raise ZeroDivisionError("on purpose")

    store = BlockStore(tmp_path, LAYOUT, budget=LARGE)
    monkeypatch.setattr(Store, "write_next", broken)
    save(store, 0)
    assert store._writer is not None
    store._writer._thread.join()
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        store.flush()
    monkeypatch.undo()
    with pytest.raises(ZeroDivisionError, match="on purpose"):
        store.close()
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as again:
        assert again.load(KEYS[0]) == block(0), "it was written all the same"


def test_what_is_done_is_not_recorded_without_end(tmp_path: Path) -> None:
    """Nobody asks a store of blocks for its actions."""
    for _ in range(2):
        with BlockStore(tmp_path, LAYOUT, budget=LARGE, writer=False) as store:
            assert store._core.take_actions() == []
            for _ in range(2):
                save(store, 0)
                assert store._core.take_actions() == []
            store.flush()
            assert store._core.take_actions() == []
