"""Engine environments, with an engine that is a wheel of one line made here; nothing is fetched."""

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from kvspec_diff import engines
from kvspec_diff.recipes import RECIPES, EngineError, Recipe, recipe_for, release


def make_wheel(folder: Path, name: str, version: str, text: str, needs: str = "") -> None:
    files = {
        f"{name}.py": text,
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{name}-{version}.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nTag: py3-none-any\n",
    }
    digests = {
        path: base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        for path, text in files.items()
    }
    rows = [f"{path},sha256={digests[path]},{len(text.encode())}" for path, text in files.items()]
    record = f"{name}-{version}.dist-info/RECORD"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
        wheel.writestr(record, "\n".join([*rows, f"{record},,", ""]))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheels")
    make_wheel(folder, "toy", "1.0", "answer = 42\n")
    make_wheel(folder, "pinned", "1.0", "")
    make_wheel(folder, "pinned", "2.0", "")
    make_wheel(folder, "greedy", "1.0", "", "Requires-Dist: pinned>=2\n")
    return folder


def toy(wheels: Path, *more: str, oldest: str = "1.0", newest: str = "1.9", space: int = 2**20) -> tuple[Recipe, ...]:
    here = ("--no-index", "--find-links", str(wheels))
    steps = (("the engine itself", (*here, "toy=={version}")), *((f"more {name}", (*here, name)) for name in more))
    return (Recipe("toy", oldest, newest, adapter="", steps=steps, pinned=("pinned==1.0",), space=space),)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVSPEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "engines"


def left(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir()} if cache.exists() else set()


def test_install_use_list_and_remove(cache: Path, wheels: Path) -> None:
    recipes = toy(wheels)
    with pytest.raises(EngineError, match=r"toy==1.0 is not installed: run `kvspec engine install toy==1.0`"):
        engines.find("toy", "1.0", recipes)
    said: list[tuple[int, int, str]] = []
    orphan = cache / f"{engines.UNFINISHED}toy-1.0-killed"
    orphan.mkdir(parents=True)
    built = engines.install("toy", "1.0", lambda *progress: said.append(progress), recipes)
    assert built == engines.find("toy", "1.0", recipes)
    assert left(cache) == {".lock", "toy-1.0"}, "what a killed process left is gone"
    assert [step for step, _, _ in said] == sorted(step for step, _, _ in said)
    assert {(step, steps) for step, steps, _ in said} == {(1, 3), (2, 3), (3, 3)}
    # The environment was renamed: its interpreter, and pip by way of it, must not mind.
    answer = [str(built.python), "-c", "import toy; print(toy.answer)"]
    assert subprocess.run(answer, capture_output=True, text=True, check=True).stdout == "42\n"
    shown = subprocess.run([str(built.python), "-m", "pip", "show", "toy"], capture_output=True, text=True, check=True)
    assert str(built.folder) in shown.stdout
    assert engines.installed(recipes) == [built]

    said.clear()
    assert engines.install("toy", "1.0", lambda *progress: said.append(progress), recipes) == built
    assert not said, "it was there"
    again = engines.install("toy", "1.0", lambda *progress: said.append(progress), toy(wheels, newest="1.5"))
    assert said, "the recipe changed, so it was built anew"
    assert again.python.exists()

    again.python.unlink()
    with pytest.raises(EngineError, match=r"is gone or points nowhere: run `kvspec engine remove toy==1.0`"):
        engines.find("toy", "1.0", recipes)
    assert engines.remove("toy", "1.0")
    assert not engines.remove("toy", "1.0")
    assert left(cache) == {".lock"}
    assert engines.installed(recipes) == []


def test_a_release_that_does_not_exist(cache: Path, wheels: Path) -> None:
    with pytest.raises(EngineError, match=r"No matching distribution found for toy==1.7") as caught:
        engines.install("toy", "1.7", None, toy(wheels))
    assert str(caught.value).startswith('toy==1.7, step "the engine itself": ')
    assert "\n" not in str(caught.value)
    assert left(cache) == {".lock"}


def test_what_is_pinned_is_not_replaced(cache: Path, wheels: Path) -> None:
    with pytest.raises(EngineError, match=r'step "more greedy": Cannot install greedy'):
        engines.install("toy", "1.0", None, toy(wheels, "pinned", "greedy"))
    assert left(cache) == {".lock"}


