"""What the conformance class runs: an allocator, a worker or a subject as a target, and what is found by bulk programs.

A failure of an allocator that is gone when the caller leaves its lists alone is one of D5, whatever law showed it.
"""

import inspect
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec
from kvspec.operations import (
    Allocate,
    AnyOperation,
    Configuration,
    End,
    Evict,
    Finish,
    Outcome,
    Read,
    Start,
    Unpin,
    prompt_token,
)
from kvspec_record.caller import one_line

from kvspec_diff.generate import Generator
from kvspec_diff.hosted import HOSTILE, Call, Run
from kvspec_diff.program import Program, operation_name
from kvspec_diff.shrink import shrink
from kvspec_diff.sketch import Sketch
from kvspec_diff.subject import Subject, WorkerFault, offered
from kvspec_diff.targets import EngineTarget, Examined, Fault, Target, judged
from kvspec_diff.worker import EngineSubject, Worker

LAST_ROW = "z"
SHRINK_SECONDS = 10.0
"""The most time that is spent on making one failure small."""

UNNOTICED = "the contract forbids it, and nothing was raised"

UNCHECKED_LAW = {"begin": "D4", "end": "D3", "free": "O2", "allocate": "O5", "evict": "P13"}
"""The law that is broken when an allocator that promises to check does what its caller may not ask for."""


class Ran(NamedTuple):
    """A run of an allocator: outcomes, the calls that were made of it, and the one whose buffer changed by itself.

    `asked` is None where the constructor raised.
    """

    outcomes: list[Outcome]
    asked: list[Call] | None
    changed: tuple[Call, str] | None


class Hosted:
    """An allocator class as a target.

    `reads_only`: a caller that leaves its lists alone, judged by what it reads and by nothing else.
    """

    def __init__(
        self, kind: Callable[..., Any], capabilities: frozenset[str], configurations: Sequence[Configuration],
        options: Mapping[str, Any], buffer: Callable[[list[int]], Any] = list, *, reads_only: bool = False,
    ) -> None:  # fmt: skip
        self.kind, self.options, self.buffer = kind, dict(options), buffer
        self.capabilities = capabilities
        self.name = self.part = getattr(kind, "__name__", "allocator")
        self.operations = offered(capabilities)
        self.generator = Generator(capabilities, configurations)
        self.sized = "page_size" in inspect.signature(kind).parameters
        self._reads_only = reads_only

    def reading(self) -> "Hosted":
        """The same, judged by what was read."""
        pools = self.generator.configurations
        return Hosted(self.kind, self.capabilities, pools, self.options, self.buffer, reads_only=True)

    def takes(self, configuration: Configuration) -> bool:
        """Any pool."""
        return True

    def arguments(self, configuration: Configuration) -> dict[str, Any]:
        """What the constructor is given."""
        size = {"page_size": configuration.page_size} if self.sized else {}
        return {"pages": configuration.pages, **size, **self.options}

    def ran(self, program: Program, hostile: frozenset[str] = HOSTILE) -> Ran:
        """Run the whole program on a fresh allocator."""
        try:
            pool = self.kind(**self.arguments(program.configuration))
        except Exception as error:
            return Ran([Outcome("error", reason=f"the constructor: {one_line(error)}")], None, None)
        checks = "checks" in self.capabilities
        run = Run(pool, program.configuration, self.buffer, checks=checks, hostile=hostile)
        return Ran(run.run(program), run.asked, run.changed)

    def examine(self, programs: Iterable[Program]) -> Iterator[Examined]:
        """Run each program with a hostile caller, and judge it."""
        for program in programs:
            ran = self.ran(program, frozenset() if self._reads_only else HOSTILE)
            fault = read_wrong(program, ran.outcomes) if self._reads_only else self.fault(program, ran)
            yield Examined(program, tuple(ran.outcomes), fault)

    def fault(self, program: Program, ran: Ran) -> Fault | None:
        """The first law that a run with a hostile caller breaks."""
        found = self.seen(program, ran)
        if found is None or found.law == "D5":
            return found
        short = Program(program.configuration, program.operations[: found.index + 1])
        if self.seen(short, self.ran(short, frozenset())) is None:
            explanation = f"once the caller has overwritten its own lists, {found.law}: {found.explanation}"
            return msgspec.structs.replace(found, law="D5", explanation=explanation)
        return found

    def seen(self, program: Program, ran: Ran) -> Fault | None:
        """The law that a run seems to break, whatever the caller did to its lists."""
        outcomes = ran.outcomes
        if ran.changed is not None:
            index = len(outcomes) - 1
            changed = Fault("D5", index, operation_name(program.operations[index]), outcomes[-1].reason)
            return judged(program, outcomes[:-1]) or changed
        found = judged(program, outcomes)
        if found is not None and "its group is open" in found.explanation:
            return msgspec.structs.replace(found, law="D3")  # of the laws that this breaks, the one about groups
        if found is None or not found.unchecked:
            return found
        found = msgspec.structs.replace(found, unchecked="checks" not in self.capabilities)
        if found.law != "contract":
            return found
        return msgspec.structs.replace(found, law=UNCHECKED_LAW.get(found.operation, found.law), explanation=UNNOTICED)


