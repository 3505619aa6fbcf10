"""A real folder for the store on tensors: names, links, parts of writes and reads (T1)."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kvspec_torch.disk.files import Folder, buffer
from kvspec_torch.errors import Misuse


def view(data: bytes) -> memoryview:
    return memoryview(bytearray(data))


@pytest.fixture
def folder(tmp_path: Path) -> Any:
    files = Folder(tmp_path)
    yield files
    files.close()


def put(folder: Folder, name: str, data: bytes) -> None:
    folder.create("new")
    folder.write("new", view(data))
    folder.sync("new")
    folder.rename("new", name)
    folder.sync_folder()


def test_a_file_by_hand(folder: Folder, tmp_path: Path) -> None:
    put(folder, "a.entry", b"0123456789")
    assert (folder.names(), folder.size("a.entry")) == (["a.entry"], 10)
    assert (folder.read("a.entry"), folder.head("a.entry", 3)) == (b"0123456789", (b"012", 10))
    assert folder.head("a.entry", 99) == (b"0123456789", 10)
    found = folder.read("a.entry")
    found[:] = b"x" * 10
    assert (tmp_path / "a.entry").read_bytes() == b"0123456789"
    put(folder, "a.entry", b"")
    assert (folder.read("a.entry"), folder.read_into("a.entry", [])) == (b"", True)
    folder.unlink("a.entry")
    assert folder.names() == []


def test_a_folder_that_is_moved_is_still_the_same(folder: Folder, tmp_path: Path) -> None:
    put(folder, "a", b"1")
    moved = tmp_path.with_name("moved")
    tmp_path.rename(moved)
    tmp_path.mkdir()
    put(folder, "b", b"2")
    assert (folder.names(), list(tmp_path.iterdir())) == (["a", "b"], [])


def test_a_file_is_read_into_pieces(folder: Folder) -> None:
    data = bytes(n % 251 for n in range(5000))
    put(folder, "a", data)
    for sizes in ([5000], [1, 4999], [0, 2500, 0, 0, 2500, 0], [3] * 1666 + [2], [1] * 5000):
        pieces = [buffer(size) for size in sizes]
        assert folder.read_into("a", pieces)
        assert b"".join(pieces) == data
    for size in (4999, 5001):
        assert not folder.read_into("a", [buffer(size)])


def test_short_reads_and_writes_go_on(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system may do less than it was asked for."""
    write, readv = os.write, os.readv
    monkeypatch.setattr(os, "write", lambda handle, data: write(handle, data[:7]))
    monkeypatch.setattr(os, "readv", lambda handle, pieces: readv(handle, [pieces[0][:7], *pieces[1:1]]))
    data = bytes(range(200))
    put(folder, "a", data)
    assert (folder.read("a"), folder.head("a", 50)) == (data, (data[:50], 200))
    pieces = [buffer(size) for size in (0, 3, 7, 90, 100)]
    assert folder.read_into("a", pieces)
    assert b"".join(pieces) == data
    monkeypatch.setattr(os, "readv", lambda handle, pieces: 0)
    assert folder.read("a") == b"", "the file became shorter meanwhile"
    assert not folder.read_into("a", pieces)


@pytest.mark.parametrize(
    "name", ["../a", "/etc/passwd", "a/b", ".hidden", "", "A", "a\0b", "a\n", "a" * 101, "é", None]
)
@pytest.mark.parametrize(
    "call",
    [
        lambda of, name: of.create(name),
        lambda of, name: of.write(name, view(b"")),
        lambda of, name: of.sync(name),
        lambda of, name: of.rename(name, "b"),
        lambda of, name: of.rename("b", name),
        lambda of, name: of.unlink(name),
        lambda of, name: of.read(name),
        lambda of, name: of.read_into(name, []),
        lambda of, name: of.head(name, 1),
        lambda of, name: of.size(name),
    ],
)
def test_only_plain_names(call: Callable[[Folder, Any], object], name: Any, folder: Folder) -> None:
    with pytest.raises(Misuse, match="is no plain file name"):
        call(folder, name)


def test_an_error_of_closing_undoes_nothing(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file has been synced, and has its name: an error would say that nothing was done."""
    close = os.close

    def closing(handle: int) -> None:
        close(handle)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    folder.create("new")
    folder.write("new", view(b"1"))
    folder.sync("new")
    monkeypatch.setattr(os, "close", closing)
    folder.rename("new", "a")
    monkeypatch.undo()
    assert (folder.names(), folder.read("a")) == (["a"], b"1")


def test_only_plain_files(folder: Folder, tmp_path: Path) -> None:
    """Neither links, nor folders, nor pipes, whose reading would never end."""
    (tmp_path / "target").write_bytes(b"1")
    (tmp_path / "link").symlink_to("target")
    (tmp_path / "dir").mkdir()
    os.mkfifo(tmp_path / "pipe")
    assert folder.names() == ["target"]
    for name in ("link", "dir", "pipe", "none"):
        for call in (
            folder.read,
            folder.size,
            lambda name: folder.head(name, 1),
            lambda name: folder.read_into(name, []),
        ):
            with pytest.raises(OSError, match=name):
                call(name)
    for name in ("target", "link"):
        with pytest.raises(FileExistsError):
            folder.create(name)


def test_only_what_was_created_here_is_written(folder: Folder) -> None:
    put(folder, "a", b"1")
    for call in (lambda: folder.write("a", view(b"2")), lambda: folder.sync("a")):
        with pytest.raises(Misuse, match="was not created here, or has its final name"):
            call()


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    def opened() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = opened()
    folder = Folder(tmp_path)
    for _ in range(3):
        put(folder, "a", b"1")
        folder.read("a")
        folder.head("a", 1)
    folder.create("left")
    (tmp_path / "left").unlink()
    folder.create("left")
    folder.close()
    folder.close()
    assert opened() == before
