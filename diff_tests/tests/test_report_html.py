"""The HTML file: whole, by itself, and escaped; the laws and proofs in it are what the machines say."""

import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest
from kvspec.operations import Allocate, Begin, Configuration, End, Outcome, Start
from kvspec.registry import MACHINES, machine, variant, variant_names
from kvspec_diff import trace
from kvspec_diff.report import collect, html
from kvspec_diff.report.data import Comparison, Finding, Found, LawProof, Report
from kvspec_proofs.obligations import obligations
from kvspec_proofs.prove import Proof, Verdict

HOSTILE = (
    "</p></script><script>document.title='owned'</script><img src=x onerror=alert(1)>\"'><a href=javascript:alert(1)>"
)


def proof_of(name: str, *answers: tuple[str, str]) -> Proof:
    """A proof as the solvers would answer it; `answers` are those of the first obligations."""
    listed = obligations(machine(name))
    told = [*answers, *[("unsat", "unsat")] * (len(listed.proofs) - len(answers))]
    verdicts = [Verdict(obligation, *each) for obligation, each in zip(listed.proofs, told, strict=True)]
    return Proof(machine(name), tuple(verdicts), listed.skipped)


def trace_file(folder: Path, note: str) -> Path:
    path = folder / "mine.jsonl"
    configuration = Configuration(2, 1)
    operations = (Start("a", 0), Allocate("a", 1), Begin(), End())
    outcomes = (
        Outcome("done"),
        Outcome("done", pages=(1,), slots=(1,)),
        Outcome("done"),
        Outcome("error", reason=note),
    )
    trace.write(path, trace.Trace(trace.header(configuration, subject=note, note=note), operations, outcomes))
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    known = collect.known_findings()
    shown = collect.unique(
        [*(run for _, run in known), collect.of_trace(trace_file(tmp_path_factory.mktemp("t"), HOSTILE))]
    )
    comparison = Comparison(
        "torch", 3, False, {"runs": 1234.0, "operations": 56789.0}, HOSTILE, [HOSTILE],
        [Found("O2", "torch", HOSTILE, 7, f"kvspec replay {HOSTILE}")], "kvspec diff --seed 3",
    )  # fmt: skip
    hostile = Finding("sglang", HOSTILE, HOSTILE, "D1", HOSTILE, [], False, shown[0].counterexample.slug)
    proofs = [proof_of("pages"), proof_of("read_law", ("unsat", "unknown"), ("sat", "not asked"))]
    return Report(
        version="0.1.0",
        holds=False,
        laws=collect.law_rows(proofs),
        proofs=collect.proof_rows(proofs),
        comparisons=[comparison],
        findings=[*(row for row, _ in known), hostile],
        counterexamples=[each.counterexample for each in shown],
        missing=[HOSTILE],
    )


class Page(HTMLParser):
    """What the file consists of; a tag that is closed out of turn is an error."""

    EMPTY = ("meta", "link", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.text.append(data)


def problems(text: str) -> list[str]:
    """What would make the file more than one, or let something in it run."""
    page = Page(text)
    found = []
    ids = Counter(attrs["id"] for _, attrs in page.tags if "id" in attrs)
    found += [f"{name} is there {count} times" for name, count in ids.items() if count > 1]
    for tag, attrs in page.tags:
        found += [f"{tag} has {name}" for name in attrs if name.startswith("on") or name == "style"]
        target = attrs.get("href") or ""
        if tag == "a" and target.startswith("#") and target[1:] not in ids:
            found.append(f"{target} leads nowhere")
        elif tag == "a" and not target.startswith(("#", "https://")):
            found.append(f"a link to {target}")
        elif tag != "a" and (attrs.get("src") or target not in ("", "data:,")):
            found.append(f"{tag} loads something")
        named = attrs.get("aria-labelledby") or attrs.get("aria-controls")
        if named and named not in ids:
            found.append(f"{named} names nothing")
    counts = Counter(tag for tag, _ in page.tags)
    found += [
        f"{counts[tag]} {tag}" for tag in ("script", "style", "img", "iframe") if counts[tag] > (tag in "style script")
    ]
    return found


def test_the_file_is_one_and_nothing_in_it_runs_but_its_own(report: Report) -> None:
    text = html.render(report)
    assert problems(text) == []
    page = " ".join(Page(text).text)
    assert page.count("document.title='owned'") >= 12
    (policy,) = (attrs["content"] for tag, attrs in Page(text).tags if attrs.get("http-equiv"))
    script = re.search(r"<script>(.*)</script>", text, re.DOTALL)
    assert script
    assert policy
    assert policy.startswith("default-src 'none'; ")
    assert f"script-src '{html.digest(script[1])}'" in policy
    assert "unsafe" not in policy


def test_without_escaping_it_would_be_found(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    made = html._environment.__wrapped__()
    made.autoescape = False
    monkeypatch.setattr(html, "_environment", lambda: made)
    with pytest.raises(AssertionError):
        problems(html.render(report))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<p id=a></p><p id=a></p>", "a is there 2 times"),
        ("<a href=#b></a>", "#b leads nowhere"),
        ("<a href=javascript:x></a>", "a link to javascript:x"),
        ("<p onclick=x></p>", "p has onclick"),
        ("<link href=https://a.b/c.css>", "link loads something"),
        ("<script src=x></script>", "script loads something"),
        ("<button aria-controls=x></button>", "x names nothing"),
        ("<script></script><script></script>", "2 script"),
    ],
)
def test_what_the_check_of_the_file_finds(text: str, says: str) -> None:
    assert says in problems(text)


