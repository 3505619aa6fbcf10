"""The raw pool on both paths against the reference's, in batches, with misuse; and what an engine author may ask."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from kvspec import operations as words
from kvspec_reference import DeferredPagePool as Reference
from kvspec_torch import DeferredPagePool, Misuse, PagePool, Refused

STATUS = ("done", "refused", "misuse")
JUNK = -5


def ids(*pages: int) -> torch.Tensor:
    return torch.tensor(pages, dtype=torch.int64)


def attempt(pool: PagePool, call: Callable[[], torch.Tensor | None]) -> tuple[str, list[int]]:
    """The status of a call and the pages it gave; the device path's misuse is found by `check`, and only there."""
    try:
        result = call()
    except (Misuse, Refused) as error:
        return ("misuse" if isinstance(error, Misuse) else "refused"), []
    status = STATUS[int(pool.status)]
    if status == "misuse":
        with pytest.raises(Misuse, match=r"\(call \d+ since the last check\)"):
            pool.check()
    pool.check()
    pages = [] if result is None else result[result > 0].tolist()
    if result is not None:
        result.fill_(JUNK)
    return status, pages


def expected(call: Callable[[], Any]) -> tuple[str, list[int]]:
    try:
        result = call()
    except (words.Misuse, words.Refused) as error:
        return ("misuse" if isinstance(error, words.Misuse) else "refused"), []
    return "done", list(result or [])


def state(pool: Reference) -> dict[str, Any]:
    refs = {page: n for page, n in pool.refs.items() if n}
    blank, cached, released = list(pool.blank), list(pool.cached), list(pool.released)
    return {"blank": blank, "cached": cached, "released": released, "refs": refs, "open": pool.open}


def draw(rng: random.Random, pool: Reference) -> tuple[str, Any]:
    """An operation on the raw pool that is legal most of the time."""
    held = [page for page, n in pool.refs.items() if n]
    unheld = [page for page in pool.cached if not pool.refs[page]]
    name = rng.choice(["allocate", "allocate", "release", "release", "share", "publish", "publish", "evict", "group"])
    if name == "group":
        return ("end" if pool.open == (rng.random() < 0.97) else "begin"), None
    if name in ("allocate", "evict"):
        return name, rng.choice([-1, 0, 1, 1, 1, 2, rng.randrange(pool.pages), rng.randrange(pool.pages), 2**40])
    candidates = held if name == "release" else held + unheld
    size = min(len(candidates), rng.choice([0, 1, 1, 2, 5, 70]))
    pages = rng.sample(candidates, size)
    if rng.random() < 0.15:
        wrong = [0, -1, -(2**63), 2**63 - 1, pool.pages + 1, *pages[:1], *unheld]
        wrong += [*list(pool.blank)[:1], *pool.released[:1]]
        pages.insert(rng.randint(0, size), rng.choice(wrong))
    return name, pages


@pytest.mark.parametrize("size", [1, 3, 40, 300])
def test_random_batches(size: int, path: str) -> None:
    for seed in range(20 if size < 300 else 2):
        rng = random.Random(seed)
        reference, pool = Reference(size), DeferredPagePool(size, path=path)  # type: ignore[arg-type]
        for step in range(60 if size < 300 else 400):
            name, operand = draw(rng, reference)
            before = pool.snapshot()
            if name in ("begin", "end"):
                want, got = expected(getattr(reference, name)), attempt(pool, getattr(pool, name))
                want = want[0], []
            elif name in ("allocate", "evict"):
                want = expected(lambda: getattr(reference, name)(operand))  # noqa: B023
                got = attempt(pool, lambda: getattr(pool, name)(operand))  # noqa: B023
            else:
                passed = ids(*operand)
                want = expected(lambda: getattr(reference, name)(operand))[0], []  # noqa: B023
                got = attempt(pool, lambda: getattr(pool, name)(passed))  # noqa: B023
                passed.fill_(JUNK)
            assert got == want, (seed, step, name, operand)
            assert pool.snapshot() == (state(reference) if got[0] == "done" else before), (seed, step, name, operand)
            assert int(pool.available) == reference.available


def test_n_is_a_whole_number_of_pages(path: str) -> None:
    pool = PagePool(3, path=path)  # type: ignore[arg-type]
    assert pool.allocate(0).shape == (0,)
    assert pool.allocate(np.int64(2)).tolist() == [1, 2]  # type: ignore[arg-type]
    assert pool.allocate(1).dtype is torch.int64
    with pytest.raises(Misuse, match=r"^-1 pages cannot be allocated$"):
        pool.allocate(-1)
    for n in 1.0, "1", None:
        with pytest.raises(Misuse, match=r"^n: a whole number is wanted, not \w+$"):
            pool.allocate(n)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match=r"^count: a whole number is wanted, not float$"):
        pool.evict(1.5)  # type: ignore[arg-type]
    with pytest.raises(Misuse, match=r"^-2 pages cannot be evicted$"):
        pool.evict(-2)


