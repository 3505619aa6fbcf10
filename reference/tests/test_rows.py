"""Rows: what each operation does, which atomic actions it reports, and that a misuse changes nothing."""

from collections.abc import Iterable
from typing import Any

import pytest
from kvspec.operations import BRANCH_AT, Misuse, Outcome, Refused, prompt_token
from kvspec_reference import Cache

DONE = Outcome("done")


def cached_pair() -> Cache:
    """Page size 2, 6 pages. Row a: pages 1, 2, 3 settled, 1 and 2 published; row b: page 4 written; 5, 6 blank."""
    cache = Cache(6, 2)
    cache.start("a", 0)
    cache.allocate("a", 6)
    cache.write("a", 0, 6)
    cache.publish("a", 0, 2)
    cache.start("b", 1)
    cache.allocate("b", 2)
    cache.write("b", 0, 2)
    cache.take_actions()
    return cache


def settled(*entries: int, size: int = 2) -> list[tuple[int, int]]:
    return [(entry, offset) for entry in entries for offset in range(size)]


def cells(pages: Iterable[int], prompt: int, size: int = 2) -> dict[tuple[int, int], int]:
    """What stands in `pages` when they hold the first tokens of `prompt`."""
    return {
        (page, offset): prompt_token(prompt, entry * size + offset)
        for entry, page in enumerate(pages)
        for offset in range(size)
    }


def test_the_whole_state_is_shown_and_what_is_empty_is_left_out() -> None:
    assert Cache(2).snapshot() == {
        "blank": [1, 2],
        "cached": [],
        "released": [],
        "refs": {},
        "rows": {},
        "settled": {},
        "content": {},
        "reading": [],
        "open": False,
    }
    cache = cached_pair()
    cache.start("c", 0)
    cache.pin("p", "b", 0)
    cache.begin()
    cache.free("a", 2, 3)
    assert cache.snapshot() == {
        "blank": [5, 6],
        "cached": [1, 2],
        "released": [3],
        "refs": {1: 1, 2: 1, 4: 2},
        "rows": {0: {0: 1, 1: 2}, 1: {0: 4}},
        "settled": {0: settled(0, 1), 1: settled(0)},
        "content": cells((1, 2, 3), prompt=0) | cells((4,), prompt=1),
        "reading": [(1, 4)],
        "open": True,
    }


def test_allocate_fills_the_last_page_before_it_takes_another() -> None:
    cache = Cache(4, 4)
    assert cache.start("a", 0) == DONE
    assert cache.allocate("a", 0) == DONE
    assert cache.allocate("a", 3) == Outcome("done", pages=(1,), slots=(4, 5, 6))
    assert cache.allocate("a", 1) == Outcome("done", slots=(7,))
    assert cache.allocate("a", 5) == Outcome("done", pages=(2, 3), slots=(8, 9, 10, 11, 12))
    assert cache.take_actions() == [("acquire", 0, 0, 1), ("acquire", 0, 1, 2), ("acquire", 0, 2, 3)]
    assert cache.take_actions() == []


def test_a_refusal_changes_nothing_and_is_recorded() -> None:
    cache = cached_pair()
    before = cache.snapshot()
    with pytest.raises(Refused, match=r"^3 pages wanted, 2 available$"):
        cache.allocate("a", 5)
    assert cache.snapshot() == before
    assert cache.take_actions() == [("refuse", 3)]
    assert cache.allocate("a", 4).pages == (5, 6)


def test_new_positions_do_not_begin_on_an_entry_that_was_given_up() -> None:
    cache = Cache(4, 2)
    cache.start("a", 0)
    cache.allocate("a", 3)
    cache.free("a", 1, 2)
    before = cache.snapshot()
    with pytest.raises(Misuse, match=r"^row a, entry 1: was given up, and the new positions would begin on it$"):
        cache.allocate("a", 9)
    assert cache.snapshot() == before
    assert cache.allocate("a", 0) == DONE
    cache.trim("a", 2)
    assert cache.allocate("a", 1).pages == (3,)


def test_write_settles_and_read_gives_what_stands_there() -> None:
    cache = Cache(3, 2)
    cache.start("a", 5)
    cache.allocate("a", 3)
    cache.take_actions()
    assert cache.write("a", 1, 3) == Outcome("done", slots=(3, 4))
    first, second = prompt_token(5, 1), prompt_token(5, 2)
    assert cache.take_actions() == [
        ("write", 0, 0, 1, first),
        ("settle", 0, 0, 1),
        ("write", 0, 1, 0, second),
        ("settle", 0, 1, 0),
    ]
    assert cache.read("a", 1, 3) == Outcome("done", slots=(3, 4), tokens=(first, second))
    assert cache.read("a", 0, 0) == DONE
    assert cache.take_actions() == []


