"""Caches and programs, drawn within what the engine promises; and smaller ones than a given one."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from kvspec_record.caches import MAKING

from kvspec_diff.batched.bounds import Step
from kvspec_diff.batched.seen import below
from kvspec_diff.caches.case import ARGUMENTS, LEAST, Case, Layer, Setup
from kvspec_diff.caches.kinds import bounds
from kvspec_diff.caches.promises import LIST, WORST, Promises
from kvspec_diff.recipes import EngineError

LONGEST = 40
"""Tokens that a row has, about."""

MOST_ROWS = 6
MOST_OBJECTS = 8
SELDOM = 0.1
"""How often an operation that is to be refused is drawn all the same."""


@dataclass
class Sketch:
    """What is known of an object while its program is drawn."""

    lengths: list[int]
    batch: bool = False


def draw(promises: Promises, rng: random.Random, operations: tuple[str, ...] | None = None) -> Case:
    """A cache and a program of `operations`, all that there are unless they are given."""
    setup = draw_setup(promises, rng)
    return Case("caches", setup, tuple(Draw(setup, promises, rng, operations or promises.operations).steps()))


def draw_setup(promises: Promises, rng: random.Random) -> Setup:
    """One layer, often, or a few that may stand in one cache."""
    group = rng.choice(sorted({group for made in promises.kinds.values() for group in made.groups}))
    kinds = [name for name, made in promises.kinds.items() if group in made.groups]
    plain = [name for name in kinds if name != LIST]
    layers = []
    for kind in rng.choices(kinds, k=rng.choice((1, 1, 2, 3))):
        inner = tuple(_layer(promises, each, rng) for each in rng.choices(plain, k=rng.randint(1, 3)))
        layers.append(Layer(LIST, (), inner) if kind == LIST else _layer(promises, kind, rng))
    made = Setup(tuple(layers), rng.choice(promises.dtypes), rng.randint(1, promises.rows))  # type: ignore[arg-type]
    try:
        promises.check(made, "")
    except EngineError:
        return msgspec.structs.replace(made, rows=1)
    return made


def _layer(promises: Promises, kind: str, rng: random.Random) -> Layer:
    made = promises.kinds[kind]
    while True:
        values = {name: rng.randint(*bound) for name, bound in made.parameters.items()}
        values |= {name: rng.choice(some) for name, some in made.choices.items()}
        layer = Layer(kind, tuple(values.items()))
        try:
            promises.check(Setup((layer,), promises.dtypes[0]), kind)  # type: ignore[arg-type]
        except EngineError:
            continue  # a kept prefix as long as the window
        return layer


class Draw:
    """A program, step by step: what is done with an object is looked at at once, more often than not."""

    def __init__(self, setup: Setup, promises: Promises, rng: random.Random, operations: tuple[str, ...]) -> None:
        self.setup, self.promises, self.rng = setup, promises, rng
        self.operations = tuple(name for name in operations if name in promises.operations)
        self.objects = [Sketch([0] * setup.rows, promises.batched(setup))]
        self.states: list[Sketch] = []
        self.bounds = bounds(promises.members(setup)) or [4]
        self.left = 12 * LONGEST

    def steps(self) -> Iterator[Step]:
        """The steps; the first gives tokens."""
        yield self._begin()
        for _ in range(self.rng.randint(2, 12)):
            o = self.rng.randrange(len(self.objects))
            done = None if self.rng.random() < 0.25 else self._operation(o)
            if done is None:
                yield self._append(o)
                continue
            yield done
            touched = len(self.objects) - 1 if done[0] in MAKING else o
            if done[0] not in ("append", "padded") and self.rng.random() < 0.6:
                yield self._append(touched)

    def _begin(self) -> Step:
        """The first tokens: of a batch now and then of different lengths, as the first prompts are."""
        made = self.objects[0]
        if made.batch and "copy" in self.operations and self.rng.random() < 0.15:
            return self._plain("copy", 0, made) or self._append(0)  # so that there is an empty one left to join
        if made.batch and "padded" in self.operations and self.rng.random() < 0.5:
            return self._padded("padded", 0, made)
        return self._append(0, first=True)

    def _allowed(self, name: str, batch: bool) -> bool:
        verdict = self.promises.verdict(self.setup, batch, name)
        return verdict in WORST[:2] or (verdict == "refused" and self.rng.random() < SELDOM)

    def _operation(self, o: int) -> Step | None:
        made = self.objects[o]
        names = [name for name in self.operations if name != "append" and self._allowed(name, made.batch)]
        self.rng.shuffle(names)
        for name in names:
            step = getattr(self, f"_{name}", self._plain)(name, o, made)
            if step is not None:
                return step
        return None

    def _append(self, o: int, first: bool = False) -> Step:
        made = self.objects[o]
        n = self._count(max(made.lengths), 0.2 if first else 0.5)
        made.lengths = [length + n for length in made.lengths]
        return "append", o, n

    def _count(self, length: int, single: float) -> int:
        """Tokens to append: one, or up to a bound, one short of it, one past it, or any few."""
        rng = self.rng
        ends = [times * bound + more - length for bound in self.bounds for times in (1, 2) for more in (-1, 0, 1)]
        n = 1 if rng.random() < single else rng.choice([rng.randint(1, 9), *(end for end in ends if 0 < end <= 24)])
        n = n if length + n <= LONGEST and n <= self.left else 1
        self.left -= n
        return n

    def _padded(self, name: str, o: int, made: Sketch) -> Step:
        n, k = self._count(max(made.lengths), 0.0), self.rng.randint(0, 5)
        made.lengths = [length + 1 + (k + r * (k + 1)) % n for r, length in enumerate(made.lengths)]
        return name, o, n, k

    def _trim(self, name: str, o: int, made: Sketch) -> Step:
        least = min(made.lengths)
        n = self.rng.choice((1, self.rng.randint(1, max(least, 1)), max(least, 1)))
        if self.rng.random() < 0.05 and len(set(made.lengths)) == 1:
            n = least + 1
        made.lengths = [max(length - n, 0) for length in made.lengths]
        return name, o, n

    def _reset(self, name: str, o: int, made: Sketch) -> Step:
        made.lengths = [0] * len(made.lengths)
        return name, o

    def _plain(self, name: str, o: int, made: Sketch) -> Step | None:
        """Read, copy, file."""
        if name in MAKING and not self._add(made.lengths, made.batch):
            return None
        return name, o

    def _state(self, name: str, o: int, made: Sketch) -> Step:
        self.states.append(Sketch(list(made.lengths), made.batch))
        return name, o

    def _restore(self, name: str, o: int, made: Sketch) -> Step | None:
        if not self.states:
            return None
        k = self.rng.randrange(len(self.states))
        kept = self.states[k]
        return (name, k) if self._add(kept.lengths, kept.batch) else None

    def _slice(self, name: str, o: int, made: Sketch) -> Step:
        longest = max(made.lengths)
        start = self.rng.randint(0, max(longest - 1, 0))
        return name, o, start, self.rng.randint(1, max(longest - start, 1) + 1)

    def _reblock(self, name: str, o: int, made: Sketch) -> Step | None:
        size = self.rng.choice((1, 2, 3, 4, 8, max(max(made.lengths), 1)))
        return (name, o, size) if self._add(made.lengths, made.batch) else None

    def _merge(self, name: str, o: int, made: Sketch) -> Step | None:
        others = [p for p, each in enumerate(self.objects) if each.batch == made.batch]
        p = self.rng.choice(others)
        other = self.objects[p]
        if len(made.lengths) + len(other.lengths) > MOST_ROWS or not self._add(made.lengths + other.lengths, True):
            return None
        return name, o, p

    def _extract(self, name: str, o: int, made: Sketch) -> Step | None:
        r = self.rng.randrange(len(made.lengths))
        return (name, o, r) if self._add([made.lengths[r]], False) else None

    def _filter(self, name: str, o: int, made: Sketch) -> Step:
        mask = self.rng.randrange(2 ** len(made.lengths))
        made.lengths = [each for r, each in enumerate(made.lengths) if mask >> r & 1] or [
            made.lengths[mask % len(made.lengths)]
        ]
        return name, o, mask

    def _extend(self, name: str, o: int, made: Sketch) -> Step | None:
        others = [p for p, each in enumerate(self.objects) if each.batch == made.batch and p != o]
        if not others:
            return None
        p = self.rng.choice(others)
        if len(made.lengths) + len(self.objects[p].lengths) > MOST_ROWS:
            return None
        made.lengths = made.lengths + self.objects[p].lengths
        return name, o, p

    def _repeat(self, name: str, o: int, made: Sketch) -> Step | None:
        n = self.rng.randint(1, 3)
        if len(made.lengths) * n > MOST_ROWS:
            return None
        made.lengths = [length for length in made.lengths for _ in range(n)]
        return name, o, n

    def _reorder(self, name: str, o: int, made: Sketch) -> Step:
        k, count = self.rng.randint(0, 8), len(made.lengths)
        made.lengths = [made.lengths[(k + r * (1 + k % 3)) % count] for r in range(count)]
        return name, o, k

    def _add(self, lengths: list[int], batch: bool) -> bool:
        if len(self.objects) == MOST_OBJECTS:
            return False
        self.objects.append(Sketch(list(lengths), batch))
        return True


def looked_at(case: Case) -> Case | None:
    """The case with a token more for all that a step touched, right after it, so that what is wrong shows at once."""
    steps: list[Step] = []
    objects = 1
    for step in case.steps:
        name, *numbers = step
        steps.append(step)
        touched = [number % objects for number in numbers[: 2 if name in ("merge", "extend") else 1]]
        if name in MAKING:
            touched = touched * (name != "restore") + [objects]
            objects += 1
        steps += [("append", o, 1) for o in dict.fromkeys(touched)]
    try:
        return msgspec.structs.replace(case, steps=tuple(steps))
    except ValueError:
        return None  # there are too many


# What is smaller.


def _with(case: Case, promises: Promises, **fields: Any) -> Iterator[Case]:
    """The case with a changed setup, if the engine has that."""
    setup = msgspec.structs.replace(case.setup, **fields)
    try:
        promises.check(setup, "")
    except EngineError:
        return
    yield msgspec.structs.replace(case, setup=setup)


def _fewer_layers(case: Case, promises: Promises) -> Iterator[Case]:
    layers = case.setup.layers
    for layer in layers:
        for inner in layer.layers:
            yield from _with(case, promises, layers=(inner,))
        if len(layers) > 1:
            yield from _with(case, promises, layers=(layer,))
    for i, layer in enumerate(layers):
        if len(layers) > 2:
            yield from _with(case, promises, layers=layers[:i] + layers[i + 1 :])
        for j in range(len(layer.layers) if len(layer.layers) > 1 else 0):
            less = msgspec.structs.replace(layer, layers=layer.layers[:j] + layer.layers[j + 1 :])
            yield from _with(case, promises, layers=(*layers[:i], less, *layers[i + 1 :]))


def _simpler(case: Case, promises: Promises) -> Iterator[Case]:
    if case.setup.dtype != promises.dtypes[0]:
        yield from _with(case, promises, dtype=promises.dtypes[0])
    for rows in below(case.setup.rows, 1):
        yield from _with(case, promises, rows=rows)


def _smaller_layers(case: Case, promises: Promises) -> Iterator[Case]:
    layers = case.setup.layers
    for i, layer in enumerate(layers):
        for less in _smaller_layer(layer, promises):
            yield from _with(case, promises, layers=(*layers[:i], less, *layers[i + 1 :]))


def _smaller_layer(layer: Layer, promises: Promises) -> Iterator[Layer]:
    made = promises.kinds[layer.kind]
    for k, (name, value) in enumerate(layer.parameters):
        values = [each for each in made.choices.get(name, ()) if each < value]
        for less in values or below(value, made.parameters[name][0] if name in made.parameters else value):
            parameters = (*layer.parameters[:k], (name, less), *layer.parameters[k + 1 :])
            yield msgspec.structs.replace(layer, parameters=parameters)
    for j, inner in enumerate(layer.layers):
        for less_inner in _smaller_layer(inner, promises):
            yield msgspec.structs.replace(layer, layers=(*layer.layers[:j], less_inner, *layer.layers[j + 1 :]))


def _fewer_steps(case: Case, promises: Promises) -> Iterator[Case]:
    for i in range(len(case.steps)):
        yield msgspec.structs.replace(case, steps=case.steps[:i])
    for i in range(len(case.steps)):
        yield msgspec.structs.replace(case, steps=case.steps[:i] + case.steps[i + 1 :])


def _smaller_steps(case: Case, promises: Promises) -> Iterator[Case]:
    for i, (name, *given) in enumerate(case.steps):
        for j, (argument, value) in enumerate(zip(ARGUMENTS[str(name)], given, strict=True)):
            for less in below(int(value), LEAST.get(argument, 0)):
                changed = (name, *given[:j], less, *given[j + 1 :])
                yield msgspec.structs.replace(case, steps=(*case.steps[:i], changed, *case.steps[i + 1 :]))


SMALLER: tuple[Callable[[Case, Promises], Iterator[Case]], ...] = (
    _fewer_layers, _fewer_steps, _simpler, _smaller_layers, _smaller_steps,
)  # fmt: skip
"""In this order: fewer layers, fewer operations, one row of the plainest numbers, smaller parameters and numbers."""
