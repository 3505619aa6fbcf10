"""The store against safetensors, plain reads, and itself with a shorter context; see `method` for what each side does.

Each measurement returns seconds, or bytes, one number a round: ours, the peer's.
"""

import contextlib
import gc
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import NamedTuple

import torch
from kvspec.members import Layout, Part, Plain
from kvspec_record.bench.pools import Rounds, interleaved
from kvspec_torch.block_store import BlockStore
from kvspec_torch.blocks import Block, Cache
from safetensors.torch import save_file

from kvspec_diff.bench import growth

MIB = 2**20
TOKENS = 16
"""Tokens of a block."""
LAYERS = 8
WIDTH = 128
A_ROUND = 16 * MIB
"""Bytes of blocks saved a round, but at least four blocks."""
RESTORED = 1000
"""Blocks of the prefix that is restored."""
APPENDED = 16
"""Blocks appended a round."""
SHORT, LONG = 64, 4096
"""Blocks that are there before."""
SMALL = 2**16
"""Bytes of a block that is appended."""


def layout(size: int) -> Layout:
    """Eight plain layers of keys and values whose block has `size` bytes."""
    heads = size // (TOKENS * LAYERS * 2 * WIDTH * 2)
    parts = tuple(Part(name, (heads, WIDTH), "bfloat16") for name in ("keys", "values"))
    return Layout("bench", TOKENS, tuple(Plain(parts) for _ in range(LAYERS)))


def rows(of: Layout, seed: int) -> dict[str, torch.Tensor]:
    """The rows of one block: a different block for each seed."""
    generator = torch.Generator().manual_seed(seed)
    return {
        f"{path}.{part.name}": torch.randn(TOKENS, *part.shape, generator=generator).bfloat16()
        for path, leaf in of.leaves.items()
        for part in leaf.parts
    }


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A new folder, and no garbage collector."""
    with tempfile.TemporaryDirectory(prefix="kvspec-bench-") as path:
        gc.collect()
        gc.disable()
        try:
            yield Path(path)
        finally:
            gc.enable()


def opened(path: Path, of: Layout) -> BlockStore:
    """A store with room for everything."""
    path.mkdir()
    return BlockStore(path, of, budget=2**40)


def settled(store: BlockStore) -> None:
    """Wait until everything that was saved is acknowledged."""
    wrong = [report for report in store.flush() if report.status not in ("acknowledged", "idle")]
    if wrong:
        raise AssertionError(f"was not written: {wrong[0]}")


def saved(size: int, rounds: int) -> Rounds:
    """Seconds a block of `size` MiB: saved to the acknowledgement; with safetensors alone."""
    of = layout(size * MIB)
    count = max(4, A_ROUND // (size * MIB))
    blocks = [Block(0, rows(of, seed), True) for seed in range(count)]
    number = 0

    def ours(store: BlockStore) -> float:
        nonlocal number
        taken, keys = 0.0, []
        for block in blocks:
            number += 1
            tokens = [number] * TOKENS
            start = perf_counter()
            keys.append(store.save(None, tokens, block))
            settled(store)
            taken += perf_counter() - start
        for key in keys:
            store.evict(key)
        settled(store)
        return taken / count

    def theirs(path: Path) -> float:
        taken = 0.0
        for number, block in enumerate(blocks):
            start = perf_counter()
            by_safetensors(dict(block.parts), path, str(number))
            taken += perf_counter() - start
        for number in range(count):
            (path / str(number)).unlink()
        synced(path, os.O_RDONLY | os.O_DIRECTORY)
        return taken / count

    with folder() as base, opened(base / "ours", of) as store:
        (base / "theirs").mkdir()
        return interleaved(partial(ours, store), partial(theirs, base / "theirs"), rounds)


def by_safetensors(tensors: dict[str, torch.Tensor], path: Path, name: str) -> None:
    """What the store does to write an entry, done with `safetensors.torch.save_file`."""
    temporary = path / f"{name}.temporary"
    save_file(tensors, temporary)
    synced(temporary, os.O_WRONLY)
    os.rename(temporary, path / name)
    synced(path, os.O_RDONLY | os.O_DIRECTORY)


def synced(path: Path, flags: int) -> None:
    """Bring a file or a folder to the disk."""
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fill(store: BlockStore, blocks: int, made: Callable[[int], Block]) -> list[str]:
    """Save a prefix of so many blocks; block i has the tokens `tokens_of(i)`. Their keys."""
    keys: list[str] = []
    for i in range(blocks):
        keys.append(store.save(keys[-1] if keys else None, tokens_of(i), made(i)))
        if i % 16 == 15:
            settled(store)
    settled(store)
    return keys


def tokens_of(i: int) -> list[int]:
    """The tokens of block i of the prefix that is saved."""
    return list(range(i * TOKENS, (i + 1) * TOKENS))


def restored(rounds: int, size: int = MIB) -> Rounds:
    """Seconds to restore a prefix; to read the same files."""
    of = layout(size)
    some = [rows(of, seed) for seed in range(8)]
    tokens = [token for i in range(RESTORED) for token in tokens_of(i)]

    def ours(store: BlockStore) -> float:
        start = perf_counter()
        cache = store.restore(tokens)
        taken = perf_counter() - start
        if cache.position != RESTORED * TOKENS:
            raise AssertionError(f"only {cache.position} tokens were restored")
        return taken

    def theirs(files: Sequence[Path]) -> float:
        start = perf_counter()
        kept = [plainly(path) for path in files]
        taken = perf_counter() - start
        if len(kept) != RESTORED:
            raise AssertionError(f"there are {len(kept)} files")
        return taken

    with folder() as base, opened(base / "ours", of) as store:
        keys = fill(store, RESTORED, lambda i: Block(i, some[i % len(some)], True))
        named = {path.name.partition(".")[0]: path for path in (base / "ours").iterdir()}
        return interleaved(partial(ours, store), partial(theirs, [named[key] for key in keys]), rounds)


def plainly(path: Path) -> bytearray:
    """All bytes of a file, in a new buffer."""
    with open(path, "rb", buffering=0) as file:
        buffer = bytearray(os.fstat(file.fileno()).st_size)
        if file.readinto(buffer) != len(buffer):
            raise AssertionError(f"{path} was not read at once")
    return buffer


class Took(NamedTuple):
    """Seconds on the wall, and of this process's processor time."""

    wall: float
    work: float


