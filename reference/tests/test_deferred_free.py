"""Groups of deferred frees, seen through rows: D1 to D5."""

import pytest
from kvspec.operations import Misuse, Outcome, Refused, prompt_token
from kvspec_reference import Cache


def three_rows() -> Cache:
    """Page size 2, 5 pages: row a holds 1 and 2, row b 3 and 4, both settled with the same tokens; 5 is blank."""
    cache = Cache(5, 2)
    for row, prompt in ("a", 0), ("b", 1):
        cache.start(row, prompt)
        cache.allocate(row, 4)
        cache.write(row, 0, 4)
    cache.take_actions()
    return cache


def test_every_deferring_call_has_its_number_until_the_group_ends() -> None:
    cache = three_rows()
    cache.publish("a", 0, 1)
    cache.pin("p", "a", 1)
    cache.begin()
    cache.free("a", 1, 2)
    cache.trim("b", 3)
    cache.replace("b", 0, "a")
    cache.unpin("p")
    cache.finish("b")
    assert cache.snapshot()["released"] == [3, 2, 4]
    cache.end()
    assert cache.take_actions() == [
        ("publish", 1), ("begin_read", 0, 2), ("begin",),
        ("release", 0, 1, 0, 2, 0), ("release", 1, 1, 1, 2, 1), ("replace", 1, 0, 1, 2), ("end_read", 0, 2, 3),
        ("release", 1, 0, 0, 2, 4), ("end",),
    ]  # fmt: skip
    assert cache.snapshot()["blank"] == [5, 3, 2, 4]
    cache.begin()
    cache.free("a", 0, 1)
    assert cache.take_actions() == [("begin",), ("release", 0, 0, 0, 1, 0)]


def test_a_deferred_page_is_not_available_before_the_end() -> None:
    cache = three_rows()
    cache.begin()
    cache.finish("a")
    assert cache.snapshot()["blank"] == [5]
    with pytest.raises(Refused, match=r"^2 pages wanted, 1 available$"):
        cache.allocate("b", 4)
    cache.end()
    assert cache.allocate("b", 4).pages == (5, 1)


def test_what_is_freed_is_what_was_named() -> None:
    """sglang#34067: the row is rewritten between the call and the end of the group; the named page is freed (D1)."""
    cache = three_rows()
    cache.publish("a", 0, 2)
    cache.begin()
    cache.replace("b", 0, "a")
    cache.free("b", 1, 2)
    cache.overwrite("b", 1, 2, "a")
    cache.end()
    after = cache.snapshot()
    assert after["blank"] == [5, 3, 4]
    assert after["rows"] == {0: {0: 1, 1: 2}, 1: {0: 1}}
    assert cache.read("a", 0, 4).tokens == tuple(prompt_token(0, position) for position in range(4))


def test_a_copy_in_a_group_takes_a_blank_page_and_defers_nothing() -> None:
    cache = three_rows()
    cache.publish("a", 0, 1)
    cache.begin()
    cache.take_actions()
    assert cache.copy("a", 0) == Outcome("done", pages=(5,))
    assert cache.take_actions() == [("copy", 0, 0, 5)]
    assert cache.snapshot()["released"] == []
    cache.end()
    assert cache.snapshot()["blank"] == []


def test_groups_do_not_nest() -> None:
    cache = three_rows()
    cache.begin()
    cache.finish("a")
    cache.take_actions()
    before = cache.snapshot()
    with pytest.raises(Misuse, match=r"^a group is open already$"):
        cache.begin()
    assert cache.snapshot() == before
    assert cache.take_actions() == []
    cache.end()
    assert cache.take_actions() == [("end",)]


def test_a_failure_inside_a_group_loses_nothing() -> None:
    """D3."""
    cache = three_rows()
    cache.begin()
    cache.free("a", 0, 1)
    for name, arguments in ("free", ("a", 0, 1)), ("trim", ("b", 5)), ("unpin", ("p",)):
        with pytest.raises(Misuse):
            getattr(cache, name)(*arguments)
    cache.free("b", 0, 1)
    assert cache.take_actions() == [("begin",), ("release", 0, 0, 0, 1, 0), ("release", 1, 0, 0, 1, 1)]
    cache.end()
    assert cache.snapshot()["blank"] == [5, 1, 3]
