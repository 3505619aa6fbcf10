"""Faults that can be planted into vLLM at run time, into its KV-cache manager and its scheduler, to see them found."""

from typing import Any

from vllm.v1.core import block_pool, kv_cache_manager, single_type_kv_cache_manager
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from kvspec_record.planting import Plant

TYPES: Any = single_type_kv_cache_manager

OF_THE_SCHEDULER: dict[str, Plant] = {
    "preempt=keep_computed": Plant(Scheduler, "_preempt_request", "request.num_computed_tokens = 0", "pass"),
    "preempt=keep_blocks": Plant(Scheduler, "_preempt_request", "self._free_request_blocks(request)", "pass"),
    "preempt=to_the_end": Plant(
        Scheduler, "_preempt_request", "self.waiting.prepend_request(request)", "self.waiting.add_request(request)"),
    "preempt=the_most_urgent": Plant(Scheduler, "schedule", "preempted_req = max(", "preempted_req = min("),
    "preempt=the_first": Plant(Scheduler, "schedule", "preempted_req = self.running.pop()",
                               "preempted_req = self.running.pop(0)"),
    "admit=in_spite_of_preemption": Plant(Scheduler, "schedule", "if not preempted_reqs and self._pause_state",
                                          "if self._pause_state"),
    "retire=no_rollback": Plant(
        Scheduler, "update_from_output", "request.num_computed_tokens -= num_rejected", "pass"),
    "queue=the_least_urgent": Plant(
        Request, "__lt__", "self.priority < other.priority", "self.priority > other.priority"),
    "hit=the_last_token_too": Plant(
        kv_cache_manager.KVCacheManager, "get_computed_blocks",
        "max_cache_hit_length = request.num_tokens - 1", "max_cache_hit_length = request.num_tokens"),
    "events=no_removal": Plant(block_pool.BlockPool, "_emit_block_removed_events",
                               "if not self.enable_kv_cache_events", "if True"),
    "reset=keep_keys": Plant(block_pool.BlockPool, "reset_prefix_cache",
                             "self.cached_block_hash_to_block = BlockHashToBlockMap()", "pass"),
}  # fmt: skip

PLANTS: dict[str, Plant] = OF_THE_SCHEDULER | {
    "allocate=no_lookahead": Plant(
        kv_cache_manager.KVCacheManager, "allocate_slots", "num_tokens_main_model + num_lookahead_tokens,",
        "num_tokens_main_model,"),
    "allocate=no_limit": Plant(
        kv_cache_manager.KVCacheManager, "allocate_slots", "num_lookahead_tokens, self.max_model_len",
        "num_lookahead_tokens, 2**40"),
    "allocate=refuse_the_last": Plant(
        kv_cache_manager.KVCacheManager, "allocate_slots", "required_blocks > available_blocks",
        "required_blocks >= available_blocks"),
    "allocate=forget_in_flight": Plant(
        kv_cache_manager.KVCacheManager, "allocate_slots", "total_computed_tokens - request.num_in_flight_tokens",
        "total_computed_tokens"),
    "new_blocks=round_down": Plant(
        TYPES.SingleTypeKVCacheManager, "allocate_new_blocks", "cdiv(num_tokens, self.block_size)",
        "num_tokens // self.block_size"),
    "state=no_spares": Plant(
        TYPES.MambaManager, "allocate_new_blocks", "num_tokens += self.block_size * self.num_speculative_blocks",
        "num_tokens += 0"),
    "state_align=one_spare_less": Plant(
        TYPES.MambaManager, "allocate_new_blocks", "cdiv(num_tokens, self.block_size) + self.num_speculative_blocks",
        "cdiv(num_tokens, self.block_size) + max(self.num_speculative_blocks - 1, 0)"),
    "window=one_token_short": Plant(
        TYPES.SlidingWindowManager, "get_num_skipped_tokens", "num_computed_tokens - self.sliding_window + 1",
        "num_computed_tokens - self.sliding_window + 2"),
    "free=forget_one": Plant(
        TYPES.SingleTypeKVCacheManager, "free", "reversed(self.pop_blocks_for_free(request_id))",
        "self.pop_blocks_for_free(request_id)[1:]"),
    "hit=not_claimed": Plant(
        TYPES.SingleTypeKVCacheManager, "add_local_computed_blocks", "self.block_pool.touch(new_computed_blocks)",
        "pass"),
}  # fmt: skip
