"""A subject in another process: programs go out and outcomes come in, one JSON line each.

`Worker` speaks the protocol (see `kvspec_record.worker`) to whatever command it is given, in any language, and takes
nothing on trust: a worker that dies, hangs or answers nonsense loses the program it was at and is started again, and
the run goes on.
"""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
from kvspec.operations import AnyOperation, Configuration, Outcome

from kvspec_diff import engines
from kvspec_diff.process import Lost, Process
from kvspec_diff.program import Program
from kvspec_diff.recipes import EngineError
from kvspec_diff.subject import CAPABILITIES, WorkerFault

PROTOCOL = 1
IN_FLIGHT = 64
"""The most requests that are sent ahead of their answers."""

BYTES_AHEAD = 2**20
"""No more requests are sent ahead while this many bytes wait to be taken."""


class ProgramFault(WorkerFault):
    """The worker failed at one program. `index` counts the programs of the call; `reason` is one line."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"program {index}: {reason}")
        self.index = index
        self.reason = reason


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker's first line. `capabilities` lists, for each of its subjects, the operations that it takes;
    `page_sizes`, for each of its allocators, the page sizes that it takes (without a row, any)."""

    protocol: int
    subject: str
    version: str
    capabilities: dict[str, tuple[str, ...]]
    page_sizes: dict[str, tuple[int, ...]] = {}
    plants: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A worker's line for a request: exactly one of `outcomes`, `happened` and `error`."""

    id: int | None
    outcomes: list[Outcome] | None = None
    happened: str | None = None
    error: str | None = None


class Misused(NamedTuple):
    """What a release did with input outside its contract."""

    probe: str
    happened: str


class _Request(msgspec.Struct, frozen=True, omit_defaults=True):
    id: int
    configuration: dict[str, Any]
    operations: tuple[AnyOperation, ...] | None = None
    probe: str | None = None


_Inbox = deque[Answer | ProgramFault]


class _Sent(msgspec.Struct, frozen=True):
    """A request to be answered: `operations` is None for a probe, `inbox` once nobody waits for the answer."""

    id: int
    index: int
    request: bytes
    operations: int | None
    inbox: _Inbox | None


class Worker:
    """A command that speaks the protocol. It is started when first needed, and again after it was lost."""

    def __init__(
        self, name: str, command: Sequence[str], variables: dict[str, str] | None = None, *,
        expected: tuple[str, str] | None = None, timeout: float = 60.0, start_timeout: float = 180.0,
    ) -> None:  # fmt: skip
        """`expected` is the subject and version to insist on; `timeout` (for each request) and `start_timeout` (until
        the first line) are in seconds."""
        self.name = name
        self._expected = expected
        self._command = command
        self._variables = variables
        self._timeout = timeout
        self._start_timeout = start_timeout
        self._process: Process | None = None
        self._hello: Hello | None = None
        self._sent: deque[_Sent] = deque()
        self._count = 0

    @property
    def hello(self) -> Hello:
        """What the worker said first; starts it if need be. `EngineError` when it does not start."""
        if self._process is None:
            self._start()
        assert self._hello is not None
        return self._hello

    def answers(self, requests: Iterable[_Request]) -> Iterator[Answer | ProgramFault]:
        """One answer or fault a request, in their order, with several requests on their way at any time.

        Several such runs may be in progress; each gets its own answers.
        """
        waiting = enumerate(requests)
        following = next(waiting, None)
        inbox: _Inbox = deque()
        given, index = 0, -1
        try:
            while following is not None or given <= index:
                while following is not None and self._has_room():
                    index, request = following
                    self._queue(index, request, inbox)
                    following = next(waiting, None)
                if not inbox:
                    self._receive(self._sent[0])
                    continue
                given += 1
                yield inbox.popleft()
        finally:
            forgotten = (
                msgspec.structs.replace(sent, inbox=None) if sent.inbox is inbox else sent for sent in self._sent
            )
            self._sent = deque(sent for sent in forgotten if sent.inbox is not None or self._process is not None)

    def close(self) -> None:
        """End the process; a later request starts another."""
        self._sent.clear()
        if self._process is not None:
            self._process.close()
            self._process = None

    def _start(self) -> None:
        deadline = time.monotonic() + self._start_timeout
        try:
            self._process = Process(self._command, self._variables)
            line = self._process.line(deadline)
            hello = msgspec.json.decode(line, type=Hello)
            if hello.protocol != PROTOCOL:
                raise Lost(f"it speaks protocol {hello.protocol}, not {PROTOCOL}")
            if self._expected not in (None, (hello.subject, hello.version)):
                raise Lost(f"it is {hello.subject} {hello.version}, not {' '.join(self._expected or ())}")
        except (OSError, Lost, msgspec.DecodeError, RecursionError) as error:
            self.close()
            raise EngineError(f"{self.name}: the worker did not start: {error}") from error
        self._hello = hello
        for sent in self._sent:
            self._process.send(sent.request)

    def _has_room(self) -> bool:
        unsent = 0 if self._process is None else self._process.unsent
        return len(self._sent) < IN_FLIGHT and unsent < BYTES_AHEAD

    def _queue(self, index: int, request: _Request, inbox: _Inbox) -> None:
        self._count += 1
        line = msgspec.json.encode(msgspec.structs.replace(request, id=self._count)) + b"\n"
        expected = None if request.probe else len(request.operations or ())
        self._sent.append(_Sent(self._count, index, line, expected, inbox))
        if self._process is not None:
            self._process.send(line)

    def _receive(self, sent: _Sent) -> None:
        """Take the answer to the oldest request. Workers answer in order: what goes wrong went wrong at that one."""
        if self._process is None:
            self._start()
        assert self._process is not None
        answer: Answer | ProgramFault
        try:
            answer = _decode(self._process.line(time.monotonic() + self._timeout), sent)
        except (Lost, msgspec.DecodeError, RecursionError) as error:
            reason = str(error) if isinstance(error, Lost) else f"nonsense: {' '.join(str(error).split())[:300]}"
            answer = ProgramFault(sent.index, f"the worker failed: {reason}")
            self._process.close()
            self._process = None
            self._sent = deque(other for other in self._sent if other.inbox is not None or other is sent)
        self._sent.popleft()
        if isinstance(answer, Answer) and answer.error is not None:
            refusal = " ".join(answer.error.split())[:300]
            answer = ProgramFault(sent.index, f"the worker does not take it: {refusal}")
        if sent.inbox is not None:
            sent.inbox.append(answer)


