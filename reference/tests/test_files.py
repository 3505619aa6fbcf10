"""A real folder and the recorded one, and what a loss of power may leave (T1, T4)."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kvspec.operations import Misuse
from kvspec_reference.files import Files, Folder, Killed, Recording

State = dict[str, bytes]


def states(of: Recording, cuts: int = 2) -> list[State]:
    """What a loss of power now may leave, each once."""
    found: list[State] = []
    for left in of.points[-1].after_loss(cuts):
        assert left not in found
        found.append(left)
    return found


def same(found: list[State], *wanted: State) -> None:
    assert sorted(sorted(left.items()) for left in found) == sorted(sorted(left.items()) for left in wanted)


@pytest.fixture(params=["real", "recorded"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Files]:
    if request.param == "recorded":
        yield Recording()
    else:
        folder = Folder(tmp_path)
        yield folder
        folder.close()


def test_what_a_store_asks_for(files: Files) -> None:
    files.create("a.tmp")
    files.write("a.tmp", b"one, ")
    files.write("a.tmp", b"two")
    assert (files.names(), files.size("a.tmp"), files.read("a.tmp")) == (["a.tmp"], 8, b"one, two")
    files.sync("a.tmp")
    files.rename("a.tmp", "a")
    files.sync_folder()
    files.create("b.tmp")
    files.rename("b.tmp", "a")
    assert (files.names(), files.read("a")) == (["a"], b""), "it takes the place of the old one"
    files.unlink("a")
    assert files.names() == []


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda files: files.create("there"), FileExistsError),
        (lambda files: files.read("none"), FileNotFoundError),
        (lambda files: files.size("none"), FileNotFoundError),
        (lambda files: files.unlink("none"), FileNotFoundError),
        (lambda files: files.rename("none", "b"), FileNotFoundError),
    ],
)
def test_what_fails(files: Files, call: Callable[[Files], object], error: type[OSError]) -> None:
    files.create("there")
    with pytest.raises(error):
        call(files)
    assert files.names() == ["there"]


NO_NAMES: list[Any] = [
    "",
    ".",
    "..",
    "../a",
    "a/b",
    "/a",
    ".a",
    "A",
    "a\n",
    "a\0",
    "a b",
    "ä",
    "a" * 101,
    None,
    3,
    b"a",
]


@pytest.mark.parametrize("name", NO_NAMES)
def test_only_plain_names(files: Files, name: Any) -> None:
    files.create("there")
    for call in (files.create, files.read, files.size, files.unlink, lambda name: files.rename("there", name)):
        with pytest.raises(Misuse, match="is no plain file name"):
            call(name)
    assert files.names() == ["there"]


def test_nothing_is_followed_out_of_the_folder(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.write_bytes(b"secret")
    (inside / "link").symlink_to(outside)
    (inside / "dangling").symlink_to(tmp_path / "made")
    (inside / "sub").mkdir()
    os.mkfifo(inside / "pipe")
    files = Folder(inside)
    assert files.names() == []
    for name in ("link", "sub", "pipe"):
        for call in (files.read, files.size):
            with pytest.raises(OSError):  # noqa: PT011
                call(name)
        with pytest.raises(FileExistsError):
            files.create(name)
    with pytest.raises(FileExistsError):
        files.create("dangling")
    assert not (tmp_path / "made").exists()
    files.create("a")
    files.write("a", b"mine")
    files.rename("a", "link")
    assert (files.read("link"), outside.read_bytes()) == (b"mine", b"secret"), "the link is replaced, not its target"
    files.close()


def test_a_folder_stays_the_one_that_was_opened(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    files = Folder(tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")
    (tmp_path / "a").mkdir()
    files.create("x")
    files.close()
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["x"]
    assert list((tmp_path / "a").iterdir()) == []


def test_what_has_its_name_is_not_written_any_more(tmp_path: Path) -> None:
    files = Folder(tmp_path)
    files.create("a")
    files.rename("a", "b")
    for call in (lambda: files.write("b", b""), lambda: files.sync("b"), lambda: files.write("a", b"x")):
        with pytest.raises(Misuse, match="was not created here, or has its final name"):
            call()
    assert files._written == {}
    files.close()


def test_a_file_that_was_replaced_is_not_written_any_more(tmp_path: Path) -> None:
    files = Folder(tmp_path)
    for name in ("c", "d"):
        files.create(name)
        files.write(name, name.encode())
    files.rename("c", "d")
    for name in ("c", "d"):
        with pytest.raises(Misuse, match="was not created here, or has its final name"):
            files.write(name, b"!")
    assert (files.names(), files.read("d")) == (["d"], b"c")
    files.create("c")
    files.write("c", b"new")
    assert files.read("c") == b"new"
    files.close()


def test_a_real_folder_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file that was written, and the folder itself."""
    synced: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append((os.fstat(handle).st_ino, handle)))
    files = Folder(tmp_path)
    files.create("a")
    files.sync("a")
    files.sync_folder()
    assert [inode for inode, _ in synced] == [(tmp_path / "a").stat().st_ino, tmp_path.stat().st_ino]
    files.create("b")
    files.sync("b")
    files.unlink("b")
    assert files._written.keys() == {"a"}
    files.close()
    for _, handle in synced:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(handle)