def test_a_draft_settles_nothing_and_stays_off_settled_positions() -> None:
    cache = Cache(2, 4)
    cache.start("a", 0)
    cache.allocate("a", 3)
    cache.write("a", 0, 1)
    cache.take_actions()
    assert cache.write("a", 1, 3, draft=True) == Outcome("done", slots=(5, 6))
    assert cache.take_actions() == [("write", 0, 0, 1, -2), ("write", 0, 0, 2, -3)]
    assert cache.snapshot()["settled"] == {0: [(0, 0)]}
    with pytest.raises(Misuse, match=r"^row a, position 0: is settled, a draft must not overwrite it$"):
        cache.write("a", 0, 2, draft=True)
    cache.write("a", 1, 2)
    assert cache.read("a", 0, 2).tokens == (prompt_token(0, 0), prompt_token(0, 1))


def test_free_gives_up_entries_and_unsettles_their_positions() -> None:
    cache = cached_pair()
    assert cache.free("a", 1, 3) == DONE
    assert cache.take_actions() == [("release", 0, 1, 0, 3, 0), ("reclaim", 3)]
    after = cache.snapshot()
    assert after["blank"] == [5, 6, 3]
    assert after["rows"][0] == {0: 1}
    assert after["settled"][0] == settled(0)
    assert after["refs"] == {1: 1, 4: 1}
    assert after["content"] == cells((1, 2), prompt=0) | cells((4,), prompt=1)
    assert cache.free("a", 3, 3) == DONE


def test_trim_keeps_the_page_that_still_holds_a_position() -> None:
    cache = cached_pair()
    assert cache.trim("a", 5) == DONE
    assert cache.take_actions() == [("release", 0, 2, 1, 3, 0)]
    assert cache.snapshot()["settled"][0] == [*settled(0, 1), (2, 0)]
    assert cache.trim("a", 4) == DONE
    assert cache.take_actions() == [("release", 0, 2, 0, 3, 0), ("reclaim", 3)]
    assert cache.allocate("a", 1) == Outcome("done", pages=(5,), slots=(10,))
    assert cache.trim("a", 5) == DONE


def test_finish_gives_up_the_row_and_its_name() -> None:
    cache = cached_pair()
    cache.free("a", 0, 1)
    cache.take_actions()
    assert cache.finish("a") == DONE
    assert cache.take_actions() == [("release", 0, 0, 0, 3, 0), ("reclaim", 3)]
    assert cache.start("a", 2) == DONE
    cache.allocate("a", 1)
    assert cache.take_actions() == [("acquire", 2, 0, 5)]


def test_overwrite_touches_only_the_callers_buffer() -> None:
    cache = cached_pair()
    cache.allocate("b", 2)
    cache.free("a", 0, 3)
    before = cache.snapshot()
    cache.take_actions()
    assert cache.overwrite("a", 0, 3, "b") == DONE
    assert cache.take_actions() == [("overwrite", 0, 0, 4), ("overwrite", 0, 1, 5), ("overwrite", 0, 2, 4)]
    assert cache.snapshot() == before


def test_share_appends_published_pages_with_the_same_tokens() -> None:
    cache = cached_pair()
    cache.start("c", 2)
    assert cache.share("c", "a", 0, 1) == DONE
    assert cache.share("c", "a", 1, 2) == DONE
    assert cache.take_actions() == [("share", 2, 0, 1), ("share", 2, 1, 2)]
    assert cache.read("c", 0, 4) == Outcome("done", slots=(2, 3, 4, 5), tokens=cache.read("a", 0, 4).tokens)
    assert cache.snapshot()["refs"] == {1: 2, 2: 2, 3: 1, 4: 1}
    cache.finish("a")
    assert cache.snapshot()["refs"] == {1: 1, 2: 1, 4: 1}
    assert cache.allocate("c", 1).pages == (5,)


def test_replace_swaps_a_duplicate_for_the_published_page() -> None:
    cache = cached_pair()
    assert cache.replace("b", 0, "a") == DONE
    assert cache.take_actions() == [("replace", 1, 0, 1, 0), ("reclaim", 4)]
    assert cache.snapshot()["rows"] == {0: {0: 1, 1: 2, 2: 3}, 1: {0: 1}}
    assert cache.snapshot()["blank"] == [5, 6, 4]
    assert cache.read("b", 0, 2).tokens == cache.read("a", 0, 2).tokens


