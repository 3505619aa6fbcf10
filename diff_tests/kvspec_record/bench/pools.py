"""What is measured of the pools, and what each side does for it. See `kvspec_record.bench.METHOD`."""

import gc
import importlib
import tracemalloc
from collections.abc import Callable
from functools import partial
from time import thread_time_ns
from typing import Any, NamedTuple

import torch
from kvspec_torch import Misuse, PagePool

SLOTS = 2**20
SIZES = (1, 64, 4096)
BATCH = {1: 64, 64: 64, 4096: 8}
"""Calls in a batch, by slots a call: at most 3 % of all slots are in use by one."""
REPEATS = 8
"""Batches a round, whose mean counts, unless a round is drain cycles."""
CYCLES = 3
"""Drain cycles a round."""
SAMPLED = 128
"""Batches of a drain cycle that are timed, evenly spread over it; a cycle of no more is timed whole."""

Rounds = tuple[list[float], list[float]]
"""Seconds a call (bytes a page), one number a round: ours, the peer's."""
Measured = Callable[[Callable[..., Any], int], Rounds]
"""Takes what makes a peer's pool and the number of rounds."""


class Side(NamedTuple):
    """A pool's calls; `shuffled` puts what `allocate` gave into another order, of positions."""

    allocate: Callable[[int], Any]
    release: Callable[[Any], object]
    shuffled: Callable[[Any, torch.Tensor], Any]
    pool: Any


def ours(slots: int = SLOTS) -> Side:
    """Our pool; that its checks are on is tried here."""
    pool = PagePool(slots)
    try:
        pool.release(torch.tensor([1]))
    except Misuse:
        return Side(pool.allocate, pool.release, torch.Tensor.__getitem__, pool)
    raise AssertionError("a blank page could be released")


def sglang() -> Callable[..., Side]:
    """What makes a pool of SGLang's, with `need_sort` as told."""
    from kvspec_record.sglang import declare_torchvision

    library = declare_torchvision()
    kind = importlib.import_module("sglang.srt.mem_cache.allocator").TokenToKVPoolAllocator
    del library

    def make(sort: bool, slots: int = SLOTS) -> Side:
        pool = kind(slots, torch.int64, "cpu", None, sort)
        return Side(pool.alloc, pool.free, torch.Tensor.__getitem__, pool)

    return make


def vllm() -> Callable[..., Side]:
    """What makes a pool of vLLM's: one block more, for its null block."""
    kind = importlib.import_module("vllm.v1.core.block_pool").BlockPool

    def make(slots: int = SLOTS) -> Side:
        pool = kind(slots + 1, True, 16)
        return Side(pool.get_new_blocks, pool.free_blocks, in_order, pool)

    return make


def in_order(blocks: list[Any], order: torch.Tensor) -> list[Any]:
    """A list in another order."""
    return [blocks[position] for position in order.tolist()]


def threads() -> int:
    """See to it that torch uses one thread; how many it says it uses."""
    torch.set_num_threads(1)
    return torch.get_num_threads()


def fill(side: Side, slots: int, used: float) -> Any:
    """Scramble the pool and use so much of it; what is held from then on."""
    side.release(side.shuffled(side.allocate(slots), torch.randperm(slots)))
    return side.allocate(int(slots * used)) if used else None


def batch(side: Side, n: int, calls: int) -> tuple[int, int]:
    """Nanoseconds of so many calls of `allocate` for n slots, and of so many of `release`."""
    order = torch.randperm(n)
    start = thread_time_ns()
    taken = [side.allocate(n) for _ in range(calls)]
    allocated = thread_time_ns() - start
    taken = [side.shuffled(each, order) for each in taken]
    start = thread_time_ns()
    for each in taken:
        side.release(each)
    return allocated, thread_time_ns() - start


def interleaved(first: Callable[[], float], second: Callable[[], float], rounds: int) -> Rounds:
    """Both in turn, after one round that does not count."""
    sides = (first, second)
    figures: Rounds = ([], [])
    for number in range(-1, rounds):
        for side in (number % 2, 1 - number % 2):
            figure = sides[side]()
            if number >= 0:
                figures[side].append(figure)
    return figures


