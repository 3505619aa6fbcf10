"""Entries of older layouts in a store on tensors, and keys as the reference makes them (E1-E4, E6, T1, T2)."""

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import kvspec_reference.entry_format as reference
import kvspec_torch.entry_format as tensors
import pytest
import torch
from kvspec.members import Group, Layout, Part, Plain, Pooled, Recurrent, Window
from kvspec.operations import Misuse
from kvspec_diff.older_entries import cumulative, version_1, version_2
from kvspec_diff.subjects.stores import Buffers
from kvspec_torch.block_store import BlockStore
from kvspec_torch.blocks import Block, Cache
from kvspec_torch.disk.files import Folder
from kvspec_torch.disk.looking import Said, names, whole
from kvspec_torch.entry_format import Format, Miss, chain
from kvspec_torch.members.parts import same

MEMBERS = (
    Plain((Part("k", (2,), "float16"), Part("v", (), "float32"))),
    Group((Window((Part("k", (1,), "bfloat16"),), size=3), Recurrent((Part("state", (3,), "float64"),)))),
    Pooled((Part("p", (), "bool"),), ratio=3),
)
LAYOUT = Layout("toy", 2, MEMBERS)
SLICED = Layout("toy", 2, (MEMBERS[0], MEMBERS[2]))
TOKENS = [5, 6, 7, 8, 9, 10]
LARGE = 2**20


def cached(layout: Layout, length: int) -> Cache:
    cache = Cache(layout)
    while cache.position < length:
        of = torch.Generator().manual_seed(cache.position)
        new = {
            path: torch.randint(0, 2, part.shape(cache.position, 1), generator=of).to(getattr(torch, part.part.dtype))
            for path, part in cache.kept.items()
        }
        cache.append(1, new)
    return cache


def blocks(layout: Layout, count: int) -> list[Block]:
    return [cached(layout, layout.block_size * (index + 1)).block(index) for index in range(count)]


def same_caches(one: Cache, other: Cache) -> bool:
    return one.position == other.position and all(same(one.read(path), other.read(path)) for path in one.kept)


def older(folder: Path, layout: Layout, count: int = 3) -> list[str]:
    """A prefix as version 2 wrote it."""
    keys, parent = chain(TOKENS[: 2 * count], 2, layout.signature), None
    for key, block in zip(keys, blocks(layout, count), strict=True):
        (folder / f"{key}.safetensors").write_bytes(version_2(layout, key, parent, block))
        parent = key
    return keys


def versions(path: Path) -> list[str]:
    """Of each entry, which must be whole."""
    with closing(Folder(path)) as folder:
        files = [whole(folder, key, {}) for key in names(folder).keys]
    return [each.said.version for each in files if each is not None and isinstance(each.said, Said)]


@pytest.mark.parametrize("layout", [LAYOUT, SLICED])
def test_an_older_prefix_is_read_and_upgraded(layout: Layout, tmp_path: Path) -> None:
    """With the meaning that it had; what is upgraded needs it no more, also after a restart (E3)."""
    keys = older(tmp_path, layout)
    names = sorted(path.name for path in tmp_path.iterdir())
    with BlockStore(tmp_path, layout, budget=LARGE, read_only=True) as store:
        assert [store.load(key) for key in keys] == blocks(layout, 3)
        assert same_caches(store.restore([*TOKENS, 1]), cached(layout, 6))
    assert versions(tmp_path) == ["2"] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    with BlockStore(tmp_path, layout, budget=LARGE) as store:
        assert sorted((each.key, each.outcome) for each in store.upgrade()) == sorted((key, "upgraded") for key in keys)
        assert list(store.upgrade()) == []
        assert [store.load(key) for key in keys] == blocks(layout, 3)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for key, parent, block in zip(keys, [None, *keys], blocks(layout, 3), strict=False):
        assert written[f"{key}.safetensors"] == bytes(Format(layout).write(key, parent, block))
    with BlockStore(tmp_path, layout, budget=LARGE) as store:
        assert list(store.upgrade()) == []
        assert same_caches(store.restore(TOKENS), cached(layout, 6))
    assert versions(tmp_path) == ["3"] * 3


def test_an_older_prefix_with_slices_alone(tmp_path: Path) -> None:
    """Inside a prefix states are missing: that is found out from the tensors (B10)."""
    keys = chain(TOKENS, 2, LAYOUT.signature)
    long = cached(LAYOUT, 6)
    for index, key in enumerate(keys):
        parent = keys[index - 1] if index else None
        (tmp_path / f"{key}.safetensors").write_bytes(version_2(LAYOUT, key, parent, long.block(index)))
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        assert same_caches(store.restore(TOKENS), cached(LAYOUT, 6))
        assert store.restore(TOKENS[:4]).position == 0
        assert store.save_prefix(TOKENS[:4], cached(LAYOUT, 4)) == keys[:2]
        assert same_caches(store.restore(TOKENS[:4]), cached(LAYOUT, 4))
        list(store.upgrade())
        assert same_caches(store.restore(TOKENS), cached(LAYOUT, 6))
        assert [block.stateful for block in map(store.load, keys)] == [False, True, True]  # type: ignore[union-attr]


