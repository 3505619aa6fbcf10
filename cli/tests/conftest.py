"""Runs `kvspec` in this process, with folders of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from kvspec_cli.main import main


class Ran(NamedTuple):
    """What a command left: its exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    @property
    def complaint(self) -> str:
        """The last line of standard error; those before it are progress."""
        return self.err.splitlines()[-1]


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No engine is installed, and nothing is written outside of `tmp_path`."""
    monkeypatch.setenv("KVSPEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def kvspec(folders: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Runs a command line. Whatever it is, no traceback and no terminal codes come out."""

    def run(*arguments: object) -> Ran:
        status = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in out + err
        assert "\x1b" not in out + err
        return Ran(status, out, err)

    return run
