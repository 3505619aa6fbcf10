"""Steps of a few requests on a real `KVCacheManager`, and what its tables and its pool are after each call.

A step is a list: `["admit", r, prompt, shared, chunk]` (tokens of the prompt, of which the first `shared` are the same
for every request; the first chunk), `["step", r, n, k]` (the next n tokens of the prompt, or, behind it, the last token
and k drafts), `["retire", r, a]` (r's oldest step settles with at most a drafts accepted), `["finish", r]`. Numbers are
cut to what there is: a chunk at the prompt's end, drafts at the longest sequence; with a group of kind `align` a chunk
ends at a block's end or at the prompt's. A request that was refused its admission stays out.

The answer to a step: `[status, scheduled, hit, evictable, charged, before, free, used, tables]`: status 0 done, 1
refused, 2 nothing to do; tokens scheduled; tokens of the prefix found; blocks of it that nobody held; blocks that the
scheduler's check reckoned with, and the free ones at that moment; free blocks and different blocks in tables
afterwards; for each group, the table's length and how many entries are null.
"""

from math import lcm
from typing import Any

import torch
from vllm import SamplingParams
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    CrossAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request, RequestStatus

from kvspec_record import vllm_lookahead

SAMPLING = SamplingParams(max_tokens=1024)
HEADS: dict[str, Any] = {"num_kv_heads": 1, "head_size": 8, "dtype": torch.float32}
DONE, REFUSED, NOTHING = 0, 1, 2

init_none_hash(sha256)


def spec(kind: str, size: int, span: int, spares: int) -> Any:
    """The engine's description of a group."""
    if kind == "full":
        return FullAttentionSpec(block_size=size, **HEADS)
    if kind == "window":
        return SlidingWindowSpec(block_size=size, sliding_window=span, **HEADS)
    if kind == "chunk":
        return ChunkedLocalAttentionSpec(block_size=size, attention_chunk_size=span, **HEADS)
    if kind == "cross":
        return CrossAttentionSpec(block_size=size, **HEADS)
    return MambaSpec(block_size=size, shapes=((1, 8),), dtypes=(torch.float32,), mamba_cache_mode=kind,
                     num_speculative_blocks=spares)  # fmt: skip


def groups(configuration: dict[str, Any], blocks: int) -> Any:
    """The engine's description of all groups, over a pool of so many blocks, the null one included."""
    described = [spec(kind, size, span, configuration["spares"]) for kind, size, span in configuration["groups"]]
    return KVCacheConfig(blocks, [], [KVCacheGroupSpec([f"layer{i}"], each) for i, each in enumerate(described)])


def manager(configuration: dict[str, Any], blocks: int) -> KVCacheManager:
    """A manager with a fresh pool, as the scheduler makes it for the method."""
    size = lcm(*(group[1] for group in configuration["groups"]))
    config = vllm_lookahead.configuration(configuration["method"], configuration["drafts"], configuration["caching"])
    speculation, more = config.speculative_config, {}
    drops = speculation is not None and speculation.use_eagle()
    if hasattr(config, "num_hash_lookahead_tokens"):
        ahead = config.num_hash_lookahead_tokens
        drops = speculation is not None and speculation.use_eagle_block_drop() and not ahead
        more = {"num_hash_lookahead_tokens": ahead, "num_prefill_lookahead": config.num_prefill_lookahead_tokens}
    return KVCacheManager(
        groups(configuration, blocks), max_model_len=configuration["length"], scheduler_block_size=size,
        hash_block_size=size, enable_caching=configuration["caching"], use_eagle=drops, **more,
    )  # fmt: skip


class Running:
    """A request with the steps that have not retired: of each, its tokens and its drafts."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.steps: list[tuple[int, int]] = []

    def schedule(self, tokens: int, drafts: int) -> None:
        """What the scheduler notes when a step was given its blocks."""
        self.steps.append((tokens, drafts))
        self.request.num_computed_tokens += tokens
        self.request.num_in_flight_tokens += tokens

    def retire(self, accepted: int) -> None:
        """What it notes when the oldest step's tokens are known; behind the prompt the step emits one more."""
        tokens, drafts = self.steps.pop(0)
        accepted = min(accepted, drafts)
        request = self.request
        request.num_in_flight_tokens -= tokens
        request.num_computed_tokens -= drafts - accepted
        settled = request.num_computed_tokens - request.num_in_flight_tokens
        if settled >= request.num_prompt_tokens:
            request.append_output_token_ids([7] * (accepted + 1))