def test_without_its_parents_an_older_entry_has_no_place(tmp_path: Path) -> None:
    """It is a miss, and nothing is guessed; when the parent is there again it can be read."""
    keys = older(tmp_path, LAYOUT)
    first = (tmp_path / f"{keys[0]}.safetensors").read_bytes()
    (tmp_path / f"{keys[0]}.safetensors").unlink()
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        found = store.load(keys[1])
        assert isinstance(found, Miss)
        assert (found.reason, "its parents are not all there" in found.text) == ("header", True)
        assert [each.outcome for each in store.upgrade()] == ["miss", "miss"]
        assert store.stats().entries == 2
    (tmp_path / f"{keys[0]}.safetensors").write_bytes(first)
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        assert [each.outcome for each in store.upgrade()] == ["upgraded"] * 3


@pytest.mark.parametrize("circle", [1, 2, 3])
def test_parents_in_a_circle_are_a_miss(circle: int, tmp_path: Path) -> None:
    """No one can save such entries, but files can say anything."""
    keys = [str(number) * 64 for number in range(circle)]
    block = blocks(LAYOUT, 2)[1]
    for number, key in enumerate(keys):
        (tmp_path / f"{key}.safetensors").write_bytes(version_2(LAYOUT, key, keys[number - 1], block))
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        for key in keys:
            found = store.load(key)
            assert isinstance(found, Miss)
            assert "its parents are not all there" in found.text
        assert [each.outcome for each in store.upgrade()] == ["miss"] * circle


def test_an_upgrade_that_fails_is_tried_again(tmp_path: Path) -> None:
    keys = older(tmp_path, LAYOUT)
    files = Buffers.of({path.name: path.read_bytes() for path in tmp_path.iterdir()})
    before = dict(files.folder)
    with BlockStore(files, LAYOUT, budget=LARGE, writer=False) as store:
        files.plan(frozenset(range(3, 100)))
        assert {each.outcome for each in store.upgrade()} <= {"failed", "miss"}
        files.plan()
        assert [store.load(key) for key in keys] == blocks(LAYOUT, 3)
        assert all(files.folder[key + ".safetensors"] is before[key + ".safetensors"] for key in keys)
        store.flush()
        list(store.upgrade())
        assert list(store.upgrade()) == [], "all are of today"
        assert [store.load(key) for key in keys] == blocks(LAYOUT, 3)


def test_what_cannot_be_read_is_a_miss_and_the_first_to_go(tmp_path: Path) -> None:
    """Version 1, no signature, a newer version, another signature, the cumulative layout: never read, and counted."""
    names = [reference.key_of(None, [n], LAYOUT.signature) for n in range(5)]
    block = blocks(LAYOUT, 1)[0]
    newer = bytes(Format(LAYOUT).write(names[2], None, block)).replace(b'"version":"3"', b'"version":"4"')
    files = [
        version_1(LAYOUT, names[0], block),
        version_2(LAYOUT, names[1], None, block, None),
        newer,
        bytes(Format(SLICED).write(names[3], None, blocks(SLICED, 1)[0])),
        cumulative(LAYOUT, names[4], None, block),
    ]
    for name, data in zip(names, files, strict=True):
        (tmp_path / f"{name}.safetensors").write_bytes(data)
    with BlockStore(tmp_path, LAYOUT, budget=LARGE, writer=False) as store:
        reasons = [store.load(name).reason for name in names]  # type: ignore[union-attr]
        assert reasons == ["version", "signature", "version", "signature", "signature"]
        stats = store.stats()
        assert (stats.entries, stats.foreign_entries, stats.foreign_bytes) == (0, 5, sum(map(len, files)))
        keys = store.save_prefix(TOKENS[:4], cached(LAYOUT, 4))
        store.flush()
        assert {each.outcome for each in store.upgrade()} == set()
        left = store.stats().bytes
    with BlockStore(tmp_path, LAYOUT, budget=left, writer=False) as store:
        assert (store.stats().foreign_entries, store.stats().bytes) == (0, left), "ours stay"
        assert [isinstance(store.load(key), Block) for key in keys] == [True, True]


def test_a_small_budget_takes_foreign_files_first(tmp_path: Path) -> None:
    name = reference.key_of(None, [1], LAYOUT.signature)
    data = cumulative(LAYOUT, name, None, blocks(LAYOUT, 1)[0]) + b"x" * 1000
    (tmp_path / f"{name}.safetensors").write_bytes(data)
    with BlockStore(tmp_path, LAYOUT, budget=len(data) + 600, writer=False) as store:
        store.save_prefix(TOKENS[:4], cached(LAYOUT, 4))
        evicted = [key for report in store.flush() for key in report.evicted]
        assert evicted == [name]
        assert same_caches(store.restore(TOKENS), cached(LAYOUT, 4))
        taken = store.stats().bytes
    with BlockStore(tmp_path, LAYOUT, budget=taken - 1) as store:
        assert store.stats().entries == 1, "what exceeds the budget goes at opening"


