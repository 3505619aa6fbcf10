"""What the commands of `kvspec bench` measure, the goals, and how a figure is judged."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median

import msgspec

SGLANG, VLLM, BY_HAND = "sglang==0.5.23", "vllm==0.33.0", "by hand"
SMALLER = "ours, smaller"
SAFETENSORS, READS, SHORTER = "safetensors", "plain reads", "ours, 64 blocks"
TWICE, TWICE_WHOLE = "twice the context", "twice the context, whole states"
HERE = (SAFETENSORS, READS, SHORTER, TWICE, TWICE_WHOLE)
"""What a store is compared with: in this process, on this folder's disk."""
SLOTS = 2**20
CALL, PAGE, EVENT, STEP = "µs a call", "bytes a page", "µs an event", "µs a step"
BLOCK, PREFIX, MEGABYTES = "ms a block", "ms a prefix", "MB"
SCALE = {CALL: 1e6, PAGE: 1.0, EVENT: 1e6, STEP: 1e6, BLOCK: 1e3, PREFIX: 1e3, MEGABYTES: 1e-6}
"""What a unit's figures are multiplied by to show them: times are in seconds, sizes in bytes."""


class Goal(msgspec.Struct, frozen=True):
    """A measurement: ours is to be `goal` times better than the peer's; None where the ratio is only reported.

    `most`: the ratio is to be no more than that either, where it is a growth.
    """

    name: str
    what: str
    peer: str
    unit: str
    goal: float | None
    most: float | None = None

    def met(self, ratio: float) -> bool:
        """Whether a ratio is as it should be; any is where there is no goal."""
        return (self.goal is None or ratio >= self.goal) and (self.most is None or ratio <= self.most)


class Figure(msgspec.Struct, frozen=True):
    """What came of a measurement. `ours` and `peer` are medians over the rounds, in `unit`.

    `ratio` is the peer's median by ours, above 1 where ours is better; `low` and `high` are its extremes over rounds.
    `met` is None where there is no goal, `always` tells whether each round meets it; `reason` is the written one of a
    goal that is missed. `most` is the largest ratio, of a growth.
    """

    name: str
    what: str
    peer_name: str
    unit: str
    ours: float
    peer: float
    ratio: float
    low: float
    high: float
    rounds: int
    goal: float | None
    met: bool | None
    reason: str = ""
    most: float | None = None
    always: bool = False


def _goals() -> Iterable[Goal]:
    for used, share in (("empty", "nothing"), ("50", "50 %"), ("90", "90 %")):
        for n, goal in ((1, 20.0), (64, 20.0), (4096, 8.0)):
            what = f"release {n:,} of 2^20 slots, {share} in use"
            yield Goal(f"release-{used}-{n}", what, SGLANG, CALL, goal if used == "empty" else None)
    for n, goal in ((1, 1.0), (64, 1.0), (4096, 2.0)):
        what = f"allocate and release {n:,}, 50 % in use, drain cycles with sorts"
        yield Goal(f"sorted-{n}", what, SGLANG, CALL, goal)
    for n, least in ((1, None), (64, 2.0), (4096, 20.0)):
        yield Goal(f"vllm-{n}", f"allocate and release {n:,}, prefix cache on", VLLM, CALL, least)
    yield Goal("state", "state of a page", VLLM, PAGE, None)
    yield Goal("monitor", "compiled monitor, the events of generated programs", BY_HAND, EVENT, 0.5)


GOALS: tuple[Goal, ...] = tuple(_goals())


