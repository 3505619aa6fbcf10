"""`kvspec diff`: generated programs on a subject, judged by the specification."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter
from kvspec_diff.report.annotations import annotate

from kvspec_cli import caches, capacity, findings, github, scheduler
from kvspec_cli.errors import BadInput, number, positive
from kvspec_cli.programs import as_trace, file_name, print_program, replay_command, said, traces_folder
from kvspec_cli.scheduler import Policy
from kvspec_cli.screen import Screen, follow
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
    from kvspec_diff.campaign import Failure
    from kvspec_diff.known import Replayed
    from kvspec_diff.sources import Own, Release
    from kvspec_diff.targets import Examined

SECONDS = 10.0
"""How long it runs when neither a time nor a number of traces is asked for."""


class Known(msgspec.Struct, frozen=True):
    """A known finding: whether it still fails as it is known to, and how many generated runs failed like it."""

    name: str
    law: str
    note: str
    stands: bool
    now: str


class Found(msgspec.Struct, frozen=True):
    """A failure, made small: `runs` failed in this way; the saved trace has the program and what came of it."""

    law: str
    subject: str
    says: str
    operations: list[Any]
    runs: int
    trace: str
    reproduce: str


class Unchecked(msgspec.Struct, frozen=True):
    """What the subject did with input outside its contract."""

    allocator: str
    probe: str
    happened: str


class Compared(msgspec.Struct, frozen=True):
    """The whole result; `clean` when nothing but known findings was found, and all of those still stand."""

    subject: str
    seed: int
    clean: bool
    figures: dict[str, float]
    quality: str
    known: list[Known]
    known_runs: int
    found: list[Found]
    unchecked_misuse: list[Unchecked]
    reproduce: str


def diff(
    *,
    subject: SubjectOption = None,
    engine: EngineOption = None,
    seconds: Annotated[
        float | None, Parameter(help="Stop after so many seconds; of pools 10, if nothing else is said.")
    ] = None,
    traces: Annotated[int | None, Parameter(help="Stop after so many programs.")] = None,
    laws: Annotated[
        str | None,
        Parameter(help="Of vllm: C, as in C1-C9, for capacity; A,R,P, for the scheduler. Of caches: B,S, say."),
    ] = None,
    policy: Annotated[Policy | None, Parameter(help="Of a scheduler: compare with this policy alone.")] = None,
    configurations: Annotated[int | None, Parameter(help="Of capacity: stop after so many configurations.")] = None,
    unaided: Annotated[bool, Parameter(negative=(), help="Ignore the committed findings: fail on any.")] = False,
    seed: Annotated[int, Parameter(help="What the programs are drawn from.")] = 0,
    plant: PlantOption = None,
    allocator: AllocatorOption = None,
    part: PartOption = None,
    sort: SortOption = None,
    segments: SegmentsOption = None,
    hostile: HostileOption = None,
    save: Annotated[Path | None, Parameter(help="The folder for traces of what is found.")] = None,
    as_json: Annotated[bool, Parameter("--json", negative=(), help="Print one JSON document.")] = False,
) -> int:
    """Run generated programs on a subject and judge every outcome by the specification."""
    positive("--seconds", seconds)
    positive("--traces", traces)
    positive("--configurations", configurations)
    if seed < 0:
        raise BadInput(f"--seed is {seed}; give 0 or more")
    options = {"subject": part, "allocator": allocator, "sort": sort, "segments": segments, "hostile": hostile}
    which = asked(subject, engine, plant, options)
    if which.engine == findings.ENGINE:
        return of_batches(
            which, options, laws, policy, seconds, traces, configurations, seed, unaided, save, Screen(as_json=as_json)
        )
    if which.engine in findings.CACHES:
        return of_caches(
            which, options, laws, policy, seconds, traces, configurations, seed, unaided, save, Screen(as_json=as_json)
        )
    if laws is not None or configurations is not None or policy is not None:
        raise BadInput("--laws, --policy and --configurations are for --engine vllm==0.33.0, for example")
    folder = traces_folder(save)
    screen = Screen(as_json=as_json)
    result, examples = compute(which, seconds, traces, seed, unaided, folder, screen)
    show(screen, result, examples)
    screen.document(result)
    annotate(github.of_diff(result))
    return 0 if result.clean else 1


def of_batches(
    which: Asked, options: dict[str, Any], laws: str | None, policy: Policy | None, seconds: float | None,
    programs: int | None, configurations: int | None, seed: int, unaided: bool, save: Path | None, screen: Screen,
) -> int:  # fmt: skip
    """An engine that is asked in batches: its capacity, or its scheduler, told apart by the laws."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        name = "part" if given[0] == "subject" else given[0]
        raise BadInput(f"--{name} is for pools of pages; {which.engine} is compared otherwise: give --laws, --policy")
    if laws is None:
        laws = "A,R,P" if policy or programs is not None else "C"
    if laws.strip().startswith("C"):
        if policy or programs is not None:
            raise BadInput(f"--{'policy' if policy else 'traces'} is for a scheduler: give --laws A,R,P with it")
        return capacity.diff(which, laws, seconds, configurations, seed, unaided, save, screen)
    if configurations is not None:
        raise BadInput("--configurations is for capacity: give --laws C with it, or --traces")
    return scheduler.diff(which, laws, policy, seconds, programs, seed, unaided, save, screen)