class Program:
    """A manager and the requests that run on it."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        self.configuration = configuration
        self.manager = manager(configuration, configuration["pool"] + 1)
        self.pool = self.manager.block_pool
        self.ahead = vllm_lookahead.reserved(configuration["method"], configuration["drafts"])
        self.running: dict[int, Running] = {}
        self.aligned = [size for kind, size, span in configuration["groups"] if kind == "align"]
        size = self.pool.hash_block_size
        lookahead = getattr(self.pool, "num_hash_lookahead_tokens", 0)
        more = {"num_hash_lookahead_tokens": lookahead} if lookahead else {}
        self.hasher = get_request_block_hasher(size, sha256, **more) if configuration["caching"] else None
        self.charged, self.before = 0, 0
        self._watch()

    def _watch(self) -> None:
        """Note what the scheduler's check reckons with, and how many blocks are free then."""
        coordinator = self.manager.coordinator
        reckon = coordinator.get_num_blocks_to_allocate

        def noted(*given: Any, **named: Any) -> int:
            self.charged, self.before = reckon(*given, **named), self.pool.get_num_free_blocks()
            return self.charged

        coordinator.get_num_blocks_to_allocate = noted

    def run(self, step: list[Any]) -> list[Any]:
        """Do a step; the answer to it."""
        self.charged = self.before = 0
        status, scheduled, hit, evictable = getattr(self, f"_{step[0]}")(*step[1:])
        tables = self.manager.coordinator.get_blocks(str(step[1])) if step[1] in self.running else ()
        counted = [[len(table), sum(block.is_null for block in table)] for table in tables]
        free = self.pool.get_num_free_blocks()
        return [status, scheduled, hit, evictable, self.charged, self.before, free, self._used(), counted]

    def _admit(self, r: int, prompt: int, shared: int, chunk: int) -> tuple[int, int, int, int]:
        if r in self.running:
            return NOTHING, 0, 0, 0
        tokens = [*range(1000, 1000 + shared), *range(r * 10000, r * 10000 + prompt - shared)]
        request = Request(str(r), tokens, SAMPLING, None, block_hasher=self.hasher)
        self.manager.new_step_starts()
        found, hit, *_ = self.manager.get_computed_blocks(request)
        held = sum(block.ref_cnt == 0 and not block.is_null for table in found.blocks for block in table)
        part = self._chunk(hit, prompt, chunk)
        given = self.manager.allocate_slots(
            request, part, hit, found, self.ahead, num_encoder_tokens=self.configuration["encoded"]
        )
        if given is None:
            return REFUSED, part, hit, held
        request.status = RequestStatus.RUNNING
        request.num_computed_tokens = hit
        self.running[r] = Running(request)
        self.running[r].schedule(part, 0)
        return DONE, part, hit, held

    def _chunk(self, start: int, prompt: int, chunk: int) -> int:
        """Tokens of the prompt's next chunk; see `kvspec_diff.capacity.programs.chunk`, its twin."""
        end = min(start + chunk, prompt)
        for size in self.aligned:
            last = prompt // size * size
            if end < prompt or start < last:
                end = min(max(end // size * size, (start // size + 1) * size), prompt)
        return end - start

    def _step(self, r: int, tokens: int, drafts: int) -> tuple[int, int, int, int]:
        running = self.running.get(r)
        if running is None:
            return NOTHING, 0, 0, 0
        request, length = running.request, self.configuration["length"]
        start, prompt = request.num_computed_tokens, request.num_prompt_tokens
        drafts = 0 if start < prompt else max(min(drafts, length - start - 1), 0)
        part = self._chunk(start, prompt, tokens) if start < prompt else 1 + drafts
        if start + part > length:
            return NOTHING, 0, 0, 0
        self.manager.new_step_starts()
        if self.manager.allocate_slots(request, part, num_lookahead_tokens=self.ahead) is None:
            return REFUSED, part, 0, 0
        running.schedule(part, drafts)
        return DONE, part, 0, 0

    def _retire(self, r: int, accepted: int) -> tuple[int, int, int, int]:
        running = self.running.get(r)
        if running is None or not running.steps:
            return NOTHING, 0, 0, 0
        running.retire(accepted)
        return DONE, 0, 0, 0

    def _finish(self, r: int) -> tuple[int, int, int, int]:
        running = self.running.get(r)
        if running is None or running.steps:
            return NOTHING, 0, 0, 0
        self.manager.free(running.request)
        del self.running[r]
        return DONE, 0, 0, 0

    def _used(self) -> int:
        """Different blocks in tables, the null one not counted."""
        tables = (self.manager.coordinator.get_blocks(str(r)) for r in self.running)
        return len({block.block_id for each in tables for table in each for block in table if not block.is_null})


def run(configuration: dict[str, Any], steps: list[Any]) -> list[Any]:
    """The answers to the steps, on a fresh pool; the last is `"one line"` when the engine raised."""
    program = Program(configuration)
    answers: list[Any] = []
    for step in steps:
        try:
            answers.append(program.run(step))
        except Exception as error:
            answers.append(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
            break
    return answers
