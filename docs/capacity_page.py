"""The part of the page of engines that tells what of vLLM's capacity was compared, and what was found."""

from collections.abc import Iterator

from kvspec_diff.batched.finding import known
from kvspec_diff.capacity.case import Case
from kvspec_diff.capacity.compare import EACH
from kvspec_diff.capacity.configuration import KINDS, SIZES
from kvspec_diff.lookahead import ROWS

RELEASES = ("0.26.0", "0.33.0")
COMMAND = ("```sh", "kvspec diff --engine vllm==0.33.0 --laws C1-C9   # some minutes; --seconds 60 for less", "```", "")
TEXT = (
    "What a release reserves is compared with the one formula of `kvspec_reference.reservation`, for configurations "
    "that are drawn cell by cell: speculative method, kinds of groups, mode of the recurrent state, block size. "
    "Each has a program of a few requests on the release's own `KVCacheManager`: admission with a prefix found, "
    "prefill in chunks, steps with drafts, up to two of them not retired, drafts refused, refusals by a pool that is "
    "too small, the end. After every call these are compared:",
    "",
    "- the length of every table (C1, C7), which never shrinks (C6), covers every position that is written (C4) and "
    "has not one block more than is needed (C5);",
    "- null entries, exactly for attention; for recurrent state that the running one and the spares are none of them;",
    "- what the scheduler's check reckons with, whether it decides by it, and whether that is what is taken (C3);",
    "- free blocks and blocks in tables, which are the whole pool together; what a request's end gives back (C9); "
    "that a refusal takes nothing and changes no table's length;",
    "- that a step that retires changes no table (C8).",
    "",
    "`warmup_kernels` and `run_mixed_prefill_decode_warmup` are run on a stub of the model runner that records block "
    "tables, at least once in each cell; every step of theirs is put to a real manager and to the formula (C3). How "
    "far the release looks ahead is told by its own `Scheduler.__init__` and, where there is one, by "
    "`VllmConfig.num_lookahead_tokens`, and compared with the table below (C2).",
    "",
)
NOTES = (
    "In 0.33.0's check a table of mode `align` that refused drafts left too long counts with a number below 0. It "
    "does no harm: in such a step no other group grows either. The comparison takes it for 0.",
    "",
    "Not compared: prefixes that are found in part of a block, groups of different block sizes with prefix caching, "
    "blocks from a KV connector, watermark and reserved blocks, context parallelism, and kinds of groups beyond these "
    "(MLA, sink, circular, HiSparse). A chunk of chunked attention is whole blocks, as vLLM's attention asserts.",
    "",
)


def lines() -> Iterator[str]:
    """The section, a line at a time."""
    yield from ("### vllm: capacity", "", *COMMAND, *TEXT)
    kinds = ", ".join("+".join(each) for each in KINDS)
    yield f"Groups: {kinds}. Tokens in a block: {', '.join(map(str, SIZES))}. Configurations in a cell: {EACH}."
    yield ""
    yield from NOTES
    yield from ("#### Positions past a step with k drafts", "")
    yield from ("| method | releases | positions | source |", "|---|---|---|---|")
    for row in ROWS:
        releases = row.oldest if row.oldest == row.newest else f"{row.oldest}, {row.newest}"
        count = (
            "k" * row.per_draft + (" + " if row.per_draft and row.more else "") + (str(row.more) if row.more else "")
        )
        yield f"| `{row.method}` | {releases} | {count or '0'} | {row.source} |"
    yield from ("", "#### Findings", "")
    yield from ("| release | law | the smallest configuration shows | why |", "|---|---|---|---|")
    for release in RELEASES:
        found = known("vllm", release, Case)
        for _, each in found:
            report = each.upstream.rsplit("/", 1)[-1]
            why = f"{each.explanation} [vllm#{report}]({each.upstream})"
            yield f"| {release} | {each.fault.law} | {each.fault.says} | {why} |"
        if not found:
            yield f"| {release} | | nothing disagrees | |"
    yield ""
