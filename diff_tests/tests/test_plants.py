"""Faults planted in the code of the reference and of its fast twin: comparing runs catches them, or their own tests do.

Which faults there are is generated from the code, none is picked by hand. Those that cannot be caught are listed with
the reason; one that is listed and caught nevertheless fails the test, and so does one that is not there any more. Here
a sample of the faults is tried; all of them are in `make nightly`.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

import pytest
from kvspec_diff import mutation
from kvspec_diff.mutation import OwnTests, Tally, comparison_catches, lockstep_catches, programs, tally
from kvspec_diff.plants import KINDS, Plant, load_all, plants

ROOT = Path(__file__).parents[2]
SEED = 20_261
REFERENCE = [f"kvspec_reference.{module}" for module in ("pages", "geometry", "rows", "deferred_free")]
HOST = [f"kvspec_torch.host.{module}" for module in ("pages", "rows", "deferred_free")]
FRONT = [f"kvspec_torch.{module}" for module in ("pages", "rows", "deferred_free", "forms", "states")]
"""What stands before both paths of the fast implementation."""

STORED = (
    "test_blocks.py",
    "test_drain.py",
    "test_entry_format.py",
    "test_files.py",
    "test_prefixes.py",
    "test_store.py",
)
"""Tests of reference modules that are not among these."""

REPRESENTED = (
    "test_blocks.py", "test_paged.py", "test_block_store.py", "test_block_store_calls.py", "test_block_store_disk.py",
    "test_block_store_folder.py", "test_block_store_processes.py", "test_entry_details.py", "test_files.py",
    "test_looking.py", "test_miss_texts.py", "test_package.py", "test_tokens.py",
)  # fmt: skip
"""Those of the fast implementation's caches and stores, which know nothing of pools."""

ENTRIES = {"kvspec_reference": REFERENCE, "kvspec_torch": [*HOST, *FRONT]}
SAMPLED = {"kvspec_reference": (REFERENCE, 3), "kvspec_torch": (HOST, 16)}
"""The modules that the sample is from, and how large it is."""

SHARE = 0.95
"""Of the faults that can be planted, so many are caught."""

Record = Callable[[str, object], None]


@cache
def faults_in(entry: str) -> list[Plant]:
    return [fault for module in ENTRIES[entry] for fault in plants(module)]


def sampled(faults: Sequence[Plant], one_in: int) -> list[Plant]:
    """About one in so many; the same ones whatever else changes in the code."""
    return [fault for fault in faults if crc32(f"{SEED} {fault}".encode()) % one_in == 0]


def own_tests(module: str) -> OwnTests:
    """The tests of the module's package. Those of the device path cannot fail for a fault in the host path.

    Nor can those of the fused step, which run in processes of their own, where there is no fault; nor those of the
    store, which knows nothing of pages.
    """
    if module in REFERENCE:
        return OwnTests(ROOT / "reference/tests", leave_out=STORED)
    folder = ROOT / "impl/tests"
    if module in FRONT:
        return OwnTests(folder, ("host", "device"), leave_out=("test_fused.py", *REPRESENTED))
    return OwnTests(folder, leave_out=("test_device.py", "test_fused.py", *REPRESENTED))


def tried(faults: Sequence[Plant]) -> Tally:
    """What catches these faults, all of one package."""
    entry = faults[0].module.split(".")[0]
    runs = programs()
    catches = lockstep_catches(runs) if entry == "kvspec_reference" else comparison_catches(runs)
    return tally(faults, entry, catches, own_tests(faults[0].module))


def listed(entry: str) -> list[str]:
    """The package's faults that cannot be caught; there is a reason, after a #, above each in the file."""
    path = Path(__file__).parent / f"uncaught_in_{entry.removeprefix('kvspec_')}.txt"
    found, reason = [], ""
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            reason = line
        elif line:
            assert reason, f"{path.name}: no reason is given for {line}"
            found.append(line)
        else:
            reason = ""
    return sorted(found)


