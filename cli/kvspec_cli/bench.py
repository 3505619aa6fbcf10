"""`kvspec bench`: how fast kvspec's own code is, as ratios to what others' does, measured in one run."""

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import App, Parameter
from kvspec_diff.bench.goals import Figure
from kvspec_diff.bench.method import STORE_METHOD
from kvspec_record.bench import METHOD, STEP_METHOD

from kvspec_cli.errors import BadInput, unknown
from kvspec_cli.screen import Screen, Told

if TYPE_CHECKING:
    from kvspec_diff.bench.goals import Goal
    from kvspec_diff.bench.run import Facts

APP = App(name="bench", help="Measure how fast kvspec's own code is, against other code that does the same.")

LEAST = 7
"""Rounds."""


class Suite(msgspec.Struct, frozen=True):
    """What a command measures: its name, the title of its page in the docs, and what each side does."""

    name: str
    title: str
    method: str

    @property
    def page(self) -> Path:
        """Where its figures are written."""
        return Path("docs", f"bench-{self.name}.md")

    @property
    def goals(self) -> "tuple[Goal, ...]":
        """Its measurements, as they are now."""
        from kvspec_diff.bench import goals

        return {"pages": goals.GOALS, "step": goals.STEPS, "store": goals.STORES}[self.name]


PAGES = Suite("pages", "Speed of the page pool", METHOD)
STEP = Suite("step", "Speed of a step's reservation", STEP_METHOD)
STORE = Suite("store", "Speed and size of the store", STORE_METHOD)

Rounds = Annotated[int, Parameter(help=f"How often each side has its turn, {LEAST} times at least.")]
Write = Annotated[bool, Parameter(negative=(), help="Write the figures into the page of the docs as well.")]
AsJson = Annotated[bool, Parameter("--json", negative=(), help="Print one JSON document.")]


class Machine(msgspec.Struct, frozen=True):
    """Where it was measured. `load` is the machine's load average when it began: what else was running."""

    processor: str
    cores: int
    load: float
    system: str
    python: str
    torch: str
    numpy: str


class Result(msgspec.Struct, frozen=True):
    """All that was measured. `ok`: no goal is missed without a reason, and no reason is stale."""

    ok: bool
    figures: list[Figure]
    unexplained: list[str]
    stale: list[str]
    machine: Machine


@APP.command
def pages(
    *,
    rounds: Rounds = 11,
    only: Annotated[tuple[str, ...], Parameter(help="Only these, such as sorted, or release-empty-64.")] = (),
    write: Write = False,
    as_json: AsJson = False,
) -> int:
    """Compare the page pool with SGLang's and vLLM's, and the compiled monitor with one written by hand."""
    return measure(PAGES, rounds, only, write, as_json)


@APP.command
def step(
    *,
    rounds: Rounds = 11,
    only: Annotated[tuple[str, ...], Parameter(help="Only these, such as step-vllm, or step-sglang-256.")] = (),
    write: Write = False,
    as_json: AsJson = False,
) -> int:
    """Compare a step's reservation for a batch with vLLM's and SGLang's, and with itself where all is larger."""
    return measure(STEP, rounds, only, write, as_json)


@APP.command
def store(
    *,
    rounds: Rounds = 11,
    only: Annotated[tuple[str, ...], Parameter(help="Only these, such as save, or append-4096.")] = (),
    write: Write = False,
    as_json: AsJson = False,
) -> int:
    """Compare the store with safetensors and with plain reads, and its size with that of shorter contexts."""
    return measure(STORE, rounds, only, write, as_json)


def measure(suite: Suite, rounds: int, only: tuple[str, ...], write: bool, as_json: bool) -> int:
    """Measure what is asked for, show it, and write it down; 1 if a goal is missed without a reason."""
    if rounds < LEAST:
        raise BadInput(f"--rounds is {rounds}; give {LEAST} or more")
    if write and only:
        raise BadInput("--write is for all figures: leave out --only")
    if write and not suite.page.parent.is_dir():
        command = f"kvspec bench {suite.name} --write"
        raise BadInput(f"there is no folder {suite.page.parent} here: run `{command}` in the repository")
    goals = chosen(suite, only)
    screen = Screen(as_json=as_json)
    result = compute(goals, rounds, screen)
    if write:
        suite.page.write_text(document(suite, result))
    show(screen, result)
    screen.document(result)
    return 0 if result.ok else 1


def chosen(suite: Suite, only: tuple[str, ...]) -> "list[Goal]":
    """The measurements of these names, or whose names begin with one and a hyphen; all of them for none."""
    for each in only:
        if not any(named(goal.name, each) for goal in suite.goals):
            raise unknown("measurement", each, [goal.name for goal in suite.goals])
    return [goal for goal in suite.goals if not only or any(named(goal.name, each) for each in only)]


