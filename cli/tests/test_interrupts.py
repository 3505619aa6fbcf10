"""Ctrl-C: one line, exit status 2, nothing half written, and it is never lost."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kvspec_cli.interrupts import Interrupts

RUNS = {
    "prove": (["prove", "deferred_free"], "proving deferred_free"),
    "explore": (["explore", "read_law", "--pages", "4"], "exploring read_law"),
    "diff": (["diff", "--engine", "example==1", "--seconds", "300", "--save", "found"], "comparing example==1"),
    "small": (["diff", "--engine", "example==1", "--plant", "keep_views", "--traces", "4000", "--save", "found"],
              "comparing example==1"),
    "torture": (["store", "torture", "--only", "kills"], "kills"),
    "smt": (["prove", "--smt", "found"], "writing found"),
}  # fmt: skip


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("wait", [0.1, 0.7])
def test_every_command_ends(folders: Path, name: str, wait: float) -> None:
    arguments, started = RUNS[name]
    child = subprocess.Popen([sys.executable, "-m", "kvspec_cli", *arguments], stdout=subprocess.PIPE, cwd=folders,
                             stderr=subprocess.PIPE, text=True, env=os.environ | {"TMPDIR": str(folders)})  # fmt: skip
    assert child.stderr is not None
    while started not in child.stderr.readline():
        assert child.poll() is None
    time.sleep(wait)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert (child.returncode, out) == (2, "")
    assert err.splitlines()[-1] == "kvspec: interrupted; nothing was left half written"
    assert "Traceback" not in err
    assert [path for path in folders.rglob("*") if path.is_file() or path.name.endswith(".part")] == []


WHILE_IMPORTING = """
import signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from kvspec_cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.parametrize("module", ["cyclopts", "msgspec", "rich.console", "kvspec_cli.errors", "kvspec_cli.screen"])
def test_before_a_command_begins(module: str) -> None:
    command = [sys.executable, "-c", WHILE_IMPORTING, module, "engine", "list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kvspec: interrupted; nothing was left half written\n"


class Dropping:
    def __del__(self) -> None:
        signal.raise_signal(signal.SIGINT)
        for _ in range(1000):
            pass


def test_an_interrupt_in_a_destructor_is_raised_again() -> None:
    before = signal.getsignal(signal.SIGINT)
    with Interrupts() as interrupts:
        dropping = Dropping()
        del dropping
        with pytest.raises(KeyboardInterrupt):
            time.sleep(10)
        assert interrupts.asked
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN, "what is left to do is not interrupted"
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_that_comes_out_as_another_error(kvspec, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrapped(*_: object, **__: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise ctypes.ArgumentError("argument 2: KeyboardInterrupt: ") from error

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("kvspec_proofs.prove.prove", wrapped)
    done = kvspec("prove", "pages")
    signal.signal(signal.SIGINT, before)
    assert (done.status, done.complaint) == (2, "kvspec: interrupted; nothing was left half written")


def test_without_an_interrupt_nothing_changes() -> None:
    before, hook = signal.getsignal(signal.SIGINT), sys.unraisablehook
    with Interrupts() as interrupts:
        assert not interrupts.asked
    assert (signal.getsignal(signal.SIGINT), sys.unraisablehook) == (before, hook)
