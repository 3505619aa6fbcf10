"""The store of blocks: what is saved is found again, block by block and prefix by prefix (B1, B4, E4-E6, T1-T7)."""

import pickle
import threading
from array import array
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from kvspec.members import WIDTHS, Absent, Group, Layout, Part, Plain, Pooled, Quantized, Recurrent, Window
from kvspec_diff.torture.plants import Alike
from kvspec_torch.block_store import BlockStore
from kvspec_torch.blocks import Block, Cache
from kvspec_torch.disk.files import Folder
from kvspec_torch.disk.filling import cut
from kvspec_torch.disk.looking import Said, names, whole
from kvspec_torch.entry_format import Format, Miss, chain
from kvspec_torch.errors import Misuse, Refused
from kvspec_torch.members.parts import bits, same
from safetensors import safe_open

PLAIN = Layout("toy", 2, (Plain((Part("k", (2,), "float16"),)), Pooled((Part("p", (3,), "int8"),), ratio=3)))
MIXED = Layout(
    "toy",
    3,
    (
        *PLAIN.members,
        Group((Window((Part("k", (1,), "bfloat16"),), size=4), Absent(), Recurrent((Part("s", (), "float64"),)))),
        Quantized((Part("k", (4,), "uint8"), Part("scale", (), "float8_e5m2")), bits=4, group=8),
    ),
)
EVERY = Layout("every", 1, (Plain(tuple(Part(f"p{n}", (n % 3, 2), dtype) for n, dtype in enumerate(WIDTHS))),))
TOKENS = list(range(100, 200))
LARGE = 2**20
DEVICES = ["cpu", *["cuda"] * torch.cuda.is_available()]


def extend(cache: Cache, count: int) -> Cache:
    """So many tokens more, whose rows follow from where they stand."""
    of = torch.Generator().manual_seed(cache.position)
    new = {}
    for path, part in cache.kept.items():
        empty = torch.empty(part.shape(cache.position, count), dtype=getattr(torch, part.part.dtype))
        bits(empty).copy_(torch.randint(0, 2, empty.shape, generator=of))
        new[path] = empty.to(cache.device)
    cache.append(count, new)
    return cache


def cached(layout: Layout, tokens: int, step: int = 1, device: str = "cpu") -> Cache:
    cache = Cache(layout, device)
    while cache.position < tokens:
        extend(cache, step)
    return cache


def blocks(layout: Layout, count: int) -> list[Block]:
    """The blocks of a prefix, each with its states."""
    cache, found = Cache(layout), []
    for index in range(count):
        found.append(extend(cache, layout.block_size).block(index))
    return found


def same_caches(one: Cache, other: Cache) -> bool:
    return one.position == other.position and all(same(one.read(path), other.read(path)) for path in one.kept)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockStore]:
    with BlockStore(tmp_path, MIXED, budget=LARGE, writer=False) as opened:
        yield opened


@pytest.mark.parametrize("layout", [PLAIN, MIXED, EVERY, Layout("none", 2, ())])
def test_what_is_saved_is_loaded(layout: Layout, tmp_path: Path) -> None:
    """From the queue, from the disk, and after opening again; bit for bit, with dtypes and shapes (B1)."""
    keys, parent = [], None
    with BlockStore(tmp_path, layout, budget=LARGE) as store:
        for index, block in enumerate(blocks(layout, 3)):
            size = layout.block_size
            parent = store.save(parent, TOKENS[index * size : (index + 1) * size], block)
            keys.append(parent)
            assert store.load(parent) == block
        assert keys == chain(TOKENS[: 3 * layout.block_size], layout.block_size, layout.signature)
        assert [report.status for report in store.flush()] == ["acknowledged"] * 3
        assert [store.load(key) for key in keys] == blocks(layout, 3)
    with BlockStore(tmp_path, layout, budget=LARGE, read_only=True) as store:
        assert [store.load(key) for key in keys] == blocks(layout, 3)
        assert store.stats().entries == 3


def test_any_safetensors_reader_opens_an_entry(tmp_path: Path) -> None:
    with BlockStore(tmp_path, EVERY, budget=LARGE) as store:
        key = store.save(None, [7], blocks(EVERY, 1)[0])
    with safe_open(tmp_path / f"{key}.safetensors", "pt") as file:
        metadata = file.metadata()
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    wanted = blocks(EVERY, 1)[0].parts
    assert found.keys() == wanted.keys()
    assert all(same(found[name], wanted[name]) for name in wanted)
    assert (metadata["format"], metadata["version"], metadata["key"]) == ("kvspec", "3", key)
    assert metadata["signature"] == EVERY.signature


