"""`kvspec store verify | upgrade | gc | stats`: what they find, delete and write, on folders of many small entries."""

import errno
import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kvspec_cli import store as command
from kvspec_cli.errors import BadInput
from kvspec_cli.schemas import DOCUMENTS
from kvspec_diff.torture import toys
from kvspec_diff.torture.stock import DEEP, stock
from kvspec_torch.block_store import BlockStore
from kvspec_torch.disk.files import Folder


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    return tmp_path / "my store"


def says(kvspec: Callable[..., Any], *arguments: object) -> tuple[int, dict[str, Any]]:
    done = kvspec("store", *arguments, "--json")
    found = json.loads(done.out)
    msgspec.convert(found, DOCUMENTS[f"store {arguments[0]}"])
    return done.status, found


def entry(shelf: Path, key: str) -> Path:
    return shelf / f"{key}.safetensors"


def test_verify_names_what_is_damaged(kvspec, shelf: Path) -> None:
    keys = stock(shelf, 60)
    status, found = says(kvspec, "verify", shelf)
    assert (status, found["ok"], found["entries"], found["whole"], found["damaged"]) == (0, True, 60, 60, [])
    assert found["bytes"] == sum(path.stat().st_size for path in shelf.glob("*.safetensors"))
    whole = entry(shelf, keys[7]).read_bytes()
    entry(shelf, keys[7]).write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    entry(shelf, keys[8]).write_bytes(b"")
    entry(shelf, keys[9]).rename(entry(shelf, "0" * 64))
    (shelf / f"{keys[1]}.temporary").write_bytes(whole[:100])
    (shelf / "notes.txt").write_text("somebody else's")
    done = kvspec("store", "verify", shelf)
    assert done.status == 1
    lines = {line.split(":")[0]: line for line in done.out.splitlines() if ": rm " in line or "; rm " in line}
    assert set(lines) == {f"{key}.safetensors" for key in (keys[7], keys[8], "0" * 64)}
    line = lines[f"{keys[7]}.safetensors"]
    assert "damaged: checksum" in line
    assert line.endswith(f"; rm '{entry(shelf, keys[7])}'")
    assert ": short: " in lines[f"{keys[8]}.safetensors"]
    assert ": key: " in lines["0" * 64 + ".safetensors"]
    assert "60 entries" in done.out
    assert "57 whole, 0 older, 0 of no use, 3 damaged" in done.out
    assert "1 temporary" in done.out


def test_verify_does_what_it_says_to_do(kvspec, shelf: Path) -> None:
    keys = stock(shelf, 5)
    entry(shelf, keys[3]).write_bytes(b"x" * 500)
    _, found = says(kvspec, "verify", shelf)
    (damaged,) = found["damaged"]
    subprocess.run(damaged["advice"], shell=True, check=True)
    assert says(kvspec, "verify", shelf)[0] == 0


def test_older_entries_are_upgraded_with_the_same_meaning(kvspec, shelf: Path) -> None:
    keys = stock(shelf, 120, older=True)
    stock(shelf, 50)
    status, found = says(kvspec, "verify", shelf)
    assert (status, found["whole"], found["older"]) == (0, 50, 70)
    assert "kvspec store upgrade '" in kvspec("store", "verify", shelf).out
    status, found = says(kvspec, "upgrade", shelf)
    assert (status, found["ok"], found["upgraded"], found["newest"], found["left"]) == (0, True, 70, 50, [])
    status, found = says(kvspec, "verify", shelf)
    assert (status, found["whole"], found["older"], found["temporary"]) == (0, 120, 0, 0)
    assert says(kvspec, "upgrade", shelf)[1]["upgraded"] == 0, "once is enough"
    with BlockStore(shelf, toys.LAYOUT, budget=2**30, read_only=True) as store:
        for number, key in enumerate(keys):
            assert toys.same(store.load(key), toys.block(toys.LAYOUT, number % DEEP, number % DEEP))


def test_what_cannot_be_upgraded_is_named(kvspec, shelf: Path) -> None:
    stock(shelf, 3, older=True, known=False)
    done = kvspec("store", "upgrade", shelf)
    assert done.status == 1
    assert done.out.count("is not known in this folder; open the store once with its layout") == 3
    keys = stock(shelf, 3, older=True)
    data = entry(shelf, keys[2]).read_bytes()
    entry(shelf, keys[2]).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    status, found = says(kvspec, "upgrade", shelf)
    assert (status, found["upgraded"], [each["reason"] for each in found["left"]]) == (1, 2, ["damaged"])


