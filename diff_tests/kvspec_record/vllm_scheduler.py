"""A real `Scheduler` with a toy model behind it: what it decides step by step, and what it does with what comes back.

A setup is an object: `policy`; `groups`, as in `kvspec_record.vllm`; `method` and `drafts`; `length`, the longest
sequence, in tokens; `pool`, blocks that can be handed out; `caching`; `budget`, tokens in a step, of which one prompt
gets `chunk` at most (0: all) while there are other requests; `seats`, requests that run; `depth`, steps that are
scheduled and not retired; `watermark`, a fraction of the pool; `whole`, whether a request is admitted only if all of
its prompt fits.

The program's operations are lists: `["add", r, prompt, shared, tokens, priority]`; `["schedule"]`, the next step;
`["retire", right, drafts]`, the oldest step comes back, and the model drafts so many tokens for each request, of which
the first `right` are what it will say; `["abort", r]`; `["reset"]`, the cache is emptied, whoever runs is preempted.
Behind the program steps are scheduled and retired until no request is left, `MOST` operations at most.

The answer to an operation is an object: `op`; `done`, false when there was nothing to do; `events` in order, of
`["hit", r, tokens]`, `["allocate", r, tokens, given, [blocks taken], [blocks given back]]`, `["preempt", r]`; `parts`
of a step, `[r, start, tokens, [drafted tokens], [blocks of each group], fresh]`, where the blocks of a request that is
`fresh` are its whole tables, and otherwise what is added to them; `emitted`, `[r, [tokens]]`; `ended`, requests that
are gone; `running` requests; `free` blocks; `used`, different blocks in tables; `index`, `[group, hash, block]` of all
that can be found; `published` events, `["stored", group, [hashes]]`, `["removed", group, [hashes]]`, `["cleared"]`.
"""

import functools
import json
import tempfile
from collections import deque
from pathlib import Path
from typing import Any

from vllm import SamplingParams
from vllm.config import CacheConfig, DeviceConfig, KVEventsConfig, ModelConfig, SchedulerConfig, VllmConfig
from vllm.distributed.kv_events import AllBlocksCleared, BlockRemoved, BlockStored
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_block_hash, get_group_id, get_request_block_hasher, maybe_convert_block_hash
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from kvspec_record import toy, vllm_lookahead, vllm_program
from kvspec_record.caller import raised

MOST = 400
"""Operations behind the program."""

IDLE = 3
"""Steps without a token, and with none on their way, after which nothing is going to happen."""

MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "intermediate_size": 16,
    "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1, "vocab_size": toy.VOCABULARY,
    "max_position_embeddings": 4096, "torch_dtype": "float32",
}  # fmt: skip


@functools.cache
def configuration() -> VllmConfig:
    """The release's configuration for a tiny model, made by its own constructors; `configure` changes what varies."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(MODEL))
        model = ModelConfig(model=folder, skip_tokenizer_init=True, max_model_len=64, dtype="float32")
        return VllmConfig(
            model_config=model,
            scheduler_config=SchedulerConfig(
                max_model_len=64, is_encoder_decoder=False, max_num_seqs=4, max_num_batched_tokens=64,
                enable_chunked_prefill=True, async_scheduling=False,
            ),
            cache_config=CacheConfig(block_size=4, enable_prefix_caching=True),
            kv_events_config=KVEventsConfig(enable_kv_cache_events=True, publisher="null"),
            device_config=DeviceConfig("cpu"),
        )  # fmt: skip


def configure(setup: dict[str, Any]) -> VllmConfig:
    """The configuration for a setup."""
    config = configuration()
    speculation = None
    if setup["method"] != "none":
        speculation = vllm_lookahead.speculation(setup["method"], setup["drafts"])
    fields = (
        (config.model_config, "max_model_len", setup["length"]),
        (config.scheduler_config, "policy", setup["policy"]),
        (config.scheduler_config, "max_num_seqs", setup["seats"]),
        (config.scheduler_config, "max_num_batched_tokens", setup["budget"]),
        (config.scheduler_config, "long_prefill_token_threshold", setup["chunk"]),
        (config.scheduler_config, "watermark", setup["watermark"]),
        (config.scheduler_config, "scheduler_reserve_full_isl", setup["whole"]),
        (config.cache_config, "enable_prefix_caching", setup["caching"]),
        (config.cache_config, "block_size", setup["groups"][0][1]),
        (config.cache_config, "num_gpu_blocks", setup["pool"] + 1),
        (config, "speculative_config", speculation),
    )
    for owner, name, value in fields:
        getattr(owner, name)  # else the release calls it otherwise, and would run with what it was
        object.__setattr__(owner, name, value)
    return config


class Published:
    """What the scheduler publishes, in place of a socket."""

    def __init__(self) -> None:
        self.events: list[list[Any]] = []

    def publish(self, batch: Any) -> None:
        """Keep the batch's events."""
        for event in batch.events:
            if isinstance(event, AllBlocksCleared):
                self.events.append(["cleared"])
            elif isinstance(event, BlockStored | BlockRemoved):
                name = "stored" if isinstance(event, BlockStored) else "removed"
                self.events.append([name, event.group_idx, [short(each) for each in event.block_hashes]])

    def take(self) -> list[list[Any]]:
        """The events since the last time."""
        events, self.events = self.events, []
        return events

    def shutdown(self) -> None:
        """Nothing is open."""


