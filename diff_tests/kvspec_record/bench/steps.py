"""A step of a batch of requests: slots reserved, ours and an engine's, side by side in one process."""

import gc
import importlib
from collections.abc import Callable
from functools import partial
from time import thread_time_ns
from typing import Any, NamedTuple

import torch
from kvspec_torch import BlockTables, Misuse, PagePool

from kvspec_record.bench.pools import Rounds, interleaved, threads

__all__ = ["MEASURED", "sglang", "threads", "vllm"]

PAGES = 100_000
SIZE = 16
LIMIT = 4096
"""Positions in the longest sequence."""
LOOKAHEAD = 3
CONTEXT = 96
"""The shortest request's positions; the others have up to a page more, so that some leave their page at every step."""
STEPS = 16
"""Steps from there on that count, then everything is given back and begins again, off the clock."""
REPEATS = {1: 32, 16: 32, 256: 12, 4096: 3}
"""How often, a round, by requests."""


class Side(NamedTuple):
    """One of the two. `begin` gives every request its first positions; `end` takes everything back.

    `step` reserves the next positions, on the clock; `after` is what is done off it.
    """

    begin: Callable[[], object]
    step: Callable[[], object]
    after: Callable[[], object]
    end: Callable[[], object]


def starts(requests: int, context: int = CONTEXT) -> list[int]:
    """How many positions each request begins with."""
    return [context + place * 7 % SIZE for place in range(requests)]


def ours(
    requests: int, tokens: int, *, pages: int = PAGES, context: int = CONTEXT, limit: int = LIMIT, drafted: bool = False
) -> Side:
    """Our tables; that their checks are on is tried here.

    `drafted`: all tokens but the first are drafts, of which a varying number is refused and taken back, on the clock.
    """
    pool = PagePool(pages)
    pool.release(pool.allocate(pages)[torch.randperm(pages)])
    tables = BlockTables(pool, SIZE, requests=requests, limit=limit, lookahead=LOOKAHEAD)
    rows, zero = torch.arange(requests), torch.zeros(requests, dtype=torch.int64)
    try:
        tables.reserve(torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64), torch.zeros(2).long())
    except Misuse:
        pass
    else:
        raise AssertionError("a row could be named twice")
    drafts = zero + (tokens - 1 if drafted else 0)
    certain = tokens - drafts
    accepted = torch.arange(requests) % tokens if drafted else zero

    def step() -> None:
        tables.reserve(rows, certain, drafts)
        if drafted:
            tables.advance(rows, accepted)

    first = torch.tensor(starts(requests, context))
    return Side(lambda: tables.reserve(rows, first, zero), step, nothing, lambda: tables.finish(rows))


def nothing() -> None:
    """What ours does off the clock."""


