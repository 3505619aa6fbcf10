"""`kvspec diff --engine mlx-lm==... --persist`: an engine's caches through a `BlockStore` and back."""

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kvspec_cli import findings
from kvspec_cli.caches import SECONDS
from kvspec_cli.findings import Found, Known
from kvspec_cli.programs import traces_folder
from kvspec_cli.screen import Screen
from kvspec_cli.subjects import Asked

if TYPE_CHECKING:
    from kvspec_diff.batched.client import Client


class Persisted(msgspec.Struct, frozen=True):
    """The whole result; `clean` when nothing but known findings was found, and all of those still stand."""

    subject: str
    laws: list[str]
    seed: int
    clean: bool
    figures: dict[str, int]
    known: list[Known]
    found: list[Found]
    reproduce: str


def diff(
    which: Asked, chosen: str | None, seconds: float | None, programs: int | None, seed: int, unaided: bool,
    save: Path | None, screen: Screen,
) -> int:  # fmt: skip
    """Store, restore, compare, print, and say by the status whether any law is broken."""
    from kvspec_diff.batched.client import Client
    from kvspec_diff.persisting.compare import LAWS

    asked = list(LAWS) if chosen is None else findings.laws(chosen, LAWS, "caches that are stored")
    folder = traces_folder(save)
    if seconds is None and programs is None:
        seconds = SECONDS
    limits = {"--seconds": seconds, "--traces": programs}
    command = findings.again(which, f" --persist{f' --laws {chosen}' if chosen else ''}", unaided, seed, limits)
    with screen.progress(f"starting {which.name}") as _, Client(which.engine, which.version, which.plants) as client:
        result = compared(client, which, asked, seconds, programs, seed, unaided, folder, command, screen)
    show(screen, result)
    screen.document(result)
    return 0 if result.clean else 1


def compared(
    client: "Client", which: Asked, asked: list[str], seconds: float | None, programs: int | None, seed: int,
    unaided: bool, folder: Path, command: str, screen: Screen,
) -> Persisted:  # fmt: skip
    """Replay what is known, run the programs, make small and save what breaks a law."""
    from kvspec_diff.persisting.case import Case
    from kvspec_diff.persisting.compare import Comparison

    comparison = Comparison(client, laws=asked, seed=seed)
    run = findings.running(comparison, seconds, programs)
    known, found = findings.search(comparison, Case, run, which, folder, unaided, screen)
    return Persisted(
        which.name, asked, seed, findings.clean(known, found), dict(comparison.counts), known, found, command
    )


def show(screen: Screen, result: Persisted) -> None:
    """Print how much was stored and restored, what is known, what breaks a law."""
    figures = ", ".join(f"{count:,} {name}" for name, count in result.figures.items())
    screen.line(f"{result.subject} through a store: {figures}; {', '.join(result.laws)}", "bold")
    findings.show(screen, result.known, result.found, findings.of_persisting)
    findings.end(screen, result.clean, result.known, result.reproduce)
