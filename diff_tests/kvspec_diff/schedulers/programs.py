"""Schedulers and programs, drawn; and smaller ones than a given one."""

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from kvspec_reference.reservation import Kind

from kvspec_diff.batched.bounds import Step
from kvspec_diff.batched.seen import below
from kvspec_diff.lookahead import Row
from kvspec_diff.schedulers.case import Case, Policy, Setup

KINDS: tuple[tuple[Kind, ...], ...] = (
    ("full",), ("full",), ("window",), ("full", "window"), ("chunk",), ("full", "chunk"),
)  # fmt: skip
SIZES = (1, 2, 4, 4)
MOST_DRAFTS = 3
REQUESTS = 6


def draw(policy: Policy, table: Mapping[str, Row], rng: random.Random) -> Case:
    """A scheduler whose pool is enough for its longest sequence, and a program of a few requests."""
    setup = draw_setup(policy, table, rng)
    if policy == "priority" and rng.random() < 0.2:
        setup, steps = crowded(setup, rng)
        return Case("schedule", with_room(setup, table, rng), tuple(steps))
    return Case("schedule", setup, tuple(draw_steps(setup, rng)))


def draw_setup(policy: Policy, table: Mapping[str, Row], rng: random.Random) -> Setup:
    """A scheduler; with drafts a step retires before the next is scheduled."""
    method = "none" if rng.random() < 0.5 else rng.choice(sorted(table))
    drafts = 0 if method == "none" else rng.randint(1, MOST_DRAFTS)
    size = rng.choice(SIZES)
    groups = []
    for kind in rng.choice(KINDS):
        span = {"window": rng.randint(2, 3 * size + 2), "chunk": size * rng.randint(1, 3)}.get(kind, 0)
        groups.append((kind, size, span))
    seats = rng.randint(1, 4)
    setup = Setup(
        policy=policy, groups=tuple(groups), method=method, drafts=drafts, length=rng.randint(6, 28), pool=1,
        caching=rng.random() < 0.5, budget=rng.randint(max(seats, 2 * (1 + drafts)), 20),
        chunk=rng.choice((0, rng.randint(1, 8))), seats=seats, depth=1 if drafts else rng.choice((1, 1, 2)),
        watermark=rng.choice((0.0, 0.0, 0.1)), whole=rng.random() < 0.5,
    )  # fmt: skip
    return with_room(setup, table, rng)


def with_room(setup: Setup, table: Mapping[str, Row], rng: random.Random) -> Setup:
    """The scheduler with a pool that is enough for its longest sequence, and often not for much more."""
    least = setup.most(table[setup.method], setup.length)
    more = rng.choice((0, 0, 1, rng.randint(0, least), rng.randint(0, 3 * least)))
    return msgspec.structs.replace(setup, pool=least + more)


