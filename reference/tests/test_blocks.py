"""Caches, blocks and what is restored from them, by hand (B1-B8, B10)."""

from collections.abc import Callable
from typing import Any

import pytest
from kvspec.members import Absent, Group, Layout, Part, Plain, Pooled, Quantized, Recurrent, Window
from kvspec.operations import Misuse, Refused
from kvspec_reference.blocks import Block, Cache, pack, restore, unpack
from kvspec_reference.entry_format import Miss

ONE, TWO = Part("one", (1,), "uint8"), Part("two", (2,), "uint8")
LAYOUT = Layout(
    "toy",
    2,
    (
        Plain((ONE,)),
        Absent(),
        Group((Pooled((TWO,), ratio=4), Quantized((ONE, Part("none", (0,), "int8")), bits=4, group=1))),
        Window((ONE,), size=3),
        Recurrent((TWO,)),
    ),
)
NAMES = ["0.one", "2.0.two", "2.1.one", "2.1.none", "3.one", "4.two"]
TEXT = "abcdefghij"


def tokens(start: int, stop: int) -> dict[str, bytes]:
    """What a model has computed of these tokens: rows are letters, of pooled members their position; the state counts.

    Letters of quantized members are capital.
    """
    text = TEXT[start:stop]
    pooled = "".join(f"{row:02}" for row in range(start // 4, stop // 4))
    rows = {"0.one": text, "2.0.two": pooled, "2.1.one": text.upper(), "2.1.none": "", "3.one": text}
    return {path: row.encode() for path, row in {**rows, "4.two": f"{stop:02}"}.items()}


def cache(*stops: int, layout: Layout = LAYOUT) -> Cache:
    """A cache that saw the tokens up to each of these positions in turn."""
    of, start = Cache(layout), 0
    for stop in stops:
        parts = tokens(start, stop)
        of.append(stop - start, {path: parts[path] for path in parts if path in everything(of)})
        start = stop
    return of


def everything(of: Cache) -> dict[str, bytes]:
    """All that can be read."""
    return {
        path: of.read(path) for path in NAMES if path.split(".")[0] in {at.split(".")[0] for at in of.layout.leaves}
    }


def test_what_is_appended_is_read() -> None:
    assert everything(Cache(LAYOUT)) == {**dict.fromkeys(NAMES, b""), "4.two": b"\0\0"}
    of = cache(1, 5)
    assert everything(of) == {
        "0.one": b"abcde", "2.0.two": b"00", "2.1.one": b"ABCDE", "2.1.none": b"", "3.one": b"cde", "4.two": b"05"
    }  # fmt: skip
    assert everything(cache(1, 2, 3, 4, 5)) == everything(cache(5)) == everything(of), "however it is cut"


def test_a_ring_keeps_its_places() -> None:
    assert Cache(LAYOUT).ring("3.one") == (b"", 0, 0)
    assert cache(2).ring("3.one") == (b"ab", 2, 2)
    assert cache(3).ring("3.one") == (b"abc", 3, 0)
    assert cache(5).ring("3.one") == cache(2, 5).ring("3.one") == (b"dec", 5, 2)
    with pytest.raises(Misuse, match=r"4\.two: is no part of a window"):
        cache(5).ring("4.two")


def test_a_block_has_its_own_rows_and_states_at_its_end_only() -> None:
    of = cache(6)
    assert of.block(1) == Block(1, {"0.one": b"cd", "2.0.two": b"00", "2.1.one": b"CD", "2.1.none": b""}, False)
    whole = {"0.one": b"ef", "2.0.two": b"", "2.1.one": b"EF", "2.1.none": b"", "3.one": b"def", "4.two": b"06"}
    assert of.block(2) == Block(2, whole, True)
    assert not cache(7).block(2).stateful
    with pytest.raises(Misuse, match="block 3: ends at 8, the cache has 7 tokens"):
        cache(7).block(3)


def test_blocks_make_a_cache_again() -> None:
    blocks: list[Block | None] = [cache(2).block(0), cache(5).block(1), cache(6).block(2)]
    again = restore(LAYOUT, blocks)
    assert (again.position, everything(again), again.ring("3.one")) == (6, everything(cache(6)), (b"def", 6, 0))
    again.append(3, tokens(6, 9))
    assert everything(again) == everything(cache(9))


def test_the_longest_prefix_that_is_there() -> None:
    first, bare, last = cache(2).block(0), cache(5).block(1), cache(6).block(2)
    for blocks, position in (
        ([], 0), ([None, bare, last], 0), ([bare], 0), ([first], 2), ([first, bare], 2), ([first, None, last], 2),
        ([first, last], 2), ([first, bare, None], 2), ([first, bare, last, first], 6),
    ):  # fmt: skip
        assert restore(LAYOUT, blocks).position == position
        assert everything(restore(LAYOUT, blocks)) == everything(cache(position) if position else Cache(LAYOUT))


def test_a_layout_without_states_lacks_none() -> None:
    layout = Layout("toy", 2, LAYOUT.members[:3])
    of = cache(7, layout=layout)
    blocks = [of.block(index) for index in range(3)]
    assert all(block.stateful for block in blocks)
    assert restore(layout, blocks).position == 6
    nothing = Cache(Layout("toy", 2, (Absent(),)))
    nothing.append(4, {})
    assert restore(nothing.layout, [nothing.block(0), nothing.block(1)]).position == 4


def test_a_trim_takes_all_members_back_or_none() -> None:
    layout = Layout("toy", 2, LAYOUT.members[:4])
    of = cache(3, layout=layout)
    of.trim(1)
    assert everything(of) == everything(cache(1, layout=layout))
    of = cache(5, layout=layout)
    of.trim(5)
    with pytest.raises(Refused, match="member 3: rows before 2 have left the window"):
        of.trim(4)
    assert everything(of) == everything(cache(5, layout=layout))
    of = cache(2)
    with pytest.raises(Refused, match="member 4: its state is the one after 2 tokens, not after 1"):
        of.trim(1)
    assert everything(of) == everything(cache(2))


def test_a_block_is_written_and_read() -> None:
    for block in (cache(2).block(0), cache(5).block(1), cache(6).block(2)):
        assert unpack(LAYOUT, pack(LAYOUT, block)) == block
    assert pack(LAYOUT, cache(2).block(0)) == bytes(8) + b"\1" + b"abABab02"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "length"),
        (bytes(8), "length"),
        (bytes(8) + b"\2abABab02", "header"),
        (b"\xff" * 8 + b"\1abABab02", "header"),
        (bytes(8) + b"\0abABab02", "length"),
        (bytes(8) + b"\1abABab0", "length"),
        (bytes(8) + b"\1abABab022", "length"),
        (b"\0" * 7 + b"\1\1abABab02", "length"),
    ],
)
def test_other_bytes_are_a_miss(data: bytes, reason: str) -> None:
    found = unpack(LAYOUT, data)
    assert isinstance(found, Miss)
    assert (found.reason, bool(found.text)) == (reason, True)


