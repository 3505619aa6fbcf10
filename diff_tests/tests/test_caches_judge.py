"""The parts of the judge of caches: what a query may see, what each wrong answer is laid to, what is promised."""

from typing import Any

import pytest
from kvspec_diff.caches import example, promises
from kvspec_diff.caches.case import Case, Layer, Setup
from kvspec_diff.caches.ghost import Ghost
from kvspec_diff.caches.judge import LAW, judge
from kvspec_diff.caches.kinds import Member, bounds, sight
from kvspec_diff.caches.sight import compare, cut, held
from kvspec_diff.caches.tally import Tally
from kvspec_diff.recipes import EngineError
from kvspec_record import caches, toy

FULL = Member("0", "Full", "full")
HISTORY = [toy.token(0, 0, j) for j in range(6)]
ALL = frozenset(range(6))


def row(position: int, at: int | None = None) -> tuple[int, int, int]:
    content = toy.content(HISTORY[position])
    return content, position if at is None else at, content


def flat(*rows: tuple[int, int, int]) -> list[int]:
    return [number for each in rows for number in each]


# What is seen.


@pytest.mark.parametrize(
    ("member", "position", "must", "may"),
    [
        (FULL, 3, {0, 1, 2, 3}, {0, 1, 2, 3}),
        (Member("0", "W", "window", (3,)), 1, {0, 1}, {0, 1}),
        (Member("0", "W", "window", (3, 0)), 2, {0, 1, 2}, {0, 1, 2}),
        (Member("0", "W", "window", (3, 0)), 5, {3, 4, 5}, {3, 4, 5}),
        (Member("0", "W", "window", (4, 1)), 3, {0, 1, 2, 3}, {0, 1, 2, 3}),
        (Member("0", "W", "window", (4, 1)), 7, {0, 5, 6, 7}, {0, 5, 6, 7}),
        (Member("0", "C", "chunk", (3,)), 2, {0, 1, 2}, {0, 1, 2}),
        (Member("0", "C", "chunk", (3,)), 3, {3}, {3}),
        (Member("0", "C", "chunk", (3,)), 7, {6, 7}, {6, 7}),
    ],
)
def test_what_a_query_sees(member: Member, position: int, must: set[int], may: set[int]) -> None:
    assert sight(member, position, True) == (must, may)


def test_a_kept_prefix_may_be_left_out_in_a_chunk() -> None:
    member = Member("0", "W", "window", (4, 1))
    assert sight(member, 7, False) == ({5, 6, 7}, {0, 4, 5, 6, 7})
    assert sight(member, 3, False) == sight(member, 3, True)


def test_bounds() -> None:
    assert bounds([FULL, Member("0", "W", "window", (4, 0)), Member("1", "C", "chunk", (3,))]) == [0, 3, 4]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([row(0), row(1), row(2)], "does not see 3 of 6 positions"),
        ([*map(row, range(6)), row(0)], "sees a position twice"),
        ([*map(row, range(6)), (0, 0, 0)], "sees 1 rows that are not of what it may see"),
        ([*map(row, range(5)), row(5, 4)], "finds rows that were written for other positions"),
        ([*map(row, range(5)), (row(5)[0], 5, row(4)[0])], "does not see 1 of 6 positions and sees 1 rows"),
    ],
)
def test_wrong_rows(rows: list[tuple[int, int, int]], says: str) -> None:
    wrong = compare(HISTORY, ALL, ALL, rows)
    assert wrong is not None
    assert says in wrong.says
    assert wrong.position == (says.startswith("finds"))
    assert wrong.rows


def test_the_order_of_rows_is_not_seen_but_of_a_slice_is() -> None:
    rows = [row(position) for position in (2, 0, 1)]
    assert compare(HISTORY, frozenset((0, 1, 2)), ALL, rows) is None
    assert cut(FULL, HISTORY, 0, 3, flat(*rows)) is not None
    assert cut(FULL, HISTORY, 0, 3, flat(*sorted(rows, key=lambda each: each[1]))) is None
    assert cut(FULL, HISTORY, 4, 9, flat(row(4), row(5))) is None
    assert cut(FULL, HISTORY, 4, 9, flat(row(4))) is not None


def test_what_is_held_is_what_the_next_query_needs() -> None:
    window = Member("0", "W", "window", (3, 0))
    assert held(window, HISTORY, flat(row(4), row(5))) is None
    assert held(window, HISTORY, flat(row(2), row(4), row(5))) is None
    assert held(window, HISTORY, flat(row(5))) is not None
    assert held(FULL, HISTORY, flat(*map(row, range(5)))) is not None


# What it is laid to.


def answers(steps: list[Any], setup: Setup, fault: str = "") -> tuple[Case, list[Any]]:
    case = Case("caches", setup, tuple(map(tuple, steps)))
    return case, caches.run(example.Driver(fault), case.question)


def keys(case: Case, calls: list[Any]) -> list[tuple[str, str, str]]:
    return [each.key for each in judge(case, calls, example.promises()).faults]


