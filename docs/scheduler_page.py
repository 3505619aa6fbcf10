"""The part of the page of engines that tells how vLLM's scheduler is compared, and what was found."""

from collections.abc import Iterator

from kvspec.laws import COMPARED, OF_SCHEDULERS
from kvspec_diff.batched.finding import Finding, known
from kvspec_diff.schedulers.case import Case
from kvspec_diff.schedulers.compare import PROGRAMS

RELEASES = ("0.26.0", "0.33.0")
TEXT = (
    "### vllm: scheduler", "", "```sh",
    f"kvspec diff --engine vllm==0.33.0 --laws A,R,P                              # {PROGRAMS:,} programs",
    "kvspec diff --engine vllm==0.33.0 --laws A,R,P --policy priority --seconds 300",
    "```", "",
    "The release's own `Scheduler`, with the release's own configuration of a tiny model, is given programs of a few "
    "requests that come while others run: prompts in chunks, drafts of which some are refused, preemption, resumption, "
    "aborted requests, an emptied prefix cache. In place of a model there is a toy whose next token is a function of "
    "the whole prefix. Nothing of the scheduler is changed; what it asks of its manager, whom it preempts, is noted. "
    "Four judges look at what it did, each on its own:",
    "",
    "- a model's side of it: tables as a worker keeps them, and in each cell what was written there last. What a step "
    "reads is the request's own prefix (R1), written at all (R4), in no null block (R3); what a prefix hit claims is "
    "the prefix that was asked for (P1), of whole blocks and short of the last token (P12); what comes out is what "
    "plain decoding would say, no token less or more (A4);",
    "- the machine `fairness`, which follows who is admitted, who gets a block, who is preempted for whom (A1, A3, A4, "
    "A6, A7), where prefixes are not cached and one step is on its way;",
    "- what can be found in the prefix cache, against the published events (P15), and after it was emptied (P9);",
    "- that all blocks are free or in tables (A4), that every request comes to its end (A6, A7), and that no step has "
    "more tokens, and no more requests run, than was set.",
    "",
    "A step writes all its positions before it reads, as attention does layer by layer: so what another request of the "
    "same step writes may be read.",
    "",
)  # fmt: skip
NOTES = (
    "Not judged: how much of a prompt a step takes, and the watermark where prefixes are cached; about half of the "
    "programs cache none, and only those are followed by `fairness`. The promise of an admission (A1) is not either: "
    "vLLM makes none, it counts what a new prompt needs and not what admitted ones have yet to take.",
    "",
    "Not compared: asynchronous scheduling, drafts while two steps are on their way, recurrent state and "
    "cross-attention, encoder inputs, grammars, KV connectors, LoRA.",
    "",
)


def lines() -> Iterator[str]:
    """The section, a line at a time."""
    yield from TEXT
    yield "Laws that no machine states yet, so that nothing is proved of them:"
    yield ""
    yield from (f"- **{law}** {says}" for law, says in COMPARED.items() if law in OF_SCHEDULERS)
    yield ""
    yield from NOTES
    yield from ("#### Findings of the scheduler", "")
    yield from ("| law | releases | the program shows | why |", "|---|---|---|---|")
    found: dict[str, list[tuple[str, Finding[Case]]]] = {}
    for release in RELEASES:
        for name, each in known("vllm", release, Case):
            found.setdefault(name, []).append((release, each))
    for each in found.values():
        (_, first), releases = each[0], ", ".join(release for release, _ in each)
        report = first.upstream.rsplit("/", 1)[-1]
        why = f"{first.explanation} [vllm#{report}]({first.upstream})"
        yield f"| {first.fault.law} | {releases} | {first.fault.says} | {why} |"
    yield ""