def test_addresses_and_code_in_a_sentence() -> None:
    told = html.prose("See https://a.b/c?d=1&e=2. Or `x<y>`; not javascript:alert(1) <b>")
    assert told == (
        'See <a href="https://a.b/c?d=1&amp;e=2" rel="noreferrer noopener">https://a.b/c?d=1&amp;e=2</a>. '
        "Or <code>x&lt;y&gt;</code>; not javascript:alert(1) &lt;b&gt;"
    )
    assert '"' not in html.prose('https://a.b/"onclick=x').split("rel=")[1].replace('"noreferrer noopener"', "")
    assert collect.links("at https://a.b/c. and (http://d.e), ftp://f") == ["https://a.b/c", "http://d.e"]


def test_the_page_says_what_the_report_has(report: Report) -> None:
    text = " ".join(" ".join(Page(html.render(report)).text).split())
    for row in report.laws:
        assert all(each.says.replace("`", "").split(".")[0] in text.replace(" ,", ",") for each in row.statements[:1])
    assert "1,234" in text
    assert "56,789" in text
    assert "something was found" in text
    assert "its trace does not break it" in text
    good = msgspec.structs.replace(report, holds=True, proofs=[], comparisons=[], findings=[], counterexamples=[])
    empty = " ".join(Page(html.render(good)).text)
    assert "something was found" not in empty
    assert "\u2713 holds" not in empty
    assert "nothing was found in what was run" in empty
    assert "The proofs were not run for this report." in empty
    assert "Nothing was compared for this report." in empty
    assert "No run was asked for." in empty


def test_every_law_of_the_machines_is_listed(report: Report) -> None:
    stated = {
        (law.law, law.name) for name in MACHINES for law in machine(name).laws.values() if law.kind in collect.KINDS
    }
    listed = {(row.law, each.name) for row in report.laws for each in row.statements}
    counted = {
        ("O3", "refs_counts"), ("C9", "used_counts"), ("A4", "used_counts"), ("A1", "promised_counts"),
        ("T2", "used_counts"), ("T6", "waiting_counts"),
    }  # fmt: skip
    assert listed - stated == counted
    assert stated <= listed
    assert all(each.says for row in report.laws for each in row.statements)
    ids = [row.law for row in report.laws]
    assert ids == sorted(ids, key=collect.law_key)
    assert ids.index("O2") < ids.index("O11")
    broken = {row.law: row.broken_by for row in report.laws}
    assert all(name in broken[variant(name).breaks] for name in variant_names())
    guards = {row.law: row.guards for row in report.laws}
    assert {"acquire", "refuse", "copy"} <= set(guards["O5"])
    assert "write" in guards["O7"]


def test_both_solvers_answers_are_counted(report: Report) -> None:
    pages, reads = report.proofs
    assert pages.proved == len(pages.obligations) == sum(pages.fragments.values())
    assert (pages.z3, pages.cvc5) == ({"unsat": pages.proved}, {"unsat": pages.proved})
    assert reads.proved == len(reads.obligations) - 2
    assert reads.z3 == {"sat": 1, "unsat": len(reads.obligations) - 1}
    assert reads.cvc5 == {"not asked": 1, "unknown": 1, "unsat": reads.proved}
    law = obligations(machine("read_law")).proofs[0].law
    of_law = {proof.machine: proof for row in report.laws for proof in row.proofs if row.law == law}
    if law not in collect.OF_NO_LAW:
        assert of_law["read_law"].proved < of_law["read_law"].obligations
    everything = [proof for row in report.laws for proof in row.proofs if proof.machine == "pages"]
    assert everything
    assert all(isinstance(proof, LawProof) and proof.proved == proof.obligations > 0 for proof in everything)


def test_runs_of_one_name_are_told_apart() -> None:
    (_, one), *_ = collect.known_findings()
    slugs = [each.counterexample.slug for each in collect.unique([one, one, one])]
    assert slugs == [slugs[0], f"{slugs[0]}--2", f"{slugs[0]}--3"]
    assert collect.slug("SGLang 0.5 \u00e9/<x>") == "sglang-0-5-x"
    assert collect.slug("\u00e9") == "run"
    assert collect.upstream("sglang#12") == ["https://github.com/sgl-project/sglang/issues/12"]
    assert collect.upstream("mine#12") == []