class Driven:
    """Any subject as a target. What it does with misuse counts if it promises to check."""

    def __init__(self, subject: Subject, configurations: Sequence[Configuration]) -> None:
        self._subject = subject
        self.name = self.part = subject.name
        self.operations = offered(subject.capabilities)
        self.generator = Generator(subject.capabilities, configurations)

    def takes(self, configuration: Configuration) -> bool:
        """Any pool."""
        return True

    def examine(self, programs: Iterable[Program]) -> Iterator[Examined]:
        """Run each program and judge it."""
        for program in programs:
            try:
                outcomes = tuple(self._subject.run(program))
            except WorkerFault as fault:
                yield Examined(program, (), Fault("worker", len(program.operations), "", str(fault)))
                continue
            found = judged(program, outcomes)
            if found is not None and "checks" in self._subject.capabilities:
                found = msgspec.structs.replace(found, unchecked=False)
            yield Examined(program, outcomes, found)


class CommandSubject(EngineSubject):
    """A worker that is started by any command, as a subject; it says itself what it takes."""

    def __init__(self, command: Sequence[str], options: Mapping[str, Any], *, timeout: float = 60.0) -> None:
        self.options = dict(options)
        self.name = " ".join(command)
        self.command = tuple(command)
        self.worker = Worker(self.name, command, timeout=timeout, start_timeout=timeout)


def driven_by(command: CommandSubject, configurations: Sequence[Configuration]) -> EngineTarget:
    """The worker as a target, on those of the pools that it takes."""
    target = EngineTarget(command)
    pools = [pool for pool in configurations if command.takes(pool)]
    if pools:
        target.generator = Generator(command.capabilities, pools)
    return target


def read_wrong(program: Program, outcomes: Sequence[Outcome]) -> Fault | None:
    """The first read that came back with what is not the row's own."""
    prompts: dict[str, int] = {}
    for index, (operation, outcome) in enumerate(zip(program.operations, outcomes, strict=False)):
        if outcome.status == "done" and isinstance(operation, Start):
            prompts[operation.row] = operation.prompt
        elif outcome.status == "done" and isinstance(operation, Read):
            positions = range(operation.start, operation.stop)
            tokens = tuple(prompt_token(prompts[operation.row], position) for position in positions)
            if outcome.tokens != tokens:
                text = f"row {operation.row} reads {outcome.tokens} at its positions {positions}, and wrote {tokens}"
                return Fault("R1", index, "read", text)
    return None


def to_the_end(program: Program, operations: frozenset[str]) -> Program:
    """The program, then everything given up again and every page asked for at once: what leaked is missed (O9)."""
    sketch = Sketch(program.configuration)
    for operation in program.operations:
        sketch.apply(operation)
    pages, size = program.configuration.pages, program.configuration.page_size
    rest: list[AnyOperation] = [End()] if sketch.open else []
    rest += [Unpin(name) for name in sketch.pins]
    rest += [Finish(name) for name in sketch.rows]
    rest += [Evict(pages)] if "evict" in operations else []
    rest += [Start(LAST_ROW, 0), Allocate(LAST_ROW, pages * size)]
    return Program(program.configuration, (*program.operations, *rest))


class Suite:
    """A target, and the first program that bulk programs from a seed found for each kind of failure."""

    def __init__(self, target: Target, close: Callable[[], None] = lambda: None) -> None:
        self.target = target
        self.close = close
        self.runs = 0
        self.found: dict[str, Examined] = {}
        """By law; the capacity's share of O5 is `O5 refused`."""

    def bulk(self, seed: int, *, programs: int, seconds: float | None = None) -> None:
        """Run so many programs, or as many as go into so many seconds."""
        end = None if seconds is None else time.monotonic() + seconds
        endless = (to_the_end(program, self.target.operations) for program in self.target.generator.bulk(seed))
        for examined in self.target.examine(endless if end is not None else islice(endless, programs)):
            self.runs += 1
            if examined.fault is not None and not examined.fault.unchecked:
                self.found.setdefault(law_of(examined), examined)
                self._read(examined)
            if end is not None and time.monotonic() >= end:
                return

    def _read(self, examined: Examined) -> None:
        """An allocator's fault may let rows read what is not theirs, later in the same program."""
        if isinstance(self.target, Hosted) and "R1" not in self.found:
            (again,) = self.target.reading().examine((examined.program,))
            if again.fault is not None:
                self.found["R1"] = again

    def small(self, examined: Examined) -> Examined:
        """A smaller program that fails in the same way."""
        target, law, best = self.target, law_of(examined), examined
        if isinstance(target, Hosted) and law == "R1":
            target = target.reading()
        deadline = time.monotonic() + SHRINK_SECONDS

        def fails(program: Program) -> bool:
            nonlocal best
            if time.monotonic() >= deadline:
                return False
            (again,) = target.examine((program,))
            if again.fault is None or again.fault.unchecked or law_of(again) != law:
                return False
            best = again
            return True

        shrink(examined.program, fails)
        return best


def law_of(examined: Examined) -> str:
    """The law that is broken; a refusal, or another number of pages than were asked for, is told from a wrong page."""
    fault = examined.fault
    assert fault is not None
    if fault.law != "O5" or fault.index >= len(examined.outcomes):
        return fault.law
    refused = examined.outcomes[fault.index].status == "refused"
    return "O5 refused" if refused or "were to be handed out" in fault.explanation else "O5"
