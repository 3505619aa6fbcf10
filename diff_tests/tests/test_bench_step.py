"""What `kvspec bench step` measures is what it says: each side reserves what it should, and ours checks."""

from functools import partial
from pathlib import Path
from typing import Any

import kvspec_torch
import pytest
import torch
from kvspec_diff.bench import goals, run
from kvspec_diff.engines import Environment
from kvspec_record.bench import steps


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short rounds."""
    monkeypatch.setattr(steps, "REPEATS", {1: 1, 16: 2})
    monkeypatch.setattr(steps, "STEPS", 5)
    monkeypatch.setattr(steps, "PAGES", 400)


class Counting:
    """A side that counts what it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def side(self) -> steps.Side:
        begin, step, after, end = (partial(self.calls.append, name) for name in ("begin", "step", "after", "end"))
        return steps.Side(begin, step, after, end)


def test_rounds() -> None:
    counting = Counting()
    ours, peer = steps.against(16, 4, False, lambda requests: counting.side(), 7)
    assert len(ours) == len(peer) == 7
    assert min(ours + peer) > 0
    once = ["begin", *["step", "after"] * 6, "end"]
    assert counting.calls == once * 2 * 8, "one round more, to warm up"


@pytest.mark.parametrize(("tokens", "drafted"), [(1, False), (4, False), (4, True)])
def test_ours_reserves_what_it_says(tokens: int, drafted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    tables = kvspec_torch.BlockTables

    def keep(*arguments: Any, **named: Any) -> Any:
        made.append(tables(*arguments, **named))
        return made[-1]

    monkeypatch.setattr(steps, "BlockTables", keep)
    side = steps.ours(16, tokens, pages=400, drafted=drafted)
    side.begin()
    begun = made[0].backup()["length"]
    assert begun.tolist() == steps.starts(16)
    assert len(set(begun.remainder(16).tolist())) == 16, "at every step some leave their page"
    for _ in range(5):
        side.step()
    grown = (made[0].backup()["length"] - begun).tolist()
    assert grown == [5 * (1 + place % 4 if drafted else tokens) for place in range(16)]
    side.end()
    assert made[0].pool.available == 400


def test_larger_and_longer() -> None:
    for measured in steps.larger, steps.longer, steps.wider:
        ours, peer = measured(16, None, 7)
        assert len(ours) == len(peer) == 7


def test_tables_that_check_nothing_are_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvspec_torch.BlockTables, "reserve", lambda *_: None)
    with pytest.raises(AssertionError, match="a row could be named twice"):
        steps.ours(16, 1, pages=400)


def test_what_is_measured_has_a_goal_or_is_reported() -> None:
    assert sorted(steps.MEASURED) == sorted(goal.name for goal in goals.STEPS)


def test_ours_against_ours_runs_here_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[int] = []

    def measured(peer: None, rounds: int) -> steps.Rounds:
        threads.append(torch.get_num_threads())
        return [2.0] * rounds, [2.0] * rounds

    before = torch.get_num_threads()
    monkeypatch.setitem(steps.MEASURED, "step-pool-256", measured)
    asked = [goal for goal in goals.STEPS if goal.name == "step-pool-256"]
    (figure,) = run.run(asked, 7, {}, lambda _: None, [])
    assert (figure.ratio, figure.met, threads) == (1, True, [1])
    assert torch.get_num_threads() == before


def test_the_worker_is_told_which_suite() -> None:
    there = Environment("vllm", "0.33.0", Path(), "", Path("python"))
    for name, suite in (("step-vllm-1", "steps"), ("vllm-1", "pools")):
        arguments, _ = run.command(there, [name], 7)
        assert arguments[arguments.index("--suite") + 1] == suite
