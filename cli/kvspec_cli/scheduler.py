"""`kvspec diff --engine vllm==... --laws A,R,P`: programs on an engine's scheduler, followed by the specification."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from kvspec.laws import OF_SCHEDULERS

from kvspec_cli import findings
from kvspec_cli.findings import Found, Known
from kvspec_cli.programs import traces_folder
from kvspec_cli.screen import Screen
from kvspec_cli.subjects import Asked

if TYPE_CHECKING:
    from kvspec_diff.batched.client import Client

Policy = Literal["fcfs", "priority"]


class Scheduled(msgspec.Struct, frozen=True):
    """The whole result; `clean` when nothing but known findings was found, and all of those still stand."""

    subject: str
    policies: list[str]
    seed: int
    clean: bool
    figures: dict[str, int]
    declined: int
    known: list[Known]
    found: list[Found]
    reproduce: str


def diff(
    which: Asked, chosen: str, policy: Policy | None, seconds: float | None, programs: int | None, seed: int,
    unaided: bool, save: Path | None, screen: Screen,
) -> int:  # fmt: skip
    """Compare, print, and say by the status whether any law is broken."""
    from kvspec_diff.batched.client import Client

    asked, folder = findings.laws(chosen, OF_SCHEDULERS, "a scheduler"), traces_folder(save)
    limits = {"--seconds": seconds, "--traces": programs}
    words = f" --laws {chosen}{f' --policy {policy}' if policy else ''}"
    command = findings.again(which, words, unaided, seed, limits)
    with screen.progress(f"starting {which.name}") as _, Client(which.engine, which.version, which.plants) as client:
        result = compared(client, which, asked, policy, seconds, programs, seed, unaided, folder, command, screen)
    show(screen, result)
    screen.document(result)
    return 0 if result.clean else 1


def compared(
    client: "Client", which: Asked, asked: list[str], policy: Policy | None, seconds: float | None,
    programs: int | None, seed: int, unaided: bool, folder: Path, command: str, screen: Screen,
) -> Scheduled:  # fmt: skip
    """Replay what is known, run the programs, make small and save what breaks a law."""
    from kvspec_diff.schedulers.case import Case
    from kvspec_diff.schedulers.compare import POLICIES, Comparison

    policies: tuple[Policy, ...] = (policy,) if policy else POLICIES
    comparison = Comparison(client, policies=policies, laws=asked, seed=seed)
    run = findings.running(comparison, seconds, programs)
    known, found = findings.search(comparison, Case, run, which, folder, unaided, screen)
    return Scheduled(
        which.name, list(policies), seed, findings.clean(known, found), comparison.tally.figures, comparison.declined,
        known, found, command,
    )  # fmt: skip


def show(screen: Screen, result: Scheduled) -> None:
    """Print how much was seen, what is known, what breaks a law."""
    figures = ", ".join(f"{count:,} {name}" for name, count in result.figures.items())
    screen.line(f"{result.subject}, {' and '.join(result.policies)}: {figures}", "bold")
    if result.declined:
        screen.line(f"{result.declined:,} more programs had a configuration that the engine says it does not take")
    findings.show(screen, result.known, result.found, findings.of_scheduler)
    findings.end(screen, result.clean, result.known, result.reproduce)
