"""The examples of an allocator of one's own: in the state in which a reader has them, from an empty folder."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
BUGGY, RIGHT = "test_my_allocator_buggy.py", "test_my_allocator.py"


def pytest_on(name: str, folder: Path) -> subprocess.CompletedProcess[str]:
    shutil.copy(EXAMPLES / name, folder)
    return subprocess.run(
        [sys.executable, "-m", "pytest", name], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_buggy_one_fails_by_its_law(tmp_path: Path) -> None:
    done = pytest_on(BUGGY, tmp_path)
    assert done.returncode == 1
    law = f"FAILED {BUGGY}::TestMine::test_deferral[D5-a-list-that-is-kept-is-copied]"
    failed = re.findall(r"^FAILED.*$", done.stdout, re.MULTILINE)
    assert len(failed) == 2
    assert failed[0].startswith(law)
    assert failed[1].startswith(f"FAILED {BUGGY}::TestMine::test_programs")
    assert "Mine breaks D5: a list that is kept is copied" in done.stdout
    shown = re.search(r"\n\n((?:    .*\n|\n)*?)\ntrace: (.*)\n", done.stdout)
    assert shown
    assert (tmp_path / shown[2]).is_file()
    code = re.sub("^    ", "", shown[1], flags=re.MULTILINE)
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "AssertionError" in ran.stderr


def test_the_right_one_passes(tmp_path: Path) -> None:
    done = pytest_on(RIGHT, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "12 passed, 7 skipped" in done.stdout


def test_they_are_short_and_differ_in_one_line() -> None:
    buggy, right = ((EXAMPLES / name).read_text().splitlines() for name in (BUGGY, RIGHT))
    assert len(buggy) <= 21
    assert [pair for pair in zip(buggy, right, strict=True) if pair[0] != pair[1]] == [
        ("        self.free.append(pages)", "        self.free.append(list(pages))")
    ]


@pytest.mark.nightly
def test_a_first_user(tmp_path: Path) -> None:
    """From the built wheel, in a fresh environment and an empty folder, in less than ten minutes."""
    done = subprocess.run([ROOT / ".ci" / "first-user"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    seconds = re.search(r"from pip install to the first verdict: (\d+) s", done.stdout)
    assert seconds
    assert int(seconds[1]) < 600
