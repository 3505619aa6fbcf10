"""`kvspec store torture` in small: nothing is lost, and each part notices its planted faults. At night: all of it."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from kvspec_diff.torture.figures import Part
from kvspec_diff.torture.plants import PLANTS, caught
from kvspec_diff.torture.run import NAMES, Asked, apart
from kvspec_diff.torture.stock import stock

SMALL = Asked(programs=4, kills=24, headers=150, every=16)
NOTHING = lambda *_: None  # noqa: E731


def said(part: Part) -> str:
    """Its figures in a line."""
    figures = ", ".join(f"{value:,} {name}" for name, value in part.figures.items())
    return f"torture, {part.name}: {figures}: {part.lost} lost, {part.misread} misread"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_lost_or_misread(name: str, record_property: Callable[[str, object], None]) -> None:
    part = apart(name, SMALL, NOTHING)
    assert part.wrong == []
    assert (part.ok, part.lost, part.misread, part.failed) == (True, 0, 0, 0)
    record_property("say", said(part))


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_noticed(name: str) -> None:
    asked = Asked(programs=4, kills=24, headers=150, every=16, planted=name)
    part = apart(PLANTS[name].part, asked, NOTHING)
    assert caught(name, part), part
    assert "fell over" not in part.what


def test_a_part_that_falls_over_has_failed() -> None:
    part = apart("power", Asked(programs=-1), NOTHING)
    assert not part.ok
    part = apart("nothing of the kind", Asked(planted="unchecked", every=0), NOTHING)
    assert (part.ok, part.what, part.failed) == (False, "fell over", 1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_part_ends_with_the_process_that_asked_for_it(number: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "kvspec_cli", "store", "torture", "--only", "kills", "--kills", "100000"]
    asking = subprocess.Popen(command, env=os.environ | {"TMPDIR": str(tmp_path)}, stdout=subprocess.DEVNULL)
    wait(lambda: any(tmp_path.glob("kvspec-torture-*/kvspec-torture-*/*.safetensors")))
    asking.send_signal(number)
    asking.wait()
    wait(lambda: not list(tmp_path.iterdir()))
    wait(lambda: not processes(str(tmp_path)))


def wait(come: Callable[[], bool]) -> None:
    """Until it is so."""
    until = time.monotonic() + 60
    while not come():
        assert time.monotonic() < until
        time.sleep(0.05)


def processes(text: str) -> list[str]:
    """Those that have this in their command lines."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found += [str(path)] * (text.encode() in path.read_bytes())
    return found


def test_what_goes_wrong_in_one_part_is_not_planted_in_another() -> None:
    assert {plant.part for plant in PLANTS.values()} == set(NAMES)
    assert apart("damage", Asked(headers=20, every=64, planted="early"), NOTHING).ok


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_all_of_it(name: str, record_property: Callable[[str, object], None]) -> None:
    part = apart(name, Asked(), NOTHING)
    assert part.wrong == []
    record_property("say", said(part))


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["upgrade", "gc", "verify", "stats"])
def test_ten_thousand_entries_and_ctrl_c(name: str, tmp_path: Path) -> None:
    of, statuses, shelf = random.Random(2), [], tmp_path / "shelf"
    stock(shelf, 10_000, older=True)

    def command(*arguments: str) -> list[str]:
        return [sys.executable, "-m", "kvspec_cli", "store", *arguments]

    for _ in range(30):
        more = ["--budget", "1000"] if name == "gc" else []
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        child = subprocess.Popen(command(name, str(shelf), *more), text=True, **streams)  # type: ignore[call-overload]
        try:
            child.wait(of.uniform(0, 6))
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGINT)
        _, err = child.communicate(timeout=300)
        assert "Traceback" not in err
        statuses.append(child.returncode)
        done = subprocess.run(command("verify", str(shelf), "--json"), capture_output=True, text=True, check=True)
        found = json.loads(done.stdout)
        assert found["damaged"] == []
        assert found["entries"] == 10_000 or name == "gc"
    assert statuses.count(2) >= 3, "it was hardly stopped"
    assert set(statuses) <= {0, 2, -signal.SIGINT}
    subprocess.run(command("upgrade", str(shelf)), capture_output=True, check=True)
    done = subprocess.run(command("verify", str(shelf), "--json"), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["temporary"] == 0
