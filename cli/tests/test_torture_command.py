"""`kvspec store torture`: its figures, its statuses, and that a planted fault makes it fail."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from kvspec_cli.torture import Tortured
from kvspec_diff.torture.plants import PLANTS

DOCS = Path(__file__).parents[2] / "docs"
SMALL = ("--only", "power", "--programs", 3)


def test_figures(kvspec) -> None:
    done = kvspec("store", "torture", *SMALL)
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0].split()[:2] == ["part", "lost"]
    assert lines[1].split()[:5] == ["ok", "power", "0", "0", "0"]
    assert any(line.startswith("power  torch: fsyncs left out") for line in lines)
    assert lines[-1] == "Nothing acknowledged was lost, nothing was misread."


def test_a_planted_fault(kvspec) -> None:
    done = kvspec("store", "torture", *SMALL, "--planted", "no-folder-sync", "--json")
    found = msgspec.json.decode(done.out, type=Tortured)
    assert (done.status, found.ok) == (1, False)
    assert found.lost > 0
    assert json.loads(done.out)["parts"][0]["wrong"][0].startswith("lost: ")
    shown = kvspec("store", "torture", *SMALL, "--planted", "no-fsync")
    assert shown.status == 1
    assert "\nReproduce: kvspec store torture --only power --kills 1000 --programs 3" in shown.out
    assert "--seed 0 --planted no-fsync" in shown.out
    assert "power: misread: " in shown.out


def test_the_faults_that_can_be_planted_are_documented() -> None:
    rows = re.findall(r"\| (\w+) \| `([a-z-]+)` \| ", (DOCS / "store.md").read_text())
    assert rows == [(plant.part, name) for name, plant in PLANTS.items()]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--kills", 0), "--kills is 0; give 1 or more"),
        (("--headers", -1), "--headers is -1; give 1 or more"),
        (("--headers", "1.5"), "--headers is '1.5'; give a whole number"),
        (("--kills", "1e3"), "--kills is '1e3'; give a whole number"),
        (("--seed", "9" * 400), "--seed is '999"),
        (("--programs", "x"), "--programs is 'x'; give a whole number"),
        (("--seed", -1), "--seed is -1; give 0 or more"),
        (("--only", "powr"), "unknown part 'powr' (did you mean 'power'?); there are power, kills, damage, disk"),
        (("--planted", "no-fsink"), "unknown fault 'no-fsink' (did you mean 'no-fsync'?); there are no-fsync"),
    ],
)
def test_bad_input(kvspec, arguments: tuple[object, ...], complaint: str) -> None:
    done = kvspec("store", "torture", *arguments)
    assert (done.status, done.out) == (2, "")
    assert done.complaint.startswith(f"kvspec: {complaint}")
