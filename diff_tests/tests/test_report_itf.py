"""ITF traces, as PyPI's `itf-py` reads them: every variable in every state is what the run has."""

from typing import Any

import itf_py
import msgspec
import pytest
from kvspec.deferred_free import DeferredFree
from kvspec.language.sorts import Bool, domains, value_sort
from kvspec_diff.report import collect, itf, steps
from kvspec_proofs.tables import cells


def opened(document: dict[str, Any]) -> itf_py.Trace:
    """What the reader makes of the file's bytes."""
    return itf_py.trace_from_json(msgspec.json.decode(msgspec.json.encode(document)))


def unlike(walk: steps.Walk, read: itf_py.Trace) -> list[str]:
    """The variables that the reader sees differently, as `state.variable`."""
    found = []
    for number, (state, column) in enumerate(zip(read.states, walk.columns, strict=True)):
        for name, var in walk.machine.variables.items():
            here = cells(walk.machine, column.state, name)
            keyed = {index[0] if len(index) == 1 else index: value for index, value in here.items()}
            if not domains(var.kind):
                expected: Any = here[()]
            elif value_sort(var.kind) is Bool:
                expected = frozenset(index for index, value in keyed.items() if value)
            else:
                expected = keyed
            if state.values[name] != expected:
                found.append(f"{number}.{name}")
    return found


@pytest.fixture(scope="module", params=["vllm-56524", "lmcache-3130", "finding"])
def walk(request: pytest.FixtureRequest) -> steps.Walk:
    if request.param == "finding":
        return collect.known_findings()[1][1].walk
    shown = collect.of_variant(request.param)
    assert shown is not None
    return shown.walk


def test_it_is_read_as_it_was_written(walk: steps.Walk) -> None:
    document = itf.document(walk, "somewhere")
    read = opened(document)
    assert unlike(walk, read) == []
    assert read.vars == ["action", "parameters", *walk.machine.variables]
    assert (read.params, read.loop) == ([], None)
    assert [state.meta for state in read.states] == [{"index": number} for number in range(len(walk.columns))]
    assert all(set(state.values) == set(read.vars) for state in read.states)
    assert [state.values["action"] for state in read.states] == [column.name for column in walk.columns]
    assert [dict(state.values["parameters"]) for state in read.states] == [
        dict(each.arguments) for each in walk.columns
    ]
    assert read.states[0].values["action"] == ""
    assert (read.meta["format"], read.meta["source"]) == ("ITF", "somewhere")
    assert read.meta["broken"] == list(walk.columns[-1].broken) != []
    again = itf_py.trace_from_json(itf_py.trace_to_json(read))
    assert [state.values for state in again.states] == [state.values for state in read.states]


def test_a_wrong_value_would_be_seen(walk: steps.Walk) -> None:
    document = itf.document(walk, "")
    last = len(walk.columns) - 1
    document["states"][last]["blank"]["#set"].append(77)
    document["states"][0]["available"] += 1
    document["states"][1]["refs"]["#map"][0][1] += 1
    assert unlike(walk, opened(document)) == ["0.available", "1.refs", f"{last}.blank"]


def test_a_variable_with_a_name_of_its_own_is_refused() -> None:
    from kvspec.language import state
    from kvspec.language.sorts import Nat

    class Named(DeferredFree):
        action = state(Nat)

    with pytest.raises(ValueError, match="'action' is taken in ITF traces"):
        itf.document(steps.Walk(Named, None, []), "")