class Growing:
    """A cache that is saved as it grows."""

    def __init__(self, store: BlockStore, of: Layout, blocks: int) -> None:
        self.store, self.of, self.blocks = store, of, blocks
        self.new = rows(of, 0)
        self.cache = Cache(of)
        self.last: str | None = None
        for _ in range(blocks):
            self.cache.append(TOKENS, self.new)
        self.last = fill(store, blocks, self.cache.block)[-1]

    def append(self) -> Took:
        """What one more block takes."""
        start, worked = perf_counter(), process_time()
        self.cache.append(TOKENS, self.new)
        self.last = self.store.save(self.last, tokens_of(self.blocks), self.cache.block(self.blocks))
        settled(self.store)
        self.blocks += 1
        return Took(perf_counter() - start, process_time() - worked)


@cache
def grown(rounds: int) -> tuple[list[Took], list[Took]]:
    """What it takes to append a block to a long prefix, to a short one: medians of a round, in which they alternate."""
    of, took = layout(SMALL), (list[Took](), list[Took]())
    with folder() as base, opened(base / "long", of) as long, opened(base / "short", of) as short:
        sides = Growing(long, of, LONG), Growing(short, of, SHORT)
        for number in range(-1, rounds):
            each: tuple[list[Took], list[Took]] = ([], [])
            for turn in range(2 * APPENDED):
                side = (turn + turn // 2) % 2  # 0 1 1 0
                each[side].append(sides[side].append())
            for side in (0, 1) if number >= 0 else ():
                took[side].append(Took(*(median(clock) for clock in zip(*each[side], strict=True))))
    return took


def appended(clock: str, rounds: int) -> Rounds:
    """Of these, what one clock says."""
    ours, peer = grown(rounds)
    return [getattr(each, clock) for each in ours], [getattr(each, clock) for each in peer]


MEASURED: dict[str, Callable[[int], Rounds]] = {
    **{f"save-{size}": partial(saved, size) for size in (1, 4, 16)},
    "restore-1000": restored,
    "append-4096": partial(appended, "wall"),
    "append-work-4096": partial(appended, "work"),
    **growth.MEASURED,
}
"""What can be measured, by name."""
