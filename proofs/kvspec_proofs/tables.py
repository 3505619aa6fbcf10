"""States, steps and runs as rows of text: what is printed of a counterexample."""

from collections.abc import Iterator, Mapping
from typing import Any

from kvspec.language.machine import Machine
from kvspec.language.run import State, compile_machine
from kvspec.language.sorts import Bool, Sort, domains, value_sort

from kvspec_proofs.finite import Counterexample
from kvspec_proofs.search import Run

GHOSTS = ("place", "call", "spot")
"""Inverses that exist for the proof; a reader of a run does not need them."""


def element(sort: Sort, number: Any) -> str:
    """`page 2`, `request 0`; plain numbers for naturals."""
    return str(number) if sort.name in ("Nat", "Bool") else f"{sort.name.lower()} {number}"


def cells(machine: type[Machine], state: State, name: str) -> dict[tuple[int, ...], Any]:
    """Every cell of a variable."""
    var = machine.variables[name]

    def walk(value: Any, depth: int, index: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], Any]]:
        if depth == 0:
            yield index, value
        else:
            for number, item in enumerate(value):
                yield from walk(item, depth - 1, (*index, number))

    return dict(walk(getattr(state, name), len(domains(var.kind)), ()))


def show(machine: type[Machine], state: State, name: str) -> str:
    """A variable in one line: the members of a set, the cells of a map that are not 0."""
    var = machine.variables[name]
    sorts = domains(var.kind)
    found = cells(machine, state, name)
    if not sorts:
        return element(value_sort(var.kind), found[()])

    def at(index: tuple[int, ...]) -> str:
        return ", ".join(element(sort, number) for sort, number in zip(sorts, index, strict=True))

    if value_sort(var.kind) is Bool:
        members = [at(index) for index, holds in found.items() if holds]
        return "; ".join(members) or "-"
    named = [f"{at(index)}: {element(value_sort(var.kind), value)}" for index, value in found.items() if value]
    return "; ".join(named) or "-"


def call(machine: type[Machine], action: str, args: tuple[int, ...]) -> str:
    """`acquire(r=0, k=0, p=1)`."""
    params = machine.actions[action].params
    return f"{action}({', '.join(f'{name}={value}' for name, value in zip(params, args, strict=True))})"


def scope_of(state: State) -> str:
    """`3 pages (page 0 is null), 2 requests, 1 entry`."""
    sizes = [(name[2:].lower(), size) for name, size in vars(state).items() if name.startswith("n_")]
    words = [f"{size} {name if size == 1 else _plural(name)}" for name, size in sizes if name not in ("stop", "nat")]
    return ", ".join(word + (" (page 0 is null)" if "page" in word else "") for word in words)


def _plural(name: str) -> str:
    return f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"


def shown(machine: type[Machine]) -> list[str]:
    """The variables that a reader wants to see."""
    return [name for name in machine.variables if name not in GHOSTS]


def state_rows(machine: type[Machine], state: State) -> Mapping[str, str]:
    """Every variable in one line."""
    return {name: show(machine, state, name) for name in shown(machine)}


def step_rows(machine: type[Machine], before: State, action: str, args: tuple[int, ...]) -> list[tuple[str, str, str]]:
    """A state and a step from it: (variable, before, after), `after` empty where nothing changed."""
    after = before.copy()
    compile_machine(machine).actions[action](after, *args)
    old, new = state_rows(machine, before), state_rows(machine, after)
    return [(name, text, new[name] if new[name] != text else "") for name, text in old.items()]


def counterexample_rows(machine: type[Machine], found: Counterexample) -> list[tuple[str, str, str]]:
    """The state and the step of a counterexample."""
    return step_rows(machine, found.before, found.obligation.action, found.args)


def last_step_rows(machine: type[Machine], run: Run) -> list[tuple[str, str, str]]:
    """The state before a run's last step, and that step."""
    *earlier, last = run.moves
    return step_rows(machine, earlier[-1].after if earlier else run.start, last.action, last.args)


def run_rows(machine: type[Machine], run: Run) -> list[tuple[int, str, list[str]]]:
    """Each step of a run: its number, its action, and the variables it changed with their new values."""
    rows, state = [], run.start
    for number, move in enumerate(run.moves, 1):
        old, new = state_rows(machine, state), state_rows(machine, move.after)
        changed = [f"{name} = {text}" for name, text in new.items() if text != old[name]]
        rows.append((number, call(machine, move.action, move.args), changed))
        state = move.after
    return rows
