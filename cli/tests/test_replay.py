"""`kvspec replay`: on a subject, on an engine, or as recorded."""

import json
from pathlib import Path

import pytest

HEADER = {"kvspec": 1, "machine": "deferred_free", "configuration": {"pages": 4, "page_size": 1}}
VIEWS = [
    {"op": "start", "row": "a", "prompt": 0},
    {"op": "allocate", "row": "a", "tokens": 2},
    {"op": "begin"},
    {"op": "trim", "row": "a", "tokens": 0},
    {"op": "allocate", "row": "a", "tokens": 2},
    {"op": "end"},
]


@pytest.fixture
def views(tmp_path: Path) -> Path:
    return written(tmp_path / "views.jsonl", HEADER, VIEWS)


def written(path: Path, header: dict[str, object], steps: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in (header, *steps)))
    return path


@pytest.mark.parametrize("subject", [["--subject", "reference"], ["--subject", "torch"], ["--engine", "example==1"]])
def test_a_trace_that_passes(kvspec, views: Path, subject: list[str]) -> None:
    done = kvspec("replay", views, *subject)
    assert done.status == 0
    assert "4  allocate(row=a, tokens=2)" in done.out
    assert done.out.splitlines()[-1] == "Passed: no law is broken."


def test_a_trace_that_fails(kvspec, views: Path) -> None:
    done = kvspec("replay", views, "--engine", "example==1", "--no-hostile", "--plant", "keep_views")
    assert done.status == 1
    assert "operation 5, end, breaks D1: page 3 is blank and should not be: row a holds it at entry 0" in done.out
    command = f"kvspec replay {views} --engine example==1 --no-hostile --plant keep_views"
    assert done.out.splitlines()[-1] == f"Reproduce: {command}"


def test_options_are_those_of_the_trace_unless_given(kvspec, tmp_path: Path) -> None:
    steps = [*VIEWS[:4], VIEWS[5]]
    hostile = written(tmp_path / "trace.jsonl", HEADER | {"subject": "example==1 hostile=true"}, steps)
    arguments = ("replay", hostile, "--engine", "example==1", "--plant", "keep_views")
    assert kvspec(*arguments).status == 1
    assert kvspec(*arguments, "--no-hostile").status == 0
    untold = written(tmp_path / "trace.jsonl", HEADER, steps)
    assert kvspec(*arguments[:1], untold, *arguments[2:]).status == 1, "where nothing is said, everything is tried"


def test_as_recorded(kvspec, tmp_path: Path) -> None:
    outcomes = [{"status": "done"}, {"status": "done", "pages": [1, 2], "slots": [1, 2], "blank": [3, 4]}]
    steps = [step | {"outcome": outcome} for step, outcome in zip(VIEWS, outcomes, strict=False)]
    path = written(tmp_path / "trace.jsonl", HEADER | {"subject": "mine"}, [*steps, VIEWS[2]])
    done = kvspec("replay", path)
    assert (done.status, done.out.splitlines()[0]) == (0, "mine")
    outcomes[1]["blank"] = [2, 3, 4]
    steps[1] = VIEWS[1] | {"outcome": outcomes[1]}
    done = kvspec("replay", written(path, HEADER, steps), "--json")
    found = json.loads(done.out)
    assert (done.status, found["subject"], found["passed"]) == (1, "recorded", False)
    assert found["says"].startswith(f"operation 1, allocate, breaks {found['law']}: page 2 is blank and should not be")
    assert found["reproduce"] == f"kvspec replay {path}"
    assert len(found["operations"]) == len(found["outcomes"]) == 2


def test_a_fault_in_torch_is_named_by_the_law(kvspec, views: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kvspec_torch import DeferredPagePool

    def early(self: DeferredPagePool) -> None:
        """Groups do not defer."""

    monkeypatch.setattr(DeferredPagePool, "begin", early)
    done = kvspec("replay", views, "--subject", "torch", "--json")
    found = json.loads(done.out)
    assert (done.status, found["subject"]) == (1, "torch-host")
    assert found["law"] == "O6", "what is given up in a group is not available before its end"
