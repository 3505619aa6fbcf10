"""Every reachable state of a small scope times every operation: the fast twin does what the reference does.

The larger scopes are `nightly`. How many pairs were compared is said at the end of the run.
"""

from collections.abc import Callable
from typing import Any, Literal

import kvspec_torch
import pytest
from kvspec.operations import Allocate, Configuration, Free, Start
from kvspec_diff.compare import Errors, compare
from kvspec_diff.exhaustive import Explored, Scope, Twin, explore
from kvspec_diff.plants import load, plants
from kvspec_diff.program import OPERATIONS
from kvspec_diff.subject import EVERYTHING, offered
from kvspec_diff.subjects.reference import Reference
from kvspec_diff.subjects.torch import Torch

SMALL = [Scope(2, 1, "ab", 1), Scope(2, 2, "a", 1)]
LARGE = [
    Scope(2, 1, "ab", 2),
    Scope(2, 1, "ab", 1, pins="p", prompts=(0, 4)),
    Scope(2, 2, "ab", 1),
    Scope(3, 1, "ab", 1),
]
TINY = Scope(1, 1, "a", 2, pins="p", prompts=(0, 4))

Record = Callable[[str, object], None]


def check(scope: Scope, path: Literal["host", "device"], record: Record) -> Explored:
    found = explore(scope, path)
    assert found.difference is None, f"{found.difference} after {found.program}"
    assert found.complete
    assert found.pairs == found.states * len(scope.operations())
    record("say", f"exhaustive: torch-{path}, {scope}: {found.pairs} (state, operation) pairs, {found.states} states")
    return found


@pytest.mark.parametrize("scope", SMALL, ids=str)
def test_small_scope(scope: Scope, record_property: Record) -> None:
    assert check(scope, "host", record_property).pairs > 100_000


def test_tiny_scope_of_the_device_path(record_property: Record) -> None:
    check(Scope(1, 1, "a", 1, pins="p"), "device", record_property)


@pytest.mark.nightly
@pytest.mark.parametrize("scope", LARGE, ids=str)
def test_large_scope(scope: Scope, record_property: Record) -> None:
    check(scope, "host", record_property)


@pytest.mark.nightly
@pytest.mark.parametrize("scope", [TINY, SMALL[1]], ids=str)
def test_small_scope_of_the_device_path(scope: Scope, record_property: Record) -> None:
    check(scope, "device", record_property)


def test_a_scope_has_every_operation() -> None:
    names = {str(type(operation).__struct_config__.tag) for operation in Scope(1, 1, "ab", 1, "p").operations()}
    assert names == offered(EVERYTHING) == OPERATIONS.keys() - {"checkpoint"}


PLANTED = [
    ("pages", "HostPool.drop", "missing update"),
    ("rows", "HostRows.free", "missing update"),
    ("deferred_free", "HostDeferredPool.end", "missing update"),
]


@pytest.mark.parametrize(("module", "function", "kind"), PLANTED)
def test_a_planted_fault_is_found(module: str, function: str, kind: str) -> None:
    """And the program that is given reaches it: the reference and the faulty twin part at its last operation."""
    faults = plants(f"kvspec_torch.host.{module}")
    fault = next(fault for fault in faults if (fault.function, fault.kind) == (function, kind))
    package = load(fault, "kvspec_torch")
    found = explore(Scope(1, 2, "a", 1) if module != "pages" else SMALL[0], package=package)
    assert found.difference is not None, str(fault)
    assert found.program is not None
    assert found.difference.operation == len(found.program.operations) - 1
    assert not found.complete
    expected, faulty = Reference("end").run(found.program), Torch("host", "end", package)
    again = compare(expected, faulty.run(found.program), Errors.SAME_STATUS)
    assert again is not None
    assert again.operation == found.difference.operation


def broken(**methods: Callable[..., Any]) -> Any:
    """The fast implementation with a cache that has other methods."""

    class Package:
        Misuse, Refused = kvspec_torch.Misuse, kvspec_torch.Refused
        Cache = type("Cache", (kvspec_torch.Cache,), methods)

    return Package


def test_a_misuse_that_leaves_a_trace_is_found() -> None:
    """Even one that no snapshot shows: the order of a page that is not published."""

    def copy(self: Any, rows: Any, entries: Any) -> Any:
        self.pool._path.order[1] += 1
        return kvspec_torch.Cache.copy(self, rows, entries)

    found = explore(Scope(1, 1, "a", 1), package=broken(copy=copy))
    assert found.difference is not None
    assert found.difference.field == "memory after misuse"


def test_what_a_twin_raises_is_a_difference() -> None:
    def trim(self: Any, rows: Any, tokens: Any) -> None:
        raise IndexError("out of bounds")

    def snapshot(self: Any) -> dict[str, Any]:
        raise AssertionError("no state")

    for method in (trim, snapshot):
        found = explore(Scope(1, 1, "a", 1), package=broken(**{method.__name__: method}))
        assert found.difference is not None
        assert found.difference.actual == "error"


def test_a_twin_goes_back_to_any_state() -> None:
    """Its heap included, which no backup has."""
    scope = Scope(3, 1, "ab", 3)
    twin = Twin(scope, "host", kvspec_torch)
    first, calm = twin.memory(), twin.glance()
    for operation in (Start("a", 0), Allocate("a", 3), Free("a", 0, 1)):
        assert twin.attempt(operation).status == "done"
    later, busy = twin.memory(), twin.glance()
    assert busy != calm
    twin.recall(first)
    assert (twin.memory(), twin.glance()) == (first, calm)
    twin.recall(later)
    assert (twin.memory(), twin.glance()) == (later, busy)
    assert scope.configuration == Configuration(3, 1)
