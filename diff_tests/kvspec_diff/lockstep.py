"""The reference in lockstep with the compiled specification: the actions it reports, and its whole state after each."""

from collections.abc import Callable, Mapping
from typing import Any

from kvspec.language.run import State
from kvspec_reference import Cache
from msgspec import structs

from kvspec_diff.monitor import Finding, Monitor
from kvspec_diff.program import Program
from kvspec_diff.subjects.reference import perform

Parts = Mapping[str, tuple[Callable[[State], Any], tuple[str, ...]]]
"""The parts of what is compared: how a machine's state says each, and which variables it needs for that."""


def lockstep(program: Program, cache: Cache | None = None) -> Finding | None:
    """Run the program on the reference (`cache`, fresh and of the program's configuration, if given), in lockstep.

    A finding is a law that a reported action or an observed state breaks, or law `state`: the two states differ. The
    reference checks its caller, so misuse that is done is a finding too.
    """
    cache = cache or Cache(program.configuration.pages, program.configuration.page_size)
    monitor = Monitor(program)
    for index, operation in enumerate(program.operations):
        outcome = perform(cache, operation)
        found = monitor.step(operation, outcome, cache.take_actions())
        if found is not None:
            return structs.replace(found, index=index)
        own = plain(cache)
        for part, value in snapshot(monitor.state).items():
            if own[part] != value:
                return Finding(index, operation, "state", f"{part} is {own[part]}, the specification has {value}")
    return None


def plain(cache: Cache) -> dict[str, Any]:
    """The reference's snapshot without the orders that the specification leaves open."""
    return {name: sorted(part) if isinstance(part, list) else part for name, part in cache.snapshot().items()}


def snapshot(state: State, parts: Parts | None = None) -> dict[str, Any]:
    """The parts of a machine's state of which it knows something.

    Without `parts`, in the form of `kvspec_reference.Cache.snapshot`, lists sorted: what is empty is left out, and
    contents are those of pages that are not blank.
    """
    parts = PARTS if parts is None else parts
    return {name: part(state) for name, (part, needed) in parts.items() if vars(state).keys() >= set(needed)}


def members(name: str) -> tuple[Callable[[State], Any], tuple[str, ...]]:
    """The pages of a set."""
    return lambda state: [page for page, member in enumerate(getattr(state, name)) if member], (name,)


def _rows(state: State) -> dict[int, dict[int, int]]:
    rows = {r: {k: state.row[r][k] for k, there in enumerate(live) if there} for r, live in enumerate(state.live)}
    return {r: row for r, row in rows.items() if row}


def _settled(state: State) -> dict[int, list[tuple[int, int]]]:
    found = {
        r: [(k, o) for k, offsets in enumerate(entries) for o, there in enumerate(offsets) if there]
        for r, entries in enumerate(state.settled)
    }
    return {r: positions for r, positions in found.items() if positions}


def _content(state: State) -> dict[tuple[int, int], int]:
    return {
        (p, o): state.content[p][o]
        for p, written in enumerate(state.written)
        for o, there in enumerate(written)
        if there and not state.blank[p]
    }


PARTS: Parts = {
    "blank": members("blank"),
    "cached": members("cached"),
    "released": members("released"),
    "refs": (lambda state: {p: n for p, n in enumerate(state.refs) if n}, ("refs",)),
    "rows": (_rows, ("row", "live")),
    "settled": (_settled, ("settled",)),
    "content": (_content, ("content", "written")),
    "reading": (
        lambda state: [(r, p) for r, row in enumerate(state.reading) for p, there in enumerate(row) if there],
        ("reading",),
    ),
    "open": (lambda state: state.open, ("open",)),
}
"""The parts of the cache's snapshot."""
