"""Page maps: a machine's run, or a trace's recorded outcomes, as one column a step and one row a page."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from kvspec.language.machine import Machine
from kvspec.language.run import State, Violation, compile_machine
from kvspec.operations import Finish, Outcome, Start
from kvspec_proofs.search import Move, Run
from kvspec_proofs.tables import call

from kvspec_diff.monitor import Finding, Monitor
from kvspec_diff.program import Program, operation_name
from kvspec_diff.report.cells import (
    changes,
    differing,
    legend,
    page_cells,
    shows_pages,
    told_wrong,
    values,
)
from kvspec_diff.report.data import Cell, PageMap, Step
from kvspec_diff.report.words import (
    Names,
    action_sentence,
    capital,
    operation_call,
    operation_label,
    operation_sentence,
    outcome_sentence,
)
from kvspec_diff.trace import Trace, TraceError

MOST_PAGES = 48
"""Of a large pool, so many pages are shown; first those that are ever anything but blank."""

MOST_STEPS = 120
"""Of a long run, so many steps are shown: those that lead to its end."""

MOST_SLOTS = 2**14
"""The largest pool of which a report shows anything."""


AT_FIRST = "at first"
"""The label of the column before any step."""


class Column(NamedTuple):
    """A step of a run: what was done (an action or operation, by name and arguments), in words, and the state after it.

    `broken` are the laws that it breaks, `wrong` says how, `bad` are the pages at fault.
    """

    state: State
    label: str
    says: str
    name: str = ""
    arguments: Mapping[str, Any] = {}
    call: str = ""
    came: str = ""
    broken: Sequence[str] = ()
    wrong: Sequence[str] = ()
    bad: Sequence[int] = ()


class Walk(NamedTuple):
    """A run from its initial state, step by step, up to the first law that it breaks."""

    machine: type[Machine]
    names: Names
    columns: Sequence[Column]
    finding: Finding | None = None


def specification(machine: type[Machine]) -> type[Machine]:
    """The machine itself, or the one that a known bug differs from."""
    return next(each for each in machine.__mro__ if issubclass(each, Machine) and not each.variant)


def of_run(machine: type[Machine], run: Run) -> Walk:
    """A machine's run; what its last step breaks stands there."""
    names = Names()
    columns = [_first(machine, run.start)]
    before = run.start
    breaks = [" ".join(each) for each in sorted(run.broken, key=lambda each: each[0] != machine.breaks)]
    for number, move in enumerate(run.moves, 1):
        broken = breaks if number == len(run.moves) else []
        bad, wrong = _unlike(machine, before, move, names) if broken else ([], [])
        columns.append(
            Column(
                state=move.after,
                label=move.action,
                says=action_sentence(machine, move.action, move.args, names),
                name=move.action,
                arguments=dict(zip(machine.actions[move.action].params, move.args, strict=True)),
                call=call(machine, move.action, move.args),
                broken=broken,
                wrong=wrong,
                bad=bad,
            )
        )
        before = move.after
    return Walk(machine, names, columns)


def _first(machine: type[Machine], state: State) -> Column:
    says = "Every page but the null page is blank." if shows_pages(machine) else "The initial state."
    return Column(state, AT_FIRST, says)


def _unlike(machine: type[Machine], before: State, move: Move, names: Names) -> tuple[list[int], list[str]]:
    """The pages that the same step of the specification leaves elsewhere, and what is wrong, in sentences."""
    params = machine.actions[move.action].params.values()
    right = specification(machine)
    after = before.copy()
    try:
        compile_machine(right).actions[move.action](after, *move.args)
    except Violation as refused:
        law = f" ({refused.law})" if refused.law else ""
        pages = [value for value, sort in zip(move.args, params, strict=True) if sort.name == "Page"]
        return pages, [f"The specification does not allow this step{law}: it asks that {refused.text}."]
    if not shows_pages(machine):
        return [], []
    expected, seen = page_cells(after, names), page_cells(move.after, names)
    bad = differing(expected, seen)
    return bad, [told_wrong(page, expected[page], seen[page]) for page in bad]


def of_trace(path: str, trace: Trace) -> Walk:
    """A trace's recorded outcomes, judged; each step is an operation.

    `TraceError` if nothing is recorded, or the pool is too large to be shown.
    """
    configuration = trace.header.configuration
    if configuration.pages * configuration.page_size > MOST_SLOTS:
        raise TraceError(path, 1, f"the pool is too large for a report, which shows up to {MOST_SLOTS} slots")
    program = trace.program
    names = Names(row_names(program))
    monitor = Monitor(program)
    machine = monitor.compiled.machine
    columns = [_first(machine, monitor.state.copy())]
    for index, (operation, outcome) in enumerate(zip(program.operations, _recorded(path, trace), strict=False)):
        found = monitor.step(operation, outcome)
        expected = monitor.state.copy()
        state = _observed(monitor, expected, outcome) if found else expected
        bad, wrong = _misplaced(found, expected, state, names) if found else ([], [])
        columns.append(
            Column(
                state=state,
                label=operation_label(operation),
                says=operation_sentence(operation),
                name=operation_name(operation),
                arguments=msgspec.structs.asdict(operation),
                call=operation_call(operation),
                came=outcome_sentence(outcome),
                broken=[found.law] if found else [],
                wrong=wrong,
                bad=bad,
            )
        )
        if found is not None:
            return Walk(machine, names, columns, msgspec.structs.replace(found, index=index))
    return Walk(machine, names, columns)


