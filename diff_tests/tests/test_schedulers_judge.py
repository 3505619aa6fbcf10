"""What the parts of the scheduler's judge may not overlook, each on answers written by hand; and what is drawn."""

import random
from typing import Any, get_args

import msgspec
import pytest
from kvspec_diff.lookahead import rows
from kvspec_diff.schedulers.case import Case, Policy, Setup, Step
from kvspec_diff.schedulers.ghost import Ghost, Tracked
from kvspec_diff.schedulers.index import Index
from kvspec_diff.schedulers.judge import judge
from kvspec_diff.schedulers.order import Order
from kvspec_diff.schedulers.programs import KINDS, MOST_DRAFTS, SIZES, draw

TABLE = rows("vllm", "0.33.0")
FULL = Setup(
    policy="priority", groups=(("full", 2, 0),), method="none", drafts=0, length=8, pool=4, caching=False, budget=8,
    chunk=0, seats=2, depth=1, watermark=0.0, whole=False,
)  # fmt: skip


# What is read: the first request's prompt is in blocks 1, 2, ..., and block 9 is somebody else's.


def ghost(*groups: Any) -> Ghost:
    """Requests 0 and 1 with one prompt of 8 tokens, which request 1 goes on behind, and 2 with another."""
    made = Ghost(msgspec.structs.replace(FULL, groups=groups))
    made.requests = {0: Tracked(0, 8, 8, 1), 1: Tracked(1, 9, 8, 1), 2: Tracked(2, 8, 0, 1)}
    return made


def step(made: Ghost, *parts: Any) -> list[tuple[str, str]]:
    return [(each.law, each.family) for each in made.follow({"parts": list(parts)}, set())]


def written(*groups: Any) -> Ghost:
    """Blocks of one position: request 0 wrote its prompt into blocks 1 to 8, request 2 its first token into block 9."""
    made = ghost(*groups)
    own = list(range(1, 9))
    assert step(made, [0, 0, 8, [], [own for _ in groups], True], [2, 0, 1, [], [[9] for _ in groups], True]) == []
    return made


@pytest.mark.parametrize(
    ("start", "faults"), [(1, [("P12", "length")]), (2, []), (3, [("P12", "length")]), (4, [("P12", "length")])]
)
def test_a_hit_is_whole_blocks_and_leaves_a_token_to_compute(start: int, faults: Any) -> None:
    made = ghost(("full", 2, 0))
    assert step(made, [0, 0, 8, [], [[1, 2, 3, 4]], True]) == []
    made.requests[3] = Tracked(3, 4, 4, 1)
    assert step(made, [3, start, max(4 - start, 1), [], [[1, 2, 5]], True]) == faults


FIRST_READ = [
    (("window", 1, 3), 6, 4),
    (("window", 1, 3), 2, 0),
    (("window", 1, 1), 6, 6),
    (("chunk", 1, 4), 6, 4),
    (("chunk", 1, 4), 4, 4),
    (("chunk", 1, 2), 7, 6),
    (("full", 1, 0), 6, 0),
]


def foreign(start: int, place: int, end: int) -> list[int]:
    """A table of the prompt up to `start`, in which one place is somebody else's, and then new blocks."""
    return [9 if each == place else each + 1 for each in range(start)] + list(range(10, 10 + end - start))


@pytest.mark.parametrize(("group", "start", "first"), FIRST_READ)
def test_a_hit_is_read_from_the_first_position_on_that_attention_reads(group: Any, start: int, first: int) -> None:
    for place in range(start):
        expected = [("P1", "hit")] if place >= first else []
        assert step(written(group), [1, start, 1, [], [foreign(start, place, start + 1)], True]) == expected


