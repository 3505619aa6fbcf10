"""What engines that are asked in batches do wrong: as documents, as files, on the screen."""

import hashlib
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from kvspec_cli.errors import BadInput, number
from kvspec_cli.screen import Screen, Told, follow
from kvspec_cli.subjects import Asked

if TYPE_CHECKING:
    from kvspec_diff.batched.bounds import Arguments
    from kvspec_diff.batched.comparison import Batched
    from kvspec_diff.batched.finding import Finding

ENGINE = "vllm"
"""The engine whose capacity and scheduler are compared, in batches."""

CACHES = ("mlx-lm", "transformers")
"""The engines whose cache classes are compared, in batches too."""


class Known(msgspec.Struct, frozen=True):
    """A known finding: whether it still disagrees as it is known to, and how many times something like it was seen."""

    name: str
    law: str
    explanation: str
    upstream: str
    stands: bool
    seen: int


class Found(msgspec.Struct, frozen=True):
    """A disagreement, made small: in words, as a table, as a case; how often it was seen; where it is saved."""

    law: str
    says: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    case: Any
    seen: int
    file: str
    reproduce: str


class Replayed(msgspec.Struct, frozen=True):
    """What came of a trace, or of a finding's case: `law` and `says` are empty when nothing is wrong."""

    trace: str
    subject: str
    passed: bool
    law: str
    says: str
    operations: list[Any]
    outcomes: list[Any]
    reproduce: str


def laws(text: str, known: Sequence[str], what: str) -> list[str]:
    """`["A1", "A2", "P9"]` for `A1-A2,P9`, all of A for `A`. `BadInput` for what is no law of `what`, the `known`."""
    chosen: list[str] = []
    for part in text.split(","):
        first, to, last = part.strip().partition("-")
        family = [law for law in known if law[0] == first]
        behind = list(known[known.index(first) :]) if first in known else []
        if family and not to:
            chosen += family
        elif behind and (last in behind or not to):
            chosen += behind[: behind.index(last) + 1] if to else behind[:1]
        else:
            ends = f"write {known[0]}-{known[1]}, or {known[0]},{known[-1]}, or {known[0][0]} for all of its letter"
            apart = "" if what == "caches" else " (capacity, C, and a scheduler, A,R,P, are compared apart)"
            raise BadInput(f"--laws is {text!r}; the laws of {what} are {', '.join(known)}: {ends}{apart}")
    return list(dict.fromkeys(chosen))


def again(which: Asked, words: str, unaided: bool, seed: int, limits: Mapping[str, float | None]) -> str:
    """The command that compares again."""
    given = "".join(f" {name} {number(value)}" for name, value in limits.items() if value is not None)
    return f"kvspec diff {which.flags}{words}{' --unaided' * unaided} --seed {seed}{given}"


def running(comparison: Any, seconds: float | None, programs: int | None) -> Callable[[Told], None]:
    """Run the comparison for so many seconds or programs, and tell how far it is."""

    def run(tell: Told) -> None:
        progress = follow(tell, seconds, programs, "programs", "faults")
        comparison.run(seconds=seconds, programs=programs, progress=progress)

    return run


def search(
    comparison: "Batched[Any, Any]", case: type, run: Callable[[Told], None], which: Asked, folder: Path, unaided: bool,
    screen: Screen,
) -> tuple[list[Known], list[Found]]:  # fmt: skip
    """Replay what is known, compare, make small and save what is not."""
    from kvspec_diff.batched.finding import known

    filed: list[tuple[str, Finding[Any]]] = [] if unaided else known(which.engine, which.version, case)
    stands = {name: any(each.key == one.fault.key for each in comparison.replay(one)) for name, one in filed}
    with screen.progress(f"comparing {which.name}") as tell:
        run(tell)
    keys = {each.fault.key for name, each in filed if stands[name]}
    found = []
    if comparison.seen.keys() - keys:
        with screen.progress("making what was found small"):
            found = [saved(each, comparison.seen[each.fault.key], which, folder) for each in comparison.findings(keys)]
    told = [
        Known(name, one.fault.law, one.explanation, one.upstream, stands[name], comparison.seen.get(one.fault.key, 0))
        for name, one in filed
    ]
    return told, found


def clean(known: list[Known], found: list[Found]) -> bool:
    """Whether nothing but known findings was found, and all of those still stand."""
    return not found and all(each.stands for each in known)


def saved(finding: "Finding[Any]", seen: int, which: Asked, folder: Path) -> Found:
    """Write a finding's file; what is told of it."""
    from kvspec_diff.batched.finding import write

    fault, case = finding.fault, finding.case
    digest = hashlib.sha256(msgspec.json.encode([which.name, fault.key, case])).hexdigest()[:8]
    path = folder / f"{which.engine}-{which.version}-{fault.law}-{digest}.json"
    write(path, finding)
    again = f"kvspec replay {shlex.quote(str(path))} {which.flags}"
    return Found(fault.law, fault.says, fault.head, fault.rows, msgspec.to_builtins(case), seen, str(path), again)


def show(screen: Screen, known: list[Known], found: list[Found], describe: Callable[[Screen, Any], None]) -> None:
    """Print what is known, and what was found."""
    told = ""
    for each in known:
        verb = "still breaks" if each.stands else "no longer breaks"
        screen.line(f"known finding {each.name} {verb} {each.law}; seen {each.seen:,} times in this run besides",
                    "" if each.stands else "bold red")  # fmt: skip
        if each.explanation != told:
            told = each.explanation
            screen.line(f"  {told} ({each.upstream})" if each.upstream else f"  {told}")
    for finding in found:
        screen.line()
        screen.line(f"{finding.law}: {finding.says}", "bold red")
        screen.line(f"  seen {finding.seen:,} times; the smallest configuration:")
        describe(screen, finding.case)
        if finding.head:
            screen.table(finding.head, finding.rows)
        screen.line(f"  saved: {finding.file}")
        screen.line(f"  reproduce: {finding.reproduce}")


