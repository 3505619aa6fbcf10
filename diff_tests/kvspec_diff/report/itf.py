"""Runs in Apalache's Informal Trace Format (ITF, its ADR 015), which other tools for traces read.

One state a step: `action` is the step that led there (empty at first), `parameters` what it was taken with, the others
are the machine's variables. Sets become `#set`, maps `#map`, tuples of indices `#tup`; elements are numbered from 0.
"""

from typing import Any

from kvspec.language.machine import Machine
from kvspec.language.run import State
from kvspec.language.sorts import Bool, domains, value_sort
from kvspec_proofs.tables import cells

from kvspec_diff.report.steps import Column, Walk

FORMAT = "https://apalache-mc.org/docs/adr/015adr-trace.html"

OWN = ("action", "parameters")
"""Variables that are no machine's."""


def document(walk: Walk, source: str) -> dict[str, Any]:
    """A run as an ITF trace; `source` says where it comes from, such as a known bug's name.

    A machine's run has actions for steps, a trace operations; `broken` are the laws that the last one breaks.
    """
    names = list(walk.machine.variables)
    if clash := set(names) & set(OWN):
        raise ValueError(
            f"{walk.machine.__name__}: the name {min(clash)!r} is taken in ITF traces; rename the variable"
        )
    return {
        "#meta": {
            "format": "ITF",
            "format-description": FORMAT,
            "source": source,
            "description": f"A run of kvspec's {walk.machine.__name__}",
            "broken": list(walk.columns[-1].broken),
        },
        "params": [],
        "vars": [*OWN, *names],
        "states": [_state(walk.machine, number, column) for number, column in enumerate(walk.columns)],
    }


def _state(machine: type[Machine], number: int, column: Column) -> dict[str, Any]:
    arguments = {"#map": [[name, given] for name, given in column.arguments.items()]}
    shown = {name: value(machine, column.state, name) for name in machine.variables}
    return {"#meta": {"index": number}, "action": column.name, "parameters": arguments, **shown}


def value(machine: type[Machine], state: State, name: str) -> Any:
    """A variable's value: a set of elements or tuples, a map from them, or a plain value."""
    kind = machine.variables[name].kind
    found = cells(machine, state, name)
    if not domains(kind):
        return found[()]
    if value_sort(kind) is Bool:
        return {"#set": [_index(index) for index, holds in found.items() if holds]}
    return {"#map": [[_index(index), cell] for index, cell in found.items()]}


def _index(index: tuple[int, ...]) -> Any:
    return index[0] if len(index) == 1 else {"#tup": list(index)}