def test_a_wrong_read_is_laid_to_the_last_operation() -> None:
    case, calls = answers([["append", 0, 2], ["copy", 0], ["file", 1], ["append", 2, 1]], Setup((Layer("full"),)))
    assert keys(case, calls) == []
    calls[3]["reads"]["0"][0][0][2] = 7
    assert keys(case, calls) == [("B1", "copy, file", "Full")]


def test_a_right_read_clears_what_was_done() -> None:
    steps = [["append", 0, 2], ["copy", 0], ["append", 1, 1], ["append", 1, 1]]
    case, calls = answers(steps, Setup((Layer("full"),)))
    calls[3]["reads"]["0"][0][0][0] = 7
    assert keys(case, calls) == [("R1", "append", "Full")]


def test_a_fault_is_told_once_of_an_object_and_what_comes_of_it() -> None:
    steps = [["append", 0, 2], ["copy", 0], ["append", 1, 1], ["append", 0, 1]]
    case, calls = answers(steps, Setup((Layer("full"),)))
    for call in (calls[0], calls[2], calls[3]):
        call["reads"]["0"][0][0][0] = 7
    assert keys(case, calls) == [("R1", "append", "Full")]


def test_the_state_of_another_position() -> None:
    case, calls = answers([["append", 0, 2], ["copy", 0], ["append", 1, 1]], Setup((Layer("state", (("count", 1),)),)))
    calls[2]["states"]["0"][0][0] = calls[0]["states"]["0"][0][0]
    assert keys(case, calls) == [("S1", "copy", "State")]
    calls[2]["states"]["0"][0] = []
    assert keys(case, calls) == [("S4", "copy", "State")]


def test_a_query_that_is_not_told() -> None:
    case, calls = answers([["append", 0, 2]], Setup((Layer("full"),)))
    del calls[0]["reads"]["0"][0][1]
    assert keys(case, calls) == [("raised", "worker", "Full")]
    calls[0]["reads"]["0"][0].clear()
    assert keys(case, calls) == [("raised", "worker", "Full")]


def test_what_another_object_wrote() -> None:
    case, calls = answers([["append", 0, 1], ["copy", 0], ["append", 1, 1], ["append", 0, 1]], Setup((Layer("full"),)))
    mine, others = calls[3]["reads"]["0"][0][0], calls[2]["reads"]["0"][0][0]
    mine[3:6] = others[3:6]
    assert keys(case, calls) == [("S4", "copy", "Full")]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"count": 2}, ("B8", "trim: layers", "Full")),
        ({"count": 0, "trimmed": {"0": 0}}, ("B8", "trim: count", "")),
        ({"count": 9, "trimmed": {"0": 9}}, ("B8", "trim: count", "")),
        ({"count": -1, "trimmed": {"0": -1}}, ("B8", "trim: count", "")),
        ({"status": "refused", "why": "no"}, ("B8", "trim refused", "")),
        ({"status": "raised", "raised": "E: x at `y` in f"}, ("raised", "trim: `y` in f", "")),
    ],
)
def test_what_a_trim_says(change: dict[str, Any], key: tuple[str, str, str]) -> None:
    case, calls = answers([["append", 0, 3], ["trim", 0, 1]], Setup((Layer("full"),)))
    assert keys(case, calls) == []
    calls[1] |= change
    assert keys(case, calls)[:1] == [key]


def test_more_than_there_is_is_taken_off_whole() -> None:
    case, calls = answers([["append", 0, 3], ["trim", 0, 9], ["append", 0, 1]], Setup((Layer("full"),)))
    assert calls[1]["count"] == 3
    assert keys(case, calls) == []


@pytest.mark.parametrize("part", ["reads", "states", "dtypes"])
def test_a_layer_that_tells_nothing(part: str) -> None:
    case, calls = answers([["append", 0, 3]], Setup((Layer("full"), Layer("state", (("count", 1),)))))
    calls[0][part].clear()
    assert keys(case, calls) == (
        [] if part == "dtypes" else [("raised", "worker", "Full" * (part == "reads") or "State")]
    )


def test_rows_that_are_lost() -> None:
    case, calls = answers([["append", 0, 1], ["merge", 0, 0], ["append", 1, 1]], Setup((Layer("full"),)))
    calls[2]["lengths"].pop()
    calls[2]["reads"]["0"].pop()
    assert keys(case, calls) == [("B9", "merge: rows", "")]


def test_what_was_handed_out_and_changed() -> None:
    case, calls = answers([["append", 0, 1], ["state", 0], ["restore", 0], ["append", 0, 1]], Setup((Layer("full"),)))
    calls[3]["changed"] = [[1, "0"]]
    assert keys(case, calls) == [("S4", "state kept", "Full")]


def test_a_fresh_cache_that_raises() -> None:
    case = Case("caches", Setup((Layer("full"),)), ())
    calls = [{"op": ["fresh"], "status": "raised", "raised": "E: x at `y` in f"}]
    assert keys(case, calls) == [("raised", "fresh: `y` in f", "")]


MISUSED = example.TABLE.replace(
    '[[promise]]\nclasses = ["State"]',
    '[[promise]]\nclasses = ["Full"]\noperations = ["copy", "isolate_state", "isolate_restore"]\n'
    'verdict = "misuse"\nsource = "x"\n\n'
    '[[promise]]\nclasses = ["State"]',
)


