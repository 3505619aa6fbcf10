"""Failures on purpose: at every line that may raise, what fails changes nothing.

The lines are found in the code, so a new check that no case here reaches fails. Both implementations, the fast one on
its host path; on its device path nothing is raised, see `impl/tests/test_device.py` and `test_exhaustive.py`.
"""

import pickle
from collections.abc import Callable
from itertools import islice
from typing import Any

import kvspec.operations as words
import kvspec_reference
import kvspec_torch
import pytest
import torch
from kvspec.operations import (
    Allocate,
    AnyOperation,
    Begin,
    Configuration,
    Copy,
    Free,
    Pin,
    Publish,
    Replace,
    Share,
    Start,
    Write,
)
from kvspec_diff.exhaustive import FAILED, Scope, Twin
from kvspec_diff.failures import failing_points, reached
from kvspec_diff.generate import Generator
from kvspec_diff.program import Program
from kvspec_diff.subject import EVERYTHING
from kvspec_diff.subjects.reference import _attempt

REFERENCE = [f"kvspec_reference.{module}" for module in ("pages", "rows", "deferred_free")]
REFERENCE_CHECKS = {"_check_range", "_check_settled", "_existing", "_published", "_row", "_take_blank", "page"}
TORCH = [
    f"kvspec_torch.{module}"
    for module in ("host.pages", "host.rows", "host.deferred_free", "forms", "pages", "rows", "deferred_free")
]
TORCH_CHECKS = {
    "_distinct", "_explain", "_held_or_published", "_judge", "_judge_most", "_judge_range", "_live", "_mark", "_most",
    "_published", "_ranges", "_rows", "_sources", "_vectors", "matrix", "page_ids", "vector", "whole",
}  # fmt: skip

POOL = Configuration(4, 2)
ONE = (Start("a", 0), Start("b", 0), Start("c", 4), Allocate("a", 4), Write("a", 0, 4))
DIRECTED: list[tuple[AnyOperation, ...]] = [  # the last operation of each fails
    (*ONE, Free("a", 0, 1), Free("a", 0, 2)),
    (*ONE, Free("a", 0, 1), Publish("a", 0, 2)),
    (Start("a", 0), Allocate("a", 3), Free("a", 1, 2), Allocate("a", 1)),
    (*ONE, Publish("a", 0, 1), Write("a", 0, 2)),
    (*ONE, Pin("p", "a", 0), Pin("q", "a", 0)),
    (*ONE, Allocate("b", 2), Write("b", 0, 2), Publish("a", 0, 1), Publish("b", 0, 1), Replace("b", 0, "a")),
    (*ONE, Publish("a", 0, 1), Share("c", "a", 0, 1)),
    (*ONE, Publish("a", 0, 1), Allocate("b", 3), Copy("a", 0)),
    (*ONE, Allocate("b", 5)),
]
"""What random programs seldom do."""


def programs() -> list[Program]:
    """Random ones in which every other operation is a misuse, some usual ones, and those above."""
    wild = islice(Generator(EVERYTHING, wild=128).bulk(7, (40, 80)), 100)
    usual = islice(Generator(EVERYTHING).bulk(8, (40, 80)), 40)
    return [*wild, *usual, *(Program(POOL, operations) for operations in DIRECTED)]


Record = Callable[[str, object], None]
Call = Callable[[Any], object]


def raises(errors: tuple[type[Exception], ...], call: Call, of: object) -> bool:
    try:
        call(of)
    except errors:
        return True
    return False


REFERENCE_POOL: list[Call] = [
    lambda pool: pool.allocate(-1),
    lambda pool: pool.allocate(4),
    lambda pool: pool.release([2, 0]),
    lambda pool: pool.release([2, 5]),
    lambda pool: pool.release([2, 2]),
    lambda pool: pool.release([2, 1]),
    lambda pool: pool.release([2, 4]),
    lambda pool: pool.share([2, 0]),
    lambda pool: pool.share([2, 1]),
    lambda pool: pool.share([2, 4]),
    lambda pool: pool.publish([2, -1]),
    lambda pool: pool.publish([2, 1]),
    lambda pool: pool.evict(-1),
    lambda pool: pool.begin(),
    lambda pool: type(pool)(0),
    lambda pool: type(pool)(1, 0),
]
"""Of a pool with page 1 deferred, 2 held, 3 cached, 4 blank."""


