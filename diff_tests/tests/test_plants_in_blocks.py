"""Faults planted in torch's caches, blocks and pages, as in `test_plants`: comparing runs catches them, or their tests.

Which faults there are is generated from the code. Those that cannot be caught are listed, each below its reason.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from kvspec_diff import representing, side_by_side
from kvspec_diff.mutation import OwnTests, Tally, patience, tally
from kvspec_diff.plants import Plant, plants
from kvspec_diff.subjects.torch_blocks import TorchBlocks

CACHES = [f"kvspec_torch.{module}" for module in ("blocks", "members.keeping", "members.parts")]
PAGES = [f"kvspec_torch.{module}" for module in ("paged", "device.paged")]
TESTS = ("test_blocks.py", "test_paged.py")
PROGRAMS = 25
SAMPLE = 20
"""One in so many is tried in every run."""

Record = Callable[[str, object], None]


def catches(package: Any) -> str:
    """What comparing runs says of a package, or nothing."""
    subject = TorchBlocks(package)
    try:
        for seed in range(PROGRAMS):
            with patience():
                side_by_side.run(subject, seed)
                representing.run(representing.random_program(random.Random(seed)), subject)
    except Exception as error:
        return repr(error)
    return ""


def tried(faults: Sequence[Plant], of: Sequence[str]) -> Tally:
    """What catches these faults of these modules. Comparing runs knows nothing of pages."""
    folder = Path(__file__).parents[2] / "impl/tests"
    others = [file.name for file in folder.glob("test_*.py") if file.name not in TESTS]
    own = OwnTests(folder, ("host", "device"), leave_out=others)
    if of == PAGES:
        return tally(faults, "kvspec_torch.paged", lambda package: "", own)
    return tally(faults, "kvspec_torch.blocks", catches, own)


def listed() -> list[str]:
    """The faults that cannot be caught; there is a reason, after a #, above each in the file."""
    found, reason = [], False
    for line in (Path(__file__).parent / "uncaught_in_torch_blocks.txt").read_text().splitlines():
        assert reason or not line or line.startswith("# "), f"no reason is given for {line}"
        reason = bool(line)
        found += [line] * bool(line and not line.startswith("# "))
    return found


def check(found: Tally) -> None:
    """All are caught but those that are listed."""
    caught = found.by_comparison | found.by_tests
    assert {fault: caught[fault] for fault in listed() if fault in caught} == {}, "these are caught, do not list them"
    assert sorted(set(found.uncaught) - set(listed())) == [], "nothing catches these"


def test_what_is_listed_is_there_and_is_little() -> None:
    faults = [str(fault) for module in [*CACHES, *PAGES] for fault in plants(module)]
    assert [fault for fault in listed() if fault not in faults] == [], "these are not there any more"
    assert len(set(listed())) == len(listed()) < 0.1 * len(faults)


@pytest.mark.parametrize("modules", [CACHES, PAGES], ids=["caches", "pages"])
def test_a_sample_is_caught(modules: list[str], record_property: Record) -> None:
    every = [fault for module in modules for fault in plants(module)]
    faults = [fault for fault in every if crc32(str(fault).encode()) % SAMPLE == 0]
    assert len(faults) >= 5
    found = tried(faults, modules)
    check(found)
    assert found.caught >= 5
    record_property("say", f"planted faults: {modules[0]} and what it uses, a sample: {found}")


@pytest.mark.nightly
@pytest.mark.parametrize("modules", [CACHES, PAGES], ids=["caches", "pages"])
def test_every_fault_is_caught(modules: list[str], record_property: Record) -> None:
    found = tried([fault for module in modules for fault in plants(module)], modules)
    check(found)
    record_property("say", f"planted faults: {modules[0]} and what it uses: {found}")
