"""The contracts of the reference's pure functions: what CrossHair says of each is what the page about trust says."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GEOMETRY = ROOT / "reference" / "kvspec_reference" / "geometry.py"
PATHS = 20
"""So many paths in a row that show nothing new end the search of a condition, whatever the machine's load."""

SAYS = {"Confirmed over all paths.": "confirmed", "Not confirmed.": "not confirmed"}


def checked(path: Path) -> dict[int, str]:
    """What CrossHair says of each postcondition, by line: `confirmed`, `not confirmed`, or how it is refuted."""
    limit = ["--max_uninteresting_iterations", str(PATHS)]
    command = [sys.executable, "-m", "crosshair", "check", "--report_all", "--analysis_kind", "PEP316", *limit, path]
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    found = re.findall(r"^.*?:(\d+): \w+: (.*)$", done.stdout, re.MULTILINE)
    return {int(line): SAYS.get(text, text) for line, text in found}


def conditions(text: str) -> dict[int, tuple[str, str]]:
    """The postconditions by line, each with its function."""
    lines = text.splitlines()
    functions = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return {
        number: (function.name, lines[number - 1].strip().removeprefix("post: "))
        for function in functions
        for number in range(function.lineno, (function.end_lineno or 0) + 1)
        if lines[number - 1].strip().startswith("post: ")
    }


def table() -> dict[tuple[str, str], str]:
    """The table of the page: function and condition, and the answer."""
    page = (ROOT / "docs" / "trusted-base.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `([^|]*)` \| ([\w ]+) \|$", page, re.MULTILINE)
    return {(function, condition): answer for function, condition, answer in rows}


def test_the_table_says_what_crosshair_says() -> None:
    stated, answers = conditions(GEOMETRY.read_text()), checked(GEOMETRY)
    assert {stated[line]: answer for line, answer in answers.items()} == table()
    assert list(table()) == list(stated.values())


def test_every_function_has_a_contract() -> None:
    functions = [node for node in ast.parse(GEOMETRY.read_text()).body if isinstance(node, ast.FunctionDef)]
    assert {function.name for function in functions} == {name for name, _ in table()}
    assert all("pre: " in (ast.get_docstring(function) or "") for function in functions)


FAULTS = [
    ("place", "divmod(position, size)", "divmod(position + 1, size)"),
    ("slot", "page * size + offset", "page + size * offset"),
    ("pages_for", "-(-tokens // size)", "tokens // size"),
    ("touched", " if start < stop else 0)", ")"),
    ("given_up", "entry if offset == 0 else entry + 1", "entry"),
    ("window_start", "position - span + 1", "position - span"),
    ("chunk_start", "position // span * span", "(position - 1) // span * span"),
]


@pytest.mark.parametrize(("name", "right", "wrong"), FAULTS)
def test_a_planted_fault_is_refuted(tmp_path: Path, name: str, right: str, wrong: str) -> None:
    text = GEOMETRY.read_text()
    assert text.count(right) == 1
    faulty = tmp_path / "geometry.py"
    faulty.write_text(text.replace(right, wrong))
    stated = conditions(faulty.read_text())
    refuted = {stated[line][0] for line, answer in checked(faulty).items() if answer.startswith("false when calling")}
    assert name in refuted


def test_a_fault_is_planted_in_every_function() -> None:
    assert [name for name, _, _ in FAULTS] == list(dict.fromkeys(name for name, _ in table()))
