"""How many positions vLLM reserves past a step, by speculative method, told by the release's own code (C2).

The configuration is `VllmConfig` itself, made without its constructor, which would want a model: its properties and
those of `SpeculativeConfig` are the release's. The scheduler's number is what the real `Scheduler.__init__` has set by
the time that it makes its KV-cache manager; what else it looks at on the way is a mock.
"""

import functools
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import vllm.v1.core.sched.scheduler as scheduling
from vllm.config import SpeculativeConfig, VllmConfig

FILL = "dspark_fill"
"""DSpark with a checkpoint whose anchor is a separate bonus token: its drafter has a query more."""

MOCKED = ("model_config", "scheduler_config", "parallel_config", "lora_config", "observability_config",
          "structured_outputs_config", "ec_manager_config", "cache_config")  # fmt: skip


class Configuration(VllmConfig):  # type: ignore[misc]
    """The release's configuration, for the older model runner: which one is used depends on the model's weights."""

    use_v2_model_runner = False


class Reached(Exception):
    """The scheduler's constructor has come as far as is needed."""


def configuration(method: str, drafts: int, caching: bool = False) -> Any:
    """A configuration with the method, k drafts, and nothing else in it."""
    made = object.__new__(Configuration)
    fields = {
        "speculative_config": None if method == "none" else speculation(method, drafts),
        "diffusion_config": None, "kv_transfer_config": None, "ec_transfer_config": None, "kv_events_config": None,
        "cache_config": SimpleNamespace(enable_prefix_caching=caching),
    }  # fmt: skip
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def speculation(method: str, drafts: int) -> Any:
    """A `SpeculativeConfig` of the method; what `FILL` means, in the names that both releases' drafters look for."""
    made, fill = object.__new__(SpeculativeConfig), method == FILL
    anchor = SimpleNamespace(sample_from_anchor=not fill, dspark_bonus_anchor=fill, num_nextn_predict_layers=1)
    fields = {
        "method": "dspark" if fill else method, "num_speculative_tokens": drafts,
        "num_speculative_tokens_per_batch_size": None,
        "disable_eagle_block_drop": False, "disable_lookahead_block_hashes": False,
        "draft_model_config": SimpleNamespace(hf_config=anchor),
    }  # fmt: skip
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def of_scheduler(config: Any) -> int:
    """The number that the scheduler's constructor comes to."""
    for name in MOCKED:
        object.__setattr__(config, name, MagicMock())
    config.cache_config.num_gpu_blocks = 1
    config.scheduler_config.policy = "fcfs"
    config.scheduler_config.async_scheduling = False
    config.parallel_config.pipeline_parallel_size = 1
    config.model_config.is_encoder_decoder = config.model_config.supports_multimodal_inputs = False
    config.observability_config.kv_cache_metrics = False
    config.ec_manager_config.get_encoder_cache_manager_obj = lambda: None
    registry, groups = MagicMock(), MagicMock(kv_cache_groups=[])
    registry.supports_multimodal_inputs = lambda *given: False
    made = object.__new__(scheduling.Scheduler)
    original = scheduling.KVCacheManager
    scheduling.KVCacheManager = _reached
    try:
        scheduling.Scheduler.__init__(made, config, groups, MagicMock(), 16, mm_registry=registry)
    except Reached:
        return int(made.num_lookahead_tokens)
    finally:
        scheduling.KVCacheManager = original
    raise RuntimeError("the scheduler made no KV-cache manager")


def both(method: str, drafts: int) -> dict[str, Any]:
    """The scheduler's number, and the configuration's, which is None in a release that has none."""
    config = configuration(method, drafts)
    told = config.num_lookahead_tokens if hasattr(VllmConfig, "num_lookahead_tokens") else None
    return {"scheduler": of_scheduler(config), "config": told}


@functools.cache
def reserved(method: str, drafts: int) -> int:
    """What the scheduler passes to the allocator."""
    return int(both(method, drafts)["scheduler"])


def _reached(**given: Any) -> None:
    raise Reached
