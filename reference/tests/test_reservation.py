"""How many blocks a step needs, against counting one by one (C1-C7)."""

import re
from typing import Any

import pytest
from kvspec_reference.geometry import chunk_start, window_start
from kvspec_reference.reservation import ATTENTION, RECURRENT, Group, Kind, Limits, blocks, first_read, null_entries

SMALL = range(12)
KINDS: tuple[Kind, ...] = (*ATTENTION, *RECURRENT, "cross")


def group(kind: Kind, size: int = 3, span: int = 4) -> Group:
    return Group(kind, size, span if kind in ("window", "chunk") else 0)


def held(tokens: int, size: int) -> int:
    """Blocks that hold so many tokens, counted."""
    return len({token // size for token in range(tokens)})


@pytest.mark.parametrize("span", range(1, 6))
def test_a_window_and_a_chunk_begin_where_they_should(span: int) -> None:
    for position in SMALL:
        seen = [other for other in range(position + 1) if position - other < span]
        assert window_start(position, span) == seen[0]
        beside = [other for other in range(position + 1) if other // span == position // span]
        assert chunk_start(position, span) == beside[0]


@pytest.mark.parametrize("size", range(1, 5))
def test_a_table_holds_what_is_written_and_no_more(size: int) -> None:
    limits = Limits(10, lookahead=2, spares=3, encoded=7)
    for ahead in range(limits.length + 1):
        capped = held(min(ahead + 2, 10), size)
        assert [blocks(group(kind, size), ahead, limits) for kind in ATTENTION] == [capped] * 3
        assert [blocks(group(kind, size), ahead, limits) for kind in ("none", "all")] == [capped + 3] * 2
        assert blocks(group("align", size), ahead, limits) == held(ahead, size) + 3
        assert blocks(group("cross", size), ahead, limits) == held(7, size)


@pytest.mark.parametrize("kind", KINDS)
def test_null_are_the_entries_that_nobody_reads_any_more(kind: Kind) -> None:
    of = group(kind)
    for settled in SMALL:
        start = first_read(of, settled)
        assert (start > 0) <= (kind in ("window", "chunk"))
        unread = [entry for entry in SMALL if (entry + 1) * of.size <= start]
        assert null_entries(of, settled) == len(unread)
    assert first_read(of, 11) == {"window": 8, "chunk": 8}.get(kind, 0)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (lambda: Group("half", 1), "unknown kind of group 'half'"),  # type: ignore[arg-type]
        (lambda: Group("full", 0), "a block holds at least 1 token, not 0"),
        (lambda: Group("window", 4), "kind window cannot have a span of 0"),
        (lambda: Group("full", 4, 2), "kind full cannot have a span of 2"),
        (lambda: Limits(0), "the longest sequence has at least 1 token, not 0"),
        (lambda: Limits(4, spares=-1), "spares cannot be negative: -1"),
        (lambda: blocks(group("full"), 5, Limits(4)), "a step ends between 0 and 4 tokens, the longest sequence, not"),
        (lambda: blocks(group("full"), -1, Limits(4)), "not at -1"),
    ],
)
def test_what_cannot_be_is_refused(made: Any, says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)):
        made()


@pytest.mark.parametrize("wrong", [1.5, True, "4", None])
def test_what_is_no_whole_number_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="a whole number of tokens is wanted"):
        Group("full", wrong)
    with pytest.raises(ValueError, match="a whole number of tokens is wanted"):
        Group("window", 4, wrong)
    for name in ("length", "lookahead", "spares", "encoded"):
        with pytest.raises(ValueError, match=f"{name} is .*: a whole number is wanted"):
            Limits(**{"length": 8, name: wrong})
