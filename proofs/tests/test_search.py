"""Breadth-first search, on a machine whose states can be counted by hand; and the tables that show what was found."""

import pytest
from kvspec.language import Machine, Not, Or, SetOf, action, exists, invariant, state, step
from kvspec.language.run import State, compile_machine
from kvspec.pages import Page
from kvspec.registry import ALGORITHMS, MACHINES, machine, sorts
from kvspec_proofs.scopes import SCOPES, scopes, sizes_for, starts
from kvspec_proofs.search import Run, key, search, successors
from kvspec_proofs.tables import call, last_step_rows, run_rows, show

THREE = {"Page": 3}


class Subsets(Machine):
    """Pages go in, and all come out at once."""

    good = state(SetOf(Page))

    @action
    def put(s, p: Page):
        """Put p in."""
        s.require(Not(s.good[p]))
        s.good[p] = True

    @action
    def empty(s):
        """All out."""
        s.good = lambda p: False


class Limited(Subsets):
    """It is not to be filled, nor emptied when it has something."""

    @invariant("X1")
    def never_full(s):
        """Some page is out."""
        return exists(Page, lambda p: Not(s.good[p]))

    @step("X2")
    def stays(s, t, p: Page):
        """What is in stays in."""
        return Or(Not(s.good[p]), t.good[p])


def test_every_state_is_found_once_and_every_step_is_taken() -> None:
    found = search(Subsets, THREE, {})
    assert (found.states, found.steps, found.depth, found.exhausted, found.run) == (8, 12 + 8, 4, True, None)
    compiled = compile_machine(Subsets)
    at = compiled.start(THREE, {})
    at.good[1] = True
    taken = [(name, args, after.good) for name, args, after in successors(compiled, at)]
    assert taken == [
        ("put", (0,), [True, True, False]), ("put", (2,), [False, True, True]), ("empty", (), [False, False, False]),
    ]  # fmt: skip
    assert at.good == [False, True, False]
    assert key(compiled, at) == ((False, True, False),)


def test_a_search_stops_where_it_is_told_to() -> None:
    found = search(Subsets, THREE, {}, max_states=5)
    assert (found.states, found.exhausted, found.run) == (5, False, None)
    told: list[tuple[int, int]] = []
    search(Subsets, THREE, {}, progress=lambda depth, states: told.append((depth, states)))
    assert told == [(1, 4), (2, 7), (3, 8), (4, 8)]


def actions(run: Run | None) -> list[str]:
    assert run is not None
    return [move.action for move in run.moves]


def test_the_shortest_run_to_a_broken_law_is_found() -> None:
    any_law, first, second = (search(Limited, THREE, {}, law=law).run for law in ("", "X1", "X2"))
    assert actions(any_law) == actions(second) == ["put", "empty"]
    assert actions(first) == ["put", "put", "put"]
    assert first is not None
    assert first.broken == (("X1", "never_full"),)
    assert [move.after.good.count(True) for move in first.moves] == [1, 2, 3]
    assert search(Limited, THREE, {}, law="X3").exhausted


def test_the_shortest_run_to_a_goal_is_found() -> None:
    def two_in(_before: State, _action: str, _args: tuple[int, ...], after: State) -> bool:
        return after.good.count(True) == 2

    found = search(Limited, THREE, {}, goal=two_in)
    assert actions(found.run) == ["put", "put"]
    assert found.run is not None
    assert found.run.broken == ()


def test_a_run_is_shown_step_by_step() -> None:
    run = search(Limited, THREE, {}, law="X1").run
    assert run is not None
    assert run_rows(Limited, run) == [
        (1, "put(p=0)", ["good = page 0"]),
        (2, "put(p=1)", ["good = page 0; page 1"]),
        (3, "put(p=2)", ["good = page 0; page 1; page 2"]),
    ]
    assert last_step_rows(Limited, run) == [("good", "page 0; page 1", "page 0; page 1; page 2")]
    assert last_step_rows(Limited, Run(run.start, run.moves[:1], ())) == [("good", "-", "page 0")]
    assert call(Limited, "empty", ()) == "empty()"


def test_a_map_is_shown_where_it_is_not_0() -> None:
    of = machine("pages")
    (sizes, rigid), *_ = starts(of)
    compiled = compile_machine(of)
    at = compiled.start(sizes, rigid)
    compiled.actions["acquire"](at, 1, 0, 2)
    assert show(of, at, "row") == "request 1, entry 0: page 2"
    assert show(of, at, "refs") == "page 2: 1"
    assert show(of, at, "null") == "page 0"
    assert show(of, at, "available") == "1"
    assert show(of, at, "reading") == "-"


@pytest.mark.parametrize("name", MACHINES)
def test_no_run_breaks_a_law_of_the_specification(name: str) -> None:
    of = machine(name)
    found = [search(of, sizes, rigid, max_states=600) for sizes, rigid in starts(of)]
    assert all(each.run is None for each in found)
    assert all(each.steps > 600 or (of.of_kind("assumption") and each.exhausted) for each in found)
    assert max(each.steps for each in found) > 200 or not of.actions


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_run_breaks_a_law_of_an_algorithm(name: str) -> None:
    of = machine(name)
    for sizes, rigid in starts(of):
        found = search(of, sizes, rigid, max_states=600)
        assert found.run is None
        assert found.steps > 600


@pytest.mark.parametrize("name", [*MACHINES, *ALGORITHMS])
def test_every_scope_has_every_sort_and_starts_somewhere(name: str) -> None:
    of = machine(name)
    assert all(set(sizes) == set(sorts(of)) for sizes in scopes(of))
    assert len(scopes(of)) == len({tuple(scope[name] for name in sorts(of)) for scope in SCOPES})
    begun = list(starts(of))
    assert len(begun) >= len({tuple(sorted(sizes.items())) for sizes in scopes(of)})
    compiled = compile_machine(of)
    assert all(compiled.broken(compiled.start(sizes, rigid)) == [] for sizes, rigid in begun)


def test_a_sort_without_a_size_is_named() -> None:
    with pytest.raises(LookupError, match="Subsets: no size for the sort Page; add it to a scope"):
        sizes_for(Subsets, {"Request": 2})
