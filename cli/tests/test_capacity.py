"""`kvspec diff --engine vllm==...` on a manager that is a few lines long, right and wrong."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from kvspec_diff import engines
from kvspec_diff.batched import client, finding
from kvspec_diff.capacity import compare, example

FOUND = "end_forgets"
APART = " (capacity, C, and a scheduler, A,R,P, are compared apart)"
OWN = (
    "the laws of capacity are C1, C2, C3, C4, C5, C6, C7, C8, C9: write C1-C2, or C1,C9, or C for all of its letter"
    + APART
)
SCHEDULERS = (
    "the laws of a scheduler are R1, R2, R3, R4, R5, R6, A1, A2, A3, A4, A5, A6, A7, P1, P9, P12, P15: write R1-R2, or "
    "R1,P15, or R for all of its letter" + APART
)


@pytest.fixture(autouse=True)
def _example(monkeypatch: pytest.MonkeyPatch) -> None:
    there = engines.Environment("vllm", "0.33.0", Path(), "vllm", Path(sys.executable))
    monkeypatch.setattr(engines, "find", lambda name, version: there)
    monkeypatch.setattr(client, "Client", example.Client)


def diff(kvspec: Any, *words: Any) -> Any:
    return kvspec("diff", "--engine", "vllm==0.33.0", *words)


def test_a_release_that_agrees(kvspec: Any, tmp_path: Path) -> None:
    done = diff(kvspec, "--laws", "C1-C9", "--unaided", "--configurations", 1100, "--save", tmp_path)
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("vllm==0.33.0: 1,100 configurations, ")
    assert "block size 16" in lines[1]
    assert lines[2].split()[:3] == ["none", "full", "-"]
    assert lines[-1] == "Nothing was found."
    assert list(tmp_path.iterdir()) == []


def test_what_disagrees_is_told_and_replayed(kvspec: Any, tmp_path: Path) -> None:
    done = diff(kvspec, "--plant", FOUND, "--configurations", 600, "--save", tmp_path)
    assert done.status == 1
    assert "C9: request 0 held " in done.out
    assert "    finish(request 0)" in done.out
    (path,) = tmp_path.iterdir()
    assert f"reproduce: kvspec replay {path} --engine vllm==0.33.0 --plant end_forgets" in done.out
    again = kvspec("replay", path, "--engine", "vllm==0.33.0", "--plant", FOUND)
    assert again.status == 1
    assert "C9: request 0 held " in again.out
    right = kvspec("replay", path)
    assert (right.status, right.out.splitlines()[-1]) == (0, "Nothing disagrees.")


def test_json(kvspec: Any, tmp_path: Path) -> None:
    done = diff(kvspec, "--plant", FOUND, "--configurations", 600, "--save", tmp_path, "--json")
    told = json.loads(done.out)
    assert (done.status, told["clean"], told["found"][0]["law"]) == (1, False, "C9")
    assert sum(cell["configurations"] for cell in told["cells"]) == told["configurations"]


def test_known_findings_are_no_failure(kvspec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = compare.Comparison(example.Client(plants=(FOUND,)))  # type: ignore[arg-type]
    wrong.run(configurations=600)
    monkeypatch.setattr(finding, "known", lambda engine, version, case: [("one", wrong.findings()[0])])
    stands = diff(kvspec, "--plant", FOUND, "--configurations", 600, "--save", tmp_path)
    assert stands.status == 0
    assert "known finding one still breaks C9; seen " in stands.out
    gone = diff(kvspec, "--configurations", 600, "--save", tmp_path)
    assert gone.status == 1
    assert "known finding one no longer breaks C9; seen 0 times" in gone.out
    unaided = diff(kvspec, "--plant", FOUND, "--configurations", 600, "--save", tmp_path, "--unaided")
    assert unaided.status == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--laws", "C12"), f"--laws is 'C12'; {OWN}"),
        (("--laws", "C5-C2"), f"--laws is 'C5-C2'; {OWN}"),
        (("--laws", "C,A"), f"--laws is 'C,A'; {OWN}"),
        (("--laws", "X9"), f"--laws is 'X9'; {SCHEDULERS}"),
        (("--laws", ""), f"--laws is ''; {SCHEDULERS}"),
        (("--laws", "A,C1"), f"--laws is 'A,C1'; {SCHEDULERS}"),
        (("--configurations", "-1"), "--configurations is -1; give a number above 0"),
        (("--seconds", "-1"), "--seconds is -1; give a number above 0"),
        (("--seed", "-1"), "--seed is -1; give 0 or more"),
        (("--laws", "C", "--traces", "3"), "--traces is for a scheduler: give --laws A,R,P with it"),
        (("--laws", "C", "--policy", "fcfs"), "--policy is for a scheduler: give --laws A,R,P with it"),
        (
            ("--laws", "A", "--configurations", "3"),
            "--configurations is for capacity: give --laws C with it, or --traces",
        ),
        (("--part", "pool"), "--part is for pools of pages; vllm is compared otherwise: give --laws, --policy"),
    ],
)
def test_bad_input(kvspec: Any, words: tuple[str, ...], says: str) -> None:
    done = diff(kvspec, *words)
    assert (done.status, done.complaint, done.out) == (2, f"kvspec: {says}", "")


def test_a_file_that_is_no_finding(kvspec: Any, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    done = kvspec("replay", tmp_path / "x.json")
    assert (done.status, done.out) == (2, "")
    assert (
        done.complaint
        == f"kvspec: {tmp_path / 'x.json'}: no finding that kvspec has written: Object missing required field `engine`"
    )


def test_capacity_is_for_vllm(kvspec: Any) -> None:
    done = kvspec("diff", "--laws", "C1")
    assert (done.status, done.out) == (2, "")
    assert done.complaint == "kvspec: --laws, --policy and --configurations are for --engine vllm==0.33.0, for example"
    done = kvspec("report", "--engine", "vllm==0.33.0")
    assert (done.status, done.out) == (2, "")
