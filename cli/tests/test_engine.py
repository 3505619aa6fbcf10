"""`kvspec engine`: install, list, remove; with a recipe that installs nothing."""

import json
from pathlib import Path

import pytest
from kvspec_diff import engines, recipes
from kvspec_diff.recipes import EngineError, Recipe

TINY = Recipe("tiny", "1", "2", adapter="", steps=(), space=0)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine that is an empty environment."""

    def recipe_for(engine: str, version: str, known: object = ()) -> Recipe:
        if engine != "tiny":
            raise EngineError(f"unknown engine {engine!r}")
        return TINY

    for module in (engines, recipes):
        monkeypatch.setattr(module, "recipe_for", recipe_for)


@pytest.mark.usefixtures("tiny")
def test_install_list_and_remove(kvspec, folders: Path) -> None:
    folder = folders / "cache" / "engines" / "tiny-1"
    done = kvspec("engine", "install", "tiny==1")
    assert (done.status, done.out) == (0, f"tiny==1 is installed in {folder}\n")
    assert done.err.splitlines()[0] == "installing tiny==1"
    again = kvspec("engine", "install", "tiny==1", "--json")
    assert json.loads(again.out) == [{"engine": "tiny", "version": "1", "folder": str(folder)}]
    listed = kvspec("engine", "list", "--json")
    assert json.loads(listed.out) == json.loads(again.out)
    assert f"tiny==1  {folder}" in kvspec("engine", "list").out
    assert kvspec("engine", "remove", "tiny==2", "tiny==1").status == 2
    assert folder.is_dir(), "nothing is removed if not everything can be"
    assert kvspec("engine", "remove", "tiny==1").out == "tiny==1 is removed\n"
    assert not folder.exists()


def test_nothing_is_installed(kvspec, folders: Path) -> None:
    done = kvspec("engine", "list")
    assert done.status == 0
    assert done.out.startswith(f"No engine is installed in {folders / 'cache' / 'engines'}.\n")
    assert "sglang==0.5.17, sglang==0.5.18, sglang==0.5.23" in done.out


@pytest.mark.usefixtures("tiny")
def test_a_step_that_fails(kvspec, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_build", lambda *_: (_ for _ in ()).throw(EngineError("tiny==1, step: no")))
    done = kvspec("engine", "install", "tiny==1")
    assert (done.status, done.complaint) == (2, "kvspec: tiny==1, step: no")
    assert [path.name for path in (folders / "cache" / "engines").iterdir()] == [".lock"]
