"""Schedules: what is done to a decoder, operation by operation. Every one of a small scope, or drawn at random."""

import random
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Literal

from kvspec_reference.drain import TOKENS, Cache, Decoder, Model, Row

Name = Literal["begin", "arrive", "withdraw", "step", "leave", "cancel", "finish"]
NAMES: tuple[Name, ...] = ("begin", "arrive", "withdraw", "step", "leave", "cancel", "finish")


@dataclass(frozen=True)
class Operation:
    """One call. Of a step: how many drafted tokens are `right` if it starts a cycle; whether a hand-off in it `raises`.

    begin: a request begins alone. arrive, withdraw: a late one comes, or goes before it joined. leave: all others in
    the batch have gone. cancel, finish: the request ends.
    """

    name: Name
    right: int = 0
    raises: bool = False

    def __str__(self) -> str:
        """As a person would write it."""
        return f"{self.name}{f' {self.right} right' * (self.name == 'step')}{', raises' * self.raises}"


@dataclass(frozen=True)
class Schedule:
    """Operations on a fresh decoder that drafts so many tokens, and pauses so long where none of them was right."""

    drafts: int
    pause: int
    operations: tuple[Operation, ...]
    seed: int = 0

    def prompt(self, name: str) -> tuple[int, ...]:
        """The prompt of a request: `request 0` is the first that begins, `late 0` the first that arrives."""
        kind, number = name.split()
        return tuple(range(1, 3 + int(number))) if kind == "request" else (7, int(number))

    def __str__(self) -> str:
        """One line."""
        told = "; ".join(map(str, self.operations))
        return f"drafts of {self.drafts}, pauses of {self.pause}, seed {self.seed}: {told}"


@dataclass
class Guess:
    """A draft model that is right as often as the schedule says, and then wrong."""

    model: Model
    right: int = 0

    def __call__(self, row: Row, count: int) -> list[int]:
        """The next tokens of a row."""
        known = [*row.prompt, *(sampled.token for sampled in (*row.emitted, *row.queue))]
        return guess(self.model, known, count, self.right)


def guess(model: Model, tokens: list[int], count: int, right: int) -> list[int]:
    """What comes after the `tokens`, of which from the place `right` on each is another token."""
    cache, found = Cache(), []
    after = model.feed(cache, tokens)[-1].token
    for place in range(count):
        found.append(after if place < right else (after + 1) % TOKENS)
        after = model.feed(cache, [after])[0].token
    return found


@dataclass(frozen=True)
class Scope:
    """What is tried in full: tokens of a request, of a draft, steps of a pause, arrivals, hand-offs that fail."""

    tokens: int
    drafts: int
    pause: int
    arrivals: int
    failures: int

    def __str__(self) -> str:
        """One line."""
        return (
            f"{self.tokens} tokens, drafts of {self.drafts}, pauses of {self.pause}, "
            f"{self.arrivals} arrivals, {self.failures} failures"
        )


SMALL = Scope(tokens=5, drafts=2, pause=1, arrivals=2, failures=2)
LARGER = Scope(tokens=7, drafts=3, pause=1, arrivals=2, failures=2)


def every(scope: Scope) -> Iterator[Schedule]:
    """Every schedule of one request: all that can be done at each moment, up to its end.

    Which operations there are is asked of the reference; what only matters in a step that starts a cycle, or a
    hand-off, is chosen there only. How many there are is counted here, so that a reference that is wrong ends too;
    where it raises, the schedule ends with the operation in which it did.
    """
    model = Model()
    first = Decoder(model, Guess(model), scope.drafts, scope.pause)
    for operations in _from(scope, first, (), Operation("begin"), Count(), scope.failures):
        yield Schedule(scope.drafts, scope.pause, operations)


@dataclass
class Count:
    """How many requests began, and how many arrived: their names."""

    begun: int = 0
    arrived: int = 0


