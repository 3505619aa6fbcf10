"""Page maps: whose each page is after each step, what changed, and what is broken where."""

import shutil
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest
from kvspec.deferred_free import DeferredFree
from kvspec.language.machine import Machine
from kvspec.language.run import State, compile_machine
from kvspec.operations import (
    Allocate,
    Begin,
    Configuration,
    End,
    Finish,
    Free,
    Outcome,
    Overwrite,
    Pin,
    Publish,
    Share,
    Start,
    Write,
)
from kvspec.registry import ALGORITHMS, MACHINES, machine, variant
from kvspec_diff import trace
from kvspec_diff.program import OPERATIONS, Program
from kvspec_diff.report import collect, steps, words
from kvspec_diff.report.cells import LEGEND, page_cells
from kvspec_diff.subjects.reference import Reference
from kvspec_proofs.search import Move, Run

SIZES = {"Page": 3, "Request": 2, "Entry": 1, "Offset": 1, "Stop": 2, "Call": 1, "Token": 2, "Nat": 2}
RIGID = {"null": 0, "prefix": [[[0]], [[0]]]}
BUG = [("acquire", 0, 0, 1), ("begin",), ("release", 0, 0, 0, 1, 0), ("acquire", 0, 0, 2), ("end",)]
"""The run that sglang#34067 is known by."""

FINDINGS = Path(str(files("kvspec_diff") / "findings"))


def run_of(kind: type[Machine], actions: list[tuple[str | int, ...]]) -> Run:
    compiled = compile_machine(kind)
    before = start = compiled.start(SIZES, RIGID)
    moves = []
    for name, *args in actions:
        after = before.copy()
        compiled.actions[str(name)](after, *args)
        moves.append(Move(str(name), tuple(map(int, args)), after))
        last, before = before, after
    return Run(start, tuple(moves), tuple(compiled.judge(last, moves[-1].action, moves[-1].args, before)))


def marks(shown: steps.PageMap) -> list[list[str]]:
    return [[cell.mark for cell in step.cells] for step in shown.steps]


def test_a_bug_step_by_step() -> None:
    shown = steps.page_map(steps.of_run(variant("sglang-34067"), run_of(variant("sglang-34067"), BUG)))
    assert [step.label for step in shown.steps] == ["at first", "acquire", "begin", "release", "acquire", "end"]
    assert marks(shown) == [
        ["null", "", ""],
        ["null", "r0", ""],
        ["null", "r0", ""],
        ["null", "wait", ""],
        ["null", "wait", "r0"],
        ["null", "rel", "r0+blank"],
    ]
    *earlier, last = shown.steps
    assert [step.broken for step in earlier] == [[]] * 5
    assert last.broken[0] == "D1 frees_what_was_named"
    assert [cell.wrong for cell in last.cells] == [False, True, True]
    assert last.wrong == [
        "Page 1 is released, not blank yet; it should be blank.",
        "Page 2 is held by request 0 and, at the same time, blank; it should be held by request 0.",
    ]
    assert shown.steps[1].says == "Page 1 is handed to request 0, as its entry 0."
    assert ("blank", ["\u2212 page 1"]) in [(change.variable, change.cells) for change in shown.steps[1].changes]
    assert ("refs", ["page 1: 0 \u2192 1"]) in [(change.variable, change.cells) for change in shown.steps[1].changes]
    assert {value.variable for value in last.state if value.changed} == {"blank", "available", "open", "queued"}


def test_the_specification_does_it_right() -> None:
    shown = steps.page_map(steps.of_run(DeferredFree, run_of(DeferredFree, BUG)))
    assert marks(shown)[-1] == ["null", "", "r0"]
    assert (shown.steps[-1].broken, shown.steps[-1].wrong) == ([], [])
    assert not any(cell.wrong for step in shown.steps for cell in step.cells)


def test_a_step_that_the_specification_refuses() -> None:
    kind = variant("lmcache-3130")
    found = collect.of_variant("lmcache-3130")
    assert found is not None
    last = found.counterexample.map.steps[-1]
    assert last.label == "evict"
    assert last.wrong[0].startswith("The specification does not allow this step (O4): it asks that ")
    assert [step.cells[page].wrong for step in (last,) for page in found.counterexample.map.pages].count(True) == 1
    assert last.broken[0].startswith(kind.breaks)


