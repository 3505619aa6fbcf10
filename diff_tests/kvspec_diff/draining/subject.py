"""What a decoder is for the comparison, and what is seen of it after each operation; the reference as one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

from kvspec_reference import drain
from kvspec_reference.drain import Action, Cache, Row, Sampled

from kvspec_diff.draining.schedule import Count, Guess, Operation, Schedule, perform

Owner = Literal["stream", "handoff", "batch", "keeper"]
Token = tuple[int, int]
"""A token, and the probability that is reported with it."""


@dataclass(frozen=True)
class Seen:
    """What is seen of a decoder after an operation. "The request" is the one that began last.

    `emitted`: by request, what it emitted in this operation. `owners`: who has the cache of the request; `cache`: the
    tokens in it, the prompt's first, or None if it is not shown. `queued`: tokens that are known and not emitted.
    `pinned`: the batch is held. `cycles`: verifying passes in this operation. `failed`: a hand-off that was tried and
    failed. `merging`: who had the cache while it was handed over, and whether the batch was pinned then. `kept`: caches
    that were kept for requests to come, each with the tokens that it is kept under. `actions`: those of the
    specification that were performed, one of its own name for an operation that is no step; and `inner`: whether it
    speculates, and how many steps of a pause are left; then the machine follows. `error`: what was
    raised in place of an answer; nothing follows.
    """

    emitted: dict[str, list[Token]] = field(default_factory=dict)
    owners: frozenset[Owner] = frozenset()
    cache: tuple[int, ...] | None = None
    queued: int = 0
    pinned: bool = False
    cycles: int = 0
    failed: bool = False
    merging: tuple[frozenset[Owner], bool] | None = None
    kept: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    actions: tuple[Action, ...] | None = None
    inner: tuple[bool, int] | None = None
    error: str = ""


class Subject(Protocol):
    """Runs schedules, each on a fresh decoder. Its model is `Model(schedule.seed)`, its drafts are `guess`."""

    @property
    def name(self) -> str:
        """Its name and version, for a person."""
        ...

    def run(self, schedule: Schedule) -> list[Seen]:
        """One answer an operation, fewer only if the last one is an error."""
        ...


class Reference:
    """The reference decoder, or that of a package made from it."""

    def __init__(self, package: Any = drain, name: str = "reference") -> None:
        self.package, self.name = package, name

    def run(self, schedule: Schedule) -> list[Seen]:
        """Every operation in order, until one raises."""
        return _Run(self.package, schedule).seen


def counting(package: Any) -> Any:
    """The package's model, which counts the passes that verify: over several tokens, of which some may be cut again."""

    class Counting(package.Model):  # type: ignore[misc]
        passes = 0

        def feed(self, cache: Cache, tokens: Sequence[int]) -> list[Sampled]:
            self.passes += len(tokens) > 1
            return cast(list[Sampled], super().feed(cache, tokens))

    return Counting


def watched(package: Any, look: Callable[[], None]) -> Any:
    """The package's batch, which has somebody look at who has a row while it is merged."""

    class Watched(package.Batch):  # type: ignore[misc]
        def merge(self, rows: Sequence[Row], raises: bool = False) -> None:
            look()
            super().merge(rows, raises)

    return Watched()


class _Run:
    """One run of a schedule."""

    def __init__(self, package: Any, schedule: Schedule) -> None:
        self.model = counting(package)(schedule.seed)
        guess = Guess(drain.Model(schedule.seed))
        self.decoder: drain.Decoder = package.Decoder(self.model, guess, schedule.drafts, schedule.pause)
        self.decoder.batch = watched(package, self._look)
        self.row: Row | None = None
        self.merging: tuple[frozenset[Owner], bool] | None = None
        self.seen: list[Seen] = []
        count = Count()
        for operation in schedule.operations:
            try:
                self.seen.append(self._do(operation, schedule, count))
            except Exception as error:
                self.seen.append(Seen(error=repr(error)))
                break

    def _do(self, operation: Operation, schedule: Schedule, count: Count) -> Seen:
        decoder, kept = self.decoder, len(self.decoder.kept)
        self.model.passes, self.merging = 0, None
        emitted: dict[str, Any] = perform(decoder, operation, schedule, count)
        if operation.name == "begin":
            self.row, self.model.passes = decoder.row, 0
        if operation.name == "arrive":
            self.model.passes = 0
        actions = tuple(decoder.take_actions())
        shown = {name: [(sampled.token, sampled.probability)] for name, sampled in emitted.items()}
        row = self.row
        assert row is not None
        return Seen(
            shown, self._owners(), tuple(row.cache.rows), len(row.queue), decoder.batch.pinned, self.model.passes,
            ("fail",) in actions, self.merging, tuple((name, tuple(cache.rows)) for name, cache in decoder.kept[kept:]),
            actions, (decoder.speculates, decoder.rest),
        )  # fmt: skip

    def _owners(self) -> frozenset[Owner]:
        """Where the request's cache is found."""
        decoder, row = self.decoder, self.row
        assert row is not None
        found: dict[Owner, bool] = {
            "stream": decoder.row is row,
            "batch": any(other is row for other in decoder.batch.rows),
            "keeper": any(cache is row.cache for _, cache in decoder.kept),
        }
        return frozenset(owner for owner, there in found.items() if there)

    def _look(self) -> None:
        """While it is merged it is the hand-off's, unless somebody else has it still."""
        self.merging = (self._owners() or frozenset({"handoff"}), self.decoder.batch.pinned)
