"""Random cases, and smaller ones."""

import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from kvspec_diff.batched.bounds import Step
from kvspec_diff.batched.seen import below
from kvspec_diff.caches.case import CHUNK, Layer, Setup
from kvspec_diff.caches.promises import LIST, Promises
from kvspec_diff.persisting.case import Case

BLOCKS = (1, 1, 2, 3, 4, 5, 7, 8, 13, 16, 32, 64)
LONGEST = 140


def draw(table: Promises, kinds: Sequence[str], rng: random.Random) -> Case:
    """A case with layers of these kinds; many of its steps end where a block or a window does."""
    size = rng.choice(BLOCKS) if rng.random() < 0.8 else rng.randrange(1, 65)
    layers = tuple(_layer(table, kinds, rng, size) for _ in range(rng.choice((1, 1, 2, 2, 3))))
    setup = Setup(layers, dtype=rng.choice(table.dtypes))  # type: ignore[arg-type]
    steps: list[Step] = []
    length, most = 0, min(LONGEST, 3 * size + rng.randrange(2, 12))
    while length < most and len(steps) < 20:
        by = rng.choice((1, 1, 2, size - length % size, size - length % size, size + 1, rng.randrange(1, 9)))
        by = min(by, CHUNK, most - length)
        steps.append(("append", by))
        length += by
        if rng.random() < 0.1:
            steps.append(("trim", rng.choice((1, 2, length % size + 1))))
        if rng.random() < (0.9 if length % size == 0 else 0.3):
            steps.append(("save",))
    lost = tuple(rng.randrange(9) for _ in range(rng.choice((0, 0, 0, 1, 2))))
    cut = rng.choice((0, 0, 0, 1, size, rng.randrange(length + 1)))
    then = [_then(rng, size) for _ in range(rng.randrange(4))]
    return Case("persist", setup, size, (*steps, ("save",)), lost, cut, tuple(then))


def _then(rng: random.Random, size: int) -> Step:
    if rng.random() < 0.25:
        return "trim", rng.choice((1, 2, size))
    return "append", rng.choice((1, 1, 2, 3, min(size, CHUNK), rng.randrange(1, 9)))


def _layer(table: Promises, kinds: Sequence[str], rng: random.Random, size: int) -> Layer:
    kind = rng.choice(kinds)
    if kind == LIST:
        plain = [each for each in kinds if each != LIST]
        return Layer(kind, (), tuple(_layer(table, plain, rng, size) for _ in range(rng.randrange(1, 4))))
    made = table.kinds[kind]
    values = {name: rng.choice(made.choices[name]) for name in made.choices}
    values |= {name: rng.randrange(low, high + 1) for name, (low, high) in made.parameters.items()}
    if any(family == "window" for family, *_ in made.members.values()):
        window = rng.choice((1, 2, 3, size, size + 1, 2 * size + 1, 5 * size, 200))
        values["size"] = min(values.get("keep", 0) + window, 512)
    return Layer(kind, tuple(values.items()))


def _without(things: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    return ((*things[:i], *things[i + 1 :]) for i in range(len(things)))


def _fewer_layers(case: Case, _: Any) -> Iterable[Case]:
    for layers in _without(case.setup.layers):
        if layers:
            yield msgspec.structs.replace(case, setup=msgspec.structs.replace(case.setup, layers=layers))
    for i, layer in enumerate(case.setup.layers):
        for inner in layer.layers:
            layers = (*case.setup.layers[:i], inner, *case.setup.layers[i + 1 :])
            yield msgspec.structs.replace(case, setup=msgspec.structs.replace(case.setup, layers=layers))


def _fewer_steps(case: Case, _: Any) -> Iterable[Case]:
    yield from (msgspec.structs.replace(case, then=then) for then in _without(case.then))
    yield from (msgspec.structs.replace(case, lost=lost) for lost in _without(case.lost))
    yield from (msgspec.structs.replace(case, steps=steps) for steps in _without(case.steps))


def _smaller_numbers(case: Case, _: Any) -> Iterable[Case]:
    yield from (msgspec.structs.replace(case, cut=cut) for cut in below(case.cut, 0))
    yield from (msgspec.structs.replace(case, block_size=size) for size in below(case.block_size, 1))
    for name in ("steps", "then"):
        steps = getattr(case, name)
        for i, (step, *given) in enumerate(steps):
            for value in below(given[0], 1) if given else ():
                yield msgspec.structs.replace(case, **{name: (*steps[:i], (step, value), *steps[i + 1 :])})
    if case.setup.dtype != "float32":
        yield msgspec.structs.replace(case, setup=msgspec.structs.replace(case.setup, dtype="float32"))


SMALLER = (_fewer_layers, _fewer_steps, _smaller_numbers)
"""Kinds of changes, the largest first."""
