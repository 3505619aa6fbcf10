"""What every comparison in batches has: what was seen of an engine by key, made small, and replayed."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from kvspec_diff.batched.client import Client
from kvspec_diff.batched.fault import Fault, Key
from kvspec_diff.batched.finding import C, Finding
from kvspec_diff.batched.seen import Seen
from kvspec_diff.lookahead import Row, rows

T = TypeVar("T")
"""What is known of a release that its cases are drawn and judged by."""

Change = Callable[[C, T], Iterable[C]]
"""Cases that are a little smaller than this one, of what the release has."""


class Batched(ABC, Generic[C, T]):
    """`seen` counts what was wrong by key: of the `laws`, and what is no law's, such as an engine that raises."""

    LAWS: ClassVar[tuple[str, ...]]
    """Those that are asked for by name; what is beyond them is always told."""

    SMALLER: "ClassVar[Sequence[Change[Any, Any]]]"

    def __init__(self, client: Client, laws: Collection[str] | None, seed: int) -> None:
        self.table: T = self.known_of(client.engine, client.version)
        self._client, self._laws, self._seed = client, self.LAWS if laws is None else laws, seed
        self._seen: Seen[C] = Seen()

    @abstractmethod
    def known_of(self, engine: str, version: str) -> T:
        """What is known of a release; `EngineError` when nothing is."""

    @abstractmethod
    def judge(self, case: C, answer: dict[str, Any]) -> list[Fault]:
        """What is wrong with the answer."""

    @property
    def seen(self) -> dict[Key, int]:
        """What was wrong, by key."""
        return self._seen.counts

    def take(self, case: C, answer: dict[str, Any]) -> None:
        """Judge an answer, and count what is wrong with it."""
        self.count(case, self.judge(case, answer))

    def count(self, case: C, faults: Iterable[Fault]) -> None:
        """Count what is wrong with a case's answer."""
        self._seen.take(case, (each for each in faults if each.law not in self.LAWS or each.law in self._laws))

    def ask(self, cases: list[C]) -> list[list[Fault]]:
        """What is wrong with each of these cases, asked now."""
        answers = self._client.ask([case.question for case in cases])
        return [self.judge(case, answer) for case, answer in zip(cases, answers, strict=True)]

    def findings(self, known: Collection[Key] = ()) -> list[Finding[C]]:
        """What was wrong and is not known, each made small, the smallest first."""
        smaller = [lambda case, change=change: change(case, self.table) for change in self.SMALLER]
        found = self._seen.small(self.ask, smaller, known)
        return [Finding(self._client.engine, self._client.version, fault, case) for case, fault in found]

    def replay(self, finding: Finding[C]) -> list[Fault]:
        """What is wrong with a finding's case now. `EngineError` for what the release has not got."""
        finding.case.check(self.table, self._client.name)
        (faults,) = self.ask([finding.case])
        return faults


class LookingAhead(Batched[C, Mapping[str, Row]]):
    """Of engines with speculative methods: the table says how far each writes past a step."""

    def known_of(self, engine: str, version: str) -> Mapping[str, Row]:
        """The release's methods."""
        return rows(engine, version)
