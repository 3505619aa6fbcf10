"""Prefixes in a store, snapshots of states, and what growing costs (S1, S3, S4, B4, B6, B10, E1, E4)."""

from itertools import pairwise
from typing import Any

import pytest
from kvspec.members import Layout, Part, Plain, Pooled, Recurrent, Window
from kvspec.operations import Misuse, Refused
from kvspec_reference.blocks import Cache, new_sizes, pack, parts_of, unpack
from kvspec_reference.entry_format import Entry, Miss, chain, write_entry
from kvspec_reference.files import Recording
from kvspec_reference.growth import totals, whole, whole_signature
from kvspec_reference.prefixes import load_block, restore_prefix, save_prefix
from kvspec_reference.snapshots import Snapshots
from kvspec_reference.store import ENTRY, Store

ONE = Part("one", (1,), "uint8")
LAYOUT = Layout("toy", 2, (Plain((ONE,)), Window((ONE,), size=3), Recurrent((ONE,))))
TOKENS = list(b"abcdefgh")
KEYS = chain(TOKENS, 2, LAYOUT.signature)


def grow(cache: Cache, *tokens: int) -> Cache:
    """A row is the token's letter, the state the last of them."""
    text = bytes(tokens)
    cache.append(len(tokens), {"0.one": text, "1.one": text, "2.one": text[-1:]})
    return cache


def cache(stop: int) -> Cache:
    return grow(Cache(LAYOUT), *TOKENS[:stop])


def everything(of: Cache) -> dict[str, bytes]:
    return {path: of.read(path) for path in parts_of(of.layout)}


def opened(files: Recording, **more: Any) -> Store:
    return Store(files, LAYOUT.signature, **{"budget": 10**6, "slots": 9, **more})


def saved(*stops: int) -> Store:
    """A store with the prefixes of these lengths, saved one after the other."""
    store = opened(Recording())
    for stop in stops:
        save_prefix(store, TOKENS[:stop], cache(stop))
        while store.write_next().status != "idle":
            pass
    return store


def same_as(stop: int, of: Cache) -> bool:
    return (of.position, everything(of)) == (stop, everything(cache(stop) if stop else Cache(LAYOUT)))


def test_a_prefix_is_saved_and_restored() -> None:
    store = saved(4)
    assert list(store.index) == KEYS[:2]
    for asked in (4, 5, 6, 8):
        assert same_as(4, restore_prefix(store, LAYOUT, TOKENS[:asked]))
    assert same_as(4, restore_prefix(opened(store.files), LAYOUT, TOKENS)), "after a restart"  # type: ignore[arg-type]
    assert same_as(0, restore_prefix(store, LAYOUT, TOKENS[:2])), "block 0 has no states"
    assert same_as(0, restore_prefix(store, LAYOUT, [0, *TOKENS[1:]]))
    assert same_as(6, grow(restore_prefix(store, LAYOUT, TOKENS), *TOKENS[4:6]))


def test_what_is_there_is_not_written_again() -> None:
    store = saved(4)
    assert save_prefix(store, TOKENS[:5], cache(5)) == KEYS[:2]
    assert list(store.queue) == [], "nor is a block with states replaced by one without"
    save_prefix(store, TOKENS[:2], cache(2))
    assert list(store.queue) == [KEYS[0]], "only now it has its states"
    assert same_as(2, restore_prefix(store, LAYOUT, TOKENS[:3]))


def test_a_full_queue_goes_on_later() -> None:
    store = opened(Recording(), slots=2)
    with pytest.raises(Refused, match="the queue is full"):
        save_prefix(store, TOKENS, cache(8))
    store.write_next()
    store.write_next()
    assert save_prefix(store, TOKENS, cache(8)) == KEYS
    assert same_as(8, restore_prefix(store, LAYOUT, TOKENS))


def test_the_longest_prefix_that_the_store_has() -> None:
    store = saved(4, 6, 8)
    store.evict(KEYS[3])
    assert same_as(6, restore_prefix(store, LAYOUT, TOKENS))
    store.evict(KEYS[1])
    assert same_as(0, restore_prefix(store, LAYOUT, TOKENS)), "block 0 has no states, blocks 2 and 3 come after a gap"
    save_prefix(store, TOKENS[:4], cache(4))
    assert same_as(6, restore_prefix(store, LAYOUT, TOKENS))