@pytest.mark.parametrize(("group", "start", "first"), FIRST_READ)
def test_a_step_reads_from_the_first_position_on_that_attention_reads(group: Any, start: int, first: int) -> None:
    for place in range(start):
        made = ghost(group)
        own = list(range(1, start + 1))
        assert step(made, [1, 0, start, [], [own], True]) == []
        assert step(made, [2, 0, 1, [], [[own[place]]], True]) == []
        expected = [("R1", "read")] if place >= first else []
        assert step(made, [1, start, 1, [], [[10]], False]) == expected


@pytest.mark.parametrize(
    ("table", "faults"),
    [
        ([1, 2, 3, 4, 5, 10], []),
        ([1, 2, 3, 9, 5, 10], [("P1", "hit")]),
        ([1, 2, 3, 8, 5, 10], [("P1", "hit")]),
        ([1, 2, 3, 0, 5, 10], [("R3", "read")]),
        ([1, 2, 3, 11, 5, 10], [("R4", "hit")]),
        ([1, 2, 3, 4, 5], [("C1", "table")]),
        ([1, 2, 3, 4, 5, 0], [("R3", "write")]),
    ],
)
@pytest.mark.parametrize("kind", [("full", 1, 0), ("window", 1, 3), ("chunk", 1, 3)])
def test_the_tables_of_all_groups_are_read_and_written(kind: Any, table: list[int], faults: Any) -> None:
    right, full = [1, 2, 3, 4, 5, 10], ("full", 1, 0)
    assert step(written(full, kind), [1, 5, 1, [], [right, table], True]) == faults
    assert step(written(kind, full), [1, 5, 1, [], [table, right], True]) == faults


def test_a_group_does_not_read_what_another_one_wrote() -> None:
    made = ghost(("full", 1, 0), ("full", 1, 0))
    assert step(made, [0, 0, 2, [], [[1, 2], [3, 4]], True]) == []
    assert step(made, [1, 2, 1, [], [[1, 2, 5], [1, 2, 6]], True]) == [("R4", "hit")]


def test_a_content_is_the_whole_prefix() -> None:
    for place in range(2):
        made = ghost(("full", 1, 0))
        known = made.requests[2].known = list(made.requests[0].known)
        known[place] = 99
        assert step(made, [0, 0, 4, [], [[1, 2, 3, 4]], True]) == []
        assert step(made, [2, 0, 3, [], [[5, 6, 7]], True]) == []
        assert step(made, [2, 3, 1, [], [[5, 6, 7, 8]], True]) == [], "its own, found again"
        assert step(made, [2, 3, 1, [], [[5, 6, 3, 8]], True]) == [("P1", "hit")], "one token in one place, and it is"


def test_only_who_was_aborted_may_end_early() -> None:
    made = ghost(("full", 2, 0))
    assert made.follow({"ended": [0]}, {0, 2}) == []
    (fault,) = made.follow({"ended": [1]}, {0, 2})
    assert (fault.law, fault.family, fault.says) == ("A4", "ended", "request 1 ended with 0 of 1 tokens")
    (fault,) = ghost(("full", 2, 0)).follow({"ended": [0, 1]}, {0})
    assert fault.says == "request 1 ended with 0 of 1 tokens"


# Who goes first.


TWO: tuple[Step, ...] = (("add", 7, 2, 0, 2, 1), ("add", 8, 2, 0, 2, 0))


def order(**fields: Any) -> Order:
    """Request 8 is more urgent than 7, which came first; each may need two blocks."""
    made = Order(Case("schedule", msgspec.structs.replace(FULL, **fields), TWO), TABLE["none"])
    for each in TWO:
        assert made.follow({"op": each, "events": []}) == []
    return made


def decided(made: Order, *events: Any) -> list[tuple[str, str]]:
    faults = made.follow({"op": ["schedule"], "events": [list(event) for event in events]})
    return [(each.law, each.family) for each in faults]


