"""The set-up and the README: what they say is what there is."""

import os
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
README = (ROOT / "README.md").read_text()


def names(lines: list[str]) -> set[str]:
    return {re.split(r"[=<>! ]", line, maxsplit=1)[0] for line in lines if line and not line.startswith("#")}


def test_the_counterexample_is_what_the_command_prints() -> None:
    block = re.search(r"`kvspec (prove --variant \S+)` prints\n\n```text\n(.*?)```", README, re.DOTALL)
    assert block
    # a process of its own: what z3 answers depends on what it was asked before
    command = [sys.executable, "-m", "kvspec_cli", *block[1].split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    if os.environ.get("KVSPEC_UPDATE"):
        (ROOT / "README.md").write_text(README.replace(block[2], done.stdout))
    else:
        assert done.stdout == block[2], "the README is out of date: run `make readme`"
    assert "D1" in done.stdout


def test_every_dependency_has_a_tested_version() -> None:
    wanted = names([*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())])
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    assert names(constraints) == wanted
    assert all("==" in line for line in constraints if not line.startswith("#"))
    assert "torch==2.13.0" in constraints


def test_ci_runs_what_the_readme_says() -> None:
    ci = ROOT / ".ci" / "run"
    assert os.access(ci, os.X_OK)
    commands = ci.read_text().splitlines()
    documented = re.findall(r"^(make \w+)", README, re.MULTILINE)
    assert documented == ["make check", "make test"]
    assert set(documented) < set(commands)
    assert "set -eu" in commands


def test_the_toy_engine_has_the_bug(kvspec) -> None:
    command = re.search(r"^kvspec (diff --engine example==1 .*?) *#", README, re.MULTILINE)
    assert command
    done = kvspec(*command[1].split(), "--traces", 100)
    assert done.status == 1
    assert "breaks D1" in done.out


def test_every_folder_of_the_layout_is_there() -> None:
    rows = re.findall(r"^\| `(\w+)/` \| (.*?) \|", README, re.MULTILINE)
    packages = {f"{folder}/{name}" for folder, cell in rows for name in re.findall(r"`(\w+)`", cell)}
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert packages == set(wheel["packages"])
    assert all((ROOT / package / "__init__.py").is_file() for package in packages)


def test_no_file_is_long() -> None:
    files = [path for package in ("cli", "diff_tests", "impl", "proofs", "reference", "spec") for path in
             (ROOT / package).rglob("*.py")]  # fmt: skip
    assert [str(path) for path in files if len(path.read_text().splitlines()) >= 400] == []