def perform(decoder: Decoder, operation: Operation, schedule: Schedule, count: Count) -> dict[str, object]:
    """One operation on the reference or on what looks like it; what a step emits."""
    if operation.name == "begin":
        name = f"request {count.begun}"
        count.begun += 1
        decoder.begin(name, schedule.prompt(name))
    elif operation.name == "arrive":
        name = f"late {count.arrived}"
        count.arrived += 1
        decoder.arrive(name, schedule.prompt(name))
    elif operation.name == "step":
        decoder.draft.right = operation.right  # type: ignore[attr-defined]
        return dict(decoder.step(operation.raises))
    else:
        getattr(decoder, operation.name)()
    return {}


def _from(
    scope: Scope, decoder: Decoder, done: tuple[Operation, ...], operation: Operation, count: Count, failures: int
) -> Iterator[tuple[Operation, ...]]:
    """All that begins with what is done and this operation; that alone if it raises: the judge will see it raise."""
    after, counted, done = *deepcopy((decoder, count)), (*done, operation)
    try:
        perform(after, operation, Schedule(scope.drafts, scope.pause, ()), counted)
    except Exception:
        yield done
        return
    yield (*done, Operation("finish"))
    if sum(each.name == "step" for each in done) == scope.tokens:
        return
    yield (*done, Operation("cancel"))
    gone = sum(each.name in ("withdraw", "leave") for each in done)
    for following in _possible(scope, after, counted, gone, failures - operation.raises):
        yield from _from(scope, after, done, following, counted, failures - operation.raises)


def _possible(scope: Scope, decoder: Decoder, count: Count, gone: int, failures: int) -> Iterator[Operation]:
    """What can be done besides ending the request. Of those that arrived, so many have `gone`: each goes once."""
    if decoder.arrival is not None and gone < count.arrived:
        yield Operation("withdraw")
    elif decoder.row is not None and decoder.arrival is None and count.arrived < scope.arrivals:
        yield Operation("arrive")
    elif decoder.row is None and gone < count.arrived:
        yield Operation("leave")
    names = _performed(decoder)
    if "cycle" in names:
        yield from (Operation("step", right) for right in range(scope.drafts + 1))
    else:
        yield Operation("step")
    if "join" in names and failures:
        yield Operation("step", raises=True)


def _performed(decoder: Decoder) -> set[str | int]:
    """The actions of its next step, of which it takes none; none either if it raises."""
    tried = deepcopy(decoder)
    tried.take_actions()
    try:
        tried.step()
    except Exception:
        return set()
    return {action[0] for action in tried.take_actions()}


def at_random(of: random.Random, length: int = 40) -> Schedule:
    """A schedule of several requests; what cannot be done is left out."""
    model = Model(of.randrange(100))
    drafts, pause = of.randint(1, 4), of.randint(0, 3)
    decoder, count = Decoder(model, Guess(model), drafts, pause), Count()
    bare = Schedule(drafts, pause, (), model.seed)
    done: list[Operation] = []
    ends = of.choice((0.02, 0.2))
    for _ in range(length):
        operation = _drawn(of, decoder, drafts, ends)
        perform(decoder, operation, bare, count)
        done.append(operation)
    return Schedule(drafts, pause, tuple(done), model.seed)


def _drawn(of: random.Random, decoder: Decoder, drafts: int, ends: float) -> Operation:
    """Something that can be done now."""
    if decoder.live() is None:
        return Operation("begin")
    if of.random() < ends:
        return Operation(of.choice(("cancel", "finish")))
    rare = of.random() < 0.25
    if decoder.arrival is not None and rare and of.random() < 0.3:
        return Operation("withdraw")
    if decoder.row is None and rare:
        return Operation("leave")
    if decoder.row is not None and decoder.arrival is None and rare:
        return Operation("arrive")
    return Operation("step", min(drafts, of.choice((0, drafts, of.randint(0, drafts)))), of.random() < 0.3)
