"""What it costs to append one block to a live cache and to cut it off again as a block, however long the prefix is."""

import gc
from collections.abc import Callable
from functools import partial
from time import thread_time_ns

import torch
from kvspec.members import Layout, Part, Plain, Pooled
from kvspec_record.bench.pools import Rounds, interleaved
from kvspec_torch.blocks import Block, Cache

LAYOUT = Layout(
    "bench",
    16,
    (
        *(Plain((Part("keys", (8, 64), "bfloat16"), Part("values", (8, 64), "bfloat16"))) for _ in range(4)),
        Pooled((Part("mean", (512,), "float32"),), ratio=4),
    ),
)
LONG, SHORT = 4096, 64
"""Blocks of the prefix."""
STEPS = 32
"""Blocks a round."""


class Growing:
    """A cache with a prefix of so many blocks."""

    def __init__(self, blocks: int) -> None:
        self.cache, self.blocks = Cache(LAYOUT), blocks
        tokens, size = blocks * LAYOUT.block_size, LAYOUT.block_size
        self.cache.append(tokens, rows(tokens))
        self.new = rows(size)

    def step(self) -> Block:
        """Append a block, and give it."""
        self.cache.append(LAYOUT.block_size, self.new)
        return self.cache.block(self.cache.position // LAYOUT.block_size - 1)

    def seconds(self) -> float:
        """Seconds a block, of the thread's processor time. Off the clock all of them are trimmed away again.

        So the memory that they are written to was written to before: the system gives each page of memory only when
        it is first used, which takes a third as long again, and behind a long prefix the allocator had none before.
        """
        start = thread_time_ns()
        for _ in range(STEPS):
            self.step()
        spent = thread_time_ns() - start
        self.cache.trim(self.blocks * LAYOUT.block_size)
        return spent / STEPS / 1e9


def rows(tokens: int) -> dict[str, torch.Tensor]:
    """The rows of so many tokens, from the beginning of a block on."""
    return {
        f"{at}.{part.name}": torch.ones(leaf.rows(tokens), *part.shape, dtype=getattr(torch, part.dtype))
        for at, leaf in LAYOUT.leaves.items()
        for part in leaf.parts
    }


def measured(rounds: int, long: int = LONG, short: int = SHORT) -> Rounds:
    """Seconds to append a block and cut it off, on one thread: behind a long prefix, and behind a short one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        sides = Growing(long), Growing(short)
        gc.collect()
        gc.disable()
        return interleaved(sides[0].seconds, sides[1].seconds, rounds)
    finally:
        gc.enable()
        torch.set_num_threads(threads)


MEASURED: dict[str, Callable[[int], Rounds]] = {"cut-4096": partial(measured, long=LONG, short=SHORT)}
"""What can be measured, by name, as `run` wants it; the second figures are those of the shorter prefix."""
