"""Runs measurements: those against an engine by a worker in its environment, the others here."""

import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import kvspec_record
import msgspec
import torch

from kvspec_diff import engines
from kvspec_diff.bench.goals import BY_HAND, HERE, SAFETENSORS, SMALLER, Figure, Goal, judged
from kvspec_diff.process import Lost, Process
from kvspec_diff.recipes import EngineError

PATIENCE = 900.0
"""Seconds for one measurement."""

Measured = tuple[list[float], list[float]]
Tell = Callable[[str], None]


class Facts(msgspec.Struct, frozen=True):
    """What the worker says of itself first."""

    engine: str
    version: str
    python: str
    torch: str
    numpy: str
    threads: int


class Rounds(msgspec.Struct, frozen=True):
    """What the worker says of a measurement."""

    name: str
    ours: list[float]
    peer: list[float]


def missing(goals: Sequence[Goal]) -> None:
    """`EngineError` when an engine that is to be measured is not installed."""
    for name in dict.fromkeys(goal.peer for goal in goals if goal.peer not in (BY_HAND, SMALLER, *HERE)):
        engines.find(*engines.parse(name))


def run(
    goals: Sequence[Goal], rounds: int, reasons: Mapping[str, str], tell: Tell, facts: list[Facts]
) -> Iterator[Figure]:
    """Each measurement's figure, peer by peer; what workers say of themselves goes into `facts`."""
    missing(goals)
    for peer in dict.fromkeys(goal.peer for goal in goals):
        asked = [goal for goal in goals if goal.peer == peer]
        for goal, measured in zip(asked, _rounds(peer, asked, rounds, tell, facts), strict=True):
            yield judged(goal, *measured, reasons)


def _rounds(peer: str, goals: list[Goal], rounds: int, tell: Tell, facts: list[Facts]) -> Iterator[Measured]:
    if peer == SMALLER or peer in HERE:
        if peer == SAFETENSORS:
            facts.append(ours())
        yield from _here(goals, rounds, tell)
        return
    if peer != BY_HAND:
        yield from _worker(peer, [goal.name for goal in goals], rounds, tell, facts)
        return
    from kvspec_diff.bench.events import measured

    for goal in goals:
        tell(goal.what)
        yield measured(rounds)


def ours() -> Facts:
    """What is to be said of this process."""
    python, torch_, numpy = platform.python_version(), metadata.version("torch"), metadata.version("numpy")
    return Facts(SAFETENSORS, metadata.version(SAFETENSORS), python, torch_, numpy, 1)


def _here(goals: list[Goal], rounds: int, tell: Tell) -> Iterator[Measured]:
    """On one thread of this process."""
    from kvspec_record.bench import steps

    from kvspec_diff.bench import stores

    measured = {name: partial(each, None) for name, each in steps.MEASURED.items()} | stores.MEASURED
    threads = torch.get_num_threads()
    steps.threads()
    try:
        for goal in goals:
            tell(goal.what)
            yield measured[goal.name](rounds)
    finally:
        torch.set_num_threads(threads)


def command(environment: engines.Environment, names: list[str], rounds: int) -> tuple[list[str], dict[str, str]]:
    """What starts the worker: the engine's interpreter, our package found after all that the engine has."""
    import kvspec_torch

    _, variables = engines.worker_command(environment)
    worker = Path(kvspec_record.__file__).parent / "bench"
    suite = "steps" if names[0].startswith("step-") else "pools"
    arguments = ["--impl", str(Path(kvspec_torch.__file__).parents[1]), "--engine", environment.engine]
    arguments += ["--suite", suite]
    return (
        [str(environment.python), str(worker), *arguments, "--rounds", str(rounds), *names],
        variables | {"OMP_NUM_THREADS": "1"},
    )


def _worker(peer: str, names: list[str], rounds: int, tell: Tell, facts: list[Facts]) -> Iterator[Measured]:
    process = Process(*command(engines.find(*engines.parse(peer)), names, rounds))
    try:
        tell(f"starting {peer}")
        facts.append(_said(process, Facts))
        if f"{facts[-1].engine}=={facts[-1].version}" != peer:
            raise Lost(f"it is {facts[-1].engine} {facts[-1].version}")
        for name in names:
            tell(f"{name} against {peer}")
            found = _said(process, Rounds)
            if found.name != name:
                raise Lost(f"it measured {found.name} when {name} was asked for")
            yield found.ours, found.peer
    except (Lost, msgspec.DecodeError) as error:
        raise EngineError(f"{peer}: the benchmark's worker failed: {error}") from error
    finally:
        process.close()


def _said(process: Process, kind: type[Any]) -> Any:
    return msgspec.json.decode(process.line(time.monotonic() + PATIENCE), type=kind)
