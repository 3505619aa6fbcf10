"""Prefixes in the reference's store, whatever becomes of its files (B4, B10, E1-E5, T2)."""

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import kvspec_reference.entry_format as entry_format
import kvspec_reference.prefixes as prefixes
import kvspec_reference.store as store
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvspec.members import Layout
from kvspec_diff.prefixing import run
from kvspec_diff.profiles import register
from kvspec_diff.storing import Broken
from kvspec_diff.subjects.reference_blocks import ReferenceShelf
from kvspec_reference.blocks import Block
from kvspec_reference.entry_format import Entry, Miss, read_entry

register()


@settings(settings.get_profile("pr"))
@given(st.randoms(use_true_random=False))
def test_programs(of: random.Random) -> None:
    run(of, ReferenceShelf)


def test_bulk(record_property: Callable[[str, object], None]) -> None:
    seen: Counter[str] = Counter()
    for seed in range(500):
        seen.update(run(random.Random(seed), ReferenceShelf).done)
    wanted = {
        "save", "save anew", "restore all", "restore less", "restore nothing", "reopen", "upgrade", "older", "oldest",
        "newer", "foreign", "cut", "bit",
    }  # fmt: skip
    assert {what: seen[what] for what in wanted if seen[what] < 50} == {}, "these are hardly tried"
    harmed = sum(seen[what] for what in ("older", "oldest", "newer", "foreign", "cut", "bit"))
    record_property("say", f"prefixes: 500 programs, {harmed} entries harmed, {seen['save anew']} written anew")


# Planted faults.

real = prefixes.load_block


def never_anew(of: Any, layout: Layout, keys: Any, index: int) -> Block | Miss:
    """What is in the index is there, whatever it is."""
    found = real(of, layout, keys, index)
    return Block(index, {}, True) if isinstance(found, Miss) and keys[index] in of.index else found


def bare_is_enough(of: Any, layout: Layout, keys: Any, index: int) -> Block | Miss:
    """A block that is there has its states, it says."""
    found = real(of, layout, keys, index)
    return Block(index, found.parts, True) if isinstance(found, Block) else found


def always_anew(of: Any, layout: Layout, keys: Any, index: int) -> Block | Miss:
    return Miss("absent", "it says")


def any_signature(data: bytes, signature: str, key: str) -> Entry | Miss:
    return read_entry(data, entry_format.claimed_signature(data) or signature, key)


def saving(fault: Any) -> Callable[[pytest.MonkeyPatch], None]:
    """A fault that is there while a prefix is saved."""

    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        whole = prefixes.save_prefix

        def save(*given: Any) -> list[str]:
            with pytest.MonkeyPatch.context() as inside:
                inside.setattr(prefixes, "load_block", fault)
                return whole(*given)

        monkeypatch.setattr(prefixes, "save_prefix", save)

    return plant


FAULTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], set[str]]] = {
    "what is damaged is never written anew": (saving(never_anew), {"B4", "B10"}),
    "a block is never written with its states": (saving(bare_is_enough), {"B4"}),
    "everything is written again": (saving(always_anew), {"B10"}),
    "the signature is not compared": (
        lambda monkeypatch: monkeypatch.setattr(store, "read_entry", any_signature), {"B4", "E5", "B5"}
    ),
    "the checksum is not compared": (
        lambda monkeypatch: monkeypatch.setattr(entry_format, "_compare_checksum", lambda *given: None), {"B4", "E5"}
    ),
    "version 2 is unknown": (lambda monkeypatch: monkeypatch.setattr(entry_format, "OLDER", 3), {"B4", "E3"}),
    "nothing is upgraded": (
        lambda monkeypatch: monkeypatch.setattr(store.Store, "upgrade", lambda of, key: None), {"E3"}
    ),
    "an upgrade forgets the parent": (
        lambda monkeypatch: monkeypatch.setattr(
            store.Store, "save", lambda of, key, payload, parent=None, tokens=0, save=store.Store.save: save(
                of, key, payload, parent=None if key in of.index else parent, tokens=tokens
            )
        ),
        {"E3", "B4"},
    ),
    "there is no budget": (
        lambda monkeypatch: monkeypatch.setattr(store.Store, "_make_room", lambda *given: ((), "")), {"T2"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, laws = FAULTS[fault]
    plant(monkeypatch)
    found = ""
    for seed in range(200):
        try:
            run(random.Random(seed), ReferenceShelf)
        except Broken as error:
            found = error.law
            break
    assert found in laws, found
