"""The comparison of schedulers, on one that is right and on ones that are not; and what the parts of it see."""

import random
from typing import Any

import msgspec
import pytest
from kvspec.laws import OF_SCHEDULERS
from kvspec_diff.batched.finding import known
from kvspec_diff.batched.seen import shrink
from kvspec_diff.beside import compiled
from kvspec_diff.lookahead import rows
from kvspec_diff.schedulers import example
from kvspec_diff.schedulers.case import Case, Setup
from kvspec_diff.schedulers.compare import Comparison, declined
from kvspec_diff.schedulers.ghost import Ghost, Tracked
from kvspec_diff.schedulers.index import Index
from kvspec_diff.schedulers.order import CANNOT, MACHINE, WORDS, Order
from kvspec_diff.schedulers.programs import SMALLER, draw
from kvspec_diff.schedulers.tally import Tally
from kvspec_record import toy

TABLE = rows("vllm", "0.33.0")
FULL = Setup(
    policy="priority", groups=(("full", 2, 0),), method="none", drafts=0, length=8, pool=4, caching=False, budget=8,
    chunk=0, seats=2, depth=1, watermark=0.0, whole=False,
)  # fmt: skip


def compared(fault: str = "", programs: int = 300, **more: Any) -> Comparison:
    client: Any = example.Client(plants=(fault,) if fault else ())
    made = Comparison(client, **more)
    made.run(programs=programs)
    return made


def test_a_right_scheduler_breaks_no_law() -> None:
    made = compared(programs=1000)
    assert made.seen == {}
    assert made.tally.figures["programs"] == 1000
    assert made.tally.figures["tokens"] > 1000


@pytest.mark.parametrize("fault", example.FAULTS)
def test_every_fault_is_found_and_made_small(fault: str) -> None:
    made = compared(fault)
    assert example.FAULTS[fault] in {law for law, _, _ in made.seen}
    found = made.findings()
    small = next(each for each in found if each.fault.law == example.FAULTS[fault])
    assert len(small.case.steps) <= 2
    assert small.case.setup.groups[0][0] == "full"
    client: Any = example.Client(plants=(fault,))
    assert small.fault.key in [each.key for each in Comparison(client).replay(small)]
    right: Any = example.Client()
    assert Comparison(right).replay(small) == []


def test_only_the_laws_that_are_asked_for() -> None:
    assert compared("last_first", 200, laws=["A4"]).seen == {}
    assert [law for law, _, _ in compared("raises", 200, laws=["A4"]).seen] == ["raised"]


def test_what_is_known_is_not_made_small() -> None:
    made = compared("last_first", 200)
    assert made.findings(made.seen.keys()) == []


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_what_is_drawn_can_be_served(policy: Any) -> None:
    for seed in range(300):
        case = draw(policy, TABLE, random.Random(seed))
        setup = case.setup
        assert setup.pool >= setup.most(TABLE[setup.method], setup.length)
        assert setup.budget >= max(setup.seats, 2 * (1 + setup.drafts))
        added = [step for step in case.steps if step[0] == "add"]
        assert len({step[1] for step in added}) == len(added) >= 1
        assert all(1 <= int(step[2]) < int(step[2]) + int(step[4]) <= setup.length for step in added)
        assert all(int(step[3]) <= int(step[2]) for step in added)
        assert policy == "priority" or all(step[5] == 0 for step in added)


LIMITS = ("drafts", "length", "budget", "chunk", "seats", "depth", "caching", "watermark", "whole")


def test_smaller_cases_are_no_larger_and_make_sense() -> None:
    for seed in range(40):
        case = draw("priority", TABLE, random.Random(seed))
        for change in SMALLER:
            for smaller in change(case, TABLE):
                assert smaller != case
                assert len(smaller.steps) <= len(case.steps)
                assert len(smaller.setup.groups) <= len(case.setup.groups)
                setup = smaller.setup
                assert all(getattr(setup, name) <= getattr(case.setup, name) for name in LIMITS)
                assert setup.pool >= setup.most(TABLE[setup.method], setup.length)


def test_a_case_is_made_small_until_nothing_goes() -> None:
    case = draw("fcfs", TABLE, random.Random(4))
    fault = compared("another_token", 1).findings()[0].fault
    small, _ = shrink(case, fault, lambda cases: [[fault] for _ in cases], [lambda one: SMALLER[3](one, TABLE)])
    assert small.steps == ()


# The model's side of it.


def ghost(**of: Tracked) -> Ghost:
    made = Ghost(FULL)
    made.requests = {each.number: each for each in of.values()}
    return made


def step(made: Ghost, *parts: Any) -> str:
    faults = made.follow({"parts": list(parts)}, set())
    return faults[0].law if faults else ""


