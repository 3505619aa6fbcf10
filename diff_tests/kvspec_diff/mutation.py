"""What catches planted faults: comparing runs of programs, and the tests that the faulty code has of its own."""

import importlib.util
import inspect
import pickle
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice, product
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import msgspec
import pytest
from kvspec.operations import Begin, Configuration, End, Outcome

from kvspec_diff.compare import Errors, compare
from kvspec_diff.generate import CONFIGURATIONS, Generator
from kvspec_diff.lockstep import lockstep
from kvspec_diff.plants import Plant, imported_as, load_all
from kvspec_diff.program import Program
from kvspec_diff.subject import EVERYTHING
from kvspec_diff.subjects.reference import Reference, _attempt
from kvspec_diff.subjects.torch import Torch

POOLS = (Configuration(1), Configuration(2), *CONFIGURATIONS)
LONG = (60, 180)
PROGRAMS = 100
"""As many as the profile `pr` tries."""

PATIENCE = 20.0
"""Seconds for one program or test: a fault that makes it run on is caught too."""

Catches = Callable[[Any], object]
"""Says what is wrong with a package, or nothing."""


def programs(count: int = PROGRAMS) -> list[Program]:
    """Long programs, every other one with as much misuse as not."""
    usual = Generator(EVERYTHING, POOLS).bulk(101, LONG)
    wild = Generator(EVERYTHING, POOLS, wild=128).bulk(102, LONG)
    return list(islice(chain.from_iterable(zip(usual, wild, strict=True)), count))


class OutOfPatience(Exception):
    """It runs on."""


