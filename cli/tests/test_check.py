"""`kvspec check`: the main job."""

import json
import re
import shlex
from pathlib import Path

import pytest
from kvspec import registry
from kvspec_diff.subjects.torch import Torch
from kvspec_reference import drain
from msgspec import structs


def test_everything_holds(kvspec) -> None:
    done = kvspec("check", "--seconds", 1, "--json")
    found = json.loads(done.out)
    assert (done.status, found["holds"]) == (0, True)
    whats = [each["what"] for each in found["checks"]]
    proofs = [f"proof of {name}" for name in (*registry.MACHINES, *registry.ALGORITHMS)]
    assert whats[: len(proofs)] == proofs
    assert [what.split()[2] for what in whats[len(proofs) : -3]] == registry.variant_names()
    against = ["late joins against plain decoding", "reference against specification", "torch against reference"]
    assert whats[-3:] == against
    assert re.match(r"\d,\d{3} schedules, [\d,]+ steps, 0 differences", found["checks"][-3]["figures"])
    bugs = {each["what"].split()[2]: each["figures"] for each in found["checks"][len(proofs) : -3]}
    for name in registry.variant_names():
        assert bugs[name].startswith(f"{registry.variant(name).breaks} refuted by ")
        assert re.search(r", reached in \d+ steps?$", bugs[name])


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    """One machine and one known bug."""
    monkeypatch.setattr(registry, "MACHINES", ("pages",))
    monkeypatch.setattr(registry, "ALGORITHMS", ())
    monkeypatch.setattr(registry, "variant_names", lambda: ["vllm-56524"])


@pytest.mark.usefixtures("little")
def test_one_screen(kvspec) -> None:
    done = kvspec("check", "--seconds", 0.3)
    assert done.status == 0
    assert len(done.out.splitlines()) == 8
    assert [line[:6] for line in done.out.splitlines() if line.startswith("ok")] == [
        "ok  pr",
        "ok  kn",
        "ok  la",
        "ok  re",
        "ok  to",
    ]
    assert done.out.splitlines()[-1] == "Everything holds."


@pytest.mark.usefixtures("little")
def test_what_fails_is_reproduced_by_the_command(kvspec, monkeypatch: pytest.MonkeyPatch, folders: Path) -> None:
    run = Torch.run

    def wrong(self: Torch, program):
        outcomes = run(self, program)
        return [*outcomes[:-1], *(structs.replace(last, available=999) for last in outcomes[-1:])]

    monkeypatch.setattr(Torch, "run", wrong)
    done = kvspec("check", "--seconds", 0.3)
    assert done.status == 1
    last = done.out.splitlines()[-1]
    assert last.startswith("torch against reference FAILED. Reproduce: kvspec replay ")
    assert str(folders) in last
    again = kvspec(*shlex.split(last.partition("Reproduce: kvspec ")[2]))
    assert again.status == 1
    assert "available" in again.out


@pytest.mark.usefixtures("little")
def test_a_late_join_that_breaks_a_law(kvspec, monkeypatch: pytest.MonkeyPatch) -> None:
    merge = drain.Batch.merge

    def twice(self: drain.Batch, rows, raises=False) -> None:
        merge(self, rows, raises)
        rows[0].queue.append(rows[0].queue[0])

    monkeypatch.setattr(drain.Batch, "merge", twice)
    done = kvspec("check", "--seconds", 0.3)
    assert done.status == 1
    assert "J1 broken" in done.out
    last = done.out.splitlines()[-1]
    assert last == "late joins against plain decoding FAILED. Reproduce: python -m kvspec_diff.draining"


@pytest.mark.usefixtures("little")
def test_a_bug_that_is_not_found_again(kvspec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.variant("vllm-56524"), "breaks", "R6")
    done = kvspec("check", "--seconds", 0.3)
    assert done.status == 1
    assert "R6 is not refuted" in done.out
    assert "Reproduce: kvspec prove --variant vllm-56524" in done.out