def test_every_place_of_a_page() -> None:
    compiled = compile_machine(DeferredFree)

    def after(*actions: tuple[str | int, ...]) -> State:
        state = compiled.start(SIZES, RIGID)
        for name, *args in actions:
            compiled.actions[str(name)](state, *args)
        return state

    held = [("acquire", 0, 0, 1), ("write", 0, 0, 0, 0), ("settle", 0, 0, 0)]
    lost = after(*held)
    lost.live[0][0] = False
    places = {
        "blank": after(),
        "r0": after(*held),
        "r1": after(("acquire", 1, 0, 1)),
        "shared": after(*held, ("publish", 1), ("share", 1, 0, 1)),
        "reading": after(*held, ("begin_read", 0, 1), ("release", 0, 0, 0, 1, 0)),
        "cached": after(*held, ("publish", 1), ("release", 0, 0, 0, 1, 0)),
        "released": after(*held, ("release", 0, 0, 0, 1, 0)),
        "deferred": after(*held, ("begin",), ("release", 0, 0, 0, 1, 0)),
        "lost": lost,
        "conflict": after(*held),
    }
    places["conflict"].blank[1] = True
    names = words.Names()
    assert {place: page_cells(state, names)[1].owner for place, state in places.items()} == {
        place: place for place in places
    }
    assert {page_cells(state, names)[0].owner for state in places.values()} == {"null"}
    assert set(LEGEND) == {*places, "null"} - {"r0", "r1"}
    assert page_cells(places["shared"], names)[1].mark == "r0 r1\u00b7c"


PROGRAM = Program(
    Configuration(4, 1),
    (
        Start("a", 0), Allocate("a", 2), Write("a", 0, 2), Publish("a", 0, 1), Start("b", 0), Share("b", "a", 0, 1),
        Pin("p", "a", 1), Begin(), Free("a", 0, 2), End(), Finish("a"), Start("a", 1), Allocate("a", 9),
    ),
)  # fmt: skip


def recorded(program: Program, outcomes: list[Outcome] | None = None, **header: str) -> trace.Trace:
    done = Reference().run(program) if outcomes is None else outcomes
    padded = [*done, *[None] * (len(program.operations) - len(done))]
    return trace.Trace(trace.header(program.configuration, **header), program.operations, tuple(padded))


def test_a_trace_that_breaks_nothing() -> None:
    walk = steps.of_trace("x", recorded(PROGRAM))
    shown = steps.page_map(walk)
    assert walk.finding is None
    assert len(shown.steps) == len(PROGRAM.operations) + 1
    assert not any(step.broken or step.wrong for step in shown.steps)
    assert marks(shown)[3] == ["null", "a", "a", "", ""]
    assert marks(shown)[6] == ["null", "a b\u00b7c", "a", "", ""]
    assert marks(shown)[9] == ["null", "b\u00b7c", "(a)", "", ""]
    assert shown.steps[2].came == "Pages 1 2; slots 1 2."
    assert shown.steps[-1].came == "It is refused: 9 pages wanted, 2 available."
    assert (shown.legend["r0"], shown.legend["shared"]) == ("row a", LEGEND["shared"])
    assert "lost" not in shown.legend


def test_a_row_that_is_started_again_has_another_name() -> None:
    assert steps.row_names(PROGRAM) == ["a", "b", "a#2"]
    misused = Program(Configuration(1, 1), (Start("a", 0), Start("a", 0), Finish("a"), Start("a", 0)))
    assert steps.row_names(misused) == ["a", "a#2"]


def test_what_was_observed_is_shown_where_a_law_is_broken() -> None:
    small = Program(Configuration(2, 1), (Start("a", 0), Allocate("a", 1), Free("a", 0, 1), Allocate("a", 1)))
    right = Reference("end").run(small)
    shown = [msgspec.structs.replace(outcome, blank=None, available=None) for outcome in right]
    assert steps.of_trace("x", recorded(small, shown)).finding is None
    shown[2] = msgspec.structs.replace(shown[2], blank=(2,))
    walk = steps.of_trace("x", recorded(small, shown))
    assert walk.finding is not None
    assert walk.finding.index == 2
    last = steps.page_map(walk).steps[-1]
    assert last.number == 3
    assert last.broken == [walk.finding.law]
    assert [cell.owner for cell in last.cells] == ["null", "lost", "blank"]
    assert last.wrong == ["Page 1 is lost: in no place at all; it should be blank."]


def test_every_known_finding_is_shown_and_stands() -> None:
    found = collect.known_findings()
    assert len(found) == len(list(FINDINGS.glob("*/*/*.jsonl"))) >= 3
    for row, shown in found:
        assert row.stands
        assert row.law == shown.counterexample.law != ""
        assert shown.counterexample.map.steps[-1].wrong
        assert shown.counterexample.law_says
        assert all(link.startswith("https://github.com/") for link in row.links)
        assert row.links


def test_a_finding_whose_trace_breaks_nothing_does_not_stand(tmp_path: Path) -> None:
    folder = tmp_path / "sglang" / "0.5.17"
    shutil.copytree(FINDINGS / "sglang" / "0.5.17", folder)
    path = min(folder.iterdir())
    before = {row.name: row.stands for row, _ in collect.known_findings(tmp_path)}
    assert before[path.stem]
    read = trace.read(path)
    trace.write(path, recorded(Program(read.header.configuration, read.operations[:-1]), law="D1"))
    after = {row.name: row.stands for row, _ in collect.known_findings(tmp_path)}
    assert after == {**before, path.stem: False}


