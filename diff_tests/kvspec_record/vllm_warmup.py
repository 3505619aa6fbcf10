"""vLLM's real warm-up functions on a stub of the model runner: the block tables that they would run with (C3).

The stub has no model: it records each `SchedulerOutput`. Beside each table stands what a real `KVCacheManager` reserves
for the same steps with the scheduler's lookahead.
"""

import contextlib
from types import SimpleNamespace
from typing import Any

from vllm.v1.request import Request, RequestStatus
from vllm.v1.worker.gpu.warmup import run_mixed_prefill_decode_warmup, warmup_kernels

from kvspec_record import vllm_lookahead, vllm_program

BLOCKS = 2_000
REQUESTS = 2


class Runner(SimpleNamespace):
    """What the warm-up functions look at."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        drafts = configuration["drafts"] if configuration["method"] != "none" else 0
        config = vllm_lookahead.configuration(configuration["method"], configuration["drafts"])
        ahead = getattr(config, "num_lookahead_tokens", None)
        scheduler = SimpleNamespace(max_num_seqs=REQUESTS, max_num_batched_tokens=1_000_000)
        super().__init__(
            vllm_config=SimpleNamespace(num_lookahead_tokens=ahead, is_mm_encoder_only=False),
            kv_cache_config=vllm_program.groups(configuration, BLOCKS),
            max_model_len=configuration["length"], max_num_reqs=REQUESTS, scheduler_config=scheduler,
            num_speculative_steps=drafts, decode_query_len=drafts + 1, speculative_config=None,
            model_state=SimpleNamespace(max_encoder_len=configuration["encoded"]),
            is_encoder_decoder=configuration["encoded"] > 0, is_pooling_model=False, is_last_pp_rank=False,
            adaptive_verification=None, rejection_sampler=None, kv_block_zeroer=None,
            kv_connector=SimpleNamespace(set_disabled=lambda disabled: None),
        )  # fmt: skip


class Recorder:
    """Follows the tables that the outputs describe, and lets a real manager reserve for the same steps."""

    def __init__(self, name: str, configuration: dict[str, Any]) -> None:
        self.name = name
        self.manager = vllm_program.manager(configuration | {"caching": False}, BLOCKS)
        self.ahead = vllm_lookahead.reserved(configuration["method"], configuration["drafts"])
        self.encoded = configuration["encoded"]
        self.tables: dict[str, list[int]] = {}
        self.requests: dict[str, Request] = {}
        self.rows: list[list[Any]] = []
        self.step = 0

    def execute(self, output: Any) -> None:
        """Take one step's output."""
        cached = output.scheduled_cached_reqs
        new = [(each.req_id, each.num_computed_tokens, each.block_ids) for each in output.scheduled_new_reqs]
        for each in output.scheduled_new_reqs:
            self.requests[each.req_id] = Request(each.req_id, list(each.prompt_token_ids), vllm_program.SAMPLING, None)
        again = zip(cached.req_ids, cached.num_computed_tokens, cached.new_block_ids, strict=True)
        for name, computed, blocks in (*new, *again):
            tokens = output.num_scheduled_tokens[name]
            given = [len(each) for each in blocks or ()] or [0] * len(self.manager.coordinator.single_type_managers)
            before = self.tables.get(name, [0] * len(given))
            self.tables[name] = [a + b for a, b in zip(before, given, strict=True)]
            reserved = self._reserve(name, computed, tokens)
            self.rows.append([self.name, self.step, name, computed, tokens, self.tables[name], reserved])
        self.step += 1

    def _reserve(self, name: str, computed: int, tokens: int) -> list[int] | None:
        """The lengths of the manager's tables for this step, None when it refuses."""
        request = self.requests[name]
        encoded = self.encoded if request.status == RequestStatus.WAITING else 0
        request.status, request.num_computed_tokens = RequestStatus.RUNNING, computed
        self.manager.new_step_starts()
        given = self.manager.allocate_slots(
            request, tokens, num_lookahead_tokens=self.ahead, num_encoder_tokens=encoded
        )
        return None if given is None else [len(each) for each in self.manager.coordinator.get_blocks(name)]


def run(configuration: dict[str, Any]) -> list[list[Any]]:
    """A row a step and request: `[function, step, request, computed, tokens, tables, allocator's tables]`.

    The tables are lengths, one a group. The mixed warm-up runs as long as the longest sequence, and half as long.
    """
    runner = Runner(configuration)
    rows: list[list[Any]] = []
    kernels = Recorder("warmup_kernels", configuration)
    with contextlib.suppress(RuntimeError, AssertionError):  # It ends by waiting for a device that is not there.
        warmup_kernels(runner, kernels.execute, lambda output: None)
    rows += kernels.rows
    for tokens in dict.fromkeys((configuration["length"], max(configuration["length"] // 2, 3))):
        mixed = Recorder("run_mixed_prefill_decode_warmup", configuration)
        run_mixed_prefill_decode_warmup(runner, mixed.execute, lambda output: None, tokens)
        rows += mixed.rows
    return rows