def named(name: str, asked: str) -> bool:
    """Whether a measurement is meant."""
    return name == asked or name.startswith(f"{asked}-")


def compute(goals: "list[Goal]", rounds: int, screen: Screen) -> Result:
    """Measure one after the other, and judge."""
    from kvspec_diff.bench.goals import REASONS, stale, unexplained
    from kvspec_diff.bench.run import run

    load = os.getloadavg()[0]
    facts: list[Facts] = []
    figures: list[Figure] = []
    with screen.progress("measuring") as tell:
        for figure in run(goals, rounds, REASONS, counting(tell, figures, len(goals)), facts):
            figures.append(figure)
    missed, old = unexplained(figures), stale(figures, REASONS)
    return Result(not missed and not old, figures, missed, old, machine(load, facts))


def machine(load: float, facts: "list[Facts]") -> Machine:
    """This machine; torch and NumPy are those of the engines' environments, where the pools were measured."""
    torch, numpy = (", ".join(dict.fromkeys(each)) for each in ([f.torch for f in facts], [f.numpy for f in facts]))
    system = f"{platform.system()} {platform.machine()}"
    python = platform.python_version()
    return Machine(processor(), os.cpu_count() or 1, round(load, 2), system, python, torch, numpy)


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def counting(tell: Told, done: list[Figure], of: int) -> Callable[[str], None]:
    """Progress in measurements."""
    return lambda at: tell(len(done), of, at)


HEAD = ("name", "what", "against", "ours", "peer", "ratio", "over rounds", "goal", "")


def rows(result: Result) -> list[tuple[str, ...]]:
    """A line a figure."""
    return [
        (
            each.name, each.what, each.peer_name, f"{number(each.ours)} {each.unit}", number(each.peer),
            number(each.ratio), f"{number(each.low)} to {number(each.high)}",
            wanted(each), verdict(each),
        )
        for each in result.figures
    ]  # fmt: skip


def wanted(figure: Figure) -> str:
    """The goal."""
    if figure.goal is None:
        return "-"
    return f"{figure.goal:g}" if figure.most is None else f"{figure.goal:g} to {figure.most:g}"


def verdict(figure: Figure) -> str:
    """In a word; small letters where a reason is written down."""
    if figure.met is None:
        return "reported"
    return "met" if figure.met else "missed" if figure.reason else "MISSED"


def number(value: float) -> str:
    """Three digits."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def remarks(result: Result) -> list[str]:
    """What is to be said below the table."""
    said = [f"{each.name} is missed: {each.reason}" for each in result.figures if each.reason]
    said += [f"{name} is missed, and no reason is written down for it." for name in result.unexplained]
    said += [f"The reason written down for {name} is stale: remove it." for name in result.stale]
    speed = [each for each in result.figures if each.unit == "µs an event"]
    said += [f"The compiled monitor takes {1e6 / each.ours:,.0f} events a second." for each in speed]
    return said


def on(machine: Machine) -> str:
    """The machine in a line."""
    text = f"{machine.processor}, {machine.cores} cores (load {machine.load:g} when it began), {machine.system}, "
    text += f"Python {machine.python}, one thread"
    return text + f", torch {machine.torch}, NumPy {machine.numpy}" * bool(machine.torch)


def show(screen: Screen, result: Result) -> None:
    """The table and what is to be said of it."""
    head = ("name", "against", "ours", "peer", "ratio", "over rounds", "goal", "")
    screen.table(head, [(row[0], *row[2:]) for row in rows(result)])
    screen.line()
    for text in remarks(result):
        screen.line(text)
    screen.line(f"Measured on {on(result.machine)}.")


def document(suite: Suite, result: Result) -> str:
    """The page of the docs."""
    lines = [
        f"# {suite.title}",
        "",
        f"<!-- Written by `kvspec bench {suite.name} --write`; do not edit. -->",
        "",
        "A ratio is the peer's median by ours, above 1 where ours is better; the extremes are over single rounds, in",
        f"each of which both sides had their turn ({', '.join(rounds_of(result))} rounds).",
        *["Where the context is doubled, the ratio is the growth."] * any(each.most for each in result.figures),
        "",
        "| " + " | ".join(HEAD) + " |",
        "|" + "---|" * len(HEAD),
        *("| " + " | ".join(row) + " |" for row in rows(result)),
        "",
        *(text + "\n" for text in remarks(result)),
        f"Measured on {on(result.machine)}.",
        "",
        "## What each side does",
        "",
        suite.method.strip(),
        "",
    ]
    return "\n".join(lines)


def rounds_of(result: Result) -> list[str]:
    """How many rounds there were, of figures that vary."""
    return list(dict.fromkeys(str(each.rounds) for each in result.figures if each.rounds > 1))