def crowded(setup: Setup, rng: random.Random) -> tuple[Setup, list[Step]]:
    """More urgent requests come while the prompts of others are computed in chunks, and there is little room.

    So whoever has a part of a step already is preempted out of it; what it was to compute can be found in the cache
    then, if nobody sees to that.
    """
    size = rng.choice((2, 4))
    setup = msgspec.structs.replace(
        setup, groups=(("full", size, 0),), method="none", drafts=0, depth=1, caching=True, seats=rng.randint(2, 4),
        length=rng.randint(14, 24), budget=rng.randint(10, 20), chunk=rng.randint(size + 1, 7), watermark=0.0,
        whole=False,
    )  # fmt: skip
    prompt = rng.randint(setup.length * 2 // 3, setup.length - 2)
    steps: list[Step] = []
    if rng.random() < 0.5:  # somebody else's tokens are in the blocks
        steps = [("add", REQUESTS, prompt, 0, 1, 0), *[("schedule",), ("retire", 0, 0)] * 5]
    steps += [("add", 0, prompt, rng.choice((0, prompt)), 2, 2), ("add", 1, 1, 0, rng.randint(1, 3), 2)]
    for r in range(2, rng.randint(3, REQUESTS)):
        for _ in range(rng.randint(1, 2)):
            steps += [("schedule",), ("retire", 0, 0)]
        steps.append(("add", r, size * rng.randint(1, 2), 0, rng.randint(2, size + 2), rng.randint(0, 1)))
    return setup, steps


def draw_steps(setup: Setup, rng: random.Random) -> Iterator[Step]:
    """Requests that come while others run, often the more urgent ones later; a few are aborted, seldom is the cache
    emptied."""
    shared = rng.randint(0, setup.length - 2)
    coming = list(range(rng.randint(1, REQUESTS)))
    while coming:
        chance = rng.random()
        if chance < 0.4:
            r = coming.pop(0)
            prompt = rng.randint(1, setup.length - 1)
            tokens = rng.randint(1, setup.length - prompt)
            priority = rng.choice((rng.randint(0, 2), max(2 - r, 0))) if setup.policy == "priority" else 0
            yield "add", r, prompt, min(shared, prompt), tokens, priority
        elif chance < 0.68:
            yield ("schedule",)
        elif chance < 0.96:
            right, drafts = rng.randint(0, setup.drafts), setup.drafts
            yield "retire", right, drafts if rng.random() < 0.7 else rng.randint(0, drafts)
        elif chance < 0.99:
            yield "abort", rng.randrange(REQUESTS)
        elif setup.caching:
            yield ("reset",)


# What is smaller.

Table = Mapping[str, Row]


def _with(case: Case, table: Table, **fields: Any) -> Iterator[Case]:
    """The case with a changed setup, if that still is one: its pool grows if it must, its other limits do not."""
    setup = msgspec.structs.replace(case.setup, **fields)
    least = setup.most(table[setup.method], setup.length)
    if "pool" not in fields and setup.pool < least:
        setup = msgspec.structs.replace(setup, pool=least)
    needs = [int(step[2]) + int(step[4]) for step in case.steps if step[0] == "add"]
    if (
        setup.pool >= least
        and setup.budget >= max(setup.seats, 2 * (1 + setup.drafts))
        and setup.length >= max(needs, default=2)
    ):
        yield msgspec.structs.replace(case, setup=setup)


def _groups(case: Case, table: Table) -> Iterator[Case]:
    groups = case.setup.groups
    if len(groups) > 1:
        for i in range(len(groups)):
            yield from _with(case, table, groups=groups[:i] + groups[i + 1 :])
    for i, (kind, size, _) in enumerate(groups):
        if kind != "full":
            yield from _with(case, table, groups=(*groups[:i], ("full", size, 0), *groups[i + 1 :]))


def _method(case: Case, table: Table) -> Iterator[Case]:
    if case.setup.method != "none":
        yield from _with(case, table, method="none", drafts=0)
    if case.setup.method not in ("none", "ngram"):
        yield from _with(case, table, method="ngram")


def _flags(case: Case, table: Table) -> Iterator[Case]:
    simple: tuple[tuple[str, Any], ...] = (
        ("caching", False), ("watermark", 0.0), ("whole", False), ("chunk", 0), ("depth", 1),
    )  # fmt: skip
    for name, value in simple:
        if getattr(case.setup, name) != value:
            yield from _with(case, table, **{name: value})


def _number(name: str, least: int) -> Callable[[Case, Table], Iterator[Case]]:
    def smaller(case: Case, table: Table) -> Iterator[Case]:
        low = 1 if name == "drafts" and case.setup.method != "none" else least
        for less in below(getattr(case.setup, name), low):
            yield from _with(case, table, **{name: less})

    return smaller


def _blocks(case: Case, table: Table) -> Iterator[Case]:
    groups = case.setup.groups
    for size in below(groups[0][1], 1):
        if all(span % size == 0 for kind, _, span in groups if kind == "chunk"):
            yield from _with(case, table, groups=tuple((kind, size, span) for kind, _, span in groups))


def _spans(case: Case, table: Table) -> Iterator[Case]:
    groups = case.setup.groups
    for i, (kind, size, span) in enumerate(groups):
        for less in below(span, 2) if kind == "window" else range(size, span, size):
            yield from _with(case, table, groups=(*groups[:i], (kind, size, less), *groups[i + 1 :]))


def _fewer_steps(case: Case, table: Table) -> Iterator[Case]:
    for i in range(len(case.steps)):
        yield msgspec.structs.replace(case, steps=case.steps[:i])
    for i in range(len(case.steps)):
        yield msgspec.structs.replace(case, steps=case.steps[:i] + case.steps[i + 1 :])


def _smaller_steps(case: Case, table: Table) -> Iterator[Case]:
    for i, step in enumerate(case.steps):
        for j, value in enumerate(step[1:], 1):
            least = 1 if step[0] == "add" and j in (2, 4) else 0
            for less in below(int(value), least) if j > 1 or step[0] == "retire" else ():
                changed = (*step[:j], less, *step[j + 1 :])
                if changed[0] != "add" or int(changed[3]) <= int(changed[2]):
                    yield msgspec.structs.replace(case, steps=(*case.steps[:i], changed, *case.steps[i + 1 :]))


SMALLER: tuple[Callable[[Case, Table], Iterator[Case]], ...] = (
    _groups, _method, _flags, _fewer_steps, _number("drafts", 0), _number("seats", 1), _blocks, _spans, _smaller_steps,
    _number("length", 2), _number("pool", 1), _number("budget", 1), _number("chunk", 0),
)  # fmt: skip
"""In this order: fewer and simpler groups, no drafts, fewer options, fewer operations, smaller numbers."""