def test_a_prefix_that_was_written_is_read() -> None:
    made = ghost(a=Tracked(0, 4, 4, 1), b=Tracked(1, 5, 4, 1))
    assert step(made, [0, 0, 4, [], [[1, 2]], True]) == ""
    assert step(made, [1, 4, 1, [], [[1, 2, 3]], True]) == ""


def test_what_the_same_step_writes_is_read() -> None:
    made = ghost(a=Tracked(0, 4, 4, 1), b=Tracked(1, 5, 4, 1))
    assert step(made, [1, 4, 1, [], [[1, 2, 3]], True], [0, 0, 4, [], [[1, 2]], True]) == ""


@pytest.mark.parametrize(
    ("part", "law"),
    [
        ([1, 4, 1, [], [[1, 4, 3]], True], "R4"),
        ([1, 4, 1, [], [[2, 1, 3]], True], "P1"),
        ([1, 4, 1, [], [[0, 2, 3]], True], "R3"),
        ([1, 4, 1, [], [[1, 2, 0]], True], "R3"),
        ([1, 4, 1, [], [[1, 2]], True], "C1"),
        ([1, 3, 1, [], [[1, 2]], True], "P12"),
        ([1, 4, 2, [], [[1, 2, 3]], True], "R4"),
        ([1, 2, 3, [7], [[1, 2, 3]], True], "C4"),
    ],
)
def test_what_is_read_and_written_wrongly(part: Any, law: str) -> None:
    made = ghost(a=Tracked(0, 4, 4, 1), b=Tracked(1, 5, 4, 1))
    assert step(made, [0, 0, 4, [], [[1, 2]], True]) == ""
    assert step(made, part) == law
    assert step(made, part) == "", "what follows a fault is not judged"


def test_a_refused_draft_is_not_read() -> None:
    made = ghost(a=Tracked(0, 2, 2, 4))
    request = made.requests[0]
    token = toy.next_token(request.known)
    assert step(made, [0, 0, 2, [], [[1, 2]], True]) == ""
    assert made.follow({"emitted": [(0, [token])]}, set()) == []
    drafts = [toy.wrong(toy.next_token(request.known))]
    assert step(made, [0, 2, 2, drafts, [[]], False]) == ""
    assert made.follow({"emitted": [(0, [toy.next_token(request.known)])]}, set()) == []
    request.known.append(toy.next_token(request.known))
    assert step(made, [0, 4, 1, [], [[3]], False]) == "R1"


def test_tokens_and_ends() -> None:
    made = ghost(a=Tracked(0, 2, 2, 1))
    token = toy.next_token(made.requests[0].known)
    assert (
        made.follow({"emitted": [(0, [token, toy.next_token([*made.requests[0].known, token])])]}, set())[0].law == "A4"
    )
    made = ghost(a=Tracked(0, 2, 2, 1))
    assert made.follow({"ended": [0]}, set())[0].says == "request 0 ended with 0 of 1 tokens"
    made = ghost(a=Tracked(0, 2, 2, 1))
    assert made.follow({"ended": [0]}, {0}) == []


# Who goes first.


TWO = (("add", 7, 2, 0, 2, 1), ("add", 8, 2, 0, 2, 0))


def order(pool: int = 4) -> Order:
    made = Order(Case("schedule", msgspec.structs.replace(FULL, pool=pool), TWO), TABLE["none"])
    for each in TWO:
        assert made.follow({"op": each, "events": []}) == []
    return made


def decided(made: Order, *events: Any, **more: Any) -> list[str]:
    return [each.law for each in made.follow({"op": ["schedule"], "events": [list(event) for event in events], **more})]


def test_the_more_urgent_is_admitted_first() -> None:
    assert decided(order(), ("allocate", 8, 2, True, [1], []), ("allocate", 7, 2, True, [2], [])) == []
    made = order()
    (fault,) = made.follow({"op": ["schedule"], "events": [["allocate", 7, 2, True, [1], []]]})
    assert fault.law == "A3"
    assert fault.says.startswith("request 7 is admitted: ")
    assert fault.rows == (("7", "1", "0", "waiting", "0", "2"), ("8", "0", "1", "waiting", "0", "2"))
    assert decided(made, ("allocate", 7, 2, True, [1], [])) == [], "what follows a fault is not judged"


def test_the_less_urgent_is_preempted() -> None:
    def of_two_blocks(wants: int, goes: int) -> list[str]:
        made = order(pool=2)
        assert decided(made, ("allocate", 8, 2, True, [1], []), ("allocate", 7, 2, True, [2], [])) == []
        given = ("allocate", wants, 1, wants != goes, [3] if wants != goes else [], [])
        return decided(made, ("allocate", wants, 1, False, [], []), ("preempt", goes), given)

    assert of_two_blocks(wants=8, goes=7) == []
    assert of_two_blocks(wants=7, goes=7) == []
    assert of_two_blocks(wants=7, goes=8) == ["A3"]
    assert of_two_blocks(wants=8, goes=8) == ["A3"]


