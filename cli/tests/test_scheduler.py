"""`kvspec diff --engine vllm==... --laws A,R,P` on a scheduler that is a few lines long, right and wrong."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kvspec_diff import engines
from kvspec_diff.batched import client, finding
from kvspec_diff.schedulers import compare, example

FOUND = "last_first"


@pytest.fixture(autouse=True)
def _example(monkeypatch: pytest.MonkeyPatch) -> None:
    there = engines.Environment("vllm", "0.33.0", Path(), "vllm", Path(sys.executable))
    monkeypatch.setattr(engines, "find", lambda name, version: there)
    monkeypatch.setattr(client, "Client", example.Client)
    monkeypatch.setattr(finding, "known", lambda engine, version, case: [])


def diff(kvspec: Any, *words: Any) -> Any:
    return kvspec("diff", "--engine", "vllm==0.33.0", "--laws", "A,R,P", *words)


def test_a_scheduler_that_is_right(kvspec: Any, tmp_path: Path) -> None:
    done = diff(kvspec, "--traces", 200, "--save", tmp_path)
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("vllm==0.33.0, fcfs and priority: 200 programs, ")
    assert lines[-1] == "Nothing was found."
    assert list(tmp_path.iterdir()) == []


def test_one_policy_and_a_time(kvspec: Any, tmp_path: Path) -> None:
    done = diff(kvspec, "--policy", "priority", "--seconds", 1, "--save", tmp_path)
    assert done.status == 0
    assert done.out.startswith("vllm==0.33.0, priority: ")


def test_what_breaks_a_law_is_told_and_replayed(kvspec: Any, tmp_path: Path) -> None:
    done = diff(kvspec, "--plant", FOUND, "--traces", 200, "--save", tmp_path)
    assert done.status == 1
    assert "A3: request 1 is admitted: the oldest request is neither passed for memory nor preempted" in done.out
    assert re.search(r"  full of 1; policy \w+, method none, length 2", done.out)
    assert "    add(request 1, prompt 1, shared 0, tokens 1, " in done.out
    assert "may need" in done.out
    assert done.out.splitlines()[-1] == (
        "Run again: kvspec diff --engine vllm==0.33.0 --plant last_first --laws A,R,P --seed 0 --traces 200"
    )
    (path,) = tmp_path.iterdir()
    assert f"reproduce: kvspec replay {path} --engine vllm==0.33.0 --plant last_first" in done.out
    again = kvspec("replay", path, "--engine", "vllm==0.33.0", "--plant", FOUND)
    assert again.status == 1
    assert "A3: request 1 is admitted" in again.out
    right = kvspec("replay", path)
    assert (right.status, right.out.splitlines()[-1]) == (0, "Nothing disagrees.")


def test_laws_that_are_not_asked_for(kvspec: Any, tmp_path: Path) -> None:
    words = ("diff", "--engine", "vllm==0.33.0", "--plant", FOUND, "--traces", 200, "--save", tmp_path)
    assert kvspec(*words, "--laws", "R,P").status == 0
    assert kvspec(*words, "--laws", "A1-A4").status == 1
    assert kvspec(*words).status == 1, "--traces is for a scheduler, so its laws are meant"


def test_json(kvspec: Any, tmp_path: Path) -> None:
    done = diff(kvspec, "--plant", FOUND, "--traces", 200, "--save", tmp_path, "--json")
    told = json.loads(done.out)
    assert (done.status, told["clean"], told["found"][0]["law"]) == (1, False, "A3")
    assert told["policies"] == ["fcfs", "priority"]
    assert told["figures"]["programs"] == 200


def test_known_findings_are_no_failure(kvspec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = compare.Comparison(example.Client(plants=(FOUND,)))  # type: ignore[arg-type]
    wrong.run(programs=200)
    monkeypatch.setattr(finding, "known", lambda engine, version, case: [("one", wrong.findings()[0])])
    stands = diff(kvspec, "--plant", FOUND, "--traces", 200, "--save", tmp_path)
    assert stands.status == 0
    assert "known finding one still breaks A3; seen " in stands.out
    assert "Nothing else was found." in stands.out
    gone = diff(kvspec, "--traces", 200, "--save", tmp_path)
    assert gone.status == 1
    assert "known finding one no longer breaks A3; seen 0 times" in gone.out
    assert diff(kvspec, "--plant", FOUND, "--traces", 200, "--save", tmp_path, "--unaided").status == 1


def test_a_replay_says_why(kvspec: Any, tmp_path: Path) -> None:
    made = compare.Comparison(example.Client(plants=(FOUND,)))  # type: ignore[arg-type]
    made.run(programs=200)
    finding.write(tmp_path / "x.json", msgspec.structs.replace(made.findings()[0], explanation="because", upstream="u"))
    done = kvspec("replay", tmp_path / "x.json", "--plant", FOUND)
    assert "    and on, until every request is at its end\n" in done.out
    assert done.out.endswith("Found on vllm 0.33.0: because\n  u\n")


CHANGES: dict[str, tuple[str, Any, str]] = {
    "a pool of too many blocks": ("setup.pool", 10**12, "Expected `int` <= 100000 - at `$.case.setup.pool`"),
    "a pool below 0": ("setup.pool", -1, "Expected `int` >= 1 - at `$.case.setup.pool`"),
    "a block of no tokens": ("setup.groups", [["full", 0, 0]], "Expected `int` >= 1 - at `$.case.setup.groups[0][1]`"),
    "no groups": ("setup.groups", [], "Expected `array` of length >= 1 - at `$.case.setup.groups`"),
    "an unknown kind": ("setup.groups", [["x", 1, 0]], "Invalid enum value 'x' - at `$.case.setup.groups[0][0]`"),
    "a chunk of a part": ("setup.groups", [["chunk", 4, 3]], "a chunk of chunked attention is whole blocks"),
    "no depth": ("setup.depth", 0, "Invalid enum value 0 - at `$.case.setup.depth`"),
    "an unknown method": ("setup.method", "zzz", "vllm==0.33.0 has no speculative method 'zzz': it has none, ngram"),
    "an empty step": ("steps", [[]], "step 0 is no operation with its numbers, 0 to 100000: ()"),
    "an unknown step": ("steps", [["explode", 1]], "step 0 is no operation with its numbers, 0 to 100000: explode(1,)"),
    "too few numbers": ("steps", [["add", 1]], "step 0 is no operation with its numbers, 0 to 100000: add(1,)"),
    "no numbers": ("steps", [["retire", "x", "y"]], "its numbers, 0 to 100000: retire('x', 'y')"),
    "a prompt below 0": (
        "steps",
        [["add", 0, -5, 0, 1, 0]],
        "step 0 is no operation with its numbers, 0 to 100000: add(0, -5, 0, 1, 0)",
    ),
    "too long a prompt": ("steps", [["add", 0, 90, 0, 1, 0]], "step 0: a request cannot have 90 tokens, 0 of them"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_finding_that_was_changed_by_hand(kvspec: Any, tmp_path: Path, change: str) -> None:
    made = compare.Comparison(example.Client(plants=(FOUND,)))  # type: ignore[arg-type]
    made.run(programs=200)
    finding.write(tmp_path / "x.json", made.findings()[0])
    told = json.loads((tmp_path / "x.json").read_text())
    path, value, says = CHANGES[change]
    at = told["case"]
    *outer, last = path.split(".")
    for name in outer:
        at = at[name]
    at[last] = value
    (tmp_path / "x.json").write_text(json.dumps(told))
    done = kvspec("replay", tmp_path / "x.json")
    assert (done.status, done.out) == (2, "")
    assert says in done.complaint


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--policy", "lottery"), "Invalid value"),
        (("--traces", "0"), "--traces is 0; give a number above 0"),
        (("--seconds", "-1"), "--seconds is -1; give a number above 0"),
        (("--seed", "-1"), "--seed is -1; give 0 or more"),
        (("--configurations", "3"), "--configurations is for capacity: give --laws C with it, or --traces"),
        (("--allocator", "token"), "--allocator is for pools of pages; vllm is compared otherwise"),
    ],
)
def test_bad_input(kvspec: Any, words: tuple[str, ...], says: str) -> None:
    done = diff(kvspec, *words)
    assert (done.status, done.out) == (2, "")
    assert says in done.complaint


def test_policies_are_for_schedulers(kvspec: Any) -> None:
    done = kvspec("diff", "--policy", "fcfs")
    assert (done.status, done.out) == (2, "")
    assert done.complaint.startswith("kvspec: --laws, --policy and --configurations are for ")