def test_ctrl_c_leaves_nothing(cache: Path, wheels: Path) -> None:
    def interrupt(step: int, steps: int, text: str) -> None:
        if text.startswith("Installing collected"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engines.install("toy", "1.0", interrupt, toy(wheels))
    assert left(cache) == {".lock"}


@pytest.mark.parametrize("said", ["OSError: [Errno 28] No space left on device", "[Errno 122] Disk quota exceeded"])
def test_a_disk_that_fills_up(cache: Path, wheels: Path, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = ["sh", "-c", f"echo working; echo 'ERROR: {said}'; exit 1"]
    real = subprocess.Popen
    monkeypatch.setattr(engines.subprocess, "Popen", lambda command, **options: real(failing, **options))
    with pytest.raises(EngineError, match=r"no space left in .*engines: free some, or set KVSPEC_CACHE"):
        engines.install("toy", "1.0", None, toy(wheels))
    assert left(cache) == {".lock"}


def test_too_little_space_to_begin_with(cache: Path, wheels: Path) -> None:
    with pytest.raises(EngineError, match=r"toy==1.0 needs 1048576.0 GB in .*: free some, or set KVSPEC_CACHE"):
        engines.install("toy", "1.0", None, toy(wheels, space=2**50))
    assert left(cache) == {".lock"}


def test_a_cache_folder_that_cannot_be_made(tmp_path: Path, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KVSPEC_CACHE", str(tmp_path / "file"))
    with pytest.raises(EngineError, match=r"cannot write to .*engines: Not a directory; set KVSPEC_CACHE"):
        engines.install("toy", "1.0", None, toy(wheels))


def test_a_second_installation_waits_for_the_first(cache: Path, wheels: Path) -> None:
    cache.mkdir(parents=True)
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import fcntl, sys\nlock = open({str(cache / '.lock')!r}, 'w')\n"
         "fcntl.flock(lock, fcntl.LOCK_EX)\nprint('held', flush=True)\nsys.stdin.read()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"held\n"
    said: list[str] = []

    def release_holder(step: int, steps: int, text: str) -> None:
        said.append(text)
        if "waiting" in text:
            holder.communicate()

    engines.install("toy", "1.0", release_holder, toy(wheels))
    assert said[0] == "waiting for another installation to end"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("sglang", "'sglang' does not name an engine: write NAME==VERSION"),
        ("sglang==", "does not name an engine"),
        ("sglang=0.5.17", "does not name an engine"),
        ("tglang==0.5.17", "unknown engine 'tglang': kvspec can install mlx-lm, sglang, transformers, vllm"),
        ("sglang==9.9.9", "no recipe was tried for sglang 9.9.9: there are recipes for 0.5.17 to 0.5.18, 0.5.23"),
        ("sglang==0.5.x", "'0.5.x' is no release"),
        ("sglang==../../etc", "is no release"),
    ],
)
def test_names_that_cannot_be_installed(cache: Path, text: str, reason: str) -> None:
    with pytest.raises(EngineError) as caught:
        engines.install(*engines.parse(text))
    assert reason in str(caught.value)
    assert left(cache) == set()


def test_nothing_outside_the_folder_is_removed(cache: Path) -> None:
    (cache.parent / "precious-1").mkdir(parents=True)
    cache.mkdir()
    with pytest.raises(EngineError, match="does not name an engine"):
        engines.remove("../precious", "1")
    assert (cache.parent / "precious-1").is_dir()


def test_what_is_no_environment_is_not_listed(cache: Path) -> None:
    for name, manifest in {"toy-1.0": "{", "toy-2.0": '{"engine":"toy"}', "notes": ""}.items():
        (cache / name).mkdir(parents=True)
        (cache / name / engines.MANIFEST).write_text(manifest)
    (cache / "file").write_text("")
    assert engines.installed() == []


def test_the_example_comes_with_kvspec(cache: Path) -> None:
    assert engines.install("example", "1") == engines.find("example", "1")
    assert left(cache) == set()


BRING_TORCH = ("sglang", "vllm")
"""Engines that ask for a torch of their own; transformers takes the one that is pinned, mlx-lm none."""


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: f"{recipe.engine}-{recipe.oldest}")
def test_recipes(recipe: Recipe) -> None:
    assert release(recipe.oldest) <= release(recipe.newest)
    assert recipe_for(recipe.engine, recipe.oldest) == recipe_for(recipe.engine, recipe.newest) == recipe
    words = [word for _, arguments in recipe.steps for word in arguments]
    assert sum("{version}" in word for word in words) == 1
    assert all(pin in words for pin in recipe.pinned), "what is pinned is installed by a step of its own"
    for _, arguments in recipe.steps if recipe.engine in BRING_TORCH else ():
        assert "--no-deps" in arguments or not any(word.startswith(recipe.engine) for word in arguments)


def test_variables_do_not_leak_into_the_engine(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("VIRTUAL_ENV", "/elsewhere")
    command, variables = engines.worker_command(engines.find("example", "1"), ("keep_views",))
    assert command[-3:] == ["--adapter", "example", "--plant=keep_views"]
    assert "PYTHONPATH" not in variables
    assert "VIRTUAL_ENV" not in variables
    assert variables["PATH"] == os.environ["PATH"]