def test_gc_keeps_prefixes_from_their_start(kvspec, shelf: Path) -> None:
    keys = stock(shelf, 200)
    old, rest = keys[50:100], keys[:50] + keys[100:]
    for number, key in enumerate(rest):
        os.utime(entry(shelf, key), (2e9 + number, 2e9 + number))
    orphan = keys[180]
    entry(shelf, keys[179]).unlink()
    (shelf / f"{keys[1]}.temporary").write_bytes(b"part")
    size = entry(shelf, keys[60]).stat().st_size
    status, found = says(kvspec, "gc", shelf, "--budget", size * 140)
    assert (status, found["deleted"]["temporary"], found["deleted"]["without its parent"]) == (0, 1, 20)
    assert found["bytes_left"] <= size * 140 < found["bytes_left"] + 2 * size
    left = {path.stem for path in shelf.glob("*.safetensors")}
    assert orphan not in left
    assert set(rest[:100]) < left, "the oldest go first"
    there = [key in left for key in old]
    assert there == sorted(there, reverse=True), "from the end"
    assert 0 < sum(there) < 50
    assert found["entries_left"] == len(left)
    assert says(kvspec, "gc", shelf, "--budget", "1MiB")[1]["bytes"] == 0
    assert says(kvspec, "gc", shelf, "--budget", 0)[1]["entries_left"] == 0


def test_stats(kvspec, shelf: Path) -> None:
    keys = stock(shelf, 70)
    stock(shelf, 30, older=True, layout=toys.LARGE, known=False)
    entry(shelf, keys[10]).unlink()
    entry(shelf, "1" * 64).write_bytes(b"x" * 100)
    (shelf / f"{keys[1]}.temporary").write_bytes(b"part")
    (shelf / "notes.txt").write_text("somebody else's")
    status, found = says(kvspec, "stats", shelf)
    assert (status, found["entries"], found["temporary"], found["temporary_bytes"], found["others"]) == (
        0,
        100,
        1,
        4,
        1,
    )
    assert [each["reason"] for each in found["damaged"]] == ["foreign"]
    large, small = found["layouts"]
    assert (large["model"], large["versions"], large["chains"], large["longest_blocks"]) == ("", {"2": 30}, 1, 30)
    assert (small["model"], small["versions"], small["entries"], small["without_parent"]) == (
        "torture", {"3": 69}, 69, 39
    )  # fmt: skip
    assert (small["chains"], small["longest_blocks"], small["longest_tokens"]) == (2, 20, 80)
    shown = kvspec("store", "stats", shelf).out
    assert "100 entries" in shown
    assert "unknown" in shown


@pytest.mark.parametrize(
    ("name", "method"), [("verify", "names"), ("stats", "names"), ("upgrade", "__init__"), ("gc", "unlink")]
)
def test_what_the_system_does_not_allow(
    kvspec, shelf: Path, name: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*given: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(shelf) if method == "__init__" else 7)

    stock(shelf, 2)
    monkeypatch.setattr(Folder, method, refuses)
    done = kvspec("store", name, shelf, *(("--budget", 0) if name == "gc" else ()))
    remedy = "run it as the user whose folder it is, or change who may read and write it (chmod, chown)"
    assert (done.status, done.complaint) == (2, f"kvspec: {shelf}: Permission denied; {remedy}")


