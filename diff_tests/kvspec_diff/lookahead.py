"""How many positions a drafter writes past its step, by speculative method: a table, one row a method and release (C2).

What the rows say was read in the source of the release: in the drafter where its file is named, else in what says how
much is reserved. `dspark_fill` is DSpark with a checkpoint whose anchor is a bonus token.
"""

from collections.abc import Mapping
from typing import NamedTuple

from kvspec_diff.recipes import EngineError, release


class Row(NamedTuple):
    """The releases `oldest` to `newest` write `per_draft` * k + `more` positions past a step of this method."""

    engine: str
    oldest: str
    newest: str
    method: str
    per_draft: int
    more: int
    source: str


BOTH = ("0.26.0", "0.33.0")
SPECULATIVE = "vllm/v1/spec_decode/"
GPU = "vllm/v1/worker/gpu/spec_decode/"
SCHEDULER = "vllm/v1/core/sched/scheduler.py (0.26.0), vllm/config/vllm.py (0.33.0)"


def _rows() -> list[Row]:
    """vLLM's methods. Those of a release are the values of `SpeculativeMethod` in its `vllm/config/speculative.py`."""
    nothing = {
        "none": "no speculation",
        "ngram": f"{SPECULATIVE}ngram_proposer.py: NgramProposer writes no KV",
        "ngram_gpu": f"{SPECULATIVE}ngram_proposer_gpu.py: NgramProposerGPU writes no KV",
        "suffix": f"{SPECULATIVE}suffix_decoding.py: SuffixDecodingProposer writes no KV",
        "custom_class": f"{SCHEDULER}: nothing is reserved for it; what a user's proposer writes is the user's",
        "extract_hidden_states": f"{SPECULATIVE}extract_hidden_states.py: caches by the slots of the step itself",
    }
    drafts = {
        "eagle": f"{SCHEDULER}: use_eagle()",
        "eagle3": f"{SCHEDULER}: use_eagle()",
        "mtp": f"{SCHEDULER}: use_eagle()",
        "draft_model": f"{SCHEDULER}: uses_draft_model()",
        "dspark": f"{GPU}dspark/speculator.py: num_query_per_req = num_speculative_steps when sample_from_anchor",
    }
    filled = {
        "dflash": f"{GPU}dflash/speculator.py: num_query_per_req = 1 + num_speculative_steps",
        "dspark_fill": f"{GPU}dspark/speculator.py: num_query_per_req = 1 + num_speculative_steps otherwise",
    }
    rows = [Row("vllm", *BOTH, method, 0, 0, source) for method, source in nothing.items()]
    rows += [Row("vllm", *BOTH, method, 1, 0, source) for method, source in drafts.items()]
    rows += [Row("vllm", *BOTH, method, 1, 1, source) for method, source in filled.items()]
    old = {"medusa": "medusa.py: MedusaProposer writes no KV"}
    rows += [Row("vllm", "0.26.0", "0.26.0", name, 0, 0, SPECULATIVE + source) for name, source in old.items()]
    return rows


ROWS: tuple[Row, ...] = tuple(_rows())


def rows(engine: str, version: str) -> dict[str, Row]:
    """The release's rows by method; `EngineError` when there are none."""
    wanted = release(version)
    fitting = [row for row in ROWS if row.engine == engine and release(row.oldest) <= wanted <= release(row.newest)]
    if not fitting:
        raise EngineError(f"no table says how far {engine} {version} looks ahead; there are tables for {known()}")
    return {row.method: row for row in fitting}


def known() -> str:
    """`vllm 0.26.0 to 0.33.0`."""
    return ", ".join(dict.fromkeys(f"{row.engine} {row.oldest} to {row.newest}" for row in ROWS))


def written(row: Row, drafts: int) -> int:
    """Positions past a step with k drafts; without speculation none."""
    return row.per_draft * drafts + row.more


def method_of(name: str, table: Mapping[str, Row], release: str) -> Row:
    """The row of a method; `EngineError` when the release has none of that name."""
    if name not in table:
        raise EngineError(f"{release} has no speculative method {name!r}: it has {', '.join(table)}")
    return table[name]