def test_a_refusal_and_a_misuse_leave_the_reference_as_it_was(record_property: Record) -> None:
    failed = 0
    errors = (words.Misuse, words.Refused)
    with reached("kvspec_reference", *errors) as points:
        for program in programs():
            cache = kvspec_reference.Cache(program.configuration.pages, program.configuration.page_size)
            for operation in program.operations:
                cache.take_actions()
                before = pickle.dumps(cache)
                status = _attempt(cache, operation).status
                if status in FAILED:
                    said = [action[0] for action in cache.take_actions()]
                    assert said == ["refuse"] * (status == "refused"), operation
                    assert pickle.dumps(cache) == before, operation
                    failed += 1
            assert program.operations not in DIRECTED or status in FAILED, operation
        pool = kvspec_reference.DeferredPagePool(4)
        pool.allocate(3)
        pool.publish([3])
        pool.begin()
        pool.release([1, 3])
        cache = kvspec_reference.Cache(4)
        for of, calls in ((pool, REFERENCE_POOL), (cache, [lambda cache: cache.start("a", -1)])):
            for number, call in enumerate(calls):
                before = pickle.dumps(of)
                assert raises(errors, call, of), number
                assert pickle.dumps(of) == before, number
                failed += 1
    all_points = failing_points(REFERENCE, REFERENCE_CHECKS)
    assert sorted(all_points - points) == []
    record_property("say", f"failures: reference, {failed} operations at all of {len(all_points)} failing lines")