def of_caches(
    which: Asked, options: dict[str, Any], laws: str | None, policy: Policy | None, seconds: float | None,
    programs: int | None, configurations: int | None, seed: int, unaided: bool, save: Path | None, screen: Screen,
) -> int:  # fmt: skip
    """An engine whose cache classes are compared."""
    more = {**options, "policy": policy, "configurations": configurations}
    given = ["part" if name == "subject" else name for name, value in more.items() if value is not None]
    if given:
        raise BadInput(
            f"--{given[0]} is not for {which.engine}, whose cache classes are compared: give --laws, --traces"
        )
    return caches.diff(which, laws, seconds, programs, seed, unaided, save, screen)


def compute(
    which: Asked, seconds: float | None, traces: int | None, seed: int, unaided: bool, folder: Path, screen: Screen
) -> "tuple[Compared, list[Examined]]":
    """Replay what is known, run the campaign, make small and save what it found."""
    from kvspec_diff.campaign import Campaign

    if seconds is None and traces is None:
        seconds = SECONDS
    with screen.progress(f"starting {which.name}"), opened(which) as source:
        known = [] if unaided else replay_known(source)
        keys = {each.key for each in known if each.stands and each.key}
        campaign = Campaign(source.targets(which.options), seed=seed, known=keys)
        found, examples = [], []
        with screen.progress(f"comparing {which.name}") as tell:
            campaign.run(seconds=seconds, traces=traces, progress=follow(tell, seconds, traces, "traces", "failed"))
        if campaign.seen.keys() - keys:
            with screen.progress("making what was found small"):
                for failure in campaign.failures():
                    found.append(saved(failure, which, folder))
                    examples.append(failure.examined)
        misuse = [Unchecked(name, *each) for name, probes in source.misuse().items() for each in probes]
    stands = [Known(each.known.name, each.known.trace.header.law, each.known.trace.header.note, each.stands,
                    said(each.fault) if each.fault else "it passes") for each in known]  # fmt: skip
    limits = " ".join(
        f"--{name} {number(value)}" for name, value in (("seconds", seconds), ("traces", traces)) if value
    )
    command = f"kvspec diff {which.flags} {limits} --seed {seed}{' --unaided' * unaided}"
    order = sorted(range(len(found)), key=lambda i: len(found[i].operations))
    return Compared(
        which.name, seed, not found and all(each.stands for each in stands), campaign.tally.figures(),
        str(campaign.tally), stands, sum(count for key, count in campaign.seen.items() if key in keys),
        [found[i] for i in order], misuse, command,
    ), [examples[i] for i in order]  # fmt: skip


def replay_known(source: "Own | Release") -> "list[Replayed]":
    """Run an engine's known findings again."""
    from kvspec_diff.known import load, replay
    from kvspec_diff.sources import Release

    if not isinstance(source, Release):
        return []
    return [replay(source, each) for each in load(source.engine, source.version)]


def saved(failure: "Failure", which: Asked, folder: Path) -> Found:
    """Write a failure's trace; what is told of it."""
    from kvspec_diff import trace

    name, text = failure.target.name, said(failure.fault)
    path = folder / file_name(name, failure.fault.law, failure.examined)
    trace.write(path, as_trace(failure.examined, name, failure.fault.law, text))
    operations = [msgspec.to_builtins(operation) for operation in failure.examined.program.operations]
    command = replay_command(path, name, which.plants)
    return Found(failure.fault.law, name, text, operations, failure.runs, str(path), command)


def show(screen: Screen, result: Compared, examples: "list[Examined]") -> None:
    """Print what is known, what was found, how much was tried."""
    screen.line(f"{result.subject}: {result.quality}", "bold")
    for known in result.known:
        if known.stands:
            screen.line(f"known finding {known.name} still breaks {known.law}")
            screen.line(f"  {known.note}")
        else:
            screen.line(f"known finding {known.name} no longer breaks {known.law}: {known.now}", "bold red")
    if result.known_runs:
        screen.line(f"{result.known_runs:,} runs failed like the known findings")
    for found, examined in zip(result.found, examples, strict=True):
        screen.line()
        screen.line(found.says, "bold red")
        screen.line(f"  {found.subject}; {found.runs:,} runs failed in this way")
        print_program(screen, examined)
        screen.line(f"  saved: {found.trace}")
        screen.line(f"  reproduce: {found.reproduce}")
    if result.unchecked_misuse:
        screen.line()
        screen.line("Unchecked misuse (outside the contract, no finding):")
        rows = [(each.probe, each.allocator, each.happened) for each in result.unchecked_misuse]
        screen.table(("what the caller did", "allocator", "what happened"), rows)
    screen.line()
    if result.clean:
        screen.line("Nothing else was found." if result.known else "Nothing was found.", "green")
    else:
        screen.line(f"Run again: {result.reproduce}")
