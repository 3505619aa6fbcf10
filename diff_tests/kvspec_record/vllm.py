"""vLLM's V1 KV-cache manager, its warm-up and its lookahead, without a GPU and unmodified.

A request to the worker is a batch: a list of questions, each answered on its own, so that a hundred configurations cost
one round trip. A configuration is an object: `groups` (a list of `[kind, block size, span]`, kinds as in
`kvspec_reference.reservation`), `method` and `drafts` (the speculative method and its k), `spares` (state blocks for
drafts), `length` (the longest sequence, in tokens), `encoded` (the encoder's input, in tokens), `pool` (blocks that can
be handed out) and `caching`.

- `{"do": "program", "configuration": ..., "steps": [...]}`: see `kvspec_record.vllm_program`;
- `{"do": "warmup", "configuration": ...}`: see `kvspec_record.vllm_warmup`;
- `{"do": "schedule", "setup": ..., "steps": [...]}`: see `kvspec_record.vllm_scheduler`;
- `{"do": "lookahead", "method": ..., "drafts": k}`: what the release reserves past a step, see `vllm_lookahead`.
"""

import logging
import os
from importlib.metadata import version
from typing import Any, ClassVar

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("PYTHONHASHSEED", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

from kvspec_record import vllm_lookahead, vllm_plants, vllm_program, vllm_scheduler, vllm_warmup
from kvspec_record.caller import Caller, RequestError, one_line
from kvspec_record.planting import plant


class Adapter:
    """The installed release, with the faults that were asked for."""

    name = "vllm"
    capabilities: ClassVar[dict[str, tuple[str, ...]]] = {"capacity": ("program", "warmup", "lookahead", "schedule")}
    page_sizes: ClassVar[dict[str, tuple[int, ...]]] = {}
    plants = tuple(vllm_plants.PLANTS)
    probes = ()

    def __init__(self, plants: tuple[str, ...]) -> None:
        """Import what is asked for, plant the faults. Raises `RequestError` for an unknown one."""
        logging.disable(logging.WARNING)
        self.version = version("vllm")
        for each in plants:
            plant(each, vllm_plants.PLANTS)

    def caller(self, pages: int, page_size: int, options: dict[str, Any]) -> Caller:
        """It has no pool of pages that could be driven by itself."""
        raise RequestError("vllm's adapter takes batches, no programs on a pool of pages")

    def probe(self, name: str, options: dict[str, Any]) -> str:
        """It has no probes."""
        raise RequestError("vllm's adapter has no probes")

    def batch(self, questions: list[Any]) -> list[dict[str, Any]]:
        """One answer a question; what the engine raises is the answer `{"error": "one line"}`."""
        return [self._answer(question) for question in questions]

    def _answer(self, question: Any) -> dict[str, Any]:
        try:
            if question["do"] == "program":
                return {"calls": vllm_program.run(question["configuration"], question["steps"])}
            if question["do"] == "warmup":
                return {"rows": vllm_warmup.run(question["configuration"])}
            if question["do"] == "schedule":
                return {"calls": vllm_scheduler.run(question["setup"], question["steps"])}
            if question["do"] == "lookahead":
                return vllm_lookahead.both(question["method"], question["drafts"])
        except Exception as error:
            return {"error": one_line(error)}
        return {"error": f"unknown question {question['do']!r}"}