def check(faults: Sequence[Plant], found: Tally, excused: Sequence[str]) -> None:
    """All are caught but those that are listed, and of every kind some are."""
    caught = found.by_comparison | found.by_tests
    assert {fault: caught[fault] for fault in excused if fault in caught} == {}, "these are caught, do not list them"
    assert sorted(set(found.uncaught) - set(excused)) == [], "nothing catches these"
    assert found.planted == len(faults) == found.caught + len(found.uncaught)
    kinds = Counter(fault.kind for fault in faults if str(fault) in caught)
    assert kinds.keys() == {fault.kind for fault in faults}, kinds


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_is_listed_is_there_and_is_little(entry: str, record_property: Record) -> None:
    faults = [str(fault) for fault in faults_in(entry)]
    excused = listed(entry)
    assert len(set(faults)) == len(faults)
    assert [fault for fault in excused if fault not in faults] == [], "these are not there any more"
    assert len(set(excused)) == len(excused)
    share = 1 - len(excused) / len(faults)
    assert share >= SHARE
    line = f"planted faults: {entry}: {len(faults)} can be planted, {len(excused)} of them are listed as never caught"
    record_property("say", f"{line} ({100 * share:.1f} % to be caught)")


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_sample_is_caught(entry: str, record_property: Record) -> None:
    modules, one_in = SAMPLED[entry]
    faults = sampled([fault for fault in faults_in(entry) if fault.module in modules], one_in)
    assert len(faults) >= 20
    assert {fault.kind for fault in faults} >= set(KINDS) - {"missing copy"}  # there are few of those
    found = tried(faults)
    check(faults, found, listed(entry))
    record_property("say", f"planted faults: {entry}, a sample: {found}")


@pytest.mark.nightly
@pytest.mark.parametrize("module", [*REFERENCE, *HOST, *FRONT])
def test_every_fault_is_caught(module: str, record_property: Record) -> None:
    faults = plants(module)
    found = tried(faults)
    check(faults, found, listed(module.split(".")[0]))
    record_property("say", f"planted faults: {module}: {found}")


def one_fault(module: str, text: str) -> Plant:
    return next(fault for fault in plants(module) if text in str(fault))


def nothing(_: Any) -> None:
    """Catches no fault."""


def test_a_fault_is_caught_by_the_one_or_the_other() -> None:
    only_tests = one_fault("kvspec_reference.pages", "_existing: missing update: seen.add(page)")
    both = one_fault("kvspec_reference.pages", "release: missing update: self.refs[page] -= 1")
    runs = lockstep_catches(programs(4))
    tests = own_tests("kvspec_reference.pages")
    found = tally([only_tests, both], "kvspec_reference", runs, tests)
    assert list(found.by_comparison) == [str(both)]
    assert list(found.by_tests) == [str(only_tests)]
    assert list(tally([both], "kvspec_reference", nothing, tests).by_tests) == [str(both)]
    assert str(found) == "2 planted, 2 caught (100.0 %): 1 by comparing runs, 1 by tests; 0 not"


def test_what_nothing_catches_is_told_and_must_be_listed() -> None:
    fault = one_fault("kvspec_reference.rows", "overwrite: missing copy")
    found = tally([fault], "kvspec_reference", lockstep_catches(programs(4)), own_tests(fault.module))
    assert found.uncaught == [str(fault)]
    assert str(fault) in listed("kvspec_reference")
    with pytest.raises(AssertionError, match="nothing catches these"):
        check([fault], found, [])
    with pytest.raises(AssertionError, match="do not list them"):
        check([fault], Tally(1, {str(fault): "caught"}, {}, []), [str(fault)])


def test_what_runs_on_is_caught(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(mutation, "PATIENCE", 0.05)
    (tmp_path / "test_it.py").write_text("def test_on() -> None:\n    while True:\n        pass\n")
    assert OwnTests(tmp_path).failing({"unused": ModuleType("unused")}) == "test_it.py, test_on: OutOfPatience()"


def test_tests_are_run_with_every_parameter(tmp_path: Path) -> None:
    text = (
        "import pytest\n"
        "from kvspec_reference.pages import PagePool\n"
        "@pytest.mark.parametrize('a, b', [(1, 2), (3, 4)])\n"
        "@pytest.mark.parametrize('c', [5, 6])\n"
        "def test_one(path, a, b, c):\n"
        "    seen.append((path, a, b, c, PagePool.__module__))\n"
        "def test_two():\n"
        "    with pytest.raises(ValueError):\n"
        "        assert len(seen) == 8\n"
        "seen = []\n"
    )
    (tmp_path / "test_it.py").write_text(text)
    modules = load_all(plants("kvspec_reference.pages")[0], "kvspec_reference")
    failing = OwnTests(tmp_path, ("host", "device")).failing(modules)
    assert failing.startswith("test_it.py, test_two: ")
    assert "DID NOT RAISE" in failing
    (tmp_path / "test_it.py").write_text("import kvspec_reference.nothing\n")
    assert "ModuleNotFoundError" in OwnTests(tmp_path).failing(modules)
    (tmp_path / "test_it.py").write_text("def test_it(tmp_path):\n    pass\n")
    with pytest.raises(AssertionError, match="needs more than parameters"):
        OwnTests(tmp_path).failing(modules)


def test_code_that_is_wrong_already_proves_nothing() -> None:
    fault = plants("kvspec_reference.pages")[0]
    with pytest.raises(AssertionError, match="without any fault"):
        tally([fault], "kvspec_reference", lambda package: "wrong", own_tests(fault.module))
