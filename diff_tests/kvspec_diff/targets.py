"""Targets of a campaign: a subject, the programs that suit it, and how its runs are judged."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

import msgspec
from kvspec.operations import Configuration, Outcome

from kvspec_diff.compare import Difference, Errors, compare
from kvspec_diff.generate import CONFIGURATIONS, Generator
from kvspec_diff.lockstep import lockstep
from kvspec_diff.monitor import Finding, judge
from kvspec_diff.program import Program, operation_name
from kvspec_diff.subject import EVERYTHING, offered
from kvspec_diff.subjects.reference import Reference
from kvspec_diff.worker import EngineSubject, ProgramFault


class Fault(msgspec.Struct, frozen=True):
    """What is wrong with a run: the law, at which operation (by index and name), in words.

    A worker that died, hung or answered nonsense has the law `worker`, and no operation; an engine that raised has the
    law `raised`. `unchecked`: the subject did what its caller may not ask for, which it does not promise to refuse.
    """

    law: str
    index: int
    operation: str
    explanation: str
    unchecked: bool = False


class Examined(NamedTuple):
    """A program, what came of it, and what is wrong with that."""

    program: Program
    outcomes: tuple[Outcome, ...]
    fault: Fault | None


class Target(Protocol):
    """What a campaign drives: `name` goes into traces, `part` tells kinds of targets apart."""

    name: str
    part: str
    operations: frozenset[str]
    generator: Generator

    def takes(self, configuration: Configuration) -> bool:
        """Whether it can have such a pool."""
        ...

    def examine(self, programs: Iterable[Program]) -> Iterator[Examined]:
        """Run each program on a fresh pool and judge it; programs are taken as needed."""
        ...


class Anything:
    """What kvspec's own subjects take: every operation, any pool."""

    operations = offered(EVERYTHING)

    def takes(self, configuration: Configuration) -> bool:
        """Any pool."""
        return True


class ReferenceTarget(Anything):
    """The reference, in lockstep with the specification."""

    name = part = "reference"

    def __init__(self) -> None:
        self.generator = Generator(EVERYTHING)
        self._subject = Reference()

    def examine(self, programs: Iterable[Program]) -> Iterator[Examined]:
        """The whole state is compared after each operation."""
        for program in programs:
            found = lockstep(program)
            yield Examined(program, tuple(self._subject.run(program)), None if found is None else _fault(found))


class TorchTarget(Anything):
    """The fast implementation, compared with the reference."""

    def __init__(self, path: Literal["host", "device"]) -> None:
        from kvspec_diff.subjects.torch import Torch

        self._fast = Reference("end"), Torch(path, "end")
        self._whole = Reference("whole"), Torch(path, "whole")
        self.name = self.part = self._whole[1].name
        self.generator = Generator(EVERYTHING)

    def examine(self, programs: Iterable[Program]) -> Iterator[Examined]:
        """All outcomes and the last state are compared; where they differ, the states after every operation are."""
        for program in programs:
            expected, actual = (subject.run(program) for subject in self._fast)
            difference = compare(expected, actual, Errors.SAME_STATUS)
            if difference is None:
                yield Examined(program, tuple(actual), None)
                continue
            expected, actual = (subject.run(program) for subject in self._whole)
            difference = compare(expected, actual, Errors.SAME_STATUS) or difference
            yield Examined(program, tuple(actual), torch_fault(program, actual, difference))


def torch_fault(program: Program, actual: list[Outcome], difference: Difference) -> Fault:
    """A difference from the reference; the specification names the law that is broken then or later, if one is."""
    index = min(difference.operation, len(program.operations) - 1)
    found = judge(program, actual)
    law = found.law if found else "reference"
    return Fault(law, index, operation_name(program.operations[index]), str(difference))


class EngineTarget:
    """An engine's release with its options, judged by the specification."""

    def __init__(self, subject: EngineSubject) -> None:
        self._subject = subject
        self.name, self.part = subject.name, str(subject.options.get("subject", "pool"))
        self.operations = subject.operations
        self.takes = subject.takes
        self.generator = Generator(subject.capabilities, [pool for pool in CONFIGURATIONS if subject.takes(pool)])

    def examine(self, programs: Iterable[Program]) -> Iterator[Examined]:
        """Several programs are on their way to the worker at any time."""
        sent: deque[Program] = deque()

        def sending() -> Iterator[Program]:
            for program in programs:
                sent.append(program)
                yield program

        for result in self._subject.run_many(sending()):
            program = sent.popleft()
            if isinstance(result, ProgramFault):
                yield Examined(program, (), Fault("worker", len(program.operations), "", result.reason))
            else:
                yield Examined(program, tuple(result), judged(program, result))


def judged(program: Program, outcomes: Sequence[Outcome]) -> Fault | None:
    """The first law that the run breaks."""
    found = judge(program, outcomes)
    return None if found is None else _fault(found)


def _fault(found: Finding) -> Fault:
    return Fault(found.law, found.index, operation_name(found.operation), found.explanation, found.kind == "misuse")
