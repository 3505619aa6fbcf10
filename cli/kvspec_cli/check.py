"""`kvspec check`: the main job. Proofs, known bugs, the reference and the fast implementation, on one screen.

Of late joins every schedule of a small scope is tried, so that the figure says how many there are.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, ParamSpec

import msgspec
from cyclopts import Parameter
from kvspec_diff.report.annotations import annotate

from kvspec_cli import diff, github, prove
from kvspec_cli.errors import positive
from kvspec_cli.programs import traces_folder
from kvspec_cli.screen import Screen
from kvspec_cli.shown import Chosen, choose
from kvspec_cli.subjects import Asked

P = ParamSpec("P")
SECONDS = 10.0
"""How long each of kvspec's own subjects is driven."""


class Checked(msgspec.Struct, frozen=True):
    """One thing that was checked; `reproduce` is the command that shows more of it."""

    what: str
    holds: bool
    figures: str
    seconds: float
    reproduce: str


class Result(msgspec.Struct, frozen=True):
    """Everything that was checked."""

    holds: bool
    checks: list[Checked]


def check(
    *,
    seconds: Annotated[float, Parameter(help="How long to drive the reference, and then torch.")] = SECONDS,
    seed: Annotated[int, Parameter(help="What programs are drawn from, and the solvers' seed.")] = 0,
    save: Annotated[Path | None, Parameter(help="The folder for traces of what is found.")] = None,
    as_json: Annotated[bool, Parameter("--json", negative=(), help="Print one JSON document.")] = False,
) -> int:
    """Prove everything, find every known bug again, compare the implementations; the main job."""
    positive("--seconds", seconds)
    prove.check_seed(seed)
    folder = traces_folder(save)
    screen = Screen(as_json=as_json)
    result = compute(seconds, seed, folder, screen)
    show(screen, result)
    screen.document(result)
    annotate(github.of_check(result))
    return 0 if result.holds else 1


def compute(seconds: float, seed: int, folder: Path, screen: Screen) -> Result:
    """Check one thing after the other."""
    from kvspec.registry import variant_names

    found = [timed(proofs, chosen, seed, screen) for chosen in choose((), None)]
    found += [timed(known_bug, chosen, seed, screen) for name in variant_names() for chosen in choose((), name)]
    found.append(timed(late_joins, screen))
    for subject in ("reference", "torch"):
        found.append(timed(compared, subject, seconds, seed, folder, screen))
    return Result(all(each.holds for each in found), found)


def timed(job: Callable[P, Checked], *args: P.args, **kwargs: P.kwargs) -> Checked:
    """The job's result with the seconds that it took."""
    start = time.monotonic()
    done = job(*args, **kwargs)
    return msgspec.structs.replace(done, seconds=round(time.monotonic() - start, 1))


def proofs(chosen: Chosen, seed: int, screen: Screen) -> Checked:
    """Every obligation of a machine, by both solvers."""
    with screen.progress(f"proving {chosen.name}") as tell:
        report = prove.decide(chosen, seed, tell)
    proved = report.obligations - len(report.unproved)
    figures = f"{proved} of {report.obligations} by both solvers, {len(report.laws)} laws"
    figures += f", {report.unknown} unknown" if report.unknown else ""
    return Checked(f"proof of {chosen.name}", not report.unproved, figures, 0, f"kvspec prove {chosen.name}")


def known_bug(chosen: Chosen, seed: int, screen: Screen) -> Checked:
    """A known bug must fail an obligation of the law that it names, and a run must reach that."""
    from kvspec_proofs.prove import refuted

    prove.quiet_solvers()
    law = chosen.machine.breaks
    with screen.progress(f"finding {chosen.name} again"):
        verdict = refuted(chosen.machine, law, seed=seed)
        run = prove.shortest_run(chosen.machine, law, verdict.refuted) if verdict else None
    figures = f"{law} refuted by {verdict.obligation.action}, " if verdict else f"{law} is not refuted, "
    figures += f"reached in {len(run.moves)} step{'s' * (len(run.moves) != 1)}" if run else "no run reaches it"
    holds = verdict is not None and run is not None
    return Checked(f"known bug {chosen.name}", holds, figures, 0, f"kvspec prove --variant {chosen.name}")


def late_joins(screen: Screen) -> Checked:
    """The reference decoder against plain decoding, on every schedule of a small scope, and the machine beside it."""
    from kvspec_diff.draining.judge import compare
    from kvspec_diff.draining.schedule import SMALL, every
    from kvspec_diff.draining.subject import Reference

    with screen.progress("every schedule of a late join"):
        found = compare(Reference(), every(SMALL))
    figures = f"{found.schedules:,} schedules, {found.steps:,} steps, "
    figures += f"{found.finding.law} broken" if found.finding else "0 differences"
    reproduce = "python -m kvspec_diff.draining"
    return Checked("late joins against plain decoding", found.finding is None, figures, 0, reproduce)


def compared(subject: str, seconds: float, seed: int, folder: Path, screen: Screen) -> Checked:
    """The reference in lockstep with the specification, or torch against the reference."""
    against = {"reference": "specification", "torch": "reference"}[subject]
    result, _ = diff.compute(Asked(subject, "", "", {}, ()), seconds, None, seed, True, folder, screen)
    runs, operations = result.figures["runs"], result.figures["operations"]
    figures = f"{runs:,} programs, {operations:,} operations, {len(result.found)} differences"
    reproduce = result.found[0].reproduce if result.found else result.reproduce
    return Checked(f"{subject} against {against}", result.clean, figures, 0, reproduce)


def show(screen: Screen, result: Result) -> None:
    """One line a check; the commands that show more of what failed."""
    rows = [
        ("ok" if each.holds else "FAILED", each.what, each.figures, f"{each.seconds:.1f} s") for each in result.checks
    ]
    screen.table(("", "what", "result", "time"), rows)
    screen.line()
    failed = [each for each in result.checks if not each.holds]
    if not failed:
        screen.line("Everything holds.", "green")
    for each in failed:
        screen.line(f"{each.what} FAILED. Reproduce: {each.reproduce}", "bold red")