def test_what_is_not_promised_is_not_judged() -> None:
    table = promises.parsed(MISUSED, "1")
    case, calls = answers([["append", 0, 1], ["copy", 0], ["append", 1, 1]], Setup((Layer("full"),)))
    for call in calls:
        if "reads" in call:
            call["reads"]["0"][0][0][0] = 7
    assert [each.key for each in judge(case, calls, table).faults] == [("R1", "append", "Full")], "before the copy"
    assert [each.key for each in judge(case, calls[1:], table).faults] == []


def test_a_state_that_is_no_copy_is_gone_on_with_alone() -> None:
    table = promises.parsed(MISUSED, "1")
    steps = [["append", 0, 1], ["state", 0], ["restore", 0], ["append", 1, 1], ["append", 0, 1]]
    case, calls = answers(steps, Setup((Layer("full"),)))
    ghost = Ghost(case.setup, table)
    for step, call in enumerate(calls[:4]):
        ghost.do(step, call)
    assert [each.doubtful for each in ghost.objects] == [True, False]
    ghost.do(4, calls[4])
    assert [each.doubtful for each in ghost.objects] == [True, True]
    calls[4]["changed"] = [[1, "0"]]
    assert judge(case, calls, table).faults == []
    calls[3]["reads"]["0"][0][0][0] = 7
    assert [each.key[0] for each in judge(case, calls, table).faults] == ["B2"]


def test_marks_and_figures() -> None:
    case, calls = answers([["append", 0, 1], ["copy", 0], ["append", 1, 1]], Setup((Layer("full"),)))
    tally = Tally()
    tally.add(calls, judge(case, calls, example.promises()).marks)
    assert tally.held == {"Full": {"append": 4, "copy": 2}}
    assert tally.figures == {"programs": 1, "operations": 5, "tokens": 4, "judged reads": 4, "refused": 0, "raised": 0,
                             "doubtful": 0}  # fmt: skip


def test_every_operation_has_a_law() -> None:
    assert {*LAW} == {*example.promises().operations, "repeat", "reorder"} - {"append"}


# Promises.


def test_the_tables_of_the_engines_are_complete() -> None:
    for engine, releases in promises.engines().items():
        for release in releases:
            assert list(promises.load(engine, release).problems()) == []


def test_the_engines_are_those_of_the_command() -> None:
    from kvspec_diff.recipes import RECIPES

    known = {each.engine for each in RECIPES}
    assert {*promises.engines()} <= known


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ('classes = ["*"]\noperations = ["*"]', 'classes = ["Full"]\noperations = ["*"]',
         "1: nothing is said of append on Window"),
        ('members = { "" = ["full"] }', 'members = { "" = ["fool"] }', "Full: member '' has no family fool()"),
        ('["window", "size", "keep"]', '["window", "sise"]', "Window: member '' names sise, which is no parameter"),
        ('batch = "Rows"', 'batch = "Row"', "Full becomes Row, which is no class here"),
        ('operations = ["append", ', 'operations = ["eat", "append", ', "there is no operation eat"),
        ('operations = ["merge", "trim"]', 'operations = ["murge"]',
         "a promise is about murge, which is no operation here"),
        ('classes = ["Rows"]', 'classes = ["Cols"]', "a promise is about Cols, which is no class here"),
    ],
)  # fmt: skip
def test_a_table_with_a_problem(old: str, new: str, problem: str) -> None:
    assert list(example.promises().problems()) == []
    assert problem in list(promises.parsed(example.TABLE.replace(old, new), "1").problems())


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('verdict = "promised"', 'verdict = "perhaps"', "Invalid enum value 'perhaps'"),
        ('source = "example.py"\n', "", "missing required field `source`"),
        ('source = "example.py"', 'source = ""', "length >= 1"),
        ("rows = 1", "rows = 99", "<= 8"),
    ],
)
def test_a_table_that_is_malformed(old: str, new: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        promises.parsed(example.TABLE.replace(old, new), "1")


def test_the_first_promise_that_fits_counts() -> None:
    where = (
        'classes = ["Window"]\noperations = ["copy"]\nverdict = "refused"\nsource = "x"\nwhere = { keep = [1, 9] }\n'
    )
    table = promises.parsed(f"{example.TABLE}\n".replace("[[promise]]", f"[[promise]]\n{where}\n[[promise]]", 1), "1")
    kept, plain = (Layer("window", (("size", 4), ("keep", keep))) for keep in (1, 0))
    assert table.verdict(Setup((kept,)), False, "copy") == "refused"
    assert table.verdict(Setup((plain,)), False, "copy") == "promised"
    assert table.verdict(Setup((plain, kept)), False, "copy") == "refused"
    assert table.verdict(Setup((plain,)), False, "fly") == "misuse"
    assert table.of("Window", "copy").verdict == "promised"


def test_no_table() -> None:
    with pytest.raises(EngineError, match=r"^no table says what the caches of nobody 9 promise; there are tables for"):
        promises.load("nobody", "9")