def test_what_no_guard_sees_is_judged_after_each_action() -> None:
    """The laws are proved of the machine, so only a state that was changed by hand breaks one."""
    made = order()
    assert decided(made, ("allocate", 8, 2, True, [1], [])) == []
    made.state.used[0] = 2
    assert decided(made, ("allocate", 8, 1, True, [2], [])) == [("A4", "grow")]
    made = order()
    made.state.passed[0] = 1
    assert decided(made, ("allocate", 8, 2, True, [1], [])) == [("A3", "admit")]


def test_nobody_is_passed_not_even_once() -> None:
    """No answer says that a request waits for something else, so this too is set by hand."""
    for blocked in (False, True):
        made = order()
        made.state.blocked[1] = blocked
        assert decided(made, ("allocate", 7, 2, True, [1], [])) == [("A3", "admit")]


def test_admission_leaves_the_watermark() -> None:
    """Half of a pool of three and the null block is two blocks."""
    low, half = {"pool": 3, "watermark": 0.0}, {"pool": 3, "watermark": 0.5}
    one, two = ("allocate", 8, 2, True, [1], []), ("allocate", 8, 3, True, [1, 2], [])
    later = ("allocate", 7, 2, True, [3], [])
    assert decided(order(**low), two, later) == []
    assert decided(order(**half), two, later) == [("A1", "admit")]
    assert decided(order(**half), one, later) == [], "as much as the watermark is free"
    assert decided(order(pool=3, watermark=1.0), two) == [], "nobody else runs"


# What can be found.


def test_blocks_of_one_key_are_counted() -> None:
    def found(published: Any, index: Any) -> list[tuple[str, str]]:
        faults = Index().follow({"op": ["retire"], "published": published, "index": index})
        return [(each.law, each.family) for each in faults]

    stored = ["stored", 0, ["x"]]
    assert found([stored], [[0, "x", 1]]) == []
    assert found([stored], [[0, "x", 1], [0, "x", 2]]) == [("P15", "differs")]
    assert found([stored, stored], [[0, "x", 1]]) == [("P15", "differs")]
    assert found([["stored", 0, ["x", "x"]]], [[0, "x", 1], [0, "x", 2]]) == []


# The whole judgement.


ADDED = [{"op": list(each)} for each in TWO]
ABORTED = [{"op": ["abort", r], "ended": [r]} for r in (7, 8)]


def judged(answers: list[dict[str, Any]], **fields: Any) -> list[tuple[str, str]]:
    """The faults of answers that say nothing wrong but what they are given."""
    says = {"done": True, "events": [], "published": [], "index": [], "running": [], "waiting": [], "free": 4}
    setup = msgspec.structs.replace(FULL, **fields)
    faults = judge(Case("schedule", setup, TWO), [says | {"used": 0} | each for each in answers], TABLE[setup.method])
    return [(each.law, each.family) for each in faults]


@pytest.mark.parametrize(
    ("fields", "followed"),
    [
        ({}, True),
        ({"method": "ngram", "drafts": 1}, True),
        ({"method": "eagle", "drafts": 3}, True),
        ({"caching": True}, False),
        ({"method": "ngram", "drafts": 1, "caching": True}, False),
        ({"depth": 2}, False),
        ({"depth": 2, "caching": True}, False),
    ],
)
def test_when_the_order_is_followed(fields: Any, followed: bool) -> None:
    admitted = {"op": ["schedule"], "events": [["allocate", 7, 2, True, [1], []]]}
    assert judged([*ADDED, admitted, *ABORTED], **fields) == ([("A3", "admit")] if followed else [])


@pytest.mark.parametrize(("free", "used", "right"), [(4, 0, True), (1, 3, True), (3, 2, False), (3, 0, False)])
def test_every_block_is_free_or_in_a_table(free: int, used: int, right: bool) -> None:
    counted = {"op": ["schedule"], "free": free, "used": used}
    assert judged([*ADDED, counted, *ABORTED]) == ([] if right else [("A4", "blocks")])