def compare(mine: Side, peer: Side, used: float, rounds: int, timed: Callable[[Side], float], slots: int) -> Rounds:
    """Use so much of both pools, then time both in turn."""
    held = fill(mine, slots, used), fill(peer, slots, used)
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        return interleaved(partial(timed, mine), partial(timed, peer), rounds)
    finally:
        gc.enable()
        gc.unfreeze()
        del held


def release(n: int, used: float, peer: Callable[..., Side], rounds: int, slots: int = SLOTS) -> Rounds:
    """Seconds a `release` of n slots; SGLang's unsorted."""

    def timed(side: Side) -> float:
        return sum(batch(side, n, BATCH[n])[1] for _ in range(REPEATS)) / (REPEATS * BATCH[n]) / 1e9

    return compare(ours(slots), peer(False, slots), used, rounds, timed, slots)


def both(n: int, peer: Callable[..., Side], rounds: int, slots: int = SLOTS) -> Rounds:
    """Seconds an `allocate` of n slots and its `release`; vLLM's."""

    def timed(side: Side) -> float:
        return sum(sum(batch(side, n, BATCH[n])) for _ in range(REPEATS)) / (REPEATS * BATCH[n]) / 1e9

    return compare(ours(slots), peer(slots), 0, rounds, timed, slots)


def drained(n: int, peer: Callable[..., Side], rounds: int, slots: int = SLOTS) -> Rounds:
    """Seconds an `allocate` of n slots and its `release`, the mean over whole cycles, half of the slots in use.

    A cycle begins with all free slots sorted and ends with the `allocate` that has to sort them again. Where it is too
    long to be timed whole, batches evenly spread over it are, the slots between them taken and freed at once, off the
    clock; the last call with its sort is always timed, and counts once. Ours, which has no cycles, does the same calls.
    """
    free = slots - int(slots * 0.5)
    batches = free // (n * BATCH[n])
    places = [place * batches // min(batches, SAMPLED) for place in range(min(batches, SAMPLED))]

    def cycle(side: Side) -> float:
        total, done = 0, 0
        for place in places:
            skip(side, (place - done) * n * BATCH[n])
            total += sum(batch(side, n, BATCH[n]))
            done = place + 1
        skip(side, free - done * n * BATCH[n])
        last = sum(batch(side, n, 1))
        if hasattr(side.pool, "merge_and_sort_free"):
            side.pool.merge_and_sort_free()
        calls = batches * BATCH[n]
        return (total / (len(places) * BATCH[n]) * calls + last) / (calls + 1) / 1e9

    def timed(side: Side) -> float:
        return sum(cycle(side) for _ in range(CYCLES)) / CYCLES

    return compare(ours(slots), peer(True, slots), 0.5, rounds, timed, slots)


def skip(side: Side, slots: int) -> None:
    """Take so many slots and free them."""
    if slots:
        side.release(side.allocate(slots))


def state(peer: Callable[..., Side], rounds: int, slots: int = SLOTS) -> Rounds:
    """Bytes that a new pool allocates, a page: what Python and NumPy count, and torch's storages. One round tells."""
    return [allocated(partial(ours, slots)) / slots], [allocated(partial(peer, slots)) / slots]


def allocated(make: Callable[[], Side]) -> int:
    """Bytes that what `make` makes allocated and keeps."""
    gc.collect()
    tracemalloc.start()
    side = make()
    gc.collect()
    counted = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    parts = vars(getattr(side.pool, "_path", side.pool)).values()
    tensors = [part.untyped_storage() for part in parts if isinstance(part, torch.Tensor)]
    return counted + sum({storage.data_ptr(): storage.nbytes() for storage in tensors}.values())


MEASURED: dict[str, Measured] = {
    **{f"release-{name}-{n}": partial(release, n, used) for name, used in (("empty", 0.0), ("50", 0.5), ("90", 0.9))
       for n in SIZES},
    **{f"sorted-{n}": partial(drained, n) for n in SIZES},
    **{f"vllm-{n}": partial(both, n) for n in SIZES},
    "state": state,
}  # fmt: skip
"""What can be measured, by name."""