@pytest.mark.parametrize("method", ["release", "share", "publish"])
@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ([1], "an int64 tensor is wanted, not list"),
        (1, "an int64 tensor is wanted, not int"),
        (torch.tensor([1], dtype=torch.int32), "int64 is wanted, not int32"),
        (torch.tensor([1.0]), "int64 is wanted, not float32"),
        (torch.tensor(1), r"one dimension is wanted, not the shape \(\)"),
        (torch.tensor([[1]]), r"one dimension is wanted, not the shape \(1, 1\)"),
        (torch.tensor([1], device="meta"), "is on meta, the pool is on cpu"),
    ],
)
def test_the_form_of_pages(method: str, pages: Any, reason: str, path: str) -> None:
    pool = PagePool(3, path=path)  # type: ignore[arg-type]
    pool.allocate(2)
    before = pool.snapshot()
    with pytest.raises(Misuse, match=f"^pages: {reason}$"):
        getattr(pool, method)(pages)
    assert pool.snapshot() == before


@pytest.mark.parametrize("method", ["release", "share", "publish"])
@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ([1, 0], "page 0: the null page is nobody's"),
        ([9, 1], "page 9: unknown"),
        ([1, -3], "page -3: unknown"),
        ([1, 2, 1], "page 1: is named twice in one call"),
        ([1, 6], "page 6: is blank"),
        ([6], "page 6: is blank"),
        ([1, 5], "page 5: was freed already in the open group"),
    ],
)
def test_misuse_names_the_page_and_the_reason(method: str, pages: list[int], reason: str, path: str) -> None:
    pool = DeferredPagePool(8, path=path)  # type: ignore[arg-type]
    pool.allocate(5)
    pool.share(ids(2))
    pool.begin()
    pool.release(ids(5))
    before = pool.snapshot()
    where = "" if path == "host" else rf"{method} \(call 4 since the last check\): "

    def misuse() -> None:
        getattr(pool, method)(ids(*pages))
        pool.check()

    with pytest.raises(Misuse, match=rf"^{where}{reason}"):
        misuse()
    assert pool.snapshot() == before
    pool.check()


def test_more_pages_than_there_are(path: str) -> None:
    pool = PagePool(2, path=path)  # type: ignore[arg-type]
    pool.allocate(2)
    with pytest.raises(Misuse):
        pool.release(ids(1, 2, 1))
    assert pool.snapshot()["refs"] == {1: 1, 2: 1}


def test_a_view_of_pages_is_read_as_it_is(path: str) -> None:
    pool = PagePool(6, path=path)  # type: ignore[arg-type]
    pages = pool.allocate(6)
    pool.release(pages[::2])
    pool.release(pages.flip(0)[::2])
    assert pool.snapshot()["blank"] == [1, 3, 5, 6, 4, 2]


def test_refusal_gives_null_pages_without_a_host_wait() -> None:
    pool = PagePool(3, path="device")
    pool.allocate(2)
    assert pool.allocate(2).tolist() == [0, 0]
    assert int(pool.status) == 1
    pool.check()
    assert pool.allocate(1).tolist() == [3]
    assert int(pool.status) == 0
    with pytest.raises(Refused, match=r"^4 pages wanted, there are 3 at all$"):
        pool.allocate(4)


def test_refusal_names_the_numbers() -> None:
    pool = PagePool(3)
    pool.allocate(2)
    with pytest.raises(Refused, match=r"^2 pages wanted, 1 available$"):
        pool.allocate(2)
    pool.allocate(1)
    with pytest.raises(Refused, match=r"^1 pages wanted, 0 available$"):
        pool.allocate(1)


def test_eviction_pads_on_the_device_path_only(path: str) -> None:
    pool = PagePool(4, path=path)  # type: ignore[arg-type]
    pages = pool.allocate(3)
    pool.publish(pages[[2, 0]])
    pool.release(pages)
    assert pool.evict(9).tolist() == ([3, 1] if path == "host" else [3, 1, 0, 0])


def test_check_reports_the_first_misuse_and_forgets_it() -> None:
    pool = PagePool(4, path="device")
    pool.allocate(2)
    pool.release(ids(3))
    pool.release(ids(1, 1))
    pool.release(ids(2))
    with pytest.raises(Misuse, match=r"^release \(call 1 since the last check\): page 3: is blank$"):
        pool.check()
    pool.check()
    assert pool.snapshot()["blank"] == [3, 4, 2]
    pool.release(ids(9))
    with pytest.raises(Misuse, match=r"^release \(call 0 since the last check\): page 9: unknown$"):
        pool.check()


@pytest.mark.parametrize(
    ("pages", "device", "path", "reason"),
    [
        (0, "cpu", None, "a pool has 1 to 1073741822 pages, not 0"),
        (2**30, "cpu", None, "a pool has 1 to 1073741822 pages, not 1073741824"),
        (1.5, "cpu", None, "pages: a whole number is wanted, not float"),
        (4, "meta", "host", "path: 'host' is none for meta, 'device' is one and for the CPU 'host'"),
        (4, "cpu", "gpu", "path: 'gpu' is none for cpu, 'device' is one and for the CPU 'host'"),
    ],
)
def test_a_pool_that_cannot_be(pages: Any, device: str, path: Any, reason: str) -> None:
    with pytest.raises(Misuse, match=f"^{reason}$"):
        PagePool(pages, device, path)
