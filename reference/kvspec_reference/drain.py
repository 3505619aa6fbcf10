"""A single-stream speculative decoder, and how a late request joins it (J1-J5).

Read `Cache` and `Model` first: a toy, in which the next token depends on everything that was fed, in its order, so that
a token lost, repeated or fed twice changes all that come after it. Then `Decoder.step`: what an engine does in a step.
"""

import hashlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kvspec.operations import Misuse

TOKENS = 50
"""How many tokens the toy model knows."""

Action = tuple[str | int, ...]
"""An action of the specification and its arguments."""


@dataclass(frozen=True)
class Sampled:
    """A token, and the probability that it had, in TOKENS parts."""

    token: int
    probability: int


@dataclass
class Cache:
    """What was fed, in order: one token a row."""

    rows: list[int] = field(default_factory=list)

    def cut(self, length: int) -> None:
        """Forget the rows from `length` on."""
        del self.rows[length:]


class Model:
    """Feeds tokens to a cache, and samples what comes next from a random stream that has one number a position.

    The number of a position is always the same one, whenever and however often it is asked for: with it, decoding is a
    function of the prompt and the `seed`.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def feed(self, cache: Cache, tokens: Sequence[int]) -> list[Sampled]:
        """One forward pass over `tokens`: what comes after each of them."""
        found = []
        for token in tokens:
            cache.rows.append(token)
            found.append(self._after(cache.rows))
        return found

    def plain(self, prompt: Sequence[int], count: int) -> list[Sampled]:
        """What plain decoding yields: `count` tokens, one pass each."""
        cache = Cache()
        found = [self.feed(cache, prompt)[-1]]
        while len(found) < count:
            found += self.feed(cache, [found[-1].token])
        return found[:count]

    def _after(self, rows: Sequence[int]) -> Sampled:
        """Logits are a function of all rows; the random number is that of the position."""
        logits, number = _number("logits", *rows), _number("random", self.seed, len(rows))
        return Sampled((logits + number) % TOKENS, logits % TOKENS)


def _number(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=4).digest(), "big")


@dataclass
class Row:
    """A request that is decoded: its cache, what was emitted, and what is queued to be.

    Whoever does not speculate has one token queued, which is its next input (J2).
    """

    name: str
    prompt: tuple[int, ...]
    cache: Cache
    queue: deque[Sampled]
    emitted: list[Sampled] = field(default_factory=list)

    def emit(self) -> Sampled:
        """The oldest token that is queued."""
        self.emitted.append(self.queue.popleft())
        return self.emitted[-1]

    def last(self) -> int:
        """The last token that is known: the one that was not fed."""
        return (self.queue or self.emitted)[-1].token

    def plain_step(self, model: Model) -> Sampled:
        """Emit the next input and feed it; what comes then is the next one."""
        done = self.emit()
        self.queue += model.feed(self.cache, [done.token])
        return done


def prefill(model: Model, name: str, prompt: Sequence[int]) -> Row:
    """A request whose prompt was computed; that yields its first token."""
    cache = Cache()
    return Row(name, tuple(prompt), cache, deque(model.feed(cache, prompt)[-1:]))


class HandOffFailed(Exception):
    """A row cannot be merged into the batch; nothing was merged."""


class Batch:
    """Rows that are decoded together, a plain step at a time."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.pinned = False

    def merge(self, rows: Sequence[Row], raises: bool = False) -> None:
        """Take rows in, all or none. Raises `HandOffFailed` where `raises`: a fault that is injected."""
        if not self.pinned:
            raise Misuse("only a pinned batch takes rows in")
        if raises:
            raise HandOffFailed
        self.rows += rows

    def step(self, model: Model) -> dict[str, Sampled]:
        """A plain step of every row: what each emits."""
        return {row.name: row.plain_step(model) for row in self.rows}


Draft = Callable[[Row, int], list[int]]
"""Guesses so many tokens of a row, those after its last one."""