def short(digest: Any) -> str:
    """A hash as it is told."""
    return digest.hex()[:12] if isinstance(digest, bytes) else f"{digest:x}"[:12]


class Program:
    """A scheduler, its requests, and the model's side of them."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.setup = setup
        size = setup["groups"][0][1]
        config = configure(setup)
        kinds = {"groups": setup["groups"], "spares": setup["drafts"]}
        self.scheduler = Scheduler(
            config, vllm_program.groups(kinds, setup["pool"] + 1), StructuredOutputManager(config), block_size=size
        )
        self.scheduler.kv_event_publisher = self.published = Published()
        self.manager = self.scheduler.kv_cache_manager
        self.pool = self.manager.block_pool
        self.hasher = get_request_block_hasher(size, sha256) if setup["caching"] else None
        self.tokens: dict[int, list[int]] = {}  # of each request that is not gone: what is known to be right
        self.flying: deque[tuple[Any, list[tuple[int, list[int]]]]] = deque()  # a step, and what comes of it
        self.events: list[list[Any]] = []
        self.count = 0
        self._watch()

    def _watch(self) -> None:
        """Note what the scheduler asks of the manager, and whom it preempts."""
        manager, scheduler = self.manager, self.scheduler
        find, allocate, preempt = manager.get_computed_blocks, manager.allocate_slots, scheduler._preempt_request

        def found(request: Any, *given: Any, **named: Any) -> Any:
            answer = find(request, *given, **named)
            self.events.append(["hit", int(request.request_id), answer[1]])
            return answer

        def allocated(request: Any, tokens: int, *given: Any, **named: Any) -> Any:
            r = int(request.request_id)
            before = self._blocks(r)
            answer = allocate(request, tokens, *given, **named)
            after = self._blocks(r)
            event = ["allocate", r, tokens, answer is not None, sorted(after - before), sorted(before - after)]
            self.events.append(event)
            return answer

        def preempted(request: Any, *given: Any, **named: Any) -> Any:
            self.events.append(["preempt", int(request.request_id)])
            return preempt(request, *given, **named)

        manager.get_computed_blocks, manager.allocate_slots = found, allocated
        scheduler._preempt_request = preempted

    def _blocks(self, r: int) -> set[int]:
        tables = self.manager.coordinator.get_blocks(str(r))
        return {block.block_id for table in tables for block in table if not block.is_null}

    def run(self, op: list[Any]) -> dict[str, Any]:
        """Do an operation; the answer to it."""
        self.events = []
        answer: dict[str, Any] = {"op": op, "done": True}
        try:
            answer |= getattr(self, f"_{op[0]}")(*op[1:]) or {}
        except Exception as error:
            answer["raised"] = raised(error)
        running = [int(request.request_id) for request in self.scheduler.running]
        return answer | {
            "events": self.events, "running": running, "free": self.pool.get_num_free_blocks(),
            "used": len(set().union(*(self._blocks(r) for r in self.tokens))), "index": self._index(),
            "published": self.published.take(),
        }  # fmt: skip

    def _index(self) -> list[list[Any]]:
        found = []
        for key, blocks in self.pool.cached_block_hash_to_block._cache.items():
            each = blocks if isinstance(blocks, dict) else {blocks.block_id: blocks}
            name = [get_group_id(key), short(maybe_convert_block_hash(get_block_hash(key)))]
            found += [[*name, number] for number in each]
        return sorted(found)

    def _add(self, r: int, prompt: int, shared: int, tokens: int, priority: int) -> dict[str, Any] | None:
        if r in self.tokens or prompt + tokens > self.setup["length"]:
            return {"done": False}
        known = toy.prompt(r, prompt, shared)
        self.count += 1
        sampling = SamplingParams(max_tokens=tokens, ignore_eos=True)
        self.scheduler.add_request(Request(
            str(r), list(known), sampling, None, arrival_time=float(self.count), priority=priority,
            block_hasher=self.hasher,
        ))  # fmt: skip
        self.tokens[r] = known
        return None

    def _schedule(self) -> dict[str, Any]:
        if len(self.flying) == self.setup["depth"] or not self.tokens:
            return {"done": False}
        output = self.scheduler.schedule()
        parts = []
        fresh = {int(each.req_id): each.block_ids for each in output.scheduled_new_reqs}
        cached = output.scheduled_cached_reqs
        more = dict(zip(map(int, cached.req_ids), cached.new_block_ids, strict=True))
        starts = {int(each.req_id): each.num_computed_tokens for each in output.scheduled_new_reqs}
        starts |= dict(zip(map(int, cached.req_ids), cached.num_computed_tokens, strict=True))
        for name, count in output.num_scheduled_tokens.items():
            r = int(name)
            drafts = list(output.scheduled_spec_decode_tokens.get(name, ()))
            whole = r in fresh or name in cached.resumed_req_ids
            blocks = fresh[r] if r in fresh else more[r]
            added = [list(table) for table in blocks] if blocks else [[] for _ in self.setup["groups"]]
            parts.append([r, starts[r], count, drafts, added, whole])
        self.flying.append((output, [(part[0], self._sample(*part[:4])) for part in parts]))
        return {"parts": parts}

    def _sample(self, r: int, start: int, count: int, drafts: list[int]) -> list[int]:
        """What the model says: nothing inside what is known, else each draft that is right and one token more."""
        known = self.tokens[r]
        if start + count - len(drafts) < len(known):
            return []
        said: list[int] = []
        for draft in [*drafts, None]:
            said.append(toy.next_token([*known, *said]))
            if draft != said[-1]:
                break
        return said

    def _retire(self, right: int, drafts: int) -> dict[str, Any]:
        if not self.flying:
            return {"done": False}
        output, sampled = self.flying.popleft()
        names = [str(r) for r, _ in sampled]
        came = ModelRunnerOutput(
            req_ids=names, req_id_to_index={name: i for i, name in enumerate(names)},
            sampled_token_ids=[list(tokens) for _, tokens in sampled],
        )  # fmt: skip
        answers = self.scheduler.update_from_output(output, came)
        told = [each for some in answers.values() for each in some.outputs]
        emitted = [(int(each.request_id), list(each.new_token_ids)) for each in told]
        for r, tokens in emitted:
            self.tokens[r] += tokens
        ended = self._forget()
        self._draft([r for r, tokens in sampled if tokens and r in self.tokens], right, drafts, output)
        return {"emitted": emitted, "ended": ended}

    def _draft(self, requests: list[int], right: int, drafts: int, output: Any) -> None:
        drafts = min(drafts, self.setup["drafts"])
        if not drafts or getattr(output, "skip_drafts", False):
            return
        proposed = []
        for r in requests:
            said: list[int] = []
            for _ in range(drafts):
                said.append(toy.next_token([*self.tokens[r], *said]))
            proposed.append([*said[:right], *map(toy.wrong, said[right:])])
        self.scheduler.update_draft_token_ids(DraftTokenIds([str(r) for r in requests], proposed))

    def _abort(self, r: int) -> dict[str, Any]:
        if r not in self.tokens:
            return {"done": False}
        self.scheduler.finish_requests(str(r), RequestStatus.FINISHED_ABORTED)
        return {"ended": self._forget()}

    def _reset(self) -> dict[str, Any]:
        return {"done": self.scheduler.reset_prefix_cache(reset_running_requests=not self.flying)}

    def _forget(self) -> list[int]:
        ended = [r for r in self.tokens if str(r) not in self.scheduler.requests]
        for r in ended:
            del self.tokens[r]
        return ended


def run(setup: dict[str, Any], ops: list[list[Any]]) -> list[dict[str, Any]]:
    """The answers to the operations, and to those that let every request come to its end."""
    try:
        program = Program(setup)
    except Exception as error:
        return [{"op": ["start"], "raised": raised(error)}]
    answers = []
    for op in ops:
        answers.append(program.run(op))
        if "raised" in answers[-1]:
            return answers
    idle = 0
    for turn in range(MOST):
        if not program.tokens or idle == IDLE or "raised" in answers[-1]:
            break
        full = len(program.flying) == setup["depth"]
        answers.append(program.run(["retire", turn % 3, setup["drafts"]] if full else ["schedule"]))
        if not full:
            idle = 0 if answers[-1].get("parts") else idle + 1
    return answers