@contextmanager
def patience() -> Iterator[None]:
    """Raises `OutOfPatience` after a while. In the main thread only."""

    def interrupt(_: int, frame: FrameType | None) -> None:
        raise OutOfPatience

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def lockstep_catches(runs: Sequence[Program]) -> Catches:
    """What the lockstep finds; a snapshot that changes later (D5); rows without groups that do otherwise than with."""

    def catches(package: Any) -> object:
        for number, program in enumerate(runs):
            with patience():
                found = lockstep(program, package.Cache(program.configuration.pages, program.configuration.page_size))
                if found is None and number < max(1, len(runs) // 10):
                    found = _snapshot_changes(package, program) or _alone(package, program)
            if found is not None:
                return found
        return None

    return catches


def _snapshot_changes(package: Any, program: Program) -> Any:
    cache = package.Cache(program.configuration.pages, program.configuration.page_size)
    for operation in program.operations:
        shown = cache.snapshot()
        before = pickle.dumps(shown)
        _attempt(cache, operation)
        if pickle.dumps(shown) != before:
            return f"{operation} changes a snapshot from before"
    return None


def _alone(package: Any, program: Program) -> Any:
    """Rows on a plain pool, without the groups of the program."""
    pool = package.PagePool(program.configuration.pages, program.configuration.page_size)
    cache, rows = package.Cache(pool.pages, pool.page_size), package.Rows(pool)
    for operation in program.operations:
        if not isinstance(operation, Begin | End):
            both = [(_attempt(one, operation), one.take_actions(), one.snapshot()) for one in (cache, rows)]
            if both[0] != both[1]:
                return f"{operation} does otherwise where there are no groups"
    return None


def comparison_catches(runs: Sequence[Program]) -> Catches:
    """How the fast implementation's host path differs from the reference."""
    expected: list[list[Outcome]] = [Reference("end").run(program) for program in runs]

    def catches(package: Any) -> object:
        fast = Torch("host", "end", package)
        for program, outcomes in zip(runs, expected, strict=True):
            with patience():
                found = compare(outcomes, fast.run(program), Errors.SAME_STATUS)
            if found is not None:
                return found
        return None

    return catches


class OwnTests:
    """The tests in a folder, run without pytest: functions `test_...`, their parameters, and `path` where they ask for
    one of the fast implementation's two paths. `leave_out`: files that are not run."""

    def __init__(self, folder: Path, paths: Sequence[str] = ("host",), leave_out: Sequence[str] = ()) -> None:
        self.files = [file for file in sorted(folder.glob("test_*.py")) if file.name not in leave_out]
        assert self.files, f"no tests in {folder}"
        self._paths = paths

    def failing(self, modules: dict[str, ModuleType]) -> str:
        """The first test that fails when the modules are imported, and how; nothing when none does."""
        with imported_as(modules):
            for file in self.files:
                try:
                    tests = _import(file)
                except Exception as error:
                    return f"{file.name}: {error!r}"
                for name, test in vars(tests).items():
                    if name.startswith("test_"):
                        for arguments in self._cases(test):
                            try:
                                with patience():
                                    test(**arguments)
                            except (Exception, pytest.fail.Exception) as error:
                                return f"{file.name}, {name}: {error!r}"
        return ""

    def _cases(self, test: Callable[..., None]) -> Iterator[dict[str, Any]]:
        """The arguments of each call that pytest would make."""
        asked = inspect.signature(test).parameters.keys()
        axes = [[{"path": path} for path in self._paths]] if "path" in asked else []
        for mark in getattr(test, "pytestmark", []):
            if mark.name == "parametrize":
                names = [name.strip() for name in mark.args[0].split(",")] if isinstance(mark.args[0], str) else None
                names = names or list(mark.args[0])
                values = [value if len(names) > 1 else (value,) for value in mark.args[1]]
                axes.append([dict(zip(names, value, strict=True)) for value in values])
        for choice in product(*axes):
            arguments = {name: value for part in choice for name, value in part.items()}
            assert arguments.keys() == asked, f"{test} needs more than parameters"
            yield arguments


def _import(file: Path) -> ModuleType:
    """A file of tests, from its text: the cache of compiled files tells two texts of one second by length alone."""
    module = ModuleType(f"planted_{file.stem}")
    module.__file__ = str(file)
    exec(compile(file.read_text(), file, "exec"), vars(module))
    return module


class Tally(msgspec.Struct):
    """How many faults were planted, how each that was caught was caught, and which ones nothing caught."""

    planted: int
    by_comparison: dict[str, str]
    by_tests: dict[str, str]
    uncaught: list[str]

    @property
    def caught(self) -> int:
        """By one or the other."""
        return len(self.by_comparison) + len(self.by_tests)

    def __str__(self) -> str:
        """One line."""
        share = f"{100 * self.caught / max(1, self.planted):.1f} %"
        return (
            f"{self.planted} planted, {self.caught} caught ({share}): {len(self.by_comparison)} by comparing runs, "
            f"{len(self.by_tests)} by tests; {len(self.uncaught)} not"
        )


def tally(faults: Sequence[Plant], entry: str, catches: Catches, tests: OwnTests) -> Tally:
    """Try each fault: first with `catches`, then, if that says nothing, with the tests.

    A fault that the code does not survive is caught. Neither may find anything without a fault: `AssertionError`.
    """
    sound = _sound(faults[0], entry)
    assert not catches(sound[entry]), "the code is wrong without any fault"
    assert not tests.failing(sound), "a test fails without any fault"
    found = Tally(len(faults), {}, {}, [])
    for fault in faults:
        try:
            with patience():
                modules = load_all(fault, entry)
            how = catches(modules[entry])
        except Exception as error:
            found.by_comparison[str(fault)] = repr(error)
            continue
        if how:
            found.by_comparison[str(fault)] = str(how)
            continue
        failing = tests.failing(modules)
        if failing:
            found.by_tests[str(fault)] = failing
        else:
            found.uncaught.append(str(fault))
    return found


def _sound(fault: Plant, entry: str) -> dict[str, ModuleType]:
    """The package without the fault, loaded afresh like a faulty one."""
    spec = importlib.util.find_spec(fault.module)
    assert spec is not None
    assert spec.origin is not None
    return load_all(msgspec.structs.replace(fault, source=Path(spec.origin).read_text(encoding="utf-8")), entry)