def test_what_is_queued_and_what_is_loaded_is_isolated(store: BlockStore) -> None:
    """From later changes of the caller's tensors, in every tier."""
    block = blocks(MIXED, 1)[0]
    key = store.save(None, TOKENS[:3], block)
    for _ in range(2):
        for part in block.parts.values():
            bits(part).fill_(7)
        block = store.load(key)  # type: ignore[assignment]
        assert block == blocks(MIXED, 1)[0]
    for part in block.parts.values():
        bits(part).fill_(7)
    store.flush()
    block = store.load(key)  # type: ignore[assignment]
    assert block == blocks(MIXED, 1)[0]


@pytest.mark.parametrize("writer", [False, True])
@pytest.mark.parametrize("memory", [0, LARGE])
def test_prefixes(writer: bool, memory: int, tmp_path: Path) -> None:
    """Every length restores to its whole blocks, whichever tier they are in."""
    with BlockStore(tmp_path, MIXED, budget=LARGE, writer=writer, memory=memory) as store:
        cache = Cache(MIXED)
        for length in range(1, 20):
            extend(cache, 1)
            keys = store.save_prefix(TOKENS[:length], cache)
            assert len(keys) == length // 3
            if length % 3 == 0:
                assert same_caches(store.restore(TOKENS[: length + 1]), cached(MIXED, length))
        store.flush()
        assert same_caches(store.restore(TOKENS), cached(MIXED, 18))
        assert same_caches(store.restore(TOKENS[:14]), cached(MIXED, 12))
        assert store.restore([1, *TOKENS[1:]]).position == 0
        assert store.restore([*TOKENS[:7], 1, *TOKENS[8:]]).position == 6
    with BlockStore(tmp_path, MIXED, budget=LARGE, read_only=True) as store:
        restored = store.restore(TOKENS)
        assert same_caches(restored, cached(MIXED, 18))
        assert same_caches(extend(restored, 3), extend(cached(MIXED, 18), 3))


def test_a_prefix_saved_at_once_has_its_states_at_the_end_alone(store: BlockStore) -> None:
    """It is restored as a whole or not at all; a state comes later where it is wanted (B4, B10)."""
    keys = store.save_prefix(TOKENS[:9], cached(MIXED, 9))
    assert [store.load(key).stateful for key in keys] == [False, False, True]  # type: ignore[union-attr]
    assert same_caches(store.restore(TOKENS), cached(MIXED, 9))
    assert store.restore(TOKENS[:8]).position == 0
    assert store.save_prefix(TOKENS[:6], cached(MIXED, 6)) == keys[:2]
    assert same_caches(store.restore(TOKENS[:8]), cached(MIXED, 6))
    store.flush()
    assert store.restore(TOKENS[:5]).position == 0
    assert same_caches(store.restore(TOKENS[:8]), cached(MIXED, 6))
    assert store.save_prefix(TOKENS[:9], cached(MIXED, 9)) == keys
    assert store.stats().queued == 0, "all of it is there"


def test_a_prefix_may_be_a_buffer_that_is_used_again(store: BlockStore) -> None:
    """Whatever kind of sequence the tokens are: their keys are those of what is in it now."""
    tokens = memoryview(array("q", TOKENS[:6]))
    first = store.save_prefix(tokens, cached(MIXED, 6))
    tokens[4] = 1
    assert store.restore(tokens).position == 0
    second = store.save_prefix(tokens, cached(MIXED, 6))
    assert [first, second] == [chain(each, 3, MIXED.signature) for each in (TOKENS[:6], list(tokens))]
    assert store.restore(tuple(TOKENS[:6])).position == store.restore(range(100, 106)).position == 6


@pytest.mark.parametrize("lost", range(4))
def test_a_gap_ends_a_prefix(lost: int, store: BlockStore, tmp_path: Path) -> None:
    for length in range(3, 13, 3):
        keys = store.save_prefix(TOKENS[:length], cached(MIXED, length))
    store.flush()
    (tmp_path / f"{keys[lost]}.safetensors").unlink()
    assert same_caches(store.restore(TOKENS), cached(MIXED, 3 * lost))
    assert store.stats().entries == 4, "nobody told the store"
    store.evict(keys[lost])
    assert same_caches(store.restore(TOKENS), cached(MIXED, 3 * lost))
    with pytest.raises(Misuse, match="has no file"):
        store.evict(keys[lost])