def test_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    for name, error in (("a", NotADirectoryError), ("b", FileNotFoundError)):
        with pytest.raises(error):
            Folder(tmp_path / name)


# What a loss of power may leave.


def test_a_new_file() -> None:
    of = Recording()
    same(states(of), {})
    of.create("a")
    same(states(of), {}, {"a": b""})
    of.write("a", b"wxyz")
    same(
        states(of), {}, {"a": b""}, {"a": b"\0\0\0\0"}, {"a": b"wx"}, {"a": b"wx\0\0"}, {"a": b"wxyz"}
    )  # fmt: skip
    of.sync("a")
    same(states(of), {}, {"a": b"wxyz"})
    of.sync_folder()
    same(states(of), {"a": b"wxyz"})


def test_pieces_are_lost_each_for_itself() -> None:
    of = Recording.of({"a": b"-"})
    of.write("a", b"x")
    of.write("a", b"y")
    wanted = (b"-", b"-\0\0", b"-x", b"-x\0", b"-\0y", b"-xy")
    same(states(of, cuts=1), *({"a": each} for each in wanted))
    of = Recording.of({"a": b""})
    of.write("a", b"0123456789")
    assert {b"0123456789"[:n] for n in range(11)} <= {left["a"] for left in states(of, cuts=10)}, "at every byte"


def test_a_rename_over_a_file() -> None:
    of = Recording.of({"b": b"old"})
    of.create("a")
    of.write("a", b"new")
    of.sync("a")
    of.rename("a", "b")
    old, new = {"b": b"old"}, {"b": b"new"}
    same(states(of), old, new, {**old, "a": b"new"}, {**new, "a": b"new"})
    of.sync_folder()
    same(states(of), new)


def test_a_rename_of_an_old_file() -> None:
    of = Recording.of({"a": b"1"})
    same(states(of), {"a": b"1"})
    of.rename("a", "b")
    same(states(of), {"a": b"1"}, {"b": b"1"}, {"a": b"1", "b": b"1"}, {})


def test_a_sync_that_fails_brings_nothing_to_the_disk() -> None:
    of = Recording()
    of.create("a")
    of.write("a", b"x")
    of.plan(frozenset({0, 1, 2}))
    for call in (lambda: of.sync("a"), of.sync_folder, lambda: of.size("a")):
        with pytest.raises(OSError, match="on purpose"):
            call()
    same(states(of, cuts=1), {}, {"a": b""}, {"a": b"\0"}, {"a": b"x"})


def test_a_name_may_come_before_the_contents() -> None:
    of = Recording.of({"b": b"old"})
    of.create("a")
    of.write("a", b"n")
    of.rename("a", "b")
    left = {each["b"] for each in states(of)}
    assert left == {b"old", b"n", b"\0", b""}
    of.sync_folder()
    same(states(of, cuts=1), {"b": b"n"}, {"b": b"\0"}, {"b": b""})


def test_names_are_lost_each_for_itself() -> None:
    of = Recording.of({"a": b"1", "b": b"2"})
    of.unlink("a")
    same(states(of), {"a": b"1", "b": b"2"}, {"b": b"2"})
    of.unlink("b")
    same(states(of), {"a": b"1", "b": b"2"}, {"b": b"2"}, {"a": b"1"}, {})
    of.sync_folder()
    same(states(of), {})


def test_every_earlier_version_since_the_folder_was_synced() -> None:
    of = Recording.of({"b": b"0"})
    for version in (b"1", b"2"):
        of.create("a")
        of.write("a", version)
        of.sync("a")
        of.rename("a", "b")
    assert {left["b"] for left in states(of)} == {b"0", b"1", b"2"}
    of.unlink("b")
    assert {left.get("b") for left in states(of)} == {b"0", b"1", b"2", None}


def test_points_stay_what_they_were() -> None:
    of = Recording()
    of.create("a")
    of.write("a", b"x")
    of.sync("a")
    of.sync_folder()
    assert of.log == [("create", "a"), ("write", "a"), ("sync", "a"), ("sync_folder",)]
    counts = [len(list(point.after_loss(1))) for point in of.points]
    assert counts == [1, 2, 4, 2, 1]


def test_what_fails_on_purpose_does_nothing() -> None:
    of = Recording.of({"b": b"old"})
    of.plan(frozenset({1, 2, 3, 4, 5, 6}))
    of.create("a")
    for call in (of.sync_folder, of.names, lambda: of.read("b"), lambda: of.unlink("b"), lambda: of.rename("a", "b")):
        with pytest.raises(OSError, match="on purpose"):
            call()
    with pytest.raises(OSError, match="on purpose"):
        of.write("a", b"half")
    assert {name: contents.now() for name, contents in of.folder.items()} == {"a": b"ha", "b": b"old"}
    assert {"a": b"ha", "b": b"old"} in states(of), "what was written may be lost, or not"
    of.write("a", b"!")
    assert of.read("a") == b"ha!"


def test_a_process_that_dies_has_done_what_it_did() -> None:
    of = Recording()
    of.plan(killing=1)
    of.create("a")
    with pytest.raises(Killed, match="killed at write a"):
        of.write("a", b"x")
    assert of.read("a") == b""