def _steps() -> Iterable[Goal]:
    for n, goal in ((1, None), (16, None), (256, 15.0), (4096, None)):
        what = f"reserve 4 tokens for each of {n:,} requests"
        yield Goal(f"step-vllm-{n}", what, VLLM, STEP, goal)
    yield Goal("step-settled-256", "the same with 3 of the 4 drafted, some refused and taken back", VLLM, STEP, None)
    for n, goal in ((1, None), (16, None), (256, 1.0), (4096, 1.5)):
        what = f"reserve 1 token for each of {n:,} requests"
        yield Goal(f"step-sglang-{n}", what, SGLANG, STEP, goal)
    for n in (256, 4096):
        yield Goal(f"step-context-{n}", f"{n:,} requests, contexts 10 times longer", SMALLER, STEP, NO_GROWTH)
        yield Goal(f"step-pool-{n}", f"{n:,} requests, a pool 10 times larger", SMALLER, STEP, NO_GROWTH)
    yield Goal("step-limit-4096", "4,096 requests, a limit 10 times higher", SMALLER, STEP, None)


NO_GROWTH = 0.8
"""Where what is larger tenfold takes no more than a quarter longer, that is what its data miss in the caches."""

STEPS: tuple[Goal, ...] = tuple(_steps())


def _stores() -> Iterable[Goal]:
    for size in (1, 4, 16):
        yield Goal(f"save-{size}", f"save a block of {size} MiB, to the acknowledgement", SAFETENSORS, BLOCK, 0.8)
    yield Goal("restore-1000", "restore a prefix of 1,000 blocks of 1 MiB, verified", READS, PREFIX, 0.7)
    yield Goal("append-4096", "append a block to a prefix of 4,096, and save it", SHORTER, BLOCK, NO_GROWTH)
    yield Goal("append-work-4096", "the same, processor time", SHORTER, BLOCK, NO_GROWTH)
    for kind, what in (("disk", "bytes on disk"), ("memory", "resident memory")):
        for n in DOUBLED:
            yield Goal(f"{kind}-{n}", f"{what}, {n} blocks and twice as many", TWICE, MEGABYTES, 1.9, 2.1)
    for kind, what in (("disk", "bytes on disk"), ("memory", "resident memory")):
        for n in DOUBLED:
            name, text = f"whole-{kind}-{n}", f"the whole state in each block: {what}, {n} blocks and twice as many"
            yield Goal(name, text, TWICE_WHOLE, MEGABYTES, None)


DOUBLED = (16, 32, 64)
"""Blocks of the contexts that are doubled."""

STORES: tuple[Goal, ...] = tuple(_stores())

REASONS: dict[str, str] = {
    "monitor": "the machine's release and end speak of every page, and so does what is compiled from them: a loop over "
    "all pages for each variable that they set, where the class by hand loops over the entries that are given up. To "
    "look up once what does not change in such a loop was tried, and saved less than a fifth of the time; what is "
    "missing is to compile a definition that changes few elements into a change of those few.",
}
"""Why a goal is missed, by the measurement's name. One that every round meets has a stale reason, which fails too."""


def judged(goal: Goal, ours: Sequence[float], peer: Sequence[float], reasons: Mapping[str, str]) -> Figure:
    """The figure of a measurement from its rounds, one number each."""
    ratios = [theirs / mine for mine, theirs in zip(ours, peer, strict=True)]
    scale = SCALE[goal.unit]
    ratio = median(peer) / median(ours)
    met = None if goal.goal is None else goal.met(ratio)
    return Figure(
        goal.name, goal.what, goal.peer, goal.unit, median(ours) * scale, median(peer) * scale, ratio,
        min(ratios), max(ratios), len(ratios), goal.goal, met, "" if met is not False else reasons.get(goal.name, ""),
        goal.most, goal.goal is not None and all(map(goal.met, ratios)),
    )  # fmt: skip


def unexplained(figures: Iterable[Figure]) -> list[str]:
    """The names of the goals that are missed without a reason."""
    return [figure.name for figure in figures if figure.met is False and not figure.reason]


def stale(figures: Iterable[Figure], reasons: Mapping[str, str]) -> list[str]:
    """The names of reasons for what is no goal, or for a goal that is met in every round."""
    no_goals = set(reasons) - {goal.name for goal in (*GOALS, *STEPS, *STORES) if goal.goal is not None}
    better = {figure.name for figure in figures if figure.always}
    return sorted(no_goals | better & set(reasons))