@pytest.mark.parametrize(
    ("last", "fault"),
    [
        ({"op": ["schedule"], "parts": [], "waiting": [7]}, ("A6", "stuck waiting")),
        ({"op": ["schedule"], "running": [7]}, ("A6", "stuck running")),
        ({"op": ["schedule"], "done": False, "waiting": [7]}, ("A6", "stuck waiting")),
        ({"op": ["schedule"], "parts": [[7, 0, 2, [], [[1]], True]]}, ("A7", "endless")),
        ({"op": ["retire", 0, 0], "running": [7]}, ("A7", "endless")),
    ],
)
def test_who_does_not_come_to_its_end(last: Any, fault: Any) -> None:
    assert judged([*ADDED, last]) == [fault]
    assert judged([*ADDED, last, *ABORTED]) == []


def test_what_was_not_done_is_not_judged() -> None:
    wrong = {"free": 3, "used": 3, "running": [1, 2, 3], "published": [["stored", 0, ["x"]]]}
    wrong |= {"events": [["allocate", 7, 2, True, [1], []]]}
    undone = [{"op": op, "done": False, **wrong} for op in (["schedule"], ["retire", 0, 0], ["reset"])]
    assert judged([*ADDED, *undone, *ABORTED]) == []
    assert judged([{"op": list(TWO[0]), "done": False}]) == [], "it never came"
    ended = {"op": ["retire", 0, 0], "ended": [7]}
    assert judged([*ADDED, {"op": ["abort", 7], "done": False}, ended, ABORTED[1]]) == [("A4", "ended")]


def test_an_abort_excuses_one_request() -> None:
    later = {"op": ["retire", 0, 0], "ended": [7]}
    assert judged([*ADDED, {"op": ["abort", 7]}, later, ABORTED[1]]) == []
    assert judged([*ADDED, {"op": ["abort", 8]}, later, ABORTED[1]]) == [("A4", "ended")]


# What is drawn.


@pytest.mark.parametrize("policy", get_args(Policy))
def test_everything_is_drawn(policy: Policy) -> None:
    cases = [draw(policy, TABLE, random.Random(seed)) for seed in range(500)]
    setups = [case.setup for case in cases]
    kinds = {tuple(kind for kind, _, _ in setup.groups) for setup in setups}
    assert kinds == set(KINDS)
    assert kinds >= {("full",), ("window",), ("full", "window"), ("chunk",), ("full", "chunk")}
    assert {size for setup in setups for _, size, _ in setup.groups} == set(SIZES) == {1, 2, 4}
    assert {setup.drafts for setup in setups} == set(range(MOST_DRAFTS + 1))
    assert {setup.method for setup in setups} == set(TABLE)
    assert {setup.depth for setup in setups} == {1, 2}
    assert {setup.watermark > 0 for setup in setups} == {False, True}
    for kept in ((int(setup.watermark * (setup.pool + 1)) for setup in setups), (setup.chunk for setup in setups)):
        assert {number > 0 for number in kept} == {False, True}
    assert {(setup.caching, setup.whole) for setup in setups} == {(a, b) for a in (False, True) for b in (False, True)}
    spare = {setup.pool - setup.most(TABLE[setup.method], setup.length) for setup in setups}
    assert min(spare) == 0
    assert len(spare) > 3
    of = {name: [case for case in cases if any(step[0] == name for step in case.steps)] for name in ("abort", "reset")}
    assert of["abort"]
    assert of["reset"]
    assert all(case.setup.caching for case in of["reset"])
    retired = [
        (int(step[1]), int(step[2]), case.setup.drafts)
        for case in cases if case.setup.drafts for step in case.steps if step[0] == "retire"
    ]  # fmt: skip
    assert {(right > drafts) - (right < drafts) for right, drafts, _ in retired if drafts} >= {-1, 0}
    assert {drafts < most for _, drafts, most in retired} == {False, True}
    added = [step for case in cases for step in case.steps if step[0] == "add"]
    assert {int(step[3]) > 0 for step in added} == {False, True}
    assert len({step[5] for step in added}) >= (3 if policy == "priority" else 1)
