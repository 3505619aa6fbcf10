"""Every operand of every operation on rows must have its form; a call in which one has not changes nothing."""

from collections.abc import Callable, Iterator

import pytest
import torch
from kvspec_torch import Cache, Misuse

POSITIONS = 4

OPERATIONS: dict[str, tuple[int, ...]] = {
    "start": (5,),
    "allocate": (3, 1),
    "write": (0, 3, 4),
    "read": (0, 0, 2),
    "free": (0, 1, 2),
    "overwrite": (0, 2, 3, 1),
    "trim": (0, 1),
    "finish": (0,),
    "publish": (0, 1, 2),
    "share": (3, 0, 0, 1),
    "replace": (4, 0, 0),
    "copy": (1, 0),
    "pin": (0, 0, 0),
    "unpin": (1,),
}
"""Operands with which each is done on what `prepared` gives, one row each time."""

LOOKS = ("read", "overwrite")
"""These change nothing even when they are done."""

WRONG: dict[str, Callable[[torch.Tensor], object]] = {
    "no tensor": lambda right: right.tolist(),
    "int32": lambda right: right.int(),
    "two dimensions": lambda right: right.view(1, 1),
    "two numbers": lambda right: right.repeat(2),
    "another device": lambda right: right.to("meta"),
}


def ids(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def prompt() -> torch.Tensor:
    return torch.arange(POSITIONS).view(1, -1)


def prepared(path: str) -> Cache:
    """Row 0 has four pages: published, its own, given up, not written. Row 1 shares the first; a pin holds it.

    Row 3 is empty, row 4 has a duplicate of the first page, row 5 is free.
    """
    cache = Cache(8, rows=6, entries=POSITIONS, pins=2, path=path)  # type: ignore[arg-type]
    for row in (0, 1, 3, 4):
        cache.start(ids(row), prompt())
    cache.allocate(ids(0, 4), ids(4, 1))
    cache.write(ids(0, 4), ids(0, 0), ids(3, 1))
    cache.publish(ids(0), ids(0), ids(1))
    cache.free(ids(0), ids(2), ids(3))
    cache.share(ids(1), ids(0), ids(0), ids(1))
    cache.pin(ids(1), ids(1), ids(0))
    cache.check()
    return cache


def call(cache: Cache, name: str, operands: list[object]) -> None:
    getattr(cache, name)(*operands, *([prompt()] if name == "start" else []))
    cache.check()


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)


def wrong_operands(right: tuple[int, ...]) -> Iterator[tuple[str, list[object]]]:
    """Each operand in turn in each wrong form; a first one of two numbers makes the others too short."""
    for at in range(len(right)):
        for what, make in WRONG.items():
            if what == "two numbers" and len(right) == 1:
                continue
            operands: list[object] = [ids(number) for number in right]
            operands[at] = make(ids(right[at]))
            yield f"{what} at {at}", operands


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_is_malformed_changes_nothing(name: str, path: str) -> None:
    cache = prepared(path)
    before = cache.backup()
    for what, operands in wrong_operands(OPERATIONS[name]):
        with pytest.raises(Misuse):
            call(cache, name, operands)
        assert same(before, cache.backup()), what
    call(cache, name, [ids(number) for number in OPERATIONS[name]])
    assert int(cache.status) == 0
    assert same(before, cache.backup()) == (name in LOOKS)


ANNOUNCED = ("allocate", "write", "read", "free", "trim", "publish", "share")
"""Each is done with at most one position or entry a row, on what `prepared` gives."""

BEYOND: dict[str, tuple[int, ...]] = {
    "allocate": (3, 2), "write": (0, 2, 4), "read": (0, 0, 2), "free": (0, 0, 2), "overwrite": (0, 1, 3, 1),
    "trim": (0, 0), "finish": (0,), "publish": (0, 0, 2), "share": (3, 0, 0, 2),
}  # fmt: skip
"""Operands that name more than one."""


def announced(cache: Cache, name: str, operands: tuple[int, ...]) -> None:
    getattr(cache, name)(*map(ids, operands), most=1)
    cache.check()


@pytest.mark.parametrize("name", BEYOND)
def test_more_than_was_announced_changes_nothing(name: str, path: str) -> None:
    """And as much as was announced is done, wherever in the row it stands."""
    cache = prepared(path)
    before = cache.snapshot()
    with pytest.raises(Misuse, match=r"more than .*announced"):
        announced(cache, name, BEYOND[name])
    assert cache.snapshot() == before
    if name in ANNOUNCED:
        right = (0, 3) if name == "trim" else OPERATIONS[name] if name != "read" else (0, 1, 2)
        announced(cache, name, right)


def test_a_shared_page_far_in_the_row_is_one_page(path: str) -> None:
    cache = prepared(path)
    cache.publish(ids(0), ids(1), ids(2))
    cache.share(ids(3), ids(0), ids(0), ids(1), most=1)
    cache.share(ids(3), ids(0), ids(1), ids(2), most=1)
    cache.check()
    assert cache.snapshot()["rows"][2] == {0: 1, 1: 2}


def test_results_are_as_wide_as_the_widest_row() -> None:
    """On the host path, which looks."""
    cache = prepared("host")
    assert cache.read(ids(0), ids(1), ids(2))[1].shape == (1, 1)
    assert cache.read(ids(0), ids(1), ids(2))[0].shape == (1, 1)
    assert cache.read(ids(0), ids(1), ids(1))[0].shape == (1, 0)
    assert cache.overwrite(ids(0), ids(2), ids(3), ids(1)).shape == (1, 1)
    pages, slots = cache.allocate(ids(3), ids(0))
    assert (pages.shape, slots.shape) == ((1, 0), (1, 0))
    assert cache.write(ids(0), ids(3), ids(4)).shape == (1, 1)


def test_a_table_of_one_entry_has_no_second_one(path: str) -> None:
    cache = Cache(2, rows=1, entries=1, path=path)  # type: ignore[arg-type]
    cache.start(ids(0), ids(0).view(1, 1))
    for entry in (-1, 1, 5):
        with pytest.raises(Misuse, match="holds no page there"):
            call(cache, "copy", [ids(0), ids(entry)])


def test_a_page_among_too_many_is_named_rightly() -> None:
    """More pages than the pool has: one is named twice, and the text says which."""
    pool = Cache(3, rows=1, entries=1, path="host").pool
    pool.allocate(3)
    with pytest.raises(Misuse, match="page 2: is named twice in one call"):
        pool.share(ids(1, 3, 2, 2))


def test_nothing_is_kept_beside_what_is_needed(path: str) -> None:
    """The sizes of the state, its first values, and those after a row has come and gone."""
    cache = Cache(4, 2, rows=3, entries=5, pins=2, path=path)  # type: ignore[arg-type]
    first = cache.backup()
    assert [first[name].shape[0] for name in ("table", "length", "request", "tokens", "settled")] == [4] * 5
    assert [first[name].numel() for name in ("state", "order", "pin_page", "pin_request")] == [5, 5, 3, 3]
    assert first["numbers"].tolist()[:2] == [0, 4]
    assert not first["numbers"][2:].any()
    cache.start(ids(0, 2), torch.zeros(2, 10, dtype=torch.int64))
    assert cache.backup()["request"][:-1].tolist() == [0, -1, 1]
    cache.finish(ids(0, 2))
    cache.check()
    assert cache.backup()["request"][:-1].equal(first["request"][:-1])
