"""GitHub annotations of failures, each at the file that it is about."""

from pathlib import Path

import pytest
from kvspec import registry
from kvspec_cli import check, diff, github, prove
from kvspec_diff.report.annotations import line_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(ROOT))


def errors(err: str) -> list[str]:
    return [line for line in err.splitlines() if line.startswith("::error ")]


def test_an_obligation_that_is_not_proved(kvspec, runner: None) -> None:
    done = kvspec("prove", "--variant", "vllm-56524", "--json")
    (line,) = errors(done.err)
    assert line.startswith("::error file=spec/kvspec/read_law.py,line=")
    assert ",title=not proved%3A R4::ReadsUnwritten.settle: R4 read_was_written (z3: sat, cvc5: not asked)%0A" in line
    assert done.out.startswith("{")
    number = int(line.partition("line=")[2].partition(",")[0])
    around = (ROOT / "spec/kvspec/read_law.py").read_text().splitlines()[number - 1 : number + 1]
    assert any("def read_was_written" in text for text in around)


def test_nobody_else_is_told(kvspec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert errors(kvspec("prove", "--variant", "vllm-56524").err) == []


def test_a_check_that_fails(kvspec, runner: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MACHINES", ("pages",))
    monkeypatch.setattr(registry, "ALGORITHMS", ())
    monkeypatch.setattr(registry, "variant_names", lambda: ["vllm-56524"])
    monkeypatch.setattr(registry.variant("vllm-56524"), "breaks", "R6")
    done = kvspec("check", "--seconds", 0.2)
    assert done.status == 1
    (line,) = errors(done.err)
    assert line.startswith("::error file=spec/kvspec/variants/vllm_56524.py,line=1,title=kvspec check%3A known bug ")
    assert line.endswith("%0AReproduce: kvspec prove --variant vllm-56524")


def test_every_kind_of_check() -> None:
    checks = [
        check.Checked("proof of pages", False, "1 of 2", 0, "kvspec prove pages"),
        check.Checked("proof of ring", True, "2 of 2", 0, "kvspec prove ring"),
        check.Checked("torch against the reference", False, "1 difference", 0, "kvspec replay x --subject torch"),
    ]
    one, other = github.of_check(check.Result(False, checks))
    assert (one.file and one.file.name, one.line) == ("pages.py", 1)
    assert (other.file, other.line) == (None, None)
    assert other.message == "1 difference\nReproduce: kvspec replay x --subject torch"


def test_a_difference_and_a_finding_that_no_longer_stands(
    kvspec, runner: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = diff.Found("O2", "torch host", "operation 3, free, breaks O2: twice", [], 4, str(ROOT / "t.jsonl"), "again")
    names = sorted(path.name for path in (ROOT / "diff_tests/kvspec_diff/findings/sglang/0.5.17").iterdir())
    known = [diff.Known(names[0], "D1", "", False, "it passes"), diff.Known(names[1], "D1", "", True, "")]
    result = diff.Compared("sglang==0.5.17", 0, False, {"runs": 1}, "1 trace", known, 0, [found], [], "kvspec diff")
    first, second = (line_of(each, ROOT) for each in github.of_diff(result))
    assert first == (
        "::error file=t.jsonl,line=1,title=kvspec diff%3A O2::"
        "torch host, 4 runs: operation 3, free, breaks O2: twice%0AReproduce: again"
    )
    place = f"diff_tests/kvspec_diff/findings/sglang/0.5.17/{names[0]}"
    assert (ROOT / place).is_file()
    assert second.startswith(f"::error file={place},line=1,title=kvspec diff%3A known finding of sglang==0.5.17::")
    monkeypatch.setattr(diff, "compute", lambda *_: (result, []))
    monkeypatch.setattr(diff, "show", lambda *_: None)
    assert errors(kvspec("diff", "--subject", "reference").err) == [first, second]


def test_an_obligation_of_no_law() -> None:
    unproved = prove.Unproved("Pages.acquire: domain refs", "domain", "", "sat", "sat")
    result = prove.Result(False, [prove.Proved("pages", "", 1, 0, 0, {}, {}, [unproved])])
    (found,) = github.of_prove(result)
    assert (found.file and found.file.name, found.line) == ("pages.py", 1)
