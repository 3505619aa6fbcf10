"""The allocator in the README is the example file, and what it prints of the failure is in what pytest prints."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
EXAMPLE = ROOT / "docs" / "examples" / "test_my_allocator_buggy.py"


def block(language: str, holding: str) -> str:
    found = [text for text in re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL) if holding in text]
    assert len(found) == 1
    return str(found[0])


def test_the_allocator_is_the_example() -> None:
    assert block("python", "class Mine") == EXAMPLE.read_text()


def test_the_failure_is_what_it_prints(tmp_path: Path) -> None:
    (tmp_path / EXAMPLE.name).write_text(EXAMPLE.read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLE.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    for line in block("text", "Mine breaks").splitlines():
        assert line.strip() in done.stdout
