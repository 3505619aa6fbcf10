"""`kvspec diff --engine vllm==... --laws C`: what an engine reserves, compared with the one formula (C1-C9)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from kvspec.laws import OF_CAPACITY

from kvspec_cli import findings
from kvspec_cli.findings import Found, Known
from kvspec_cli.programs import traces_folder
from kvspec_cli.screen import Screen, Told, follow
from kvspec_cli.subjects import Asked

if TYPE_CHECKING:
    from kvspec_diff.batched.client import Client


class Cell(msgspec.Struct, frozen=True):
    """How many different configurations of a cell were compared, and how often its warm-up was run."""

    method: str
    kinds: str
    mode: str
    block_size: int
    configurations: int
    warmups: int


class Reserved(msgspec.Struct, frozen=True):
    """The whole result; `clean` when nothing but known findings was found, and all of those still stand."""

    subject: str
    seed: int
    clean: bool
    configurations: int
    calls: int
    warmups: int
    declined: int
    cells: list[Cell]
    known: list[Known]
    found: list[Found]
    reproduce: str


def diff(
    which: Asked, chosen: str, seconds: float | None, configurations: int | None, seed: int, unaided: bool,
    save: Path | None, screen: Screen,
) -> int:  # fmt: skip
    """Compare, print, and say by the status whether anything disagrees."""
    from kvspec_diff.batched.client import Client

    asked, folder = findings.laws(chosen, OF_CAPACITY, "capacity"), traces_folder(save)
    limits = {"--seconds": seconds, "--configurations": configurations}
    command = findings.again(which, f" --laws {chosen}", unaided, seed, limits)
    with screen.progress(f"starting {which.name}") as _, Client(which.engine, which.version, which.plants) as client:
        result = compared(client, which, asked, limits, seed, unaided, folder, command, screen)
    show(screen, result)
    screen.document(result)
    return 0 if result.clean else 1


def compared(
    client: "Client", which: Asked, asked: list[str], limits: dict[str, Any], seed: int, unaided: bool, folder: Path,
    command: str, screen: Screen,
) -> Reserved:  # fmt: skip
    """Replay what is known, compare, make small and save what disagrees."""
    from kvspec_diff.capacity.case import Case
    from kvspec_diff.capacity.compare import Comparison

    seconds, configurations = limits["--seconds"], limits["--configurations"]
    comparison = Comparison(client, laws=asked, seed=seed)

    def run(tell: Told) -> None:
        comparison.methods()
        progress = follow(tell, seconds, configurations, "configurations", "disagree")
        comparison.run(seconds=seconds, configurations=configurations, progress=progress)

    known, found = findings.search(comparison, Case, run, which, folder, unaided, screen)
    counts = [Cell(each.cell.method, "+".join(each.cell.kinds), each.cell.mode, each.cell.size, each.configurations,
                   each.warmups) for each in comparison.counts]  # fmt: skip
    return Reserved(
        which.name, seed, findings.clean(known, found), sum(each.configurations for each in counts), comparison.calls,
        sum(each.warmups for each in counts), comparison.declined, counts, known, found, command,
    )  # fmt: skip


def show(screen: Screen, result: Reserved) -> None:
    """Print the cells, what is known, what disagrees."""
    screen.line(f"{result.subject}: {result.configurations:,} configurations, {result.calls:,} calls, "
                f"{result.warmups:,} warm-ups in {len(result.cells)} cells", "bold")  # fmt: skip
    if result.declined:
        screen.line(f"{result.declined:,} more configurations the engine says it does not take")
    tabulate(screen, result.cells)
    findings.show(screen, result.known, result.found, findings.of_capacity)
    findings.end(screen, result.clean, result.known, result.reproduce)


def tabulate(screen: Screen, cells: list[Cell]) -> None:
    """A line a method and kinds of groups, a column a block size: configurations + warm-ups."""
    sizes = sorted({each.block_size for each in cells})
    lines: dict[tuple[str, str, str], dict[int, Cell]] = {}
    for each in cells:
        lines.setdefault((each.method, each.kinds, each.mode), {})[each.block_size] = each
    rows = [(*named, *(f"{line[size].configurations} + {line[size].warmups}" for size in sizes))
            for named, line in lines.items()]  # fmt: skip
    screen.table(("method", "groups", "mode of state", *(f"block size {size}" for size in sizes)), rows)
