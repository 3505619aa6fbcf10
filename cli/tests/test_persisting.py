"""`kvspec diff --engine mlx-lm==... --persist` on caches of lists in this process, right and wrong."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from kvspec_diff import engines
from kvspec_diff.batched import client, finding
from kvspec_diff.caches import example as caches
from kvspec_diff.caches import promises
from kvspec_diff.persisting import example

RELEASE = "mlx-lm==0.32.2"
FOUND = "forgets_the_kept"


class Client(example.Client):
    def __init__(self, engine: str = "mlx-lm", version: str = "0.32.2", plants: tuple[str, ...] = ()) -> None:
        super().__init__(engine, version, plants)
        self.engine, self.version = engine, version


@pytest.fixture(autouse=True)
def _example(monkeypatch: pytest.MonkeyPatch) -> None:
    there = engines.Environment("mlx-lm", "0.32.2", Path(), "mlx-lm", Path(sys.executable))
    monkeypatch.setattr(engines, "find", lambda name, version: there)
    monkeypatch.setattr(client, "Client", Client)
    monkeypatch.setattr(finding, "known", lambda engine, version, case: [])
    monkeypatch.setattr(promises, "load", lambda engine, version: caches.promises())


def diff(kvspec: Any, *words: Any) -> Any:
    return kvspec("diff", "--engine", RELEASE, "--persist", *words)


def test_what_is_right_comes_back(kvspec: Any, tmp_path: Path) -> None:
    done = diff(kvspec, "--traces", 60, "--save", tmp_path)
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("mlx-lm==0.32.2 through a store: 60 programs, ")
    assert " blocks, " in lines[0]
    assert lines[0].endswith("; S2, B1, B2, B3, B4, B5, B6, B7, E1")
    assert lines[-1] == "Nothing was found."
    assert list(tmp_path.iterdir()) == []


def test_what_breaks_a_law_is_told_and_replayed(kvspec: Any, tmp_path: Path) -> None:
    done = diff(kvspec, "--plant", FOUND, "--laws", "B1", "--traces", 60, "--save", tmp_path)
    assert done.status == 1
    assert "B1: 0.0.kept: what is made of what was restored hands out something else" in done.out
    assert "    save()\n" in done.out
    assert "    restore(all tokens but the last 0)\n    and then a token more for every object\n" in done.out
    assert done.out.splitlines()[-1] == (
        f"Run again: kvspec diff --engine {RELEASE} --plant {FOUND} --persist --laws B1 --seed 0 --traces 60"
    )
    (path,) = tmp_path.iterdir()
    again = kvspec("replay", path, "--engine", RELEASE, "--plant", FOUND)
    assert again.status == 1
    assert "B1: 0.0.kept" in again.out
    right = kvspec("replay", path)
    assert (right.status, right.out.splitlines()[-1]) == (0, "Nothing disagrees.")


def test_as_a_document(kvspec: Any, tmp_path: Path) -> None:
    printed = json.loads(diff(kvspec, "--traces", 40, "--save", tmp_path, "--json").out)
    assert printed["clean"]
    assert printed["figures"]["programs"] == 40
    assert printed["reproduce"] == f"kvspec diff --engine {RELEASE} --persist --seed 0 --traces 40"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--laws", "B9"], "the laws of caches that are stored are S2, B1"),
        (["--policy", "fcfs"], "--policy is not for mlx-lm, whose cache classes are compared"),
        (["--traces", "0"], "--traces is 0"),
    ],
)
def test_what_makes_no_sense_is_one_line(kvspec: Any, words: list[str], says: str) -> None:
    done = diff(kvspec, *words)
    assert done.status == 2
    assert says in done.err
    assert "Traceback" not in done.err


def test_only_caches_are_stored(kvspec: Any) -> None:
    done = kvspec("diff", "--subject", "torch", "--persist")
    assert (done.status, done.out) == (2, "")
    assert "--persist is for an engine whose cache classes are compared" in done.err