def sglang() -> Callable[[int], Side]:
    """What makes SGLang's side: its paged allocator without Triton, and its table of slots, as its decode uses them."""
    from kvspec_record.sglang import declare_torchvision

    library = declare_torchvision()
    allocator = importlib.import_module("sglang.srt.mem_cache.allocator.paged").PagedTokenToKVPoolAllocator
    table = importlib.import_module("sglang.srt.mem_cache.memory_pool").ReqToTokenPool
    del library

    def make(requests: int) -> Side:
        pool = allocator(PAGES * SIZE, SIZE, torch.int64, "cpu", None, False)
        pool.use_triton_kernels = False
        pool.free_pages = pool.free_pages[torch.randperm(PAGES)]
        rows = table(requests, LIMIT, "cpu", False)
        indices, first = torch.arange(requests), torch.tensor(starts(requests))
        lengths = first.clone()
        taken: list[torch.Tensor] = []

        def begin() -> None:
            lengths.copy_(first)
            for request, length in enumerate(first.tolist()):
                slots = pool.alloc(-(-length // SIZE) * SIZE)
                taken.append(slots)
                rows.write((request, slice(0, length)), slots[:length].to(torch.int32))

        def step() -> None:
            last = rows.req_to_token[indices, lengths - 1]
            longer = lengths + 1
            slots = pool.alloc_decode(longer, longer, last)
            rows.write((indices, lengths.clone()), slots.to(torch.int32))
            taken.append(slots)

        def end() -> None:
            pool.free(torch.cat(taken))
            taken.clear()

        return Side(begin, step, partial(lengths.add_, 1), end)

    return make


def vllm() -> Callable[[int], Side]:
    """What makes vLLM's side: its manager of one group of full attention, without a prefix cache."""
    interface = importlib.import_module("vllm.v1.kv_cache_interface")
    manager_type = importlib.import_module("vllm.v1.core.kv_cache_manager").KVCacheManager
    request_type = importlib.import_module("vllm.v1.request").Request
    sampling = importlib.import_module("vllm.sampling_params").SamplingParams

    def make(requests: int) -> Side:
        spec = interface.FullAttentionSpec(block_size=SIZE, num_kv_heads=1, head_size=1, dtype=torch.float32)
        group = interface.KVCacheGroupSpec(["layer"], spec)
        config = interface.KVCacheConfig(num_blocks=PAGES + 1, kv_cache_tensors=[], kv_cache_groups=[group])
        manager = manager_type(
            config, max_model_len=LIMIT, scheduler_block_size=SIZE, hash_block_size=SIZE, enable_caching=False
        )
        batch = [
            request_type(str(place), [1] * length, sampling(max_tokens=LIMIT), None)
            for place, length in enumerate(starts(requests))
        ]

        def begin() -> None:
            for request in batch:
                assert manager.allocate_slots(request, request.num_tokens, num_lookahead_tokens=LOOKAHEAD) is not None
                request.num_computed_tokens = request.num_tokens

        def step() -> None:
            for request in batch:
                manager.allocate_slots(request, 4, num_lookahead_tokens=LOOKAHEAD)

        def after() -> None:
            for request in batch:
                request.num_computed_tokens += 4

        def end() -> None:
            for request in batch:
                manager.free(request)
                request.num_computed_tokens = 0

        return Side(begin, step, after, end)

    return make


def seconds(side: Side, repeats: int) -> float:
    """Seconds a step, of the thread's processor time."""
    spent = 0
    for _ in range(repeats):
        side.begin()
        for number in range(-1, STEPS):  # the first one, after so much else, does not count
            start = thread_time_ns()
            side.step()
            if number >= 0:
                spent += thread_time_ns() - start
            side.after()
        side.end()
    return spent / repeats / STEPS / 1e9


def compare(mine: Side, peer: Side, requests: int, rounds: int) -> Rounds:
    """Time both in turn."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        repeats = REPEATS[requests]
        return interleaved(partial(seconds, mine, repeats), partial(seconds, peer, repeats), rounds)
    finally:
        gc.enable()
        gc.unfreeze()


def against(requests: int, tokens: int, drafted: bool, peer: Callable[[int], Side], rounds: int) -> Rounds:
    """Seconds a step, ours and an engine's."""
    return compare(ours(requests, tokens, drafted=drafted), peer(requests), requests, rounds)


def longer(requests: int, peer: None, rounds: int) -> Rounds:
    """Seconds a step where contexts are ten times longer, against ours; all else is alike, and large enough."""
    alike = partial(ours, requests, 1, pages=10 * PAGES, limit=10 * LIMIT)
    return compare(alike(context=10 * CONTEXT), alike(), requests, rounds)


def wider(requests: int, peer: None, rounds: int) -> Rounds:
    """Seconds a step where the tables have ten times as many entries, against ours; as many are in use."""
    return compare(ours(requests, 1, limit=10 * LIMIT), ours(requests, 1), requests, rounds)


def larger(requests: int, peer: None, rounds: int) -> Rounds:
    """Seconds a step where the pool is ten times larger, against ours."""
    return compare(ours(requests, 1, pages=10 * PAGES), ours(requests, 1), requests, rounds)


MEASURED: dict[str, Callable[[Any, int], Rounds]] = {
    **{f"step-vllm-{n}": partial(against, n, 4, False) for n in REPEATS},
    "step-settled-256": partial(against, 256, 4, True),
    **{f"step-sglang-{n}": partial(against, n, 1, False) for n in REPEATS},
    **{f"step-context-{n}": partial(longer, n) for n in (256, 4096)},
    "step-limit-4096": partial(wider, 4096),
    **{f"step-pool-{n}": partial(larger, n) for n in (256, 4096)},
}
"""What can be measured, by name."""