@pytest.mark.parametrize("damaged", range(4))
def test_damage_ends_a_prefix(damaged: int, store: BlockStore, tmp_path: Path) -> None:
    for length in range(3, 13, 3):
        keys = store.save_prefix(TOKENS[:length], cached(MIXED, length))
    store.flush()
    path = tmp_path / f"{keys[damaged]}.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    assert same_caches(store.restore(TOKENS), cached(MIXED, 3 * damaged))
    found = store.load(keys[damaged])
    assert isinstance(found, Miss)
    assert found.reason == "damaged"
    assert store.save_prefix(TOKENS[:12], cached(MIXED, 12)) == keys, "what is damaged is saved anew"
    assert [report.key for report in store.flush()] == [keys[damaged]]
    for length in range(3 * damaged + 3, 13, 3):
        store.save_prefix(TOKENS[:length], cached(MIXED, length))
    assert same_caches(store.restore(TOKENS), cached(MIXED, 12))


@pytest.mark.parametrize("device", DEVICES)
def test_on_another_device(device: str, tmp_path: Path) -> None:
    with BlockStore(tmp_path, MIXED, budget=LARGE) as store:
        store.save_prefix(TOKENS[:9], cached(MIXED, 9, device=device))
        store.flush()
        restored = store.restore(TOKENS, device)
        assert restored.device.type == device
        assert same_caches(restored, cached(MIXED, 9, device=device))


def test_a_block_is_cut_as_the_cache_does_it() -> None:
    for layout in (PLAIN, MIXED, EVERY):
        for length in range(0, 20, 3):
            cache = cached(layout, length)
            for index in range(length // layout.block_size):
                assert cut(cache, index) == cache.block(index)


def twice(tmp_path: Path) -> None:
    with BlockStore(tmp_path, MIXED, budget=LARGE), pytest.raises(Refused):
        BlockStore(tmp_path, MIXED, budget=LARGE).close()


FAULTS: dict[str, tuple[str, Any, Any]] = {
    "a checksum is not compared": (
        "disk.filling.checksum", lambda pieces: Alike(), lambda store, path: test_damage_ends_a_prefix(3, store, path)
    ),
    "states are not looked for": (
        "disk.filling._to_states", lambda headers: headers,
        lambda store, path: test_a_prefix_saved_at_once_has_its_states_at_the_end_alone(store),
    ),
    "a state is not put back": (
        "members.keeping.Ring.put", lambda part, state: None, lambda store, path: restored(store)
    ),
    "what is damaged stays": (
        "disk.shelf.Shelf.doubt", lambda *given: None, lambda store, path: test_damage_ends_a_prefix(1, store, path)
    ),
    "what is loaded is not what was saved": (
        "disk.frames.view", lambda tensor, data: torch.zeros(tensor.shape, dtype=getattr(torch, tensor.dtype)),
        lambda store, path: test_what_is_queued_and_what_is_loaded_is_isolated(store),
    ),
    "a folder is not locked": ("disk.lock.fcntl.flock", lambda *given: None, lambda store, path: twice(path / "other")),
}  # fmt: skip


def restored(store: BlockStore) -> None:
    store.save_prefix(TOKENS[:9], cached(MIXED, 9))
    store.flush()
    assert same_caches(store.restore(TOKENS), cached(MIXED, 9))


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_noticed(fault: str, store: BlockStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, wrong, scenario = FAULTS[fault]
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(f"kvspec_torch.{where}", wrong)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        scenario(store, tmp_path)


def test_what_is_evicted_first(tmp_path: Path) -> None:
    """Of a prefix that was restored the end: without the first blocks the others are of no use."""
    with BlockStore(tmp_path, PLAIN, budget=LARGE, writer=False) as store:
        keys = store.save_prefix(TOKENS[:8], cached(PLAIN, 8))
        store.flush()
        taken = store.stats().bytes
    with BlockStore(tmp_path, PLAIN, budget=taken, writer=False) as store:
        store.restore(TOKENS[:8])
        store.save_prefix([1, 2, 3, 4], cached(PLAIN, 4))
        evicted = [key for report in store.flush() for key in report.evicted]
        assert evicted == keys[:1:-1]
        assert same_caches(store.restore(TOKENS), cached(PLAIN, 4))
        assert same_caches(store.restore([1, 2, 3, 4]), cached(PLAIN, 4))
        assert store.stats().bytes <= taken


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda of: of.save(None, [1], blocks(MIXED, 1)[0]), "1 tokens, a block has 3"),
        (lambda of: of.save(None, [1, 2, True], blocks(MIXED, 1)[0]), "True is no token"),
        (lambda of: of.save("x", [1, 2, 3], blocks(MIXED, 1)[0]), "parent: 'x' is no SHA-256"),
        (lambda of: of.save("0" * 64, [1, 2, 3], blocks(MIXED, 1)[0]), "block 0: the first block"),
        (lambda of: of.save(None, [1, 2, 3], blocks(MIXED, 2)[1]), "block 1: the first block"),
        (lambda of: of.save(None, [1, 2, 3], blocks(PLAIN, 1)[0]), "2.0.k is missing"),
        (lambda of: of.save(None, [1, 2, 3], None), "a block is wanted"),
        (lambda of: of.load("../etc/passwd"), "key: '../etc/passwd' is no SHA-256"),
        (lambda of: of.evict("x"), "key: 'x' is no SHA-256"),
        (lambda of: of.save_prefix([1, 2, 3], cached(PLAIN, 3)), "not of the store's layout"),
        (lambda of: of.save_prefix([1, 2], cached(MIXED, 3)), "2 tokens, the cache is at 3"),
        (lambda of: of.restore([1, 2, -1]), "-1 is no token"),
        (pickle.dumps, "belongs to the process"),
    ],
)
def test_bad_calls_are_refused_and_change_nothing(call: Any, reason: str, store: BlockStore) -> None:
    before = store.stats()
    with pytest.raises(Misuse, match=reason):
        call(store)
    assert store.stats() == before