def test_a_folder_that_can_only_be_read(kvspec, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opens = os.open

    def refuses(path: Any, flags: int, *more: Any, **others: Any) -> int:
        if path == "lock":
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return opens(path, flags, *more, **others)

    stock(shelf, 2)
    monkeypatch.setattr(os, "open", refuses)
    done = kvspec("store", "gc", shelf, "--budget", 0)
    assert done.complaint.startswith(f"kvspec: {shelf}: lock: Read-only file system; mount it so that it can be")
    assert kvspec("store", "verify", shelf).status == 0


def test_one_is_not_many(kvspec, shelf: Path) -> None:
    keys = stock(shelf, 2)
    assert "  2 blocks, 8 tokens" in kvspec("store", "stats", shelf).out
    entry(shelf, keys[1]).unlink()
    (shelf / "notes").touch()
    shown = kvspec("store", "stats", shelf).out
    assert "  1 block, 4 tokens" in shown
    assert shown.endswith("(0 bytes), 1 other file\n")
    assert " freed, 1 entry left: " in kvspec("store", "gc", shelf, "--budget", "1MB").out
    stock(shelf, 2)
    entry(shelf, keys[0]).unlink()
    assert "  none" in kvspec("store", "stats", shelf).out
    assert command.amount(1) == "1 byte"
    entry(shelf, keys[1]).unlink()
    stock(shelf, 1, older=True, known=False)
    (shelf / f"{toys.LAYOUT.signature}.layout").unlink(missing_ok=True)
    assert "0 had the newest version, 1 stays as it is." in kvspec("store", "upgrade", shelf).out


@pytest.mark.parametrize("name", ["verify", "upgrade", "gc", "stats"])
def test_bad_folders(kvspec, tmp_path: Path, name: str) -> None:
    more = ("--budget", "1MB") if name == "gc" else ()
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    for path, says_ in (
        ("none", "there is no such folder"), ("file", "is not a folder"), ("empty", "is not a store"),
    ):  # fmt: skip
        done = kvspec("store", name, tmp_path / path, *more)
        assert (done.status, done.out) == (2, "")
        assert done.complaint.startswith(f"kvspec: {tmp_path / path}: {says_}")
        assert "\n" not in done.complaint
    assert sorted(path.name for path in tmp_path.rglob("*") if path.parent.name == "empty") == []


@pytest.mark.parametrize("name", ["verify", "upgrade", "gc", "stats"])
def test_an_empty_name_is_not_the_current_folder(
    kvspec, shelf: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock(shelf, 2)
    monkeypatch.chdir(shelf)
    for empty in ("", " ", "\0"):
        done = kvspec("store", name, empty, *(("--budget", 0) if name == "gc" else ()))
        assert (done.status, done.out, len(done.err.splitlines())) == (2, "", 1)
        assert done.complaint.endswith("; name the folder of a store")
    assert len(list(shelf.glob("*.safetensors"))) == 2


@pytest.mark.parametrize("name", ["upgrade", "gc"])
def test_a_store_that_is_in_use(kvspec, shelf: Path, name: str) -> None:
    stock(shelf, 3, older=True)
    with open(shelf / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write("12345\n")
        lock.flush()
        done = kvspec("store", name, shelf, *(("--budget", 0) if name == "gc" else ()))
        assert (done.status, done.out) == (2, "")
        assert done.complaint == f"kvspec: {shelf} is in use by process 12345; end it first"
        assert kvspec("store", "verify", shelf).status == 0
        assert kvspec("store", "stats", shelf).status == 0
        for old in shelf.glob("*.safetensors"):
            old.unlink()
        assert kvspec("store", "upgrade", shelf).status == 0, "there is nothing to do"


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1234", 1234), ("500MB", 500_000_000), ("2GiB", 2**31), ("1.5 GiB", 3 * 2**29), ("3k", 3000),
     ("7kib", 7168), ("1TB", 10**12), ("12b", 12),
     ("1  GB", 10**9), ("10PB", 10**16), ("0.3kb", 300), ("0" * 30 + "7", 7)],
)  # fmt: skip
def test_sizes(text: str, size: int) -> None:
    assert command.parsed("--budget", text) == size


@pytest.mark.parametrize(
    "text",
    [
        "",
        "MB",
        "-1",
        "1.5",
        "1e6",
        "2XB",
        "1 000",
        "0x10",
        "1MiBB",
        "nan",
        "\u0661",
        "1" * 18 + "TB",
        "9" * 98,
        "9" * 5000,
        "1000000PiB",
    ],
)
def test_what_is_no_size(kvspec, shelf: Path, text: str) -> None:
    with pytest.raises(BadInput, match="give a size, such as 500MB") as raised:
        command.parsed("--budget", text)
    assert len(str(raised.value)) < 150
    assert ("more than any disk has" in str(raised.value)) == (10 < len(text) < 100 or "PiB" in text)
    stock(shelf, 1)
    assert kvspec("store", "gc", shelf, f"--budget={text}").status == 2
    assert len(list(shelf.glob("*.safetensors"))) == 1


class Pressed:
    """Ctrl-C before or after file operation number `at`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
        self.at, self.count = at, 0
        for name in ("create", "write", "sync", "rename", "sync_folder", "unlink", "read", "head"):
            monkeypatch.setattr(Folder, name, self.around(getattr(Folder, name)))

    def around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.press()
            found = method(*arguments)
            self.press()
            return found

        return call

    def press(self) -> None:
        if self.count == self.at:
            self.count += 1  # or it would be pressed again while the first is seen to
            signal.raise_signal(signal.SIGINT)
        self.count += 1


@pytest.mark.parametrize(("name", "more"), [("upgrade", ()), ("gc", ("--budget", 0)), ("verify", ()), ("stats", ())])
def test_ctrl_c_at_any_moment_leaves_a_usable_store(
    kvspec, shelf: Path, name: str, more: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    before, at, count, step = signal.getsignal(signal.SIGINT), 0, 12, 3
    while True:
        stock(shelf, count, older=True)
        with monkeypatch.context() as patched:
            pressed = Pressed(patched, at)
            done = kvspec("store", name, shelf, *more)
        signal.signal(signal.SIGINT, before)
        if pressed.count <= at:
            break  # it was through before
        assert (done.status, done.complaint) == (2, "kvspec: interrupted; nothing was left half written")
        status, found = says(kvspec, "verify", shelf)
        assert (status, found["damaged"]) == (0, [])
        assert found["entries"] == count or name == "gc"
        layouts = says(kvspec, "stats", shelf)[1]["layouts"]
        assert [each["without_parent"] for each in layouts] in ([], [0])
        at += step
    assert at >= 2 * count, "it was stopped at many moments"
    assert done.status == 0
    assert kvspec("store", "upgrade", shelf).status == 0
    assert says(kvspec, "verify", shelf)[1]["temporary"] == 0
