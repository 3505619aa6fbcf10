"""Batches of questions to a worker: two are on their way at any time, so that neither side waits for the other."""

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Self

import msgspec

from kvspec_diff import engines
from kvspec_diff.process import Lost, Process
from kvspec_diff.recipes import EngineError

STARTING = 180.0
"""Seconds that a worker has to import its engine, on a busy machine."""

ANSWERING = 120.0
"""Seconds that a batch may take."""

BATCHED = ("capacity", "caches")
"""Subjects that a worker is asked about in batches."""

Question = dict[str, Any]


class _Hello(msgspec.Struct):
    subject: str
    version: str
    plants: tuple[str, ...] = ()
    capabilities: dict[str, tuple[str, ...]] = {}


class _Answers(msgspec.Struct):
    id: int | None
    answers: list[dict[str, Any]] | None = None
    error: str = ""


class Client:
    """An installed release's worker, in a `with`. Raises `EngineError` when it is not installed, or not to be started.

    A worker that dies or hangs at a batch is an `EngineError` too: there is nothing then that could be compared.
    """

    def __init__(self, engine: str, version: str, plants: tuple[str, ...] = ()) -> None:
        environment = engines.find(engine, version)
        self.engine, self.version, self.plants = engine, version, plants
        self.name = " ".join([environment.name, *(f"plant {plant}" for plant in plants)])
        self._process = Process(*engines.worker_command(environment, plants))
        self._count = 0
        hello = msgspec.json.decode(self._line(STARTING, "did not start"), type=_Hello)
        if (hello.subject, hello.version) != (engine, version):
            self.close()
            raise EngineError(f"{self.name}: the worker drives {hello.subject} {hello.version}")
        if not any(subject in hello.capabilities for subject in BATCHED):
            self.close()
            raise EngineError(f"{self.name}: its worker cannot be asked in batches")
        self.offered, self.capabilities = hello.plants, hello.capabilities

    def ask(self, questions: list[Question]) -> list[dict[str, Any]]:
        """The answers to one batch."""
        (answers,) = self.answers([questions])
        return answers

    def answers(self, batches: Iterable[list[Question]]) -> Iterator[list[dict[str, Any]]]:
        """The answers to each batch, in order; a batch is taken when there is room for it."""
        waiting: deque[int] = deque()
        for batch in batches:
            waiting.append(len(batch))
            self._send(batch)
            if len(waiting) > 1:
                yield self._receive(waiting.popleft())
        while waiting:
            yield self._receive(waiting.popleft())

    def close(self) -> None:
        """End the worker."""
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *given: object) -> None:
        self.close()

    def _send(self, batch: list[Question]) -> None:
        self._count += 1
        self._process.send(msgspec.json.encode({"id": self._count, "batch": batch}) + b"\n")

    def _receive(self, count: int) -> list[dict[str, Any]]:
        answer = msgspec.json.decode(self._line(ANSWERING, "failed"), type=_Answers)
        if answer.answers is None or len(answer.answers) != count:
            raise EngineError(f"{self.name}: the worker does not answer the batch: {answer.error or 'too few answers'}")
        return answer.answers

    def _line(self, seconds: float, verb: str) -> bytes:
        try:
            return self._process.line(time.monotonic() + seconds)
        except Lost as error:
            self.close()
            raise EngineError(f"{self.name}: the worker {verb}: {error}") from error