def _decode(line: bytes, sent: _Sent) -> Answer:
    answer: Answer = msgspec.json.decode(line, type=Answer)
    if answer.id != sent.id:
        raise Lost(f"nonsense: an answer to request {answer.id}, expected {sent.id}")
    kinds = [kind for kind in ("outcomes", "happened", "error") if getattr(answer, kind) is not None]
    if kinds not in (["error"], ["happened" if sent.operations is None else "outcomes"]):
        raise Lost(f"nonsense: an answer with {' and '.join(kinds) or 'nothing'}")
    if answer.outcomes is not None:
        given, expected = len(answer.outcomes), sent.operations or 0
        stops = [index for index, outcome in enumerate(answer.outcomes, 1) if outcome.status == "error"]
        if stops not in ([], [given]) or given > expected or (given < expected and not stops):
            raise Lost(f"nonsense: {given} outcomes for {expected} operations")
        if not all(_small(outcome) for outcome in answer.outcomes):
            raise Lost("nonsense: a number of more than 64 bits")
    return answer


def _small(outcome: Outcome) -> bool:
    numbers = [*outcome.pages, *outcome.slots, *outcome.tokens, *(outcome.blank or ()), outcome.available or 0]
    return max(numbers) < 2**63 and min(numbers) >= -(2**63)


class EngineSubject:
    """An installed engine release as a subject: `options` choose what of it, such as `{"allocator": "paged"}`.

    Its worker is started by the first program. `EngineError`: the release is not installed, or its worker cannot start.
    """

    def __init__(
        self, engine: str, version: str, options: dict[str, Any] | None = None, plants: tuple[str, ...] = (), *,
        timeout: float = 60.0,
    ) -> None:  # fmt: skip
        """`plants` are faults to plant in the worker; `timeout` is in seconds for each program."""
        environment = engines.find(engine, version)
        command, variables = engines.worker_command(environment, plants)
        self.options = dict(options or {})
        parts = [f"{name}={str(value).lower()}" for name, value in sorted(self.options.items())]
        self.name = " ".join([environment.name, *parts, *(f"plant {plant}" for plant in plants)])
        self.worker = Worker(self.name, command, variables, expected=(engine, version), timeout=timeout)

    @property
    def operations(self) -> frozenset[str]:
        """The names of the operations that it takes."""
        offers = self.worker.hello.capabilities
        subject = self.options.get("subject", "pool")
        if subject not in offers:
            raise EngineError(f"{self.name}: this release offers no subject {subject!r}, only {', '.join(offers)}")
        return frozenset(offers[subject])

    @property
    def capabilities(self) -> frozenset[str]:
        """Those of `kvspec_diff.subject.CAPABILITIES` whose operations it takes. It never promises to check misuse."""
        operations = self.operations
        return frozenset(name for name, needed in CAPABILITIES.items() if needed and needed <= operations)

    def takes(self, configuration: Configuration) -> bool:
        """Whether it can have a pool of this page size."""
        sizes = self.worker.hello.page_sizes.get(self.options.get("allocator", "token"))
        return sizes is None or configuration.page_size in sizes

    def run(self, program: Program) -> list[Outcome]:
        """One outcome an operation, fewer when the engine raised (status `error`). Raises `ProgramFault`."""
        (result,) = self.run_many((program,))
        if isinstance(result, ProgramFault):
            raise result
        return result

    def run_many(self, programs: Iterable[Program]) -> Iterator[list[Outcome] | ProgramFault]:
        """The outcomes of each program, or what went wrong at it, in their order; programs are taken as needed."""
        requests = (
            _Request(0, {**msgspec.structs.asdict(program.configuration), **self.options}, program.operations)
            for program in programs
        )
        for answer in self.worker.answers(requests):
            if isinstance(answer, ProgramFault):
                yield ProgramFault(answer.index, f"{self.name}: {answer.reason}")
            else:
                yield answer.outcomes or []

    def misuse(self) -> list[Misused]:
        """Put to the release what its contract forbids, on fresh pools, and tell what happened: unchecked misuse."""
        names = self.worker.hello.probes
        options = {name: value for name, value in self.options.items() if name != "subject"}
        answers = self.worker.answers(_Request(0, options, probe=name) for name in names)
        return [
            Misused(name, answer.reason if isinstance(answer, ProgramFault) else answer.happened or "")
            for name, answer in zip(names, answers, strict=True)
        ]

    def close(self) -> None:
        """End the worker."""
        self.worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
