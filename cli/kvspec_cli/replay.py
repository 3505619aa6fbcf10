"""`kvspec replay`: a trace, run again or as it was recorded, validated against the specification."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from kvspec_cli import findings
from kvspec_cli.errors import BadInput
from kvspec_cli.findings import Replayed
from kvspec_cli.programs import print_program, said
from kvspec_cli.screen import Screen
from kvspec_cli.subjects import (
    AllocatorOption,
    Asked,
    EngineOption,
    HostileOption,
    PartOption,
    PlantOption,
    SegmentsOption,
    SortOption,
    SubjectOption,
    asked,
    opened,
)

if TYPE_CHECKING:
    from kvspec_diff.sources import Own, Release
    from kvspec_diff.targets import Examined, Target
    from kvspec_diff.trace import Trace


def replay(
    path: Annotated[Path, Parameter(name="TRACE", help="A trace file.")],
    /,
    *,
    subject: SubjectOption = None,
    engine: EngineOption = None,
    plant: PlantOption = None,
    allocator: AllocatorOption = None,
    part: PartOption = None,
    sort: SortOption = None,
    segments: SegmentsOption = None,
    hostile: HostileOption = None,
    as_json: Annotated[bool, Parameter("--json", negative=(), help="Print one JSON document.")] = False,
) -> int:
    """Run a trace on a subject, or take it as recorded, and validate it against the specification.

    The engine's options are the trace's own, unless others are given.
    """
    from kvspec_diff import trace

    options = {"subject": part, "allocator": allocator, "sort": sort, "segments": segments, "hostile": hostile}
    if path.suffix == ".json":
        release = findings.release(path)
        if subject is not None or any(value is not None for value in options.values()):
            raise BadInput(f"{path} is a finding about {release}: it takes --engine and --plant, and nothing else")
        return findings.replay(path, asked(None, engine or release, plant, {}), Screen(as_json=as_json))
    read = trace.read(path)
    screen = Screen(as_json=as_json)
    if subject is None and engine is None:
        if plant or any(value is not None for value in options.values()):
            raise BadInput("only an engine has options and planted faults: give --engine, such as sglang==0.5.17")
        name, examined = read.header.subject or "recorded", recorded(path, read)
        command = f"kvspec replay {shlex.quote(str(path))}"
    else:
        which = asked(subject, engine, plant, options)
        name, examined = run(which, read, path, screen)
        command = f"kvspec replay {shlex.quote(str(path))} {which.flags}"
    fault = examined.fault
    result = Replayed(
        str(path), name, fault is None, fault.law if fault else "", said(fault) if fault else "",
        msgspec.to_builtins(examined.program.operations), msgspec.to_builtins(examined.outcomes), command,
    )  # fmt: skip
    show(screen, result, examined)
    screen.document(result)
    return 0 if result.passed else 1


def recorded(path: Path, read: "Trace") -> "Examined":
    """The outcomes as they stand in the trace, judged."""
    from kvspec_diff.targets import Examined, judged

    outcomes = [outcome for outcome in read.outcomes if outcome is not None]
    if not outcomes:
        raise BadInput(f"{path}: no outcomes are recorded in it: give --subject or --engine to run it")
    if None in read.outcomes[: len(outcomes)]:
        line = read.outcomes.index(None) + 2
        raise BadInput(f"{path}:{line}: no outcome is recorded here, but one is further on; give --subject or --engine")
    return Examined(read.program, tuple(outcomes), judged(read.program, outcomes))


def run(which: Asked, read: "Trace", path: Path, screen: Screen) -> "tuple[str, Examined]":
    """The trace's program on each target that takes it, until one fails."""
    with screen.progress(f"running {path} on {which.name}"), opened(which) as source:
        targets = source.targets({**own_options(source, which, read), **which.options})
        problems = [unsuited(target, read, path) for target in targets]
        suited = [target for target, problem in zip(targets, problems, strict=True) if not problem]
        if not suited:
            raise BadInput(problems[0])
        for target in suited:
            (examined,) = target.examine((read.program,))
            if examined.fault is not None:
                break
    return target.name, examined


def own_options(source: "Own | Release", which: Asked, read: "Trace") -> dict[str, Any]:
    """The options of the engine that the trace was recorded with, without a part that this release does not offer."""
    from kvspec_diff.sources import described

    parts = described(read.header.subject)
    if not which.engine or parts is None or parts.engine != which.engine:
        return {}
    offered = source.parts
    return {name: value for name, value in parts.options.items() if name != "subject" or value in offered}


def unsuited(target: "Target", read: "Trace", path: Path) -> str:
    """Why the target cannot run the trace: an operation or a pool that it does not take. Empty when it can."""
    from kvspec_diff.program import operation_name

    for line, operation in enumerate(read.operations, 2):
        if operation_name(operation) not in target.operations:
            takes = ", ".join(sorted(target.operations))
            return f"{path}:{line}: {target.name} has no {operation_name(operation)!r}; it takes {takes}"
    if not target.takes(read.header.configuration):
        size = read.header.configuration.page_size
        return f"{path}:1: {target.name} has no pages of {size} slots; try another --allocator"
    return ""


def show(screen: Screen, result: Replayed, examined: "Examined") -> None:
    """Print the run and the verdict."""
    screen.line(result.subject, "bold")
    print_program(screen, examined)
    screen.line()
    if result.passed:
        screen.line("Passed: no law is broken.", "green")
    else:
        screen.line(result.says, "bold red")
        screen.line(f"Reproduce: {result.reproduce}")