class Decoder:
    """An engine that decodes one request speculatively, and lets a late one join.

    `drafts`: how many tokens are drafted. `pause`: how many plain steps follow a cycle of which nothing was accepted.
    The request, while it lives, is in `row` or among the batch's rows, never in both (J3); `kept` are the caches of
    finished requests with the tokens that they are of, for requests to come. Every method reports the actions of the
    specification that it performed, to `take_actions`.
    """

    def __init__(self, model: Model, draft: Draft, drafts: int, pause: int) -> None:
        self.model, self.draft, self.drafts, self.pause = model, draft, drafts, pause
        self.row: Row | None = None
        self.arrival: Row | None = None
        self.batch = Batch()
        self.kept: list[tuple[tuple[int, ...], Cache]] = []
        self.speculates, self.rest = False, 0
        self._name = ""
        self._actions: list[Action] = []

    # Requests.

    def begin(self, name: str, prompt: Sequence[int]) -> None:
        """A request begins alone."""
        if self.live() is not None:
            raise Misuse(f"{self._name} is still there")
        self.row, self._name, self.rest = prefill(self.model, name, prompt), name, 0
        self._did("begin")

    def arrive(self, name: str, prompt: Sequence[int]) -> None:
        """A late request, whose prompt is computed at once; from now on no speculative cycle starts."""
        if self.row is None or self.arrival is not None:
            raise Misuse("an arrival waits for a stream, one at a time")
        self.arrival = prefill(self.model, name, prompt)
        self._did("arrive")

    def withdraw(self) -> None:
        """The late request is cancelled before it joined."""
        if self.arrival is None:
            raise Misuse("nobody waits")
        self.arrival = None
        self._did("withdraw")

    def cancel(self) -> None:
        """The request is cancelled: its cache, which may be ahead of what was emitted, is dropped (J3)."""
        self._end()
        self._did("cancel")

    def finish(self) -> None:
        """The request has its last token: its cache, cut to what was emitted, is kept for others (J3)."""
        row = self._end()
        row.cache.cut(len(row.prompt) + len(row.emitted))
        self.kept.append((tuple(row.cache.rows), row.cache))
        self._did("finish")

    def leave(self) -> None:
        """The others in the batch have gone: the request is alone again."""
        if not self.batch.rows:
            raise Misuse("nobody is in the batch")
        self.row = self._unmerged()
        self._did("leave")

    def live(self) -> Row | None:
        """The request, wherever it is."""
        return self.row or next((row for row in self.batch.rows if row.name == self._name), None)

    # Steps.

    def step(self, raises: bool = False) -> dict[str, Sampled]:
        """A step of the engine: what each request emits. With `raises`, a hand-off in this step fails."""
        if self.row is None:
            return self._batch_step()
        if self.arrival is not None:
            return self._emit() if len(self.row.queue) > 1 else self._hand_over(self.row, self.arrival, raises)
        if not self.speculates and self.rest == 0:
            self.speculates = True
            self._did("speculate")
        if self.speculates and not self.row.queue:
            self._cycle(self.row)
        return self._emit() if self.speculates else self._plain_step(self.row)

    def _cycle(self, row: Row) -> None:
        """Draft, verify in one pass, queue what was right and one token more, cut what was fed behind that."""
        drafted = self.draft(row, self.drafts)
        found = self.model.feed(row.cache, [row.last(), *drafted])
        accepted = 0
        while accepted < self.drafts and drafted[accepted] == found[accepted].token:
            accepted += 1
        row.cache.cut(len(row.cache.rows) - (self.drafts - accepted))
        row.queue += found[: accepted + 1]
        self._did("cycle", accepted)
        if accepted == 0:
            self.speculates, self.rest = False, self.pause
            self._did("park")

    def _emit(self) -> dict[str, Sampled]:
        assert self.row is not None
        self._did("emit")
        return {self.row.name: self.row.emit()}

    def _plain_step(self, row: Row) -> dict[str, Sampled]:
        self.rest = max(0, self.rest - 1)
        self._did("decode")
        return {row.name: row.plain_step(self.model)}

    def _batch_step(self) -> dict[str, Sampled]:
        if not self.batch.rows:
            raise Misuse("nothing runs")
        self.rest = max(0, self.rest - 1)
        self._did("decode")
        return self.batch.step(self.model)

    def _hand_over(self, row: Row, arrival: Row, raises: bool) -> dict[str, Sampled]:
        """At most one token is queued (J2): it becomes the next input, and the batch takes the row and the arrival.

        The batch is pinned meanwhile, and released whatever happens; the stream has its row again where it did not go
        well (J3, J5). Then a plain step follows, of the batch or of the stream, and no speculative cycle (J4).
        """
        self.batch.pinned, self.row, self.speculates = True, None, False
        try:
            if row.queue:
                self._did("take")
            else:
                row.queue += self.model.feed(row.cache, [row.last()])
                self._did("forward")
            self.batch.merge([row, arrival], raises)
            self.arrival = None
        except HandOffFailed:
            self._did("fail")
        finally:
            self.batch.pinned = False
            self.row = None if self.arrival is None else row
        if self.row is None:
            self._did("join")
            return self._batch_step()
        self.rest = max(0, self.rest - 1)
        return {row.name: row.plain_step(self.model)}

    # Between.

    def _end(self) -> Row:
        """The request, which is nobody's now; who waited for it, or is in the batch, goes on without it."""
        row = self.live()
        if row is None:
            raise Misuse("nothing runs")
        if self.row is None:
            self._unmerged()
        self.row, self.arrival, self.speculates = None, None, False
        return row

    def _unmerged(self) -> Row:
        """The request's row, out of the batch; of the others, what becomes of them is not followed."""
        row = next(row for row in self.batch.rows if row.name == self._name)
        self.batch.rows = []
        return row

    def _did(self, *action: str | int) -> None:
        self._actions.append(action)

    def take_actions(self) -> list[Action]:
        """The actions performed since this was last asked, in order."""
        done, self._actions = self._actions, []
        return done