def ids(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


META = torch.zeros(1, dtype=torch.int64, device="meta")
ZERO, UP_TO_ONE = ids(0), ids(1)
OPERANDS = {
    "start": 1, "allocate": 2, "write": 3, "read": 3, "free": 3, "overwrite": 4, "trim": 2, "finish": 1, "publish": 3,
    "share": 4, "replace": 3, "copy": 2, "pin": 3, "unpin": 1,
}  # fmt: skip


def without_tensors(name: str, count: int) -> Call:
    return lambda cache: getattr(cache, name)(*[[0]] * (count + (name == "start")))


TORCH_CALLS: list[Call] = [
    # Forms.
    *[without_tensors(name, count) for name, count in OPERANDS.items()],
    lambda cache: cache.finish(torch.zeros(1)),
    lambda cache: cache.finish(ids(0).view(1, 1)),
    lambda cache: cache.finish(META),
    lambda cache: cache.trim(ZERO, ids(0, 0)),
    lambda cache: cache.start(ids(2), ids(0)),
    lambda cache: cache.start(ids(2), META.expand(1, cache.positions)),
    lambda cache: cache.pool.allocate("one"),
    lambda cache: cache.evict(0.5),
    lambda cache: cache.pool.release([2]),
    lambda cache: cache.pool.release(ids(2).float()),
    lambda cache: cache.pool.share([2]),
    lambda cache: cache.pool.publish([2]),
    lambda cache: cache.restore({}),
    lambda cache: cache.pool.restore({}),
    lambda cache: cache.read(ZERO, ZERO, ZERO, most=-1),
    lambda cache: cache.read(ZERO, ZERO, ZERO, most="all"),
    lambda cache: kvspec_torch.PagePool(0),
    lambda cache: kvspec_torch.PagePool("one"),
    lambda cache: kvspec_torch.PagePool(1, path="fast"),
    lambda cache: kvspec_torch.Rows(cache.pool, 1, rows=1, entries=0),
    lambda cache: kvspec_torch.Rows(cache.pool, 1, rows=1, entries="one"),
    # Rows and pins that there are not, or that are named twice; more than was announced, or than a row has room for.
    lambda cache: cache.finish(ids(0, 99)),
    lambda cache: cache.finish(ids(0, 0)),
    lambda cache: cache.finish(ids(0, 1, 2, 0)),
    lambda cache: cache.start(ids(2, 2), torch.zeros(2, cache.positions, dtype=torch.int64)),
    lambda cache: cache.unpin(ids(0, 99)),
    lambda cache: cache.overwrite(ids(1), ZERO, ZERO, ids(99)),
    lambda cache: cache.allocate(ZERO, UP_TO_ONE, most=0),
    lambda cache: cache.read(ZERO, ZERO, UP_TO_ONE, most=0),
    lambda cache: cache.share(ids(1), ZERO, ZERO, UP_TO_ONE, most=0),
    lambda cache: cache.trim(ZERO, ZERO, most=0),
    # The pool alone: page 1 held by row 0, 2 and 3 cached, 4 deferred, 5 to 12 blank, and a group is open.
    lambda cache: cache.pool.allocate(-1),
    lambda cache: cache.pool.allocate(9),
    *[
        lambda cache, method=method, pages=pages: getattr(cache.pool, method)(ids(*pages))
        for method in ("release", "share", "publish")
        for pages in ([1, 0], [1, 1], [1, 13], [1, -(2**63)], [1, 4], [1, 5], [1] * 20)
    ],
    lambda cache: cache.pool.release(ids(0)),
    lambda cache: cache.pool.release(ids(3)),
    lambda cache: cache.evict(-1),
    lambda cache: cache.begin(),
]


def test_a_refusal_and_a_misuse_leave_the_fast_twin_as_it_was(record_property: Record) -> None:
    """To the last bit of its tensors, numbers and heap."""
    failed = 0
    errors = (kvspec_torch.Misuse, kvspec_torch.Refused)
    with reached("kvspec_torch", *errors) as points:
        for program in programs():
            pool = program.configuration
            twin = Twin(Scope(pool.pages, pool.page_size, "abcd", 80, "pqs"), "host", kvspec_torch)
            for operation in program.operations:
                before = twin.glance()
                status = twin.attempt(operation).status
                if status in FAILED:
                    assert twin.glance() == before, operation
                    failed += 1
            assert program.operations not in DIRECTED or status in FAILED, operation
        twin = prepared()
        for number, call in enumerate(TORCH_CALLS):
            before = twin.glance()
            assert raises(errors, call, twin._cache), number
            assert twin.glance() == before, number
            failed += 1
        for cache in (small(1), small(3)):  # no page is left for the row, or no entry
            before = {name: tensor.clone() for name, tensor in cache.backup().items()}
            assert raises(errors, lambda cache: cache.allocate(ZERO, ids(2)), cache)
            assert cache.backup().keys() == before.keys()
            assert all(tensor.equal(before[name]) for name, tensor in cache.backup().items())
            failed += 1
        empty = small(1)
        empty.allocate(ZERO, UP_TO_ONE)
        assert raises(errors, lambda cache: cache.pool.allocate(1), empty)
    all_points = failing_points(TORCH, TORCH_CHECKS)
    assert sorted(all_points - points) == []
    record_property("say", f"failures: torch-host, {failed} operations at all of {len(all_points)} failing lines")


def small(pages: int) -> kvspec_torch.Cache:
    """A cache with a row of one entry."""
    cache = kvspec_torch.Cache(pages, rows=1, entries=1)
    cache.start(ZERO, ids(0).view(1, 1))
    return cache


def prepared() -> Twin:
    """Twelve pages, three rows of up to fifteen entries, one pin; a group is open and page 4 is deferred in it."""
    twin = Twin(Scope(12, 1, "abc", 1, "p"), "host", kvspec_torch)
    steps = (Start("a", 0), Allocate("a", 4), Write("a", 0, 4), Publish("a", 1, 3), Begin(), Free("a", 1, 4))
    for operation in (*steps, Start("b", 0), Pin("p", "a", 0)):
        assert twin.attempt(operation).status == "done"
    return twin


def test_a_check_that_comes_too_late_is_seen() -> None:
    """The checks above, where a cache has given up a row's page when it finds fault with the next one."""

    class Hasty(kvspec_torch.Cache):
        def free(self, rows: Any, starts: Any, stops: Any, most: Any = None) -> None:
            for entry in range(int(starts), int(stops)):
                super().free(rows, ids(entry), ids(entry + 1), most)

    class Package:
        Cache, Misuse, Refused = Hasty, kvspec_torch.Misuse, kvspec_torch.Refused

    twin = Twin(Scope(4, 1, "a", 4), "host", Package)
    for operation in (Start("a", 0), Allocate("a", 3), Free("a", 1, 2)):
        assert twin.attempt(operation).status == "done"
    before = twin.glance()
    assert twin.attempt(Free("a", 0, 2)).status == "misuse"
    assert twin.glance() != before


@pytest.mark.parametrize("line", ["raise Misuse(", "self._judge("])
def test_every_line_is_looked_for(line: str) -> None:
    points = failing_points(TORCH, TORCH_CHECKS)
    assert sum(line in point for point in points) >= 15