BLOCK = cache(2).block(0)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda of: of.append(-1, {}), "count: -1"),
        (lambda of: of.append(1.0, {}), "count: 1.0"),
        (lambda of: of.append(1, {}), "0.one: is missing"),
        (lambda of: of.append(1, {**tokens(2, 3), "5.one": b""}), "5.one: is no part here"),
        (lambda of: of.append(1, {**tokens(2, 3), "0.one": b"cd"}), "0.one: has 2 bytes, 1 are wanted"),
        (lambda of: of.append(1, {**tokens(2, 3), "2.0.two": b"00"}), "2.0.two: has 2 bytes, 0 are wanted"),
        (lambda of: of.append(2, {**tokens(2, 4), "2.0.two": b""}), "2.0.two: has 0 bytes, 2 are wanted"),
        (lambda of: of.append(1, {**tokens(2, 3), "4.two": b"0303"}), "4.two: has 4 bytes, 2 are wanted"),
        (lambda of: of.append(1, {**tokens(2, 3), "0.one": bytearray(b"c")}), "0.one: is bytearray, not bytes"),
        (lambda of: of.trim(-1), "position: -1"),
        (lambda of: of.trim(3), "position: 3, the cache has 2 tokens"),
        (lambda of: of.trim(True), "position: True"),
        (lambda of: of.read("0.two"), "'0.two' is no part; there are 0.one, 2.0.two"),
        (lambda of: of.ring("0.one"), "0.one: is no part of a window"),
        (lambda of: of.block(-1), "index: -1"),
        (lambda of: of.block(1), "block 1: ends at 4, the cache has 2 tokens"),
        (lambda of: restore(LAYOUT, [Block(0, {**BLOCK.parts, "x": b""}, True)]), "x: is no part here"),
        (lambda of: restore(LAYOUT, [Block(0, BLOCK.parts, False)]), "3.one: is no part here"),
        (lambda of: restore(LAYOUT, [None, Block(0, {}, True)]), "0.one: is missing"),
        (lambda of: restore(LAYOUT, [Block(-1, BLOCK.parts, True)]), "index: -1"),
        (lambda of: pack(LAYOUT, Block(1, BLOCK.parts, True)), "2.0.two: has 0 bytes, 2 are wanted"),
        (lambda of: pack(LAYOUT, Block(0, BLOCK.parts, 1)), "stateful is 1"),  # type: ignore[arg-type]
        (lambda of: Cache(Layout("toy", 0, ())), "layout: "),
    ],
)
def test_bad_calls_change_nothing(call: Callable[[Any], object], what: str) -> None:
    of = cache(2)
    with pytest.raises(Misuse) as raised:
        call(of)
    assert what in str(raised.value)
    assert (of.position, everything(of)) == (2, everything(cache(2)))
