"""`kvspec report`: what goes into the file, what it says of it, its exit status, and what it refuses."""

import json
from pathlib import Path

import itf_py
import pytest
from kvspec import registry
from kvspec.operations import Allocate, Configuration, Outcome, Start
from kvspec_cli import places
from kvspec_diff import trace

QUICK = ("--no-proofs", "--seconds", 0)
BUG = ("--variant", "vllm-56524")


def saved(folder: Path, *, right: bool, name: str = "mine.jsonl") -> Path:
    """A trace of one allocation, which hands out page 1 or the null page."""
    page = 1 if right else 0
    outcomes = (Outcome("done"), Outcome("done", pages=(page,), slots=(page,)))
    operations = (Start("a", 0), Allocate("a", 1))
    trace.write(folder / name, trace.Trace(trace.header(Configuration(2, 1)), operations, outcomes))
    return folder / name


def test_a_known_bug_alone(kvspec, tmp_path: Path) -> None:
    out, itf = tmp_path / "x.html", tmp_path / "itf"
    done = kvspec("report", *BUG, *QUICK, "--out", out, "--itf", itf)
    assert done.status == 0
    assert done.out.splitlines() == [
        f"{len(laws())} laws, no proofs, no comparisons, 0 known findings",
        "1 runs to step through: vllm-56524 (vllm#56524)",
        f"1 ITF traces in {itf}",
        f"{out}: {out.stat().st_size:,} bytes, to be opened in a browser",
        "Nothing was found in what was run.",
    ]
    assert out.read_text().count('<article class="run"') == 1
    assert {path.name for path in tmp_path.iterdir()} - {"state", "cache"} == {"x.html", "itf"}
    read = itf_py.trace_from_json(json.loads((itf / "vllm-56524.itf.json").read_text()))
    assert [state.values["action"] for state in read.states] == ["", "acquire", "settle"]


def laws() -> list[str]:
    from kvspec_diff.report.collect import law_rows

    return [row.law for row in law_rows([])]