def _recorded(path: str, trace: Trace) -> Iterator[Outcome]:
    """The outcomes up to where they end."""
    if not trace.outcomes or trace.outcomes[0] is None:
        raise TraceError(path, 2, "no outcome is recorded here; run it with `kvspec replay` or `kvspec diff` first")
    for outcome in trace.outcomes:
        if outcome is None:
            return
        yield outcome


def row_names(program: Program) -> list[str]:
    """The row that each request is, in the order of the starts that are no misuse; a name used again is numbered."""
    live: set[str] = set()
    used: dict[str, int] = {}
    found = []
    for operation in program.operations:
        if isinstance(operation, Start) and operation.row not in live:
            live.add(operation.row)
            used[operation.row] = used.get(operation.row, 0) + 1
            again = used[operation.row]
            found.append(operation.row if again == 1 else f"{operation.row}#{again}")
        elif isinstance(operation, Finish):
            live.discard(operation.row)
    return found


def _observed(monitor: Monitor, expected: State, outcome: Outcome) -> State:
    """The machine's state with what the subject shows of its blank pages in place of its own."""
    state = expected.copy()
    if outcome.blank is None:
        return state
    state.__dict__["blank"] = [page in set(outcome.blank) for page in range(state.n_Page)]
    moved = [now and not was for now, was in zip(state.blank, expected.blank, strict=True)]
    state.__dict__["released"] = [was and not now for was, now in zip(expected.released, moved, strict=True)]
    monitor.compiled.refresh(state)
    return state


def _misplaced(found: Finding, expected: State, state: State, names: Names) -> tuple[list[int], list[str]]:
    """The pages at fault and what is wrong, in sentences."""
    right, seen = page_cells(expected, names), page_cells(state, names)
    unlike = differing(right, seen)
    wrong = [told_wrong(page, right[page], seen[page]) for page in unlike]
    inside = [page for page in found.pages if 0 <= page < len(seen)]
    return sorted({*unlike, *inside}), wrong or [capital(f"{found.explanation}.")]


def page_map(walk: Walk) -> PageMap:
    """A run as a map, cut where there are too many pages or steps."""
    machine, names, columns, _ = walk
    whole = [page_cells(column.state, names) if shows_pages(machine) else [] for column in columns]
    for cells, column in zip(whole, columns, strict=True):
        for page in column.bad:
            cells[page] = Cell(cells[page].owner, cells[page].mark, cells[page].says, wrong=True)
    first = max(0, len(columns) - MOST_STEPS)
    pages = _pages(whole[first:])
    steps = []
    for number in range(first, len(columns)):
        column = columns[number]
        before = columns[number - 1].state if number else column.state
        moved = changes(machine, before, column.state, names)
        steps.append(
            Step(
                number=number,
                label=column.label,
                call=column.call,
                says=column.says,
                came=column.came,
                cells=[whole[number][page] for page in pages],
                changes=moved,
                state=values(machine, column.state, moved, names),
                broken=list(column.broken),
                wrong=list(column.wrong),
            )
        )
    requests = len(columns[-1].state.row) if shows_pages(machine) else 0
    shown = legend([step.cells for step in steps], names, requests)
    return PageMap(pages, steps, shown, _left_out(first, len(pages), len(whole[-1])))


def _pages(shown: Sequence[Sequence[Cell]]) -> list[int]:
    """Which pages to show: all of a small pool, else those that something happens to."""
    every = range(len(shown[-1]))
    if len(every) <= MOST_PAGES:
        return list(every)

    def dull(page: int) -> bool:
        return all(column[page].owner == "blank" and not column[page].wrong for column in shown)

    def right(page: int) -> bool:
        return not any(column[page].wrong for column in shown)

    ordered = sorted(every, key=lambda page: (right(page), dull(page), page))
    return sorted(ordered[:MOST_PAGES])


def _left_out(steps: int, pages: int, of: int) -> str:
    told = [f"the first {steps:,} steps"] * bool(steps) + [f"{of - pages:,} other pages"] * (of > pages)
    return f"Not shown: {' and '.join(told)}." if told else ""
