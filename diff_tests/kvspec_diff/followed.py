"""Any machine of the specification, in lockstep with what the reference did; so mutants of it are met.

`lockstep` and `scheduling` have the last machines follow the reference. Here its runs are recorded once, and any
machine that has something in common with the one that the reference reports its actions of follows them as far as it
goes: an action that it has is taken with the arguments that it has, one that does not touch what it knows is passed
over, and any other ends the run.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from kvspec import registry
from kvspec.language.elaborate import elaborate
from kvspec.language.machine import Machine
from kvspec.language.run import Compiled, OutOfScope, State, Violation, compile_machine
from kvspec_proofs.mutants import Mutant
from kvspec_reference import Cache
from kvspec_reference.rows import Action

from kvspec_diff import lockstep, recordings, schedules, scheduling
from kvspec_diff.generate import Generator
from kvspec_diff.lockstep import Parts, plain, snapshot
from kvspec_diff.monitor import setting
from kvspec_diff.program import Program
from kvspec_diff.subject import EVERYTHING
from kvspec_diff.subjects.reference import perform

SEED, PROGRAMS, SCHEDULES = 20_261, 400, 200
"""What the programs are drawn from, and how many of them the reference's cache and its scheduler run."""

CACHE = "deferred_free"
REPORTED = (CACHE, *scheduling.MACHINES, *recordings.OBSERVED)
"""The machines of which the reference reports actions: its cache, its scheduler of requests and of tables, its store
and so on.
"""

CALLERS = {"overwrite"}
"""Actions on entries that nobody holds, of which a machine without them sees nothing."""


class Performed(NamedTuple):
    """The actions of one operation that the reference performed, and its whole state afterwards."""

    actions: Sequence[Action]
    state: Mapping[str, Any]


class Run(NamedTuple):
    """What the reference did, operation by operation; for a machine, how it begins and what of its state is shown.

    `by` is the machine whose actions are reported.
    """

    by: str
    sizes: Mapping[str, int]
    rigid: Mapping[str, Any]
    parts: Parts
    done: Sequence[Performed]


class Parted(NamedTuple):
    """Where a machine and the reference part: at which operation, and over what."""

    operation: int
    what: str


def met(machine: type[Machine], mutants: Sequence[Mutant]) -> dict[str, str]:
    """By name, the mutants that the reference meets where the machine itself goes on: what happens there."""
    found: dict[str, str] = {}
    original = compile_machine(machine)
    runs = [followed(original, run) for run in recorded(machine)]
    for mutant in mutants:
        changed = compile_machine(mutant.machine)
        partings = (follow(changed, run) for run in runs)
        if parted := next(filter(None, partings), None):
            found[mutant.name] = parted.what
    return found


def followed(of: Compiled, run: Run) -> Run:
    """As much of a run as the machine follows."""
    parted = follow(of, run)
    return run if parted is None else run._replace(done=run.done[: parted.operation])


def follow(of: Compiled, run: Run) -> Parted | None:
    """Where the machine and the reference part, if they do."""
    known = of.machine.variables.keys()
    state = of.start(run.sizes, {name: value for name, value in run.rigid.items() if name in known})
    for index, (actions, there) in enumerate(run.done):
        for name, *arguments in actions:
            if what := refusal(of, run.by, state, str(name), arguments):
                return Parted(index, what)
        for part, value in snapshot(state, run.parts).items():
            if there[part] != value:
                return Parted(index, f"{part} differs")
    return None


def refusal(of: Compiled, by: str, state: State, name: str, arguments: Sequence[Any]) -> str:
    """Take an action; what is said if the machine does not."""
    if name not in of.actions:
        return "" if passed_over(by, name, frozenset(of.machine.variables)) else f"{name} is unknown"
    try:
        of.actions[name](state, *arguments[: len(of.params[name])])
    except (Violation, OutOfScope, IndexError):
        return f"{name} is forbidden"
    return ""


@cache
def passed_over(by: str, name: str, known: frozenset[str]) -> bool:
    """Whether an action touches nothing that a machine without it knows."""
    return name in CALLERS or not elaborate(registry.machine(by), name).written & known


def recorded(machine: type[Machine]) -> Sequence[Run]:
    """Runs of the reference that say something of the machine; none if it has nothing in common with those reported."""
    by = next((name for name in REPORTED if lineage(registry.machine(name)) & lineage(machine)), None)
    if by is None:
        return []
    if by in recordings.OBSERVED:
        return _beside(by)
    if by != CACHE:
        return scheduled()[by]
    needs = {"groups": "begin", "cache": "publish", "copies": "copy", "pins": "begin_read"}
    lacking = {capability for capability, action in needs.items() if action not in machine.actions}
    return _recorded(frozenset(EVERYTHING - lacking))


def lineage(machine: type[Machine]) -> set[type]:
    """A machine and those that it extends."""
    return {each for each in machine.__mro__ if issubclass(each, Machine)} - {Machine}


@cache
def _recorded(capabilities: frozenset[str]) -> Sequence[Run]:
    """What the cache did on programs of what the machine knows of."""
    return [record(program) for program in islice(Generator(capabilities).bulk(SEED), PROGRAMS)]


def record(program: Program) -> Run:
    """Run the program on the cache; its blank pages are in its order at the start."""
    reference = Cache(program.configuration.pages, program.configuration.page_size)
    done = []
    for operation in program.operations:
        perform(reference, operation)
        done.append(Performed(reference.take_actions(), plain(reference)))
    sizes, rigid = setting(program)
    pages = range(1, sizes["Page"])
    sizes["Slot"] = sizes["Page"]
    rigid |= {"order": [*pages, 0], "rank": [len(pages), *range(len(pages))]}
    return Run(CACHE, sizes, rigid, lockstep.PARTS, done)


@cache
def _beside(by: str) -> Sequence[Run]:
    """What was done with this machine beside it."""
    parts = recordings.OBSERVED[by]
    return [
        Run(by, each.sizes, each.rigid, parts, [
            Performed([(action, *arguments) for action, arguments in steps], there)
            for steps, there in recordings.seen(each)
        ])
        for each in recordings.besides(by)
    ]  # fmt: skip


@cache
def scheduled() -> Mapping[str, Sequence[Run]]:
    """What the scheduler did, by machine."""
    recorders = [schedules.recorded(seed) for seed in range(SCHEDULES)]
    return {by: [_of_scheduler(by, recorder) for recorder in recorders] for by in scheduling.MACHINES}


def _of_scheduler(by: str, recorder: scheduling.Recorder) -> Run:
    """A machine's part of a run."""
    sizes, rigid = scheduling.settings(recorder)[by]
    done = [
        Performed([tuple(action) for machine, *action in each.actions if machine == by], each.state[by])
        for each in recorder.records
    ]
    return Run(by, sizes, rigid, scheduling.PARTS[by], done)