def test_copy_on_write() -> None:
    cache = cached_pair()
    assert cache.copy("a", 2) == DONE
    assert cache.take_actions() == []
    assert cache.copy("a", 0) == Outcome("done", pages=(5,))
    assert cache.take_actions() == [("copy", 0, 0, 5)]
    assert cache.read("a", 0, 2) == Outcome("done", slots=(10, 11), tokens=(prompt_token(0, 0), prompt_token(0, 1)))
    assert cache.write("a", 0, 2).slots == (10, 11)
    assert cache.snapshot()["refs"] == {2: 1, 3: 1, 4: 1, 5: 1}
    assert cache.evict(2).pages == (1,)


def test_a_page_is_copied_for_its_pin_and_only_written_cells_are_copied() -> None:
    cache = Cache(2, 2)
    cache.start("a", 0)
    cache.allocate("a", 2)
    cache.write("a", 1, 2, draft=True)
    cache.pin("p", "a", 0)
    assert cache.copy("a", 0).pages == (2,)
    assert cache.snapshot()["content"] == {(1, 1): -2, (2, 1): -2}
    cache.pin("q", "a", 0)
    cache.take_actions()
    with pytest.raises(Refused, match=r"^1 pages wanted, 0 available$"):
        cache.copy("a", 0)
    assert cache.take_actions() == [("refuse", 1)]


def test_eviction_takes_unheld_published_pages_in_order_of_publication() -> None:
    cache = cached_pair()
    assert cache.evict(9) == DONE
    cache.free("a", 0, 2)
    cache.take_actions()
    assert cache.evict(0) == DONE
    assert cache.evict(1) == Outcome("done", pages=(1,))
    assert cache.evict(9) == Outcome("done", pages=(2,))
    assert cache.take_actions() == [("evict", 1), ("evict", 2)]
    assert cache.snapshot()["blank"] == [5, 6, 1, 2]


def test_a_pin_outlives_its_row() -> None:
    cache = cached_pair()
    cache.pin("p", "b", 0)
    cache.finish("b")
    assert cache.take_actions() == [("begin_read", 1, 4), ("release", 1, 0, 0, 1, 0)]
    assert cache.snapshot()["reading"] == [(1, 4)]
    assert cache.unpin("p") == DONE
    assert cache.take_actions() == [("end_read", 1, 4, 0), ("reclaim", 4)]
    assert cache.snapshot()["blank"] == [5, 6, 4]


def test_when_every_row_is_gone_and_the_cache_is_flushed_every_page_is_blank() -> None:
    """O9."""
    cache = cached_pair()
    cache.pin("p", "a", 0)
    for row in "ab":
        cache.finish(row)
    cache.unpin("p")
    cache.evict(6)
    assert sorted(cache.snapshot()["blank"]) == [1, 2, 3, 4, 5, 6]
    assert cache.snapshot() == Cache(6, 2).snapshot() | {"blank": cache.snapshot()["blank"]}


