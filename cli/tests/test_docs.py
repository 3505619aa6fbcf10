"""The documentation: its code runs and prints what it shows, and what is generated is what would be generated now."""

import json
import re
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from kvspec.operations import Configuration
from kvspec_diff import trace
from kvspec_diff.suite import CommandSubject, driven_by
from kvspec_diff.targets import judged

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page, as (language, text)."""
    return BLOCK.findall((DOCS / page).read_text())


RUNNER = """
import contextlib, io, json, sys
space, printed = {"__name__": "page"}, []
for text in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(text, "page", "exec"), space)
    printed.append(out.getvalue())
print(json.dumps(printed))
"""
"""Runs blocks in order in a process of its own, as a reader does: which counterexample z3 gives depends on its past."""


@pytest.mark.parametrize(
    ("page", "least"),
    [("tutorial.md", 3), ("add-a-law.md", 3), ("reference-scheduler.md", 2), ("store.md", 1), ("late-join.md", 2)],
)
def test_the_code_of_a_page_runs_in_order_and_prints_what_is_shown(page: str, least: int) -> None:
    found = blocks(page)
    code = json.dumps([text for language, text in found if language == "python"])
    done = subprocess.run([sys.executable, "-c", RUNNER], input=code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outputs = iter(json.loads(done.stdout))
    printed, shown = "", 0
    for language, text in found:
        if language == "python":
            assert not printed, f"what this prints is not shown: {printed}"
            printed = next(outputs)
        elif language == "text":
            assert text == printed
            printed, shown = "", shown + 1
    assert not printed
    assert shown >= least


def test_the_tutorials_machine_has_three_actions_and_is_wrong_at_first() -> None:
    code = [text for language, text in blocks("tutorial.md") if language == "python"]
    assert code[0].count("@action") == 3
    outputs = [text for language, text in blocks("tutorial.md") if language == "text"]
    assert "| sat |" in outputs[0]
    assert "not proved: 0" in "".join(outputs)


def test_generated_pages_are_fresh() -> None:
    command = [sys.executable, DOCS / "generate.py", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_is_known_to_raise_is_no_cell_that_holds() -> None:
    shown = "import caches_page; print(*caches_page.raising('transformers', '5.24.0'), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", shown], cwd=DOCS, capture_output=True, text=True, check=True)
    assert {"('Fp8QuantizedLayer', 'filter')", "('HQQQuantizedLayer', 'repeat')"} <= {*done.stdout.splitlines()}
    shown = "import caches_page; print(caches_page.cell({'verdict': 'promised', 'laws': [], 'held': 3}, True))"
    done = subprocess.run([sys.executable, "-c", shown], cwd=DOCS, capture_output=True, text=True, check=True)
    assert done.stdout == "finding: raises (3)\n"


def test_what_a_page_includes_is_there() -> None:
    """A slip in the mark of a snippet would be shown as it stands: only whole marks may occur."""
    for path in DOCS.rglob("*.md"):
        marks = [line for line in path.read_text().splitlines() if re.search(r"-+ ?8 ?<", line)]
        for line in marks:
            found = re.fullmatch(r'--8<-- "(.+)"', line)
            assert found, (path.name, line)
            assert (ROOT / found[1]).is_file(), (path.name, line)


def test_the_trace_that_is_shown_is_one() -> None:
    read = trace.read(DOCS / "example-trace.txt")
    assert "example-trace.txt" in (DOCS / "trace-format.md").read_text()
    assert None not in read.outcomes
    assert {outcome.status for outcome in read.outcomes if outcome} == {"done", "refused"}
    assert judged(read.program, [outcome for outcome in read.outcomes if outcome]) is None


def test_the_minimal_worker_passes() -> None:
    command = CommandSubject([sys.executable, str(DOCS / "minimal_worker.py")], {})
    target = driven_by(command, [Configuration(4, 1), Configuration(5, 2)])
    try:
        examined = list(target.examine(islice(target.generator.bulk(0), 200)))
    finally:
        command.close()
    assert [each.fault for each in examined if each.fault] == []
    assert {outcome.status for each in examined for outcome in each.outcomes} == {"done", "refused"}


def test_commands_that_are_shown_have_the_options_that_are_shown() -> None:
    """Every `kvspec ...` in a page is one that the command line knows."""
    texts = "\n".join(path.read_text() for path in DOCS.rglob("*.md"))
    shown = {
        tuple(found.split())
        for found in re.findall(r"kvspec ((?:check|prove|explore|diff|replay|report|store)[^`#\n]*)", texts)
    }
    assert len(shown) > 10
    helps: dict[str, str] = {}
    for first, *words in shown:
        command = f"{first} {words[0]}" if first == "store" and words else first
        if command not in helps:
            asked = [sys.executable, "-m", "kvspec_cli", *command.split(), "--help"]
            helps[command] = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        for word in words:
            if word.startswith("--"):
                assert f"{word.partition('=')[0]} " in helps[command] or f"{word} " in helps[command], (command, word)
