"""`kvspec store torture`: every harm that can be done to a store, and what came of it, in figures."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter, Token
from kvspec_diff.torture.figures import Part

from kvspec_cli.errors import BadInput, unknown
from kvspec_cli.screen import Screen

if TYPE_CHECKING:
    from kvspec_diff.torture.run import Asked


class Tortured(msgspec.Struct, frozen=True):
    """What came of each part. `ok`: nothing acknowledged was lost, nothing was misread, no promise was broken."""

    ok: bool
    seed: int
    lost: int
    misread: int
    failed: int
    parts: list[Part]
    reproduce: str


def whole(_: object, tokens: Sequence[Token]) -> int:
    """A whole number, as it is written: `1.5` and `1e6` are none."""
    option, text = tokens[0].keyword, tokens[0].value
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise BadInput(f"{option} is {text[:40]!r}; give a whole number of at most 18 digits")
    return int(text)


def torture(
    *,
    only: Annotated[tuple[str, ...], Parameter(help="Only these parts: power, kills, damage, disk.")] = (),
    kills: Annotated[int, Parameter(help="How many processes are killed.", converter=whole)] = 1000,
    programs: Annotated[int, Parameter(help="How many programs lose power, at each point.", converter=whole)] = 500,
    headers: Annotated[int, Parameter(help="How many headers are damaged.", converter=whole)] = 10_000,
    seed: Annotated[int, Parameter(help="What everything is drawn from.", converter=whole)] = 0,
    planted: Annotated[str, Parameter(show=False)] = "",
    as_json: Annotated[bool, Parameter("--json", negative=(), help="Print one JSON document.")] = False,
) -> int:
    """Lose power at every point, kill processes, damage entries, fill the disk. Status 1 if anything is lost.

    Everything happens in new folders of the system's place for temporary files.
    """
    from kvspec_diff.torture import plants
    from kvspec_diff.torture.run import NAMES, Asked

    for option, value in (("--kills", kills), ("--programs", programs), ("--headers", headers)):
        if value < 1:
            raise BadInput(f"{option} is {value}; give 1 or more")
    if seed < 0:
        raise BadInput(f"--seed is {seed}; give 0 or more")
    for name in only:
        if name not in NAMES:
            raise unknown("part", name, NAMES)
    if planted and planted not in plants.PLANTS:
        raise unknown("fault", planted, plants.PLANTS)
    chosen = tuple(name for name in NAMES if not only or name in only)
    asked = Asked(programs, kills, headers, seed, planted)
    screen = Screen(as_json=as_json)
    parts = [tortured(name, asked, screen) for name in chosen]
    command = "kvspec store torture" + "".join(f" --only {name}" for name in only)
    command += f" --kills {kills} --programs {programs} --headers {headers} --seed {seed}"
    command += f" --planted {planted}" if planted else ""
    lost, misread, failed = (sum(getattr(part, name) for part in parts) for name in ("lost", "misread", "failed"))
    result = Tortured(all(part.ok for part in parts), seed, lost, misread, failed, parts, command)
    show(screen, result)
    screen.document(result)
    return 0 if result.ok else 1


def tortured(name: str, asked: "Asked", screen: Screen) -> Part:
    """One part, in a process of its own."""
    from kvspec_diff.torture.run import apart

    with screen.progress(name) as tell:
        return apart(name, asked, tell)


def show(screen: Screen, result: Tortured) -> None:
    """A line a part, then its figures, then what went wrong."""
    rows = [
        ("ok" if part.ok else "FAILED", part.name, f"{part.lost}", f"{part.misread}", f"{part.failed}", part.what,
         f"{part.seconds:.1f} s")
        for part in result.parts
    ]  # fmt: skip
    screen.table(("", "part", "lost", "misread", "failed", "what", "time"), rows)
    screen.line()
    screen.table(("part", "figure", ""), [
        (part.name, figure, f"{value:,}") for part in result.parts for figure, value in part.figures.items()
    ])  # fmt: skip
    screen.line()
    for part in result.parts:
        for text in part.wrong:
            screen.line(f"{part.name}: {text}", "bold red")
    if result.ok:
        screen.line("Nothing acknowledged was lost, nothing was misread.", "green")
    else:
        screen.line(f"Reproduce: {result.reproduce}")
