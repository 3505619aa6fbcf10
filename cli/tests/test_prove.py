"""`kvspec prove`: figures, failures, files."""

import json
import re
from pathlib import Path

import pytest
from kvspec.registry import ALGORITHMS, MACHINES

LAWS = {
    "pages": "O1 O2 O3 O4 O5 O6 O9 R3",
    "read_law": "O1 O2 O3 O4 O5 O6 O7 O8 O9 O10 O11 R1 R2 R3 R4 R5 R6",
    "deferred_free": "D1 D2 D3 D4 O1 O2 O3 O4 O5 O6 O7 O8 O9 O10 O11 R1 R2 R3 R4 R5 R6",
}
"""The laws of the two subjects, without those that tests stand for (D5, D6)."""


def test_every_law_is_proved_by_both_solvers(kvspec) -> None:
    done = kvspec("prove", "--json")
    found = json.loads(done.out)
    assert done.status == 0
    assert found["proved"] is True
    assert [each["subject"] for each in found["machines"]] == [*MACHINES, *ALGORITHMS]
    for each in found["machines"]:
        assert list(each["laws"]) == LAWS.get(each["subject"], " ".join(each["laws"])).split()
        assert min(each["laws"].values()) > 0
        assert (each["unknown"], each["unproved"]) == (0, [])
        assert sum(each["fragments"].values()) == each["obligations"] >= sum(each["laws"].values())


def test_the_figures_as_text(kvspec) -> None:
    done = kvspec("prove", "pages", "pages")
    assert done.status == 0
    assert done.err.splitlines()[0] == "proving pages"
    title, figures, fragments, laws, verdict = done.out.splitlines()
    assert title == "pages"
    assert re.fullmatch(r"  (\d+) of \1 obligations proved by z3 and by cvc5, 0 unknown; \d+ skipped", figures)
    assert fragments.startswith("  fragments: ")
    assert laws == f"  laws: {LAWS['pages']}"
    assert verdict == "Everything is proved."


def test_a_known_bug(kvspec) -> None:
    done = kvspec("prove", "--variant", "vllm-56524")
    assert done.status == 1
    assert "ReadsUnwritten.settle: R4 read_was_written" in done.out
    assert "It breaks R4." in done.out
    assert "The last step breaks R4 read_was_written." in done.out
    assert done.out.splitlines()[-1] == "Reproduce: kvspec prove --variant vllm-56524"


def test_a_known_bug_as_json(kvspec) -> None:
    done = kvspec("prove", "--variant", "lmcache-3130", "--seed", 7, "--json")
    found = json.loads(done.out)
    (machine,) = found["machines"]
    assert (done.status, found["proved"]) == (1, False)
    assert (machine["subject"], machine["variant"]) == ("lmcache-3130", "LMCache#3130")
    assert "O4" in {each["law"] for each in machine["unproved"]}
    assert all(each["z3"] == "sat" for each in machine["unproved"])
    step = machine["counterexample"]
    assert " O4 " in step["obligation"]
    assert any(row["after"] for row in step["state"])
    assert [each["step"] for each in machine["run"]["steps"]] == [1, 2, 3]
    assert any(law.startswith("O4 ") for law in machine["run"]["broken"])
    assert found["reproduce"] == "kvspec prove --variant lmcache-3130 --seed 7"


def test_obligations_as_files(kvspec, tmp_path: Path) -> None:
    folder = tmp_path / "smt"
    folder.mkdir()
    done = kvspec("prove", "pages", "--smt", folder, "--json")
    files = sorted(folder.rglob("*"))
    (machine,) = json.loads(done.out)["machines"]
    texts = [path.read_text() for path in files if path.is_file()]
    assert len(texts) == machine["obligations"]
    assert all(text.startswith("(set-logic ALL)") and "(check-sat)" in text for text in texts)
    assert (folder / "pages").is_dir()
    assert any("-acquire-O1-" in path.name for path in files)


def test_no_half_of_the_files(kvspec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    written = []

    def text(obligation: object) -> str:
        written.append(obligation)
        if len(written) == 5:
            raise OSError(28, "No space left on device")
        return ""

    monkeypatch.setattr("kvspec_proofs.solvers.smt_text", text)
    done = kvspec("prove", "pages", "--smt", tmp_path / "smt")
    assert done.status == 2
    assert done.complaint.endswith("smt: cannot be written (No space left on device); nothing was left there")
    assert list(tmp_path.iterdir()) == []