def end(screen: Screen, clean: bool, known: list[Known], reproduce: str) -> None:
    """Print what it comes to."""
    screen.line()
    if clean:
        screen.line("Nothing else was found." if known else "Nothing was found.", "green")
    else:
        screen.line(f"Run again: {reproduce}")


def describe(screen: Screen, made: dict[str, Any], steps: list[Any], arguments: "Arguments") -> None:
    """A configuration and a program."""
    groups = ", ".join(
        f"{kind} of {size}" + (f" spanning {span}" if span else "") for kind, size, span in made["groups"]
    )
    rest = ", ".join(f"{name} {value}" for name, value in made.items() if name != "groups" and value not in (0, False))
    screen.line(f"  {groups}; {rest}")
    for name, *given in steps:
        told = (f"{argument} {value}" for argument, value in zip(arguments[name], given, strict=True))
        screen.line(f"    {name}({', '.join(told)})")


def of_capacity(screen: Screen, case: dict[str, Any]) -> None:
    """A case of capacity."""
    from kvspec_diff.capacity.case import ARGUMENTS

    describe(screen, case["configuration"], case["steps"], ARGUMENTS)


def of_scheduler(screen: Screen, case: dict[str, Any]) -> None:
    """A case of a scheduler."""
    from kvspec_diff.schedulers.case import ARGUMENTS

    describe(screen, case["setup"], case["steps"], ARGUMENTS)
    screen.line("    and on, until every request is at its end")


def of_caches(screen: Screen, case: dict[str, Any]) -> None:
    """A case of caches."""
    from kvspec_diff.caches.case import ARGUMENTS

    setup = case["setup"]
    screen.line(f"  {', '.join(map(_layer, setup['layers']))}; {setup['dtype']}, rows {setup['rows']}")
    for name, *given in case["steps"]:
        told = (f"{argument} {value}" for argument, value in zip(ARGUMENTS[name], given, strict=True))
        screen.line(f"    {name}({', '.join(told)})")
    screen.line("    and then a token more for every object")


def of_persisting(screen: Screen, case: dict[str, Any]) -> None:
    """A case of caches that are stored."""
    setup = case["setup"]
    screen.line(f"  {', '.join(map(_layer, setup['layers']))}; {setup['dtype']}, blocks of {case['block_size']}")
    for name, *given in case["steps"]:
        screen.line(f"    {name}({', '.join(map(str, given))})")
    for block in case["lost"]:
        screen.line(f"    lose(block {block})")
    screen.line(f"    restore(all tokens but the last {case['cut']})")
    for name, *given in case["then"]:
        screen.line(f"    {name}({', '.join(map(str, given))}) on what was restored")
    screen.line("    and then a token more for every object")


def _layer(layer: Any) -> str:
    kind, parameters, layers = layer
    inner = [*(f"{name} {value}" for name, value in parameters), *map(_layer, layers)]
    return f"{kind}({', '.join(inner)})" if inner else str(kind)


def release(path: Path) -> str:
    """The release on which a finding was made: `vllm==0.26.0`."""
    from kvspec_diff.batched.finding import release_and_kind

    return release_and_kind(path)[0]


def replay(path: Path, which: Asked, screen: Screen) -> int:
    """Run a finding's case again."""
    from kvspec_diff.batched.client import Client
    from kvspec_diff.batched.finding import read, release_and_kind
    from kvspec_diff.caches.case import Case as OfCaches
    from kvspec_diff.caches.compare import Comparison as Caches
    from kvspec_diff.capacity.case import Case as OfCapacity
    from kvspec_diff.capacity.compare import Comparison as Capacity
    from kvspec_diff.persisting.case import Case as OfPersisting
    from kvspec_diff.persisting.compare import Comparison as Persisting
    from kvspec_diff.schedulers.case import Case as OfSchedulers
    from kvspec_diff.schedulers.compare import Comparison as Schedulers

    kind = release_and_kind(path)[1]
    comparisons: list[tuple[Any, Any, Callable[[Screen, Any], None]]] = [
        (Caches, OfCaches, of_caches), (Persisting, OfPersisting, of_persisting),
        (Schedulers, OfSchedulers, of_scheduler), (Capacity, OfCapacity, of_capacity),
    ]  # fmt: skip
    compare, made, describe_case = next((each for each in comparisons if kind in each[1].KINDS), comparisons[-1])
    finding: Finding[Any] = read(path, made)
    if (which.engine in CACHES) != (made in (OfCaches, OfPersisting)):
        raise BadInput(f"{path} is about {finding.engine}, and {which.name} is compared otherwise")
    with screen.progress(f"starting {which.name}"), Client(which.engine, which.version, which.plants) as client:
        comparison: Batched[Any, Any] = compare(client)
        faults = comparison.replay(finding)
    case = msgspec.to_builtins(finding.case)
    describe_case(screen, case)
    for fault in faults:
        screen.line(f"{fault.law}: {fault.says}", "bold red")
        if fault.head:
            screen.table(fault.head, fault.rows)
    if finding.explanation:
        screen.line(f"Found on {finding.engine} {finding.version}: {finding.explanation}")
    if finding.upstream:
        screen.line(f"  {finding.upstream}")
    if not faults:
        screen.line("Nothing disagrees.", "green")
    law, says = (faults[0].law, faults[0].says) if faults else ("", "")
    command = f"kvspec replay {shlex.quote(str(path))} {which.flags}"
    screen.document(Replayed(str(path), which.name, not faults, law, says, [case], [], command))
    return 1 if faults else 0
