"""Tokens are ints in one row, however they are given; anything else is refused, whatever was given before (E6)."""

from array import array
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from kvspec.members import Layout, Part, Plain
from kvspec_torch.block_store import BlockStore
from kvspec_torch.blocks import Cache
from kvspec_torch.entry_format import chain, key_of
from kvspec_torch.errors import Misuse
from kvspec_torch.tokens import tokens_of

LAYOUT = Layout("toy", 2, (Plain((Part("k", (), "uint8"),)),))
PLAIN = [0, 1, 2, 3]
KEYS = chain(PLAIN, 2, LAYOUT.signature)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockStore]:
    with BlockStore(tmp_path, LAYOUT, budget=2**20, writer=False) as opened:
        yield opened


def cached(tokens: int) -> Cache:
    cache = Cache(LAYOUT)
    cache.append(tokens, {"0.k": torch.arange(tokens, dtype=torch.uint8)})
    return cache


GOOD = [
    tuple(PLAIN), range(4), array("q", PLAIN), array("B", PLAIN), memoryview(array("i", PLAIN)), np.array(PLAIN),
    np.array(PLAIN, np.uint8), np.arange(8)[::2] // 2, torch.tensor(PLAIN), torch.tensor(PLAIN, dtype=torch.int32),
]  # fmt: skip
BAD = [
    [False, True, 2, 3], [0.0, 1.0, 2, 3], [0, 1, 2, 3.0], list(np.arange(4)), ["0", 1, 2, 3], [0, 1, 2, None],
    np.array(PLAIN, float), np.array([False, True, False, True]), np.array([PLAIN]), np.array(3), torch.tensor([PLAIN]),
    torch.tensor(PLAIN, dtype=torch.float32), torch.tensor([False, True, True, True]), torch.tensor(PLAIN).to("meta"),
    torch.tensor(3), iter(PLAIN), deque(PLAIN), dict.fromkeys(PLAIN), set(PLAIN), None, 4, "0123", bytes(PLAIN),
    array("d", PLAIN), memoryview(b"0123").cast("c"), (each for each in PLAIN),
]  # fmt: skip


@pytest.mark.parametrize("given", GOOD)
def test_integers_in_one_row(given: Any, store: BlockStore) -> None:
    assert tokens_of(given) == PLAIN
    assert set(map(type, tokens_of(given))) == {int}
    for _ in range(2):
        assert store.save_prefix(given, cached(4)) == KEYS == chain(given, 2, LAYOUT.signature)
        assert store.restore(given).position == 4
    assert store.save(None, given[:2], cached(4).block(0)) == KEYS[0] == key_of(None, given[:2], LAYOUT.signature)


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("given", BAD)
def test_anything_else_is_refused_by_every_call(given: Any, before: bool, store: BlockStore) -> None:
    """An equal list of ints that came before changes nothing."""
    if before:
        store.save_prefix(PLAIN, cached(4))
    calls = [
        lambda: store.save_prefix(given, cached(4)),
        lambda: store.restore(given),
        lambda: store.save(None, given, cached(4).block(0)),
        lambda: key_of(None, given, LAYOUT.signature),
        lambda: chain(given, 2, LAYOUT.signature),
    ]
    for call in calls:
        with pytest.raises(Misuse, match=r"tokens: .*give a list of ints"):
            call()
    assert store.stats().queued == 2 * before


@pytest.mark.parametrize(
    ("token", "said"),
    [(-1, "-1"), (2**63, str(2**63)), (10**9999, "a number of 332.* bits")],
    ids=["-1", "2**63", "10**9999"],
)
def test_what_is_too_small_or_too_large(token: int, said: str, store: BlockStore) -> None:
    """In a block that is not whole, too."""
    for tokens in ([token, 1], [0, 1, token]):
        with pytest.raises(Misuse, match=rf"tokens: at [02], {said} is no token"):
            store.restore(tokens)


@pytest.mark.parametrize("buffer", [memoryview(array("q", PLAIN)), np.array(PLAIN), torch.tensor(PLAIN), list(PLAIN)])
def test_a_buffer_is_used_again(buffer: Any, store: BlockStore) -> None:
    """What the store keeps of the tokens is its own."""
    store.save_prefix(buffer, cached(4))
    buffer[2] = 9
    assert store.restore(buffer).position == 2
    assert store.save_prefix(buffer, cached(4)) == chain([0, 1, 9, 3], 2, LAYOUT.signature)