ODD = [{"budget": odd} for odd in (0, 1.5, 1e9, True, "1GB", None)]


@pytest.mark.parametrize("option", [*ODD, {"slots": 0}, {"memory": -1}, {"evictions": True}, {"slots": 8.0}])
def test_bad_options(option: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(Misuse, match=f"{next(iter(option))}: a whole number from [01] is wanted"):
        BlockStore(tmp_path, PLAIN, **{"budget": LARGE, **option})
    BlockStore(tmp_path, PLAIN, budget=LARGE).close()


def test_many_threads(tmp_path: Path) -> None:
    """Whatever is found is what was saved, while others save, evict and restore."""
    wanted, wrong = blocks(MIXED, 8), list[object]()
    keys = chain(TOKENS[:24], 3, MIXED.signature)
    budget = 6 * 1400

    def caller(number: int, store: BlockStore) -> None:
        try:
            for turn in range(40):
                index = (number * 3 + turn) % 8
                with suppress(Refused, OSError):
                    parent = keys[index - 1] if index else None
                    store.save(parent, TOKENS[3 * index : 3 * index + 3], wanted[index])
                found = store.load(keys[(index + turn) % 8])
                if isinstance(found, Miss):
                    if found.reason != "absent":
                        wrong.append(found)
                elif found != wanted[found.index]:
                    wrong.append(found)
                restored = store.restore(TOKENS[:24])
                if not same_caches(restored, cached(MIXED, restored.position, 3)):
                    wrong.append(restored)
                if turn % 7 == 3:
                    with suppress(Misuse):
                        store.evict(keys[index])
        except BaseException as error:
            wrong.append(error)

    with BlockStore(tmp_path, MIXED, budget=budget, slots=4, evictions=2) as store:
        threads = [threading.Thread(target=caller, args=(number, store)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        store.flush()
        assert wrong == []
        assert store.stats().bytes <= budget
    with closing(Folder(tmp_path)) as folder:
        files = [whole(folder, key, {MIXED.signature: Format(MIXED)}) for key in names(folder).keys]
        assert {type(each and each.said) for each in files} == {Said}


def test_no_block_takes_the_place_of_one_with_more(store: BlockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if somebody saves the states of a prefix between two looks at what is missing (B10)."""
    long, (first, *_) = cached(MIXED, 9), blocks(MIXED, 1)
    assert not long.block(0).stateful
    for _ in range(2):
        key = store.save(None, TOKENS[:3], first)
        assert store.save(None, TOKENS[:3], long.block(0)) == key
        assert store.load(key) == first
        store.flush()
    assert store.stats().queued == 0
    lacking = store._core.lacking
    monkeypatch.setattr(store._core, "lacking", lambda keys: [0, *lacking(keys)])
    store.save_prefix(TOKENS[:9], long)
    assert store.load(key) == first
    assert same_caches(store.restore(TOKENS[:4]), cached(MIXED, 3, step=3))


def test_a_store_that_cannot_start_its_writer_lets_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", full)
    with pytest.raises(RuntimeError, match="new thread"):
        BlockStore(tmp_path, MIXED, budget=LARGE)
    monkeypatch.undo()
    BlockStore(tmp_path, MIXED, budget=LARGE).close()