@pytest.mark.parametrize("at", range(3))
def test_a_mixed_chain_restores_up_to_what_is_not_ours(at: int, tmp_path: Path) -> None:
    """Another signature under one of its keys, or one that is too new (E4); version 2 among version 3 is fine."""
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        for length in (2, 4, 6):
            keys = store.save_prefix(TOKENS[:length], cached(LAYOUT, length))
    path = tmp_path / f"{keys[at]}.safetensors"
    parent, block = keys[at - 1] if at else None, blocks(LAYOUT, 3)[at]
    for data, restored in [
        (version_2(LAYOUT, keys[at], parent, block), 6),
        (version_2(LAYOUT, keys[at], parent, block, "0" * 64), 2 * at),
        (bytes(Format(SLICED).write(keys[at], parent, blocks(SLICED, 3)[at])), 2 * at),
        (version_1(LAYOUT, keys[at], block), 2 * at),
        (version_2(LAYOUT, keys[at], "0" * 64, block), 2 * at),
    ]:
        path.write_bytes(data)
        with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
            assert same_caches(store.restore(TOKENS), cached(LAYOUT, restored))


def test_an_upgrade_without_its_place_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above see it if every older block is taken for the first one."""
    keys = older(tmp_path, LAYOUT)
    monkeypatch.setattr("kvspec_torch.disk.shelf.Shelf.place", lambda self, key: 0)
    with BlockStore(tmp_path, LAYOUT, budget=LARGE, read_only=True) as store:
        assert [store.load(key) for key in keys] != blocks(LAYOUT, 3)


def test_a_store_of_blocks_loses_power_anywhere(record_property: Callable[[str, object], None]) -> None:
    """What was flushed is found, and what is found was saved, at every point of saving, saving anew and upgrading."""
    keys = chain(TOKENS, 2, LAYOUT.signature)
    start = {f"{keys[0]}.safetensors": version_2(LAYOUT, keys[0], None, blocks(LAYOUT, 1)[0])}
    files, floors = Buffers.of(start), [2]
    with BlockStore(files, LAYOUT, budget=LARGE, writer=False) as store:
        for length in (4, 6):
            store.save_prefix(TOKENS[:length], cached(LAYOUT, length))
            floors += floors[-1:] * (len(files.points) - len(floors))
            store.flush()
            floors += floors[-1:] * (len(files.points) - len(floors))
            floors[-1] = length
        assert [each.outcome for each in store.upgrade()] == ["upgraded"]
    floors += floors[-1:] * (len(files.points) - len(floors))
    tried = 0
    for point, floor in zip(files.points, floors, strict=True):
        for left in point.after_loss():
            tried += 1
            with BlockStore(Buffers.of(left), LAYOUT, budget=LARGE, writer=False) as store:
                restored = store.restore(TOKENS)
                assert restored.position >= floor
                assert same_caches(restored, cached(LAYOUT, restored.position))
    assert tried > 60
    record_property("say", f"store of blocks: {tried} folders after a loss of power: nothing lost, nothing misread")


def test_keys_are_those_of_the_reference() -> None:
    of = random.Random(1)
    for _ in range(200):
        tokens = [of.choice((0, 1, 2**63 - 1, of.randrange(2**17))) for _ in range(of.randrange(12))]
        size, signature = of.randrange(1, 5), Layout("m", of.randrange(1, 9), MEMBERS[: of.randrange(4)]).signature
        keys = reference.chain(tokens, size, signature)
        assert tensors.chain(tokens, size, signature) == keys
        parent = of.choice((None, "ab" * 32))
        assert tensors.key_of(parent, tokens, signature) == reference.key_of(parent, tokens, signature)
        known = keys[: of.randrange(len(keys) + 1)]
        assert tensors.extended(known, tokens, size, signature) == keys
    for odd in (-1, 2**63, True, 1.0, "1", None):
        for key_of, wrong in ((tensors.key_of, tensors.Misuse), (reference.key_of, Misuse)):
            with pytest.raises(wrong, match="is no token"):
                key_of(None, [odd], LAYOUT.signature)
    assert Format(LAYOUT).signature == LAYOUT.signature


def test_leaving_an_upgrade_halfway_harms_nothing(tmp_path: Path) -> None:
    keys = older(tmp_path, LAYOUT)
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        upgrading = store.upgrade()
        assert next(upgrading).outcome == "upgraded"
        upgrading.close()  # type: ignore[attr-defined]
        assert [store.load(key) for key in keys] == blocks(LAYOUT, 3)
    assert sorted(versions(tmp_path)) == ["2", "2", "3"]
    with BlockStore(tmp_path, LAYOUT, budget=LARGE) as store:
        assert [store.load(key) for key in keys] == blocks(LAYOUT, 3)
