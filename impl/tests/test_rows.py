"""What voids a batch, how operands must look, and how results do, on both paths."""

from typing import Any

import pytest
import torch
from kvspec_torch import Cache, Misuse, Refused

LONG = torch.zeros(1, 6, dtype=torch.int64)


def filled(path: Any) -> Cache:
    """Page size 2; rows 0, 1, 2 have three, two, one settled pages; the first is published, freed, pinned."""
    cache = Cache(8, 2, rows=4, entries=3, pins=2, path=path)
    rows = torch.tensor([0, 1, 2])
    cache.start(rows, torch.arange(6).expand(3, 6))
    lengths = torch.tensor([6, 4, 2])
    cache.allocate(rows, lengths)
    cache.write(rows, torch.zeros_like(rows), lengths)
    cache.publish(rows[:1], torch.tensor([0]), torch.tensor([1]))
    cache.free(rows[1:2], torch.tensor([0]), torch.tensor([1]))
    cache.pin(torch.tensor([0]), torch.tensor([2]), torch.tensor([0]))
    cache.check()
    return cache


def column(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


@pytest.mark.parametrize(
    ("operation", "operands", "reason"),
    [
        ("start", (column(3, 1), torch.zeros(2, 6, dtype=torch.int64)), "row 1: is live already"),
        ("start", (column(4), LONG), "row 4: unknown"),
        ("finish", (column(0, 3),), "row 3: is not live"),
        ("finish", (column(-1),), "row -1: unknown"),
        ("finish", (column(0, 1, 0),), "row 0: is named twice in one call"),
        ("allocate", (column(0, 2), column(0, 5)), "row 2: has (too few|only 3) entries"),
        ("allocate", (column(0, 2), column(0, -1)), "row 2: (asks for less than nothing|cannot be allocated)"),
        ("free", (column(0, 1), column(0, 0), column(1, 1)), "row 1: holds no page there"),
        ("free", (column(0, 1), column(0, 1), column(4, 2)), "row 0: (asks for less|has 3 entries)"),
        ("write", (column(0), column(0), column(1)), "row 0: holds a published page there"),
        ("write", (column(2), column(0), column(1)), "row 2: is not the page's only holder, copy it first"),
        ("write", (column(1), column(2), column(3), True), "row 1: is settled there, a draft must not overwrite it"),
        ("read", (column(0, 1), column(0, 1), column(6, 4)), "row 1: is not settled there"),
        ("trim", (column(0, 1), column(6, 5)), "row 1: (asks for less than nothing|has not so many positions)"),
        ("publish", (column(1), column(0), column(1)), "row 1: holds no page there"),
        ("share", (column(2), column(0), column(1), column(2)), "row 0: holds a page there that is not published"),
        ("share", (column(2), column(0), column(0), column(1)), "row 2: does not end where the shared pages begin"),
        ("share", (column(2), column(3), column(0), column(1)), "row 3: is not live"),
        ("share", (column(2), column(4), column(0), column(1)), "row 4: unknown"),
        ("share", (column(2), column(0), column(1), column(0)), "row 0: (asks for less|has 3 entries)"),
        ("share", (column(2), column(0), column(1), column(4)), "row 0: (asks for less|has 3 entries)"),
        ("replace", (column(0), column(0), column(0)), "row 0: holds a published page there"),
        ("replace", (column(2), column(0), column(1)), "row 1: holds no page there"),
        ("copy", (column(0, 1), column(2, 3)), "row 1: holds no page there"),
        ("copy", (column(0, 1), column(-1, 1)), "row 0: holds no page there"),
        ("pin", (column(1), column(2), column(0)), "row 2: has pinned this page already"),
        ("pin", (column(0), column(0), column(0)), "pin 0: is in use already"),
        ("pin", (column(2), column(0), column(0)), "pin 2: unknown"),
        ("unpin", (column(0, 1),), "pin 1: is not in use"),
        ("overwrite", (column(0), column(0), column(1), column(1)), "row 0: is live there"),
        ("overwrite", (column(1), column(0), column(1), column(1)), "row 1: cannot be overwritten with its own pages"),
    ],
)
def test_misuse_of_one_voids_the_batch(operation: str, operands: tuple[Any, ...], reason: str, path: str) -> None:
    cache = filled(path)
    before = cache.snapshot()

    def misuse() -> None:
        getattr(cache, operation)(*operands)
        cache.check()

    with pytest.raises(Misuse, match=rf"^({operation} \(call 0 since the last check\): )?{reason}"):
        misuse()
    assert cache.snapshot() == before


def test_a_batch_is_refused_as_a_whole(path: str) -> None:
    cache = filled(path)
    before = cache.snapshot()
    if path == "host":
        with pytest.raises(Refused, match=r"^4 pages wanted, 3 available$"):
            cache.allocate(column(1, 2, 0), column(2, 4, 2))
    else:
        pages, slots = cache.allocate(column(1, 2), column(2, 2**62))
        assert int(cache.status) == 1
        assert not pages.any()
        assert not slots.any()
    assert cache.snapshot() == before


def test_a_row_may_ask_for_no_more_than_was_announced(path: str) -> None:
    cache = filled(path)
    before = cache.snapshot()

    def misuse() -> None:
        cache.read(column(0), column(0), column(3), most=2)
        cache.check()

    with pytest.raises(Misuse, match=r"row 0: asks for more than (the 2|was) announced"):
        misuse()
    assert cache.snapshot() == before
    for most in -1, 7:
        with pytest.raises(Misuse, match=rf"^most: a row has up to 6 of them, not {most}$"):
            cache.read(column(0), column(0), column(3), most=most)
    with pytest.raises(Misuse, match=r"^most: a row has up to 3 of them, not 4$"):
        cache.free(column(0), column(0), column(3), most=4)


def test_what_a_trim_announces_is_the_entries_it_gives_up(path: str) -> None:
    cache = filled(path)
    before = cache.snapshot()

    def misuse() -> None:
        cache.trim(column(0, 1), column(2, 3), most=1)
        cache.check()

    with pytest.raises(Misuse, match=r"row 0: asks for more than (the 1|was) announced"):
        misuse()
    assert cache.snapshot() == before
    cache.trim(column(0, 1), column(2, 3), most=2)
    cache.check()
    after = cache.snapshot()
    assert after["rows"] == {0: {0: 1}, 1: {1: 5}, 2: {0: 6}}
    assert after["settled"] == {0: [(0, 0), (0, 1)], 1: [(1, 0)], 2: [(0, 0), (0, 1)]}


def test_results_are_padded_with_null(path: str) -> None:
    cache = Cache(8, 2, rows=2, entries=4, path=path)  # type: ignore[arg-type]
    cache.start(column(1, 0), torch.arange(8).expand(2, 8))
    pages, slots = cache.allocate(column(1, 0), column(3, 1), most=4)
    assert pages.tolist() == [[1, 2], [3, 0]]
    assert slots.tolist() == [[2, 3, 4, 0], [6, 0, 0, 0]]
    assert cache.write(column(1, 0), column(1, 0), column(3, 1), most=2).tolist() == [[3, 4], [6, 0]]
    slots, tokens = cache.read(column(0, 1), column(0, 1), column(1, 3), most=3)
    assert slots.tolist() == [[6, 0, 0], [3, 4, 0]]
    assert tokens.tolist() == [[0, 0, 0], [1, 2, 0]]
    cache.publish(column(1), column(1), column(1))
    assert cache.copy(column(0), column(0)).tolist() == [0]


def test_what_a_caller_overwrites_its_buffer_with(path: str) -> None:
    cache = Cache(8, 1, rows=2, entries=4, path=path)  # type: ignore[arg-type]
    cache.start(column(0, 1), torch.arange(4).expand(2, 4))
    cache.allocate(column(0, 1), column(3, 3))
    cache.free(column(0, 1), column(0, 1), column(3, 2))
    before = cache.snapshot()
    assert cache.overwrite(column(0), column(0), column(3), column(1), most=3).tolist() == [[4, 6, 4]]
    assert cache.snapshot() == before


@pytest.mark.parametrize(
    ("operation", "operands", "reason"),
    [
        ("finish", ([0],), "rows: an int64 tensor is wanted, not list"),
        ("allocate", (column(0), column(1, 1)), "tokens: 1 numbers are wanted, one for each row, not 2"),
        ("allocate", (column(0), torch.tensor([1.0])), "tokens: int64 is wanted, not float32"),
        ("copy", (column(0), column(1).to("meta")), "entries: is on meta, the pool is on cpu"),
        ("start", (column(3), LONG[:, :5]), r"tokens: int64 \(1, 6\) is wanted, not int64 \(1, 5\)"),
        ("start", (column(3), torch.zeros(1, 6)), r"tokens: int64 \(1, 6\) is wanted, not float32 \(1, 6\)"),
        ("start", (column(3), None), r"tokens: int64 \(1, 6\) is wanted, not NoneType"),
        ("start", (column(3), LONG.to("meta")), "tokens: is on meta, the pool is on cpu"),
        ("free", (column(0), column(0), column(1), 1.5), "most: a whole number is wanted, not float"),
    ],
)
def test_the_form_of_operands(operation: str, operands: tuple[Any, ...], reason: str, path: str) -> None:
    cache = filled(path)
    before = cache.snapshot()
    with pytest.raises(Misuse, match=f"^{reason}$"):
        getattr(cache, operation)(*operands)
    assert cache.snapshot() == before


@pytest.mark.parametrize("name", ["page_size", "rows", "entries", "pins"])
def test_rows_that_cannot_be(name: str) -> None:
    with pytest.raises(Misuse, match=f"^{name}: at least 1 is wanted, not 0$"):
        Cache(4, **{"page_size": 1, "rows": 1, "entries": 1, "pins": 1, name: 0})  # type: ignore[arg-type]