def test_everything_as_json(kvspec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MACHINES", ("pages",))
    monkeypatch.setattr(registry, "ALGORITHMS", ())
    monkeypatch.setattr(registry, "variant_names", lambda: ["lmcache-3130", "vllm-56524"])
    out = tmp_path / "x.html"
    done = kvspec("report", "--seconds", 0.5, "--out", out, "--json")
    told = json.loads(done.out)
    assert (done.status, told["holds"], told["missing"], told["itf"]) == (0, True, [], [])
    assert told["proved"] == told["obligations"] > 60
    assert told["programs"] > 2
    assert told["counterexamples"][:2] == ["lmcache-3130 (LMCache#3130)", "vllm-56524 (vllm#56524)"]
    assert len(told["counterexamples"]) == 2 + len(told["findings"]) >= 5
    text = out.read_text()
    assert "\u2713 holds<" in text
    assert told["bytes"] == out.stat().st_size
    assert all(f'id="law-{law}"' in text for law in ("O1", "O5"))
    assert text.count('<article class="run"') == len(told["counterexamples"])


def test_a_trace_that_breaks_a_law_is_a_finding(kvspec, tmp_path: Path) -> None:
    good, bad = saved(tmp_path, right=True), saved(tmp_path, right=False, name="bad.jsonl")
    out = tmp_path / "x.html"
    done = kvspec("report", *QUICK, "--trace", good, "--out", out)
    assert (done.status, done.out.splitlines()[-1]) == (0, "Nothing was found in what was run.")
    assert "breaks no law" in out.read_text()
    done = kvspec("report", *QUICK, "--trace", good, "--trace", bad, "--out", out)
    assert (done.status, done.out.splitlines()[-1]) == (1, "Something was found; see the file.")
    assert "breaks R3" in out.read_text()
    assert "the null page was handed out" in out.read_text()


def test_the_known_findings_alone(kvspec, tmp_path: Path) -> None:
    done = kvspec("report", *QUICK, "--findings", "--out", tmp_path / "x.html", "--json")
    told = json.loads(done.out)
    assert done.status == 0
    assert told["counterexamples"] == told["findings"] != []


def test_a_bug_that_no_run_reaches_is_told(kvspec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.variant("vllm-56524"), "breaks", "R5")
    monkeypatch.setattr("kvspec_diff.report.collect.BUDGETS", (50,))
    done = kvspec("report", *BUG, *QUICK, "--out", tmp_path / "x.html")
    assert done.status == 1
    assert "No run of the known bug vllm-56524 was found at the small scopes." in done.out
    assert "No run of the known bug vllm-56524" in (tmp_path / "x.html").read_text()


def test_comparisons_that_were_made_before(kvspec, tmp_path: Path) -> None:
    made = tmp_path / "torch.json"
    made.write_text(kvspec("diff", "--subject", "reference", "--traces", 20, "--json").out)
    out = tmp_path / "x.html"
    done = kvspec("report", *BUG, "--no-proofs", "--compared", made, "--out", out, "--json")
    assert (done.status, json.loads(done.out)["programs"]) == (0, 20)
    assert "kvspec diff --subject reference --traces 20" in out.read_text()
    document = json.loads(made.read_text())
    found = {"law": "O2", "subject": "s", "says": "twice", "operations": [], "runs": 3, "trace": "t", "reproduce": "r"}
    made.write_text(json.dumps({**document, "clean": False, "found": [found]}))
    done = kvspec("report", *BUG, "--no-proofs", "--compared", made, "--out", out)
    assert (done.status, done.out.splitlines()[-1]) == (1, "Something was found; see the file.")
    assert "3 runs: twice" in out.read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--variant", "sglang-34068"], "unknown variant 'sglang-34068' (did you mean 'sglang-34067'?)"),
        (["--seconds", -1], "--seconds is -1; give a number above 0"),
        (["--seed", -1], "--seed is -1"),
        (["--out", "{folder}"], "is a folder; name a file"),
        (["--out", "{folder}/no/x.html"], "make it first"),
        (["--itf", "{folder}/full"], "is there already; name a new or an empty folder"),
        (["--trace", "{folder}/no.jsonl"], "no.jsonl: cannot be read"),
        (["--trace", "{folder}/full/x"], "x:1: not JSON"),
        (["--compared", "{folder}/full/x"], "not a result of `kvspec diff --json`"),
        (["--compared", "{folder}/no.json"], "No such file"),
    ],
)
def test_bad_input(kvspec, tmp_path: Path, arguments: list[object], says: str) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("nothing\n")
    before = sorted(tmp_path.rglob("*"))
    place = [] if "--out" in arguments else ["--out", tmp_path / "x.html"]
    quick = QUICK[:1] if "--seconds" in arguments else QUICK
    done = kvspec("report", *quick, *place, *(str(each).format(folder=tmp_path) for each in arguments))
    assert (done.status, done.out) == (2, "")
    assert done.complaint.startswith("kvspec: ")
    assert says in done.complaint
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_is_left_when_writing_fails(kvspec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, itf = tmp_path / "x.html", tmp_path / "itf"
    out.write_text("as it was")

    def fails(*_: object) -> None:
        raise OSError(28, "No space left on device", "somewhere")

    monkeypatch.setattr(places.os, "replace", fails)
    done = kvspec("report", *BUG, *QUICK, "--out", out)
    says = f"kvspec: {out}: cannot be written (No space left on device); nothing was left there"
    assert (done.status, done.complaint) == (2, says)
    assert out.read_text() == "as it was"
    monkeypatch.undo()
    monkeypatch.setattr("kvspec_diff.report.itf.document", fails)
    kept = {path.name for path in tmp_path.iterdir()}
    assert kvspec("report", *BUG, *QUICK, "--out", out, "--itf", itf).status == 2
    assert {path.name for path in tmp_path.iterdir()} == kept