def test_a_trace_without_outcomes_and_one_too_large(tmp_path: Path) -> None:
    with pytest.raises(trace.TraceError, match="x:2: no outcome is recorded"):
        steps.of_trace("x", recorded(PROGRAM, []))
    large = Program(Configuration(steps.MOST_SLOTS + 1, 1), (Start("a", 0),))
    with pytest.raises(trace.TraceError, match="x:1: the pool is too large"):
        steps.of_trace("x", recorded(large, [Outcome("done")]))
    fits = Program(Configuration(steps.MOST_SLOTS // 16, 16), (Start("a", 0),))
    assert len(steps.of_trace("x", recorded(fits, [Outcome("done")])).columns) == 2


def test_a_long_run_on_a_large_pool_is_cut() -> None:
    operations = [Start("a", 0), Allocate("a", 1)]
    for _ in range(100):
        operations += [Start("b", 0), Allocate("b", 1), Finish("b")]
    walk = steps.of_trace("x", recorded(Program(Configuration(60, 1), tuple(operations))))
    shown = steps.page_map(walk)
    assert len(walk.columns) == 303
    assert [step.number for step in shown.steps] == list(range(303 - steps.MOST_STEPS, 303))
    assert len(shown.pages) == steps.MOST_PAGES
    assert shown.pages[:2] == [0, 1]
    assert shown.left_out == "Not shown: the first 183 steps and 13 other pages."
    assert steps.page_map(steps.of_trace("x", recorded(PROGRAM))).left_out == ""


def test_every_action_has_a_sentence() -> None:
    known = {name: action for each in (*MACHINES, *ALGORITHMS) for name, action in machine(each).actions.items()}
    assert words.ACTIONS.keys() <= known.keys()
    for each in (*MACHINES, *ALGORITHMS):
        kind = machine(each)
        for name, action in kind.actions.items():
            numbers = list(range(7, 7 + len(action.params)))
            sentence = words.action_sentence(kind, name, numbers, words.Names())
            assert sentence.endswith(".")
            assert sentence[0].isupper()
            named = words.fields_of(words.ACTIONS.get(name, ""))
            if named and named <= action.params.keys():
                used = [number for field, number in zip(action.params, numbers, strict=True) if field in named]
                assert all(str(number) in sentence for number in used)


def test_an_action_with_other_parameters_is_told_by_its_own_words() -> None:
    class Other(DeferredFree, variant="x#1", breaks="O1"):
        from kvspec.language import action
        from kvspec.pages import Page

        @action
        def evict(s, page: Page) -> None:
            """Throw a page away."""

    assert words.action_sentence(Other, "evict", [1], words.Names()) == "Throw a page away."
    assert words.action_sentence(Other, "reclaim", [1], words.Names()) == "The released page 1 becomes blank."


def test_every_operation_has_a_sentence() -> None:
    assert words.OPERATIONS.keys() == OPERATIONS.keys()
    for name, kind in OPERATIONS.items():
        assert words.fields_of(words.OPERATIONS[name]) <= set(kind.__struct_fields__)
    assert words.operation_sentence(Overwrite("a", 1, 2, "b")) == (
        "The caller of row a puts row b's pages into its buffer, at entries 1 to 2."
    )
    assert words.operation_sentence(Write("a", 0, 2, True)) == "Row a writes positions 0 to 2, as a draft."


@pytest.mark.parametrize(
    ("outcome", "sentence"),
    [
        (Outcome("done"), ""),
        (Outcome("done", pages=(3,), slots=(6, 7)), "Page 3; slots 6 7."),
        (Outcome("refused"), "It is refused."),
        (Outcome("misuse", reason="no row"), "It is called a misuse: no row."),
        (Outcome("error", reason="KeyError"), "The engine raises: KeyError."),
        (Outcome("done", tokens=tuple(range(30))), f"Tokens {' '.join(map(str, range(24)))} and 6 more."),
    ],
)
def test_what_came_of_it(outcome: Outcome, sentence: str) -> None:
    assert words.outcome_sentence(outcome) == sentence


@pytest.mark.parametrize(("name", "scope"), [("vllm-50531", "4 positions"), ("vllm-47272", "1 pool")])
def test_a_bug_of_a_machine_without_pages_is_shown_by_its_variables(name: str, scope: str) -> None:
    found = collect.of_variant(name)
    assert found is not None
    assert scope in found.counterexample.scope
    assert "page" not in found.counterexample.scope
    last = found.counterexample.map.steps[-1]
    assert any(variant(name).breaks in broken for broken in last.broken)
    assert last.changes
