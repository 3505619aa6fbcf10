"""The raw pool, used alone by an engine author."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from kvspec.operations import Misuse, Refused
from kvspec_reference import DeferredPagePool, PagePool


def state(pool: PagePool) -> dict[str, Any]:
    return copy.deepcopy(vars(pool))


def fails(pool: PagePool, call: Callable[[], object], error: type[Exception], message: str) -> None:
    """`call` raises exactly this, and the pool is as it was."""
    before = state(pool)
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value) == message
    assert state(pool) == before


def mixed() -> DeferredPagePool:
    """Pages 1 held, 2 held twice, 3 held and published, 4 published, 5 deferred, 6 to 8 blank."""
    pool = DeferredPagePool(8)
    pool.allocate(5)
    pool.share([2])
    pool.publish([3, 4])
    pool.release([4])
    pool.begin()
    assert pool.release([5]) == ()
    return pool


def test_pages_come_first_in_first_out() -> None:
    pool = PagePool(5)
    assert pool.allocate(3) == (1, 2, 3)
    assert pool.release([3, 1]) == (3, 1)
    assert pool.available == 4
    assert pool.allocate(3) == (4, 5, 3)
    assert list(pool.blank) == [1]


@pytest.mark.parametrize(("pages", "page_size"), [(0, 1), (-1, 1), (1, 0)])
def test_a_pool_needs_a_page_and_a_cell(pages: int, page_size: int) -> None:
    with pytest.raises(Misuse, match="a pool needs a page and a cell"):
        PagePool(pages, page_size)


def test_allocating_nothing_gives_nothing_and_less_is_a_misuse() -> None:
    pool = PagePool(2)
    assert pool.allocate(0) == ()
    assert pool.available == 2
    fails(pool, lambda: pool.allocate(-1), Misuse, "-1 pages cannot be allocated")


def test_a_refusal_names_the_numbers_and_is_exact() -> None:
    pool = PagePool(3)
    fails(pool, lambda: pool.allocate(4), Refused, "4 pages wanted, 3 available")
    assert pool.allocate(3) == (1, 2, 3)
    fails(pool, lambda: pool.allocate(1), Refused, "1 pages wanted, 0 available")
    assert pool.allocate(0) == ()


@pytest.mark.parametrize("method", ["release", "share", "publish"])
@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ([1, 0], "page 0: the null page is nobody's"),
        ([1, 9], "page 9: unknown, the pool has pages 1 to 8"),
        ([1, -1], "page -1: unknown, the pool has pages 1 to 8"),
        ([1, 2.0], "page 2.0: unknown, the pool has pages 1 to 8"),
        ([1, True], "page True: unknown, the pool has pages 1 to 8"),
        ([1, 2, 1], "page 1: named twice in one call"),
        ([1, 6], "page 6: is blank, so nobody can {}"),
        ([1, 5], "page 5: was freed already in the open group, so nobody can {}"),
    ],
)
def test_a_page_that_cannot_be_named(method: str, pages: list[Any], reason: str) -> None:
    pool = mixed()
    verb = {"release": "release it", "share": "share it", "publish": "publish it"}[method]
    fails(pool, lambda: getattr(pool, method)(pages), Misuse, reason.format(verb))


def test_only_a_holder_can_release() -> None:
    pool = mixed()
    reason = "page 4: is published and has no holder, so nobody can release it"
    fails(pool, lambda: pool.release([1, 4]), Misuse, reason)


def test_a_page_is_blank_when_its_last_holder_leaves() -> None:
    pool = PagePool(3)
    pool.allocate(2)
    pool.share([1])
    assert pool.release([1, 2]) == (2,)
    assert pool.release([1]) == (1,)
    assert list(pool.blank) == [3, 2, 1]
    fails(pool, lambda: pool.release([1]), Misuse, "page 1: is blank, so nobody can release it")


def test_calls_that_name_nothing_do_nothing() -> None:
    pool = mixed()
    before = state(pool)
    assert (pool.release([]), pool.publish([]), pool.evict(0)) == ((), (), ())
    pool.share([])
    assert state(pool) == before


def test_a_published_page_stays_until_it_is_evicted() -> None:
    pool = PagePool(4)
    pool.allocate(3)
    assert pool.publish([2, 1]) == (2, 1)
    assert pool.publish([1, 3]) == (3,)
    assert pool.release([1, 3, 2]) == ()
    assert pool.available == 1
    pool.share([2])
    assert pool.evict(5) == (1, 3)
    assert list(pool.blank) == [4, 1, 3]
    assert pool.evict(1) == ()
    pool.release([2])
    assert pool.evict(1) == (2,)
    fails(pool, lambda: pool.evict(-1), Misuse, "-1 pages cannot be evicted")


def test_eviction_takes_the_longest_published_first_and_no_more_than_asked() -> None:
    pool = PagePool(3)
    pool.allocate(3)
    pool.publish([3])
    pool.publish([1, 2])
    pool.release([1, 2, 3])
    assert pool.evict(2) == (3, 1)
    assert list(pool.cached) == [2]


def test_a_group_defers_by_value_and_in_order() -> None:
    pool = DeferredPagePool(4)
    pool.allocate(4)
    pool.begin()
    named = [3, 1]
    assert pool.release(named) == ()
    named[:] = [2, 4]
    pool.release([4])
    assert pool.available == 0
    fails(pool, lambda: pool.allocate(1), Refused, "1 pages wanted, 0 available")
    assert pool.end() == (3, 1, 4)
    assert list(pool.blank) == [3, 1, 4]
    assert pool.refs[2] == 1


def test_a_page_is_deferred_once_however_often_it_is_named() -> None:
    pool = DeferredPagePool(2)
    pool.allocate(1)
    pool.share([1])
    pool.begin()
    pool.release([1])
    pool.release([1])
    reason = "page 1: was freed already in the open group, so nobody can release it"
    fails(pool, lambda: pool.release([1]), Misuse, reason)
    assert pool.end() == (1,)


def test_eviction_does_not_wait_for_the_group() -> None:
    pool = DeferredPagePool(3)
    pool.allocate(3)
    pool.publish([2])
    pool.begin()
    pool.release([1, 2])
    assert pool.evict(1) == (2,)
    assert list(pool.blank) == [2]
    assert pool.end() == (1,)
    assert list(pool.blank) == [2, 1]


def test_groups_do_not_nest_and_end_once() -> None:
    pool = DeferredPagePool(1)
    fails(pool, pool.end, Misuse, "no group is open")
    pool.begin()
    fails(pool, pool.begin, Misuse, "a group is open already")
    assert pool.end() == ()
    fails(pool, pool.end, Misuse, "no group is open")