def test_nobody_is_preempted_without_need() -> None:
    made = order(pool=3)
    assert decided(made, ("allocate", 8, 3, True, [1, 2], []), ("allocate", 7, 2, True, [3], [])) == []
    assert decided(made, ("allocate", 8, 1, False, [], []), ("preempt", 7)) == ["A7"]


def test_nobody_is_admitted_to_the_room_that_was_made() -> None:
    made = order(pool=2)
    assert decided(made, ("allocate", 8, 2, True, [1], []), ("allocate", 7, 2, True, [2], [])) == []
    events = ("allocate", 8, 1, False, [], []), ("preempt", 7), ("allocate", 7, 2, True, [2], [])
    assert decided(made, *events) == ["A7"]


def test_what_an_engine_cannot_do_is_told_by_its_law() -> None:
    assert decided(order(), ("allocate", 8, 2, True, [1, 2, 3], [])) == ["A6"]
    assert decided(order(), ("allocate", 8, 2, True, [1], [9])) == ["A4"]
    assert decided(order(), emitted=[(8, [5])]) == ["A4"]
    assert decided(order(), ended=[8]) == []
    assert CANNOT.keys() | {"start", "finish"} == WORDS.keys() <= compiled(MACHINE).actions.keys()


# What can be found.


def found(made: Index, op: str, published: Any, index: Any) -> list[str]:
    faults = made.follow({"op": [op], "published": published, "index": index})
    return [f"{each.law} {each.family}" for each in faults]


def test_events_are_counted() -> None:
    made = Index()
    stored, removed = ["stored", 0, ["x"]], ["removed", 0, ["x"]]
    assert found(made, "retire", [stored, stored], [[0, "x", 1], [0, "x", 2]]) == []
    assert found(made, "retire", [removed], [[0, "x", 2]]) == ["P15 duplicate"]
    assert found(made, "retire", [removed], []) == []
    assert found(made, "retire", [stored, ["cleared"]], []) == []


def test_what_events_do_not_say() -> None:
    assert found(Index(), "retire", [], [[0, "x", 1]]) == ["P15 differs"]
    assert found(Index(), "retire", [["stored", 1, ["x"]]], [[0, "x", 1]]) == ["P15 differs"]
    assert found(Index(), "schedule", [], [[0, "x", 1]]) == [], "events are published when a step retires"
    assert found(Index(), "reset", [], [[0, "x", 1]]) == ["P9 reset"]


# The whole.


def test_what_the_engine_does_not_take_is_counted_apart() -> None:
    assert declined({"calls": [{"op": ["start"], "raised": "ValueError: not supported"}]})
    assert declined({"calls": [{"op": ["schedule"], "raised": "AssertionError: x is not supported at y"}]})
    assert not declined({"calls": [{"op": ["schedule"], "raised": "AssertionError: y"}]})


def test_a_worker_that_fails_is_told() -> None:
    client: Any = example.Client()
    (fault,) = Comparison(client).judge(Case("schedule", FULL, ()), {"error": "ValueError: x"})
    assert (fault.law, fault.says) == ("raised", "raised ValueError: x")


def test_a_tally_counts_what_happens() -> None:
    tally = Tally()
    events = [["hit", 1, 4], ["allocate", 1, 2, True, [1], []], ["allocate", 2, 2, False, [], []], ["preempt", 1]]
    tally.add([{"op": ["schedule"], "done": True, "events": events, "parts": [[2, 0, 3, [5, 6], [[1]], True]]}])
    tally.add([{"op": ["abort", 3], "done": True}, {"op": ["reset"], "done": False, "emitted": [(1, [4, 5])]}])
    assert tally.figures == {
        "programs": 2, "steps": 1, "tokens": 2, "drafts": 2, "prefixes found": 1, "refused": 1, "preempted": 1,
        "preempted out of a step": 1, "resumed": 0, "aborted": 1, "emptied": 0,
    }  # fmt: skip


def test_the_committed_findings_say_why() -> None:
    for version in ("0.26.0", "0.33.0"):
        filed = known("vllm", version, Case)
        assert {"R4", "P15"} <= {each.fault.law for _, each in filed}
        assert len({each.fault.key for _, each in filed}) == len(filed)
        for _, each in filed:
            assert each.explanation
            assert each.upstream.startswith("https://github.com/vllm-project/vllm/")


def test_the_laws_are_those_of_three_families() -> None:
    assert {law[0] for law in OF_SCHEDULERS} == set("ARP")
    assert {"A1", "A7", "R1", "P15"} <= set(OF_SCHEDULERS)