@pytest.mark.parametrize("how", ["whole", "version 1", "damaged", "parent", "tokens", "index", "cut"])
def test_a_mixed_chain_ends_where_it_is_mixed(how: str) -> None:
    """Whatever stands in the place of block 2: the prefix ends before it (E1, E2, E4, E5)."""
    store = saved(4, 6, 8)
    good = pack(LAYOUT, cache(6).block(2))
    other = {
        "whole": write_entry(Entry(KEYS[2], KEYS[1], 2, whole(cache(6))), whole_signature(LAYOUT)),
        "version 1": store.files.read(KEYS[2] + ENTRY).replace(b"\0\0\0\3", b"\0\0\0\1", 1),
        "damaged": store.files.read(KEYS[2] + ENTRY)[:-1] + b"!",
        "parent": write_entry(Entry(KEYS[2], KEYS[0], 2, good), LAYOUT.signature),
        "tokens": write_entry(Entry(KEYS[2], KEYS[1], 3, good), LAYOUT.signature),
        "index": write_entry(Entry(KEYS[2], KEYS[1], 2, pack(LAYOUT, cache(8).block(3))), LAYOUT.signature),
        "cut": write_entry(Entry(KEYS[2], KEYS[1], 2, good[:-1]), LAYOUT.signature),
    }[how]
    reasons = {"whole": "signature", "version 1": "version", "damaged": "damaged", "cut": "length"}
    assert isinstance(store.files, Recording)
    store.files.folder[KEYS[2] + ENTRY].firm = other
    store = opened(store.files)
    found = load_block(store, LAYOUT, KEYS, 2)
    assert isinstance(found, Miss)
    assert found.reason == reasons.get(how, "key")
    assert same_as(4, restore_prefix(store, LAYOUT, TOKENS))
    save_prefix(store, TOKENS[:6], cache(6))
    assert same_as(8, restore_prefix(store, LAYOUT, TOKENS)), "the next save writes it anew"


def test_an_older_entry_is_in_the_chain() -> None:
    store = saved(4, 6)
    assert isinstance(store.files, Recording)
    payload = pack(LAYOUT, cache(6).block(2))
    store.files.folder[KEYS[2] + ENTRY].firm = write_entry(Entry(KEYS[2], KEYS[1], 2, payload), LAYOUT.signature, 2)
    assert same_as(6, restore_prefix(store, LAYOUT, TOKENS))


def test_bad_calls() -> None:
    store = saved()
    with pytest.raises(Misuse, match="3 tokens, the cache has 4"):
        save_prefix(store, TOKENS[:3], cache(4))
    with pytest.raises(Misuse, match="the store has signature"):
        restore_prefix(store, Layout("toy", 4, LAYOUT.members), TOKENS)
    with pytest.raises(Misuse, match="the store has signature"):
        save_prefix(Store(Recording(), "0" * 64, budget=1000), TOKENS[:4], cache(4))


# Snapshots.


def test_a_state_is_found_where_it_was_taken() -> None:
    of, kept = cache(3), Snapshots(LAYOUT)
    kept.record("a", 3, of)
    grow(of, *TOKENS[3:5])
    kept.record("a", 5, of)
    assert (kept.find("a", 3), kept.find("a", 5)) == ({"2.one": b"c"}, {"2.one": b"e"}), "they stay as they were"
    assert [kept.find("a", 4), kept.find("b", 3), kept.find("a", 0)] == [None, None, None]
    assert (kept.positions("a"), kept.positions("b")) == ([3, 5], [])
    found = kept.find("a", 3)
    assert isinstance(found, dict)
    found.clear()
    assert kept.find("a", 3) == {"2.one": b"c"}
    kept.drop("a", 3)
    kept.drop("a", 3)
    assert (kept.find("a", 3), kept.positions("a")) == (None, [5])


def test_a_live_state_is_no_state_of_another_position() -> None:
    kept = Snapshots(LAYOUT)
    for position in (2, 4, -1):
        with pytest.raises(Misuse, match="the cache stands at 3"):
            kept.record("a", position, cache(3))
    with pytest.raises(Misuse, match="the cache has signature"):
        kept.record("a", 0, Cache(Layout("toy", 4, LAYOUT.members)))
    assert kept.positions("a") == []


# Growth.

LARGE = Layout("toy", 16, (Plain((Part("keys", (2, 64), "float16"),)), Pooled((ONE,), ratio=4), *LAYOUT.members[1:]))


def test_a_block_more_costs_a_block_more() -> None:
    """By members the bytes are a straight line; whole, twice the blocks have four times the bytes."""
    found = totals(LARGE, 64)
    assert len({later - one for (one, _), (later, _) in pairwise(found)}) == 1
    steps = [later - one for (_, one), (_, later) in pairwise(found)]
    assert len({later - one for one, later in pairwise(steps)}) == 1
    for blocks in (16, 32, 64):
        (half, half_whole), (all_of_it, wholes) = found[blocks // 2 - 1], found[blocks - 1]
        assert 1.95 < all_of_it / half < 2.05
        assert 3.5 < wholes / half_whole < 4.01


def test_what_is_whole_is_all_of_it_and_no_block() -> None:
    layout = Layout("toy", 2, (Plain((ONE,)),))
    of = Cache(layout)
    of.append(4, {path: b"abcd" for path in new_sizes(layout, 0, 4)})
    assert whole(of) == bytes(7) + b"\4abcd"
    assert whole_signature(layout) != layout.signature
    assert isinstance(unpack(layout, whole(of)), Miss)
