"""What stands in a page map's cell: whose a page is in a state, and what a step changed, in words."""

from collections.abc import Sequence

from kvspec.language.machine import Machine
from kvspec.language.run import State
from kvspec.language.sorts import Bool, domains, value_sort
from kvspec_proofs.tables import GHOSTS, cells

from kvspec_diff.report.data import Cell, Change, Value
from kvspec_diff.report.words import Names

NEEDED = ("null", "blank", "cached", "released", "live", "row", "reading", "refs")
"""The state variables that say whose a page is."""

PLUS, MINUS, ARROW, NONE = "+", "\u2212", "\u2192", "\u2013"
"""What a step adds, takes away, changes; and what is empty."""

COLOURS = 6
"""Requests have so many different colours; then they repeat."""

MOST_CELLS = 12
"""Of a variable, so many changed or shown cells are listed."""

HIDDEN = (*GHOSTS, "prefix")
"""Variables that a reader does not need: inverses kept for the proof, and the rigid prompts."""

LEGEND = {
    "blank": "blank: nobody's",
    "shared": "shared by several requests",
    "reading": "only read: its row gave it up",
    "cached": "cached, and held by nobody",
    "released": "released, not blank yet",
    "deferred": "released, and waits for its group's end",
    "null": "the null page",
    "lost": "lost: in no place at all",
    "conflict": "in two places that exclude each other",
}
"""What the colours stand for, besides the requests' own."""


def shows_pages(machine: type[Machine]) -> bool:
    """Whether the machine's states say whose a page is."""
    return set(NEEDED) <= machine.variables.keys()


def holders(state: State) -> list[list[int]]:
    """For each page the requests in whose rows it stands."""
    found: list[list[int]] = [[] for _ in range(state.n_Page)]
    for request, live in enumerate(state.live):
        for entry, there in enumerate(live):
            page = state.row[request][entry]
            if there and request not in found[page]:
                found[page].append(request)
    return found


def queued(state: State) -> set[int]:
    """The pages that a queue of deferred frees names; none where the machine has no queue."""
    entries = getattr(state, "queued", []) if hasattr(state, "n_Call") else []
    return {
        state.value[call][entry] for call, row in enumerate(entries) for entry, there in enumerate(row) if there
    }  # fmt: skip


def page_cells(state: State, names: Names) -> list[Cell]:
    """A cell for every page."""
    rows, waiting = holders(state), queued(state)
    return [_cell(state, page, rows[page], page in waiting, names) for page in range(state.n_Page)]


def _cell(state: State, page: int, holding: Sequence[int], waits: bool, names: Names) -> Cell:
    reading = [request for request in range(state.n_Request) if state.reading[request][page]]
    places: list[tuple[str, str, str]] = []
    if page == state.null:
        places.append(("null", "null", "the null page"))
    held = _held(state, page, holding, reading, names)
    places += [held] if held else []
    if state.released[page]:
        says = "released, and waits for the end of its group" if waits else "released, not blank yet"
        places.append(("deferred", "wait", says) if waits else ("released", "rel", says))
    if state.blank[page]:
        places.append(("blank", "blank", "blank"))
    if not places:
        return Cell("lost", "lost", f"Page {page} is lost: in no place at all")
    if len(places) > 1:
        marks, says = ("+".join(place[1] for place in places), " and, at the same time, ".join(p[2] for p in places))
        return Cell("conflict", marks, f"Page {page} is {says}")
    owner, mark, says = places[0]
    return Cell(owner, "" if owner == "blank" else mark, f"Page {page} is {says}")


def _held(
    state: State, page: int, holding: Sequence[int], reading: Sequence[int], names: Names
) -> tuple[str, str, str] | None:
    """The place of a page that is held, read or cached."""
    cached = state.cached[page]
    says = [f"held by {' and '.join(names.request(each) for each in holding)}"] if holding else []
    says += [f"read by {' and '.join(names.request(each) for each in reading)}"] if reading else []
    says += ["cached"] if cached else []
    if not says:
        return None
    mark = " ".join(names.short(each) for each in holding)
    mark += "".join(f"({names.short(each)})" for each in reading if each not in holding) + ("\u00b7c" if cached else "")
    if len(holding) > 1:
        owner = "shared"
    elif holding:
        owner = f"r{holding[0] % COLOURS}"
    else:
        owner = "reading" if reading else "cached"
    return owner, "cache" if owner == "cached" else mark, ", ".join(says)


def legend(shown: Sequence[Sequence[Cell]], names: Names, requests: int) -> dict[str, str]:
    """The owners that occur, requests first."""
    used = {cell.owner for column in shown for cell in column}
    people: dict[str, list[str]] = {}
    for number in range(requests):
        people.setdefault(f"r{number % COLOURS}", []).append(names.request(number))
    found = {owner: ", ".join(who) for owner, who in people.items() if owner in used}
    return found | {owner: says for owner, says in LEGEND.items() if owner in used}


def changes(machine: type[Machine], before: State, after: State, names: Names) -> list[Change]:
    """What is different after a step, variable by variable, as `+ page 1`, `- page 2` or `page 1: 0 to 1`."""
    found = []
    for name, var in machine.variables.items():
        if name in HIDDEN or getattr(before, name) == getattr(after, name):
            continue
        kind = value_sort(var.kind)
        old, new = cells(machine, before, name), cells(machine, after, name)
        told = []
        for index, value in new.items():
            if value == old[index]:
                continue
            at = _at(machine, name, index, names)
            if kind is Bool and at:
                told.append(f"{PLUS if value else MINUS} {at}")
            else:
                words = f"{names.element(kind, old[index])} {ARROW} {names.element(kind, value)}"
                told.append(f"{at}: {words}" if at else words)
        found.append(Change(name, cut(told)))
    return found


def values(machine: type[Machine], state: State, changed: Sequence[Change], names: Names) -> list[Value]:
    """Every variable in a line: the members of a set, the cells of a map that are not 0."""
    moved = {change.variable for change in changed}
    return [
        Value(name, _value(machine, state, name, names), name in moved)
        for name in machine.variables
        if name not in HIDDEN
    ]


def _value(machine: type[Machine], state: State, name: str, names: Names) -> str:
    kind = value_sort(machine.variables[name].kind)
    found = cells(machine, state, name)
    if () in found:
        return names.element(kind, found[()])
    ats = {index: value for index, value in found.items() if value}
    if kind is Bool:
        told = [_at(machine, name, index, names) for index in ats]
    else:
        told = [f"{_at(machine, name, index, names)}: {names.element(kind, value)}" for index, value in ats.items()]
    return "; ".join(cut(told)) or NONE


def _at(machine: type[Machine], name: str, index: tuple[int, ...], names: Names) -> str:
    sorts = domains(machine.variables[name].kind)
    return ", ".join(names.element(sort, number) for sort, number in zip(sorts, index, strict=True))


def cut(told: list[str]) -> list[str]:
    """A list that is not too long to read."""
    more = len(told) - MOST_CELLS
    return told if more <= 0 else [*told[:MOST_CELLS], f"and {more:,} more"]


def differing(expected: Sequence[Cell], seen: Sequence[Cell]) -> list[int]:
    """The pages that are not where they should be."""
    return [page for page, pair in enumerate(zip(expected, seen, strict=True)) if pair[0] != pair[1]]


def told_wrong(page: int, expected: Cell, seen: Cell) -> str:
    """What is wrong with a page, in one sentence."""
    return f"{seen.says}; it should be {expected.says.removeprefix(f'Page {page} is ')}."