def misuses() -> list[tuple[str, tuple[Any, ...], str]]:
    """On `cached_pair` with pin p by b on page 4, row c of another family, d empty, and a's entry 2 given up."""
    unknown = "row z: there is none"
    names: list[tuple[str, tuple[Any, ...]]] = [
        ("allocate", (1,)), ("write", (0, 0)), ("read", (0, 0)), ("free", (0, 0)), ("trim", (0,)), ("finish", ()),
        ("publish", (0, 0)), ("share", ("a", 0, 0)), ("replace", (0, "a")), ("copy", (0,)), ("overwrite", (0, 0, "a")),
    ]  # fmt: skip
    ranges = [("write", "positions", 6), ("read", "positions", 6), ("free", "entries", 3), ("publish", "entries", 3)]
    return [
        *((name, ("z", *rest), unknown) for name, rest in names),
        ("pin", ("q", "z", 0), unknown),
        ("share", ("d", "z", 0, 0), unknown),
        ("replace", ("a", 0, "z"), unknown),
        ("overwrite", ("a", 2, 3, "z"), unknown),
        *(
            (name, ("a", i, j), f"row a: has {n} {what}, [{i}, {j}) is no range of them")
            for name, what, n in ranges
            for i, j in [(2, 1), (0, n + 1), (-1, 1)]
        ),
        ("start", ("a", 0), "row a: is live already"),
        ("start", ("e", -1), "row e: there is no prompt -1"),
        ("allocate", ("a", -1), "row a: -1 tokens cannot be allocated"),
        ("write", ("a", 4, 5), "row a, entry 2: holds no page"),
        ("write", ("a", 3, 4), "row a, entry 1: page 2 is published, copy it first"),
        ("write", ("b", 0, 1), "row b, entry 0: page 4 has 2 holders, copy it first"),
        ("read", ("a", 3, 5), "row a, position 4: is not settled"),
        ("read", ("c", 0, 2), "row c, position 1: is not settled"),
        ("free", ("a", 1, 3), "row a, entry 2: holds no page"),
        ("overwrite", ("a", 1, 3, "b"), "row a, entry 1: is live, so it is not the caller's to overwrite"),
        ("overwrite", ("a", 2, 4, "b"), "row a: has 3 entries, [2, 4) is no range of them"),
        ("overwrite", ("a", 2, 3, "a"), "row a: cannot be overwritten with its own pages"),
        ("overwrite", ("a", 2, 3, "d"), "row d: holds no page to overwrite with"),
        ("trim", ("a", 7), "row a: has 6 positions, 7 of them cannot be kept"),
        ("trim", ("a", -1), "row a: has 6 positions, -1 of them cannot be kept"),
        ("publish", ("a", 1, 3), "row a, entry 2: holds no page"),
        ("publish", ("c", 0, 1), "row c, position 1: is not settled"),
        ("share", ("d", "a", 1, 2), "row d: has 0 positions, so entry 1 is not its next"),
        ("share", ("c", "a", 1, 2), "row c: has 3 positions, so entry 1 is not its next"),
        ("share", ("d", "a", 0, 4), "row a: has 3 entries, [0, 4) is no range of them"),
        ("share", ("b", "a", 1, 3), "row a, entry 2: holds no page"),
        ("share", ("d", "b", 0, 1), "row b, entry 0: page 4 is not published"),
        ("share", ("d", "a", 0, 1), "row d, position 0: page 1 holds another token there"),
        ("replace", ("b", 1, "a"), "row b, entry 1: holds no page"),
        ("replace", ("a", 0, "a"), "row a, entry 0: page 1 is published, so it is no duplicate"),
        ("replace", ("b", 0, "c"), "row c, entry 0: page 5 is not published"),
        ("replace", ("b", 0, "d"), "row d, entry 0: holds no page"),
        ("replace", ("c", 0, "a"), "row c, position 0: page 1 holds another token there"),
        ("copy", ("a", 2), "row a, entry 2: holds no page"),
        ("copy", ("a", -1), "row a, entry -1: holds no page"),
        ("evict", (-1,), "-1 pages cannot be evicted"),
        ("pin", ("q", "a", 2), "row a, entry 2: holds no page"),
        ("pin", ("p", "a", 0), "pin p: is in use already"),
        ("pin", ("q", "b", 0), "row b, entry 0: page 4 is pinned by this row already"),
        ("unpin", ("q",), "pin q: there is none"),
        ("end", (), "no group is open"),
    ]


@pytest.mark.parametrize(("operation", "arguments", "reason"), misuses())
def test_a_misuse_says_why_and_changes_nothing(operation: str, arguments: tuple[Any, ...], reason: str) -> None:
    cache = cached_pair()
    cache.pin("p", "b", 0)
    cache.start("c", 4)
    cache.allocate("c", 3)
    cache.write("c", 0, 1)
    cache.start("d", 8)
    cache.free("a", 2, 3)
    cache.take_actions()
    before, rows = cache.snapshot(), repr(cache.rows)
    with pytest.raises(Misuse) as caught:
        getattr(cache, operation)(*arguments)
    assert str(caught.value) == reason
    assert (cache.snapshot(), repr(cache.rows)) == (before, rows)
    assert cache.take_actions() == []


def test_a_duplicate_is_replaced_only_when_it_is_settled_and_the_row_lacks_the_page() -> None:
    cache = cached_pair()
    cache.start("c", 0)
    cache.allocate("c", 2)
    cache.write("c", 0, 1)
    with pytest.raises(Misuse, match=r"^row c, position 1: is not settled$"):
        cache.replace("c", 0, "a")


def test_branches_part_where_the_vocabulary_says() -> None:
    cache = Cache(12, 2)
    entries = BRANCH_AT // 2
    cache.start("a", 0)
    cache.allocate("a", BRANCH_AT + 2)
    cache.write("a", 0, BRANCH_AT + 2)
    cache.publish("a", 0, entries + 1)
    cache.start("b", 1)
    cache.share("b", "a", 0, entries)
    with pytest.raises(Misuse, match=rf"^row b, position {BRANCH_AT}: page {entries + 1} holds another token there$"):
        cache.share("b", "a", entries, entries + 1)
