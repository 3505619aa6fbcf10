"""`kvspec explore`: every state of a machine at a small scope, breadth first."""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from kvspec_cli.errors import BadInput, unknown
from kvspec_cli.screen import Screen
from kvspec_cli.shown import Chosen, ShownRun, choose, print_run, show_run

if TYPE_CHECKING:
    from kvspec.language.machine import Machine

MOST = 64
"""The largest size of a sort."""


class Explored(msgspec.Struct, frozen=True):
    """How far the search went. `exhausted`: nothing was left; `run` breaks a law."""

    subject: str
    variant: str
    law: str
    sizes: dict[str, int]
    states: int
    steps: int
    depth: int
    exhausted: bool
    run: ShownRun | None
    reproduce: str = ""


def explore(
    subject: Annotated[str | None, Parameter(help="A machine, such as pages or fairness.")] = None,
    /,
    *,
    variant: Annotated[str | None, Parameter(help="A known bug, such as sglang-34067, in place of a subject.")] = None,
    law: Annotated[str, Parameter(help="Look for a step that breaks this law, such as D1; any law by default.")] = "",
    pages: Annotated[int, Parameter(help="Pages besides the null page.")] = 2,
    requests: Annotated[int, Parameter(help="Requests.")] = 2,
    entries: Annotated[int, Parameter(help="Entries of a row.")] = 1,
    offsets: Annotated[int, Parameter(help="Slots of a page.")] = 1,
    calls: Annotated[int, Parameter(help="Freeing calls in one group.")] = 1,
    tokens: Annotated[int, Parameter(help="Different tokens.")] = 2,
    prompts: Annotated[str, Parameter(help="one: all requests read the same; many: each its own.")] = "one",
    max_states: Annotated[int, Parameter(help="Stop after so many different states.")] = 50_000,
    as_json: Annotated[bool, Parameter("--json", negative=(), help="Print one JSON document.")] = False,
) -> int:
    """Search all states of a machine at a small scope, breadth first, for the shortest run that breaks a law."""
    screen = Screen(as_json=as_json)
    if subject is None and variant is None:
        raise BadInput("name a subject or a --variant to explore, such as `kvspec explore pages`")
    (chosen,) = choose((subject,) if subject is not None else (), variant)
    laws = law_ids(chosen.machine)
    if law and law not in laws:
        raise unknown(f"law of {chosen.name}", law, laws)
    if prompts not in ("one", "many"):
        raise unknown("--prompts", prompts, ("one", "many"))
    asked = {"pages": pages, "requests": requests, "entries": entries, "offsets": offsets, "calls": calls}
    for name, value in (asked | {"tokens": tokens}).items():
        if not 1 <= value <= MOST:
            raise BadInput(f"--{name} is {value}; give a number from 1 to {MOST}")
    if max_states < 1:
        raise BadInput(f"--max-states is {max_states}; give a number above 0")
    sizes = {
        "Page": pages + 1, "Request": requests, "Entry": entries, "Offset": offsets, "Stop": entries + 1,
        "Call": calls, "Token": tokens, "Nat": pages + 1, "Slot": pages + 1,
    }  # fmt: skip
    which = f"--variant {variant}" if variant else chosen.name
    options = " ".join(f"--{name} {value}" for name, value in asked.items())
    command = f"kvspec explore {which}{f' --law {law}' if law else ''} {options} --tokens {tokens} --prompts {prompts}"
    result = compute(chosen, law, sizes, prompts == "many", max_states, screen)
    if result.run:
        result = msgspec.structs.replace(result, reproduce=f"{command} --max-states {max_states}")
    show(screen, result, chosen)
    screen.document(result)
    return 1 if result.run else 0


def law_ids(machine: "type[Machine]") -> list[str]:
    """The laws that a search evaluates."""
    kinds = [law.law for law in machine.laws.values() if law.kind in ("invariant", "derived", "step")]
    return sorted({*kinds, *(var.law for var in counts_of(machine))})


def counts_of(machine: "type[Machine]") -> "list[Any]":
    """The machine's counters, each of which has a law: that it counts."""
    from kvspec.language.machine import count

    return [var for var in machine.variables.values() if isinstance(var, count)]


def compute(chosen: Chosen, law: str, sizes: dict[str, int], many: bool, max_states: int, screen: Screen) -> Explored:
    """Search from the initial state."""
    from kvspec_proofs.scopes import rigid_choices, sizes_for
    from kvspec_proofs.search import search

    used = sizes_for(chosen.machine, sizes)
    choices = list(rigid_choices(chosen.machine, used))  # one prompt, then many; one choice where there are no prompts
    with screen.progress(f"exploring {chosen.name}") as tell:
        searched = search(
            chosen.machine, used, choices[-1 if many else 0], law=law, max_states=max_states,
            progress=lambda depth, states: tell(states, max_states, f"states, depth {depth}"),
        )  # fmt: skip
    run = show_run(chosen.machine, searched.run, law) if searched.run else None
    return Explored(
        chosen.name, chosen.variant, law, used, searched.states, searched.steps, searched.depth, searched.exhausted, run
    )


def show(screen: Screen, result: Explored, chosen: Chosen) -> None:
    """Print how far it went, and the run."""
    how = "the run was found" if result.run else "nothing is left" if result.exhausted else "stopped at --max-states"
    screen.line(chosen.title, "bold")
    screen.line(f"  {result.states:,} states, {result.steps:,} steps, depth {result.depth}: {how}")
    if result.run:
        screen.line()
        print_run(screen, result.run)
        screen.line(f"Reproduce: {result.reproduce}")
    else:
        far = "" if result.exhausted else ", as far as the search went"
        screen.line(f"No run breaks {result.law or 'a law'}{far}.")
