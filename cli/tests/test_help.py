"""`--help` answers at once: what takes long to import is imported when a command runs."""

import subprocess
import sys

import pytest
from kvspec.registry import ALGORITHMS, MACHINES
from kvspec_cli.app import APP
from kvspec_cli.subjects import OWN

HEAVY = ("z3", "cvc5", "torch", "numpy", "hypothesis", "kvspec.language", "kvspec_diff.generate", "kvspec_torch")
COMMANDS = [name for name in APP if not name.startswith("-")]

SCRIPT = """
import sys
from kvspec_cli.main import main
status = main(sys.argv[1:])
print("LOADED", *sorted(sys.modules))
sys.exit(status)
"""


@pytest.mark.parametrize("arguments", [["--help"], *([command, "--help"] for command in COMMANDS), ["--version"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, *arguments], capture_output=True, text=True, check=True)
    shown, _, loaded = done.stdout.partition("LOADED ")
    assert shown.strip()
    assert not set(HEAVY) & set(loaded.split())


def test_help_names_every_command(kvspec) -> None:
    shown = kvspec("--help").out
    assert [command for command in COMMANDS if command not in shown] == []
    assert {"check", "prove", "explore", "diff", "replay", "engine"} <= set(COMMANDS)


def test_help_names_every_machine_and_subject(kvspec) -> None:
    for command in ("prove", "explore"):
        shown = kvspec(command, "nothing").complaint
        assert [name for name in (*MACHINES, *ALGORITHMS) if name not in shown] == []
    assert [name for name in OWN if name not in kvspec("diff", "--help").out] == []


@pytest.mark.parametrize("arguments", [["--help"], [], ["engine"], ["prove", "-h"], ["--version"]])
def test_help_is_no_failure(kvspec, arguments: list[str]) -> None:
    done = kvspec(*arguments)
    assert (done.status, done.err) == (0, "")
    assert done.out


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "kvspec_cli", "prov"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith('kvspec: Unknown command "prov". Did you mean "prove"?')
