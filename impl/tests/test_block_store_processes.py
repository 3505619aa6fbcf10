"""The store of blocks and the processes that use its folder: one writes, any of them may end or be killed (T1, T4)."""

import os
import signal
import subprocess
import sys
import textwrap
import warnings
from contextlib import closing
from pathlib import Path

import pytest
import torch
from kvspec.members import Layout, Part, Plain
from kvspec_torch.block_store import BlockStore
from kvspec_torch.blocks import Block
from kvspec_torch.disk.files import Folder
from kvspec_torch.disk.looking import Said, names, whole
from kvspec_torch.entry_format import key_of
from kvspec_torch.errors import Misuse, Refused

LAYOUT = Layout("toy", 1, (Plain((Part("k", (16,), "uint8"),)),))
LARGE = 2**20
KEY = key_of(None, [0], LAYOUT.signature)


def block(index: int) -> Block:
    return Block(index, {"0.k": torch.full((1, 16), index, dtype=torch.uint8)}, True)


def test_a_store_is_used_by_one_process(tmp_path: Path) -> None:
    """A child that was forked is told so, and leaves the lock with its parent."""
    with BlockStore(tmp_path, LAYOUT, budget=LARGE, writer=False) as store:
        store.save(None, [0], block(0))
        with warnings.catch_warnings():  # from Python 3.12 on, a fork with threads is warned of
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if not child:
            try:
                store.stats()
            except Misuse as error:
                os._exit(7 if f"belongs to process {os.getppid()}" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        with pytest.raises(Refused, match=f"in use by process {os.getpid()}"):
            BlockStore(tmp_path, LAYOUT, budget=LARGE)


OTHER = """
    import sys, torch
    from pathlib import Path
    from kvspec.members import Layout, Part, Plain
    from kvspec_torch.block_store import BlockStore
    from kvspec_torch.blocks import Block
    LAYOUT = Layout("toy", 1, (Plain((Part("k", (16,), "uint8"),)),))
    def block(index):
        return Block(index, {"0.k": torch.full((1, 16), index, dtype=torch.uint8)}, True)
"""


def other(code: str, *arguments: object) -> "subprocess.Popen[str]":
    """Another process."""
    text = textwrap.dedent(OTHER) + textwrap.dedent(code)
    command = [sys.executable, "-c", text, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_two_processes(tmp_path: Path) -> None:
    """The second is told who has the folder; once that one is gone, also by force, it may have it."""
    code = """
        store = BlockStore(sys.argv[1], LAYOUT, budget=2**20)
        store.save(None, [0], block(0))
        store.flush()
        print("open", flush=True)
        sys.stdin.read()
    """
    with other(code, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        with pytest.raises(Refused, match=f"{tmp_path} is in use by process {process.pid}"):
            BlockStore(tmp_path, LAYOUT, budget=LARGE)
        with BlockStore(tmp_path, LAYOUT, budget=LARGE, read_only=True) as reader:
            assert reader.load(KEY) == block(0)
        process.send_signal(signal.SIGKILL)
        process.wait()
        with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
            assert store.load(KEY) == block(0)


def test_a_process_that_ends_without_closing_writes_its_queue(tmp_path: Path) -> None:
    code = """
        store = BlockStore(sys.argv[1], LAYOUT, budget=2**20, writer=False)
        store.save(None, [0], block(0))
    """
    with other(code, tmp_path) as process:
        assert process.wait() == 0
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        assert store.load(KEY) == block(0)


@pytest.mark.parametrize("saves", [3, 40])
def test_a_killed_process_loses_nothing_that_was_acknowledged(saves: int, tmp_path: Path) -> None:
    code = """
        from kvspec_torch.entry_format import chain
        store = BlockStore(sys.argv[1], LAYOUT, budget=2**20)
        parent = None
        for index in range(10**6):
            parent = store.save(parent, [index], block(index % 256))
            if index % 3 == 2:
                store.flush()
                print(index + 1, flush=True)
    """
    with other(code, tmp_path) as process:
        assert process.stdout is not None
        acknowledged = 0
        while acknowledged < saves:
            acknowledged = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        process.wait()
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        restored = store.restore(range(10**4))
        assert restored.position >= acknowledged
        assert restored.read("0.k")[:, 0].tolist() == [index % 256 for index in range(restored.position)]
        with closing(Folder(tmp_path)) as folder:
            files = [whole(folder, key, {}) for key in names(folder).keys]
        assert {type(each and each.said) for each in files} == {Said}
        assert sorted(path.suffix for path in tmp_path.iterdir() if path.suffix == ".temporary") == []


def test_a_file_that_may_not_grow(tmp_path: Path) -> None:
    """A real error of the operating system: no file may have more than 100 bytes."""
    code = """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        store = BlockStore(sys.argv[1], LAYOUT, budget=2**20)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        store.save(None, [0], block(0))
        try:
            store.flush()
        except OSError as error:
            print(type(error).__name__, error)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        store.close()
    """
    with other(code, tmp_path) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        assert process.wait() == 0
    assert text.startswith("Unwritten [Errno 27]")
    assert "File too large" in text
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        assert store.load(KEY) == block(0)
