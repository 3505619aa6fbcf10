"""Groups on both paths: by value, in order, backed up with what they defer (D1, D4, D5, D6)."""

from typing import Any

import pytest
import torch
from kvspec_torch import Cache, DeferredPagePool, Misuse, PagePool


def grouped(path: Any) -> DeferredPagePool:
    """Pages 1 to 4 held, 2 published, 3 deferred; 5 and 6 blank."""
    pool = DeferredPagePool(6, path=path)
    pool.allocate(4)
    pool.publish(torch.tensor([2]))
    pool.begin()
    pool.release(torch.tensor([3]))
    return pool


def test_what_is_deferred_is_what_was_named(path: str) -> None:
    pool = grouped(path)
    named = torch.tensor([4, 1])
    pool.release(named)
    named.copy_(torch.tensor([5, 6]))
    assert pool.snapshot()["released"] == [3, 4, 1]
    pool.end()
    assert pool.snapshot()["blank"] == [5, 6, 3, 4, 1]


def test_what_is_handed_out_is_the_callers(path: str) -> None:
    pool = DeferredPagePool(4, path=path)  # type: ignore[arg-type]
    one, three = pool.allocate(1), pool.allocate(3)
    pool.publish(torch.tensor([2, 1]))
    pool.release(torch.tensor([1, 2, 3, 4]))
    evicted = pool.evict(2)
    for tensor in one, three, evicted, pool.status:
        tensor.fill_(-1)
    if path == "device":
        available = pool.available
        assert isinstance(available, torch.Tensor)
        available.fill_(-1)
    assert pool.snapshot()["blank"] == [3, 4, 2, 1]
    assert pool.allocate(4).tolist() == [3, 4, 2, 1]


def test_groups_do_not_nest(path: str) -> None:
    pool = grouped(path)
    with pytest.raises(Misuse, match=r"^a group is open already$"):
        pool.begin()
    pool.end()
    with pytest.raises(Misuse, match=r"^no group is open$"):
        pool.end()
    assert pool.snapshot()["blank"] == [5, 6, 3]


def test_a_misuse_inside_a_group_loses_nothing(path: str) -> None:
    """D3."""
    pool = grouped(path)

    def released_again() -> None:
        pool.release(torch.tensor([4, 3]))
        pool.check()

    with pytest.raises(Misuse, match="page 3: was freed already in the open group"):
        released_again()
    pool.release(torch.tensor([4]))
    pool.end()
    assert pool.snapshot()["blank"] == [5, 6, 3, 4]


def test_a_backup_holds_the_open_group_and_stays_as_it_is(path: str) -> None:
    pool = grouped(path)
    saved, then = pool.backup(), pool.snapshot()
    pool.release(torch.tensor([2, 1]))
    pool.evict(1)
    pool.end()
    pool.allocate(4)
    later = pool.snapshot()
    pool.restore(saved)
    assert pool.snapshot() == then
    for tensor in saved.values():
        tensor.fill_(1)
    assert pool.snapshot() == then
    pool.release(torch.tensor([2, 1]))
    pool.evict(1)
    pool.end()
    pool.allocate(4)
    assert pool.snapshot() == later


def test_what_was_evictable_is_so_after_restoring(path: str) -> None:
    pool = PagePool(5, path=path)  # type: ignore[arg-type]
    pool.allocate(5)
    pool.publish(torch.tensor([4, 2, 5, 1]))
    pool.release(torch.tensor([1, 2, 4]))
    pool.share(torch.tensor([4]))
    saved = pool.backup()
    fresh = PagePool(5, path=path)  # type: ignore[arg-type]
    fresh.restore(saved)
    for one in pool, fresh:
        assert one.evict(1).tolist() == [2]
        one.release(torch.tensor([4, 5]))
        one.publish(torch.tensor([3]))
        assert one.snapshot()["cached"] == [4, 5, 1, 3]
        assert one.evict(2).tolist() == [4, 5]


def test_a_whole_cache_is_backed_up(path: str) -> None:
    cache = Cache(4, 2, rows=2, entries=3, path=path)  # type: ignore[arg-type]
    row = torch.tensor([0])
    cache.start(row, torch.arange(6)[None])
    cache.allocate(row, torch.tensor([4]))
    cache.write(row, torch.tensor([0]), torch.tensor([3]))
    cache.begin()
    cache.trim(row, torch.tensor([1]))
    saved, then = cache.backup(), cache.snapshot()
    assert then["released"] == [2]
    cache.end()
    cache.finish(row)
    cache.restore(saved)
    assert cache.snapshot() == then
    assert cache.read(row, torch.tensor([0]), torch.tensor([1]))[1].flatten().tolist()[0] == 0


def test_a_backup_of_something_else_is_refused(path: str) -> None:
    pool = grouped(path)
    before = pool.snapshot()
    other = "device" if path == "host" else "host"
    for stranger in DeferredPagePool(5, path=path), PagePool(6, path=path), DeferredPagePool(6, path=other):  # type: ignore[arg-type]
        with pytest.raises(Misuse, match=r"^restore: not the backup of a pool of this size, class and path$"):
            pool.restore(stranger.backup())
    cache = Cache(6, rows=1, entries=2, path=path)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match=r"^restore: not the backup of rows of this size$"):
        cache.restore(Cache(6, rows=1, entries=3, path=path).backup())  # type: ignore[arg-type]
    with pytest.raises(Misuse, match=r"^restore: not the backup of rows of this size$"):
        cache.restore(pool.backup())
    assert pool.snapshot() == before
