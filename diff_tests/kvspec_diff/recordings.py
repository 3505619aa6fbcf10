"""Runs of the reference with a machine beside it, kept for mutants of that machine: what was done, and what was seen.

The two were alike wherever they were compared. So what the machine had then of what is observed, the reference had.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from operator import attrgetter
from typing import Any, TypeAlias

from kvspec.language.run import State

from kvspec_diff import entries, representing, snapshotting, store_programs, storing
from kvspec_diff.beside import Beside, Step, compiled
from kvspec_diff.draining.judge import judged
from kvspec_diff.draining.schedule import at_random
from kvspec_diff.draining.subject import Reference
from kvspec_diff.lockstep import snapshot
from kvspec_diff.subjects.reference_blocks import ReferenceBlocks

RUNS = 200
"""Of each machine."""

Observed: TypeAlias = dict[str, tuple[Callable[[State], Any], tuple[str, ...]]]
"""As in `lockstep.Parts`: what is observed, and the variables that it is made of."""


def whole(*names: str) -> Observed:
    """Variables all of which is observed."""
    return {name: (attrgetter(name), (name,)) for name in names}


def within(name: str, held: Callable[[State], list[bool]], *needed: str) -> Observed:
    """A variable that is observed where something is held."""

    def part(state: State) -> dict[int, Any]:
        return {index: getattr(state, name)[index] for index, there in enumerate(held(state)) if there}

    return {name: (part, (name, *needed))}


def _written(state: State) -> list[bool]:
    return [version != 0 for version in state.temp]


def _acknowledged(state: State) -> list[bool]:
    return [version != 0 for version in state.acknowledged]


def _parts(state: State) -> dict[tuple[int, int], int]:
    """What each stored block holds."""
    return {
        (m, b): state.part[m][b]
        for m, holds in enumerate(state.holds)
        for b, there in enumerate(holds)
        if there and state.stored[b]
    }


def _cache(state: State) -> list[list[int]]:
    """Of what is sliced all blocks, of a state the last one."""
    return [
        state.cache[m][:n] if state.sliced[m] else state.cache[m][max(0, n - 1) : n] for m, n in enumerate(state.length)
    ]


def _named(state: State) -> dict[tuple[int, int], int]:
    """What each host calls what it has a name for."""
    return {(h, x): state.named[h][x] for h, knows in enumerate(state.knows) for x, known in enumerate(knows) if known}


def _of_live(name: str) -> Callable[[State], Any]:
    """A number of a request, while it is there."""
    return lambda state: getattr(state, name) if state.live else None


def _of_waiting(name: str) -> Callable[[State], Any]:
    """A number of an arrival, while it waits."""
    return lambda state: getattr(state, name) if state.waiting else None


OBSERVED: Mapping[str, Observed] = {
    "store": whole("hot", "queued", "temp", "shown", "indexed", "latest", "used", "waiting")
    | within("synced", _written, "temp")
    | {"acknowledged": (_acknowledged, ("acknowledged",))},
    "blocks": whole("stored", "length")
    | {"part": (_parts, ("part", "holds", "stored")), "cache": (_cache, ("cache", "length", "sliced"))},
    "snapshots": whole("running", "stored")
    | within("position", lambda state: state.running, "running")
    | within("live", lambda state: state.running, "running")
    | within("label", lambda state: state.stored, "stored")
    | within("content", lambda state: state.stored, "stored"),
    "entry_format": whole("present", "reads", "knows")
    | within("version", lambda state: state.present, "present")
    | within("signature", lambda state: state.present, "present")
    | within("key", lambda state: state.present, "present")
    | within("means", lambda state: state.present, "present")
    | within("got", lambda state: state.reads, "reads")
    | {"named": (_named, ("named", "knows"))},
    "drain": whole("live", "owns", "emitted", "speculates", "rest", "waiting", "pinned")
    | {name: (_of_live(name), (name, "live")) for name in ("queued", "committed", "fed")}
    | {name: (_of_waiting(name), (name, "waiting")) for name in ("waited", "failed")},
}
"""By machine, what of its state the comparison sees."""


@cache
def besides(name: str) -> tuple[Beside, ...]:
    """The machine after each of `RUNS` runs."""
    return tuple(MAKE[name](random.Random(seed)) for seed in range(RUNS))


def seen(beside: Beside) -> Iterator[tuple[tuple[Step, ...], dict[str, Any]]]:
    """The steps up to each comparison, and what the two had in common then."""
    of, start = compiled(beside.name), 0
    state = of.start(beside.sizes, beside.rigid)
    for end in beside.agreed:
        for action, arguments in beside.steps[start:end]:
            of.actions[action](state, *arguments)
        yield tuple(beside.steps[start:end]), snapshot(state.copy(), OBSERVED[beside.name])
        start = end


def _store(of: random.Random) -> Beside:
    scope = store_programs.random_scope(of)
    return storing.lockstep(store_programs.random_program(of), scope).beside


def _blocks(of: random.Random) -> Beside:
    return representing.run(representing.random_program(of), ReferenceBlocks()).follower.beside


def _snapshots(of: random.Random) -> Beside:
    return snapshotting.run(snapshotting.random_steps(of)).beside


def _entry_format(of: random.Random) -> Beside:
    return entries.run(entries.random_steps(of)).beside


def _drain(of: random.Random) -> Beside:
    schedule = at_random(of)
    return judged(schedule, Reference().run(schedule))[0].beside


MAKE: Mapping[str, Callable[[random.Random], Beside]] = {
    "store": _store, "blocks": _blocks, "snapshots": _snapshots, "entry_format": _entry_format,
    "drain": _drain,
}  # fmt: skip
