"""`kvspec diff --engine mlx-lm==...`: programs over an engine's cache classes, held against a cold prefill."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from kvspec.laws import OF_CACHES

from kvspec_cli import findings
from kvspec_cli.findings import Found, Known
from kvspec_cli.programs import traces_folder
from kvspec_cli.screen import Screen
from kvspec_cli.subjects import Asked

if TYPE_CHECKING:
    from kvspec_diff.batched.client import Client

SECONDS = 10.0
"""How long it runs when neither a time nor a number of programs is asked for."""


class Cached(msgspec.Struct, frozen=True):
    """The whole result; `clean` when nothing but known findings was found, and all of those still stand.

    `held` says, by class and operation, how often it was done and what was read later was right.
    """

    subject: str
    seed: int
    clean: bool
    figures: dict[str, int]
    held: dict[str, dict[str, int]]
    known: list[Known]
    found: list[Found]
    reproduce: str


def diff(
    which: Asked, chosen: str | None, seconds: float | None, programs: int | None, seed: int, unaided: bool,
    save: Path | None, screen: Screen,
) -> int:  # fmt: skip
    """Compare, print, and say by the status whether any law is broken."""
    from kvspec_diff.batched.client import Client

    asked = None if chosen is None else findings.laws(chosen, OF_CACHES, "caches")
    folder = traces_folder(save)
    if seconds is None and programs is None:
        seconds = SECONDS
    limits = {"--seconds": seconds, "--traces": programs}
    command = findings.again(which, f" --laws {chosen}" if chosen else "", unaided, seed, limits)
    with screen.progress(f"starting {which.name}") as _, Client(which.engine, which.version, which.plants) as client:
        result = compared(client, which, asked, seconds, programs, seed, unaided, folder, command, screen)
    show(screen, result)
    screen.document(result)
    return 0 if result.clean else 1


def compared(
    client: "Client", which: Asked, asked: list[str] | None, seconds: float | None, programs: int | None, seed: int,
    unaided: bool, folder: Path, command: str, screen: Screen,
) -> Cached:  # fmt: skip
    """Replay what is known, run the programs, make small and save what breaks a law."""
    from kvspec_diff.caches.case import Case
    from kvspec_diff.caches.compare import Comparison

    comparison = Comparison(client, laws=asked, seed=seed)
    run = findings.running(comparison, seconds, programs)
    known, found = findings.search(comparison, Case, run, which, folder, unaided, screen)
    return Cached(
        which.name, seed, findings.clean(known, found), comparison.tally.figures, comparison.tally.held, known, found,
        command,
    )  # fmt: skip


def show(screen: Screen, result: Cached) -> None:
    """Print how much was seen, what is known, what breaks a law."""
    figures = ", ".join(f"{count:,} {name}" for name, count in result.figures.items())
    screen.line(f"{result.subject}: {figures}", "bold")
    rows = [(name, ", ".join(f"{operation} {count:,}" for operation, count in done.items()))
            for name, done in result.held.items()]  # fmt: skip
    if rows:
        screen.table(("class", "done, and what was read later was right"), rows)
    findings.show(screen, result.known, result.found, findings.of_caches)
    findings.end(screen, result.clean, result.known, result.reproduce)
