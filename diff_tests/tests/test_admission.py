"""The reference scheduler against `fairness` and `speculation`: every action, every law, the whole state."""

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import kvspec_reference.admission
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvspec.operations import Misuse, Refused
from kvspec_diff import plants
from kvspec_diff.beside import compiled
from kvspec_diff.profiles import register
from kvspec_diff.schedules import (
    KINDS,
    METHODS,
    SPANNED,
    Configuration,
    Make,
    Program,
    once,
    random_configuration,
    random_program,
    recorded,
    run,
)
from kvspec_diff.scheduling import Difference, Recorder, compare
from kvspec_reference.admission import Scheduler
from kvspec_reference.demand import Demand, Pool
from kvspec_reference.reservation import Group, Kind, Limits, blocks, null_entries

register()

small = st.integers(0, 2)
configurations = st.builds(
    Configuration,
    size=st.integers(1, 4),
    kinds=st.lists(
        st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 6)), min_size=1, max_size=2).map(tuple),
        min_size=2, max_size=2,
    ).map(tuple),
    pages=st.tuples(st.integers(2, 20), st.integers(2, 20)),
    watermark=small,
    rows=st.integers(1, 4),
    limits=st.builds(Limits, st.integers(4, 20), small, small, small),
    budget=st.integers(1, 10),
    drafts=st.integers(0, 3),
    depth=st.integers(1, 3),
    policy=st.sampled_from(["fcfs", "priority"]),
    patience=small,
)  # fmt: skip
numbers = st.tuples(*[st.integers(0, 31)] * 4)
programs = st.lists(st.tuples(st.sampled_from(METHODS), numbers), max_size=40)


def difference(configuration: Configuration, program: Program, make: Make = Scheduler) -> Difference | None:
    recorder = Recorder(configuration.scheduler(make))
    run(recorder, program)
    return compare(recorder)


@settings(settings.get_profile("pr"))
@given(configurations, programs)
def test_programs(configuration: Configuration, program: Program) -> None:
    found = difference(configuration, program)
    assert found is None, str(found)


def test_bulk() -> None:
    seen: Counter[tuple[str, str]] = Counter()
    for seed in range(200):
        recorder = recorded(seed)
        found = compare(recorder)
        assert found is None, f"seed {seed}: {found}"
        seen.update((str(action[0]), str(action[1])) for record in recorder.records for action in record.actions)
    never = {("speculation", "warm")}
    wanted = {(name, action) for name in ("fairness", "speculation") for action in compiled(name).actions}
    assert {action: seen[action] for action in wanted - never if seen[action] < 30} == {}, "these are hardly tried"


@settings(settings.get_profile("pr"))
@given(configurations, programs, st.integers(0, 3))
def test_every_request_that_was_accepted_ends(configuration: Configuration, program: Program, accepted: int) -> None:
    """Whatever happened before: once nothing is blocked, so many steps later all are served (A7)."""
    of = configuration.scheduler()
    recorder = Recorder(of)
    run(recorder, program)
    for request in list(of.requests.values()):
        if request.blocked:
            recorder.call("unblock", request.name)
    # A step brings the first that runs nearer to its end; what computing again costs it, it pays for each that comes
    # before it at most once.
    work = sum(-(-(each.prompt + each.tokens) // of.budget) + each.tokens for each in of.requests.values())
    bound = (len(of.requests) + 1) * work + 1
    steps = 0
    while of.requests:
        steps += 1
        assert steps <= bound, f"after {bound} steps there are still {sorted(of.requests)}"
        once(recorder, accepted)
    assert of.free == [pool.pages - pool.apart for pool in of.pools]


@settings(settings.get_profile("pr"))
@given(
    st.sampled_from(KINDS), st.integers(1, 5), st.integers(1, 12), st.integers(1, 20), st.integers(1, 12),
    st.builds(Limits, st.just(24), small, small, small),
)  # fmt: skip
def test_what_a_request_holds_at_most(kind: Kind, size: int, span: int, end: int, flight: int, limits: Limits) -> None:
    """Never less than it can come to hold, and at most a page more."""
    group = Group(kind, size, span if kind in SPANNED else 0)
    held = max(
        blocks(group, ahead, limits) - null_entries(group, settled)
        for settled in range(end + 1)
        for ahead in range(settled, min(settled + flight, end) + 1)
    )
    (most,) = Demand([Pool(1, (group,))], limits, flight).most(end)
    assert held <= most <= held + (kind in SPANNED)


def plain(pages: int = 8, **more: Any) -> Scheduler:
    arguments: dict[str, Any] = {"budget": 8, "drafts": 2, "policy": "priority", **more}
    return Scheduler([Pool(pages, (Group("full", 4),))], Limits(32, 2), **arguments)


def test_a_run_by_hand() -> None:
    of = plain(8)
    of.submit("a", prompt=12, tokens=10)
    of.submit("b", prompt=6, tokens=8)
    step = of.schedule()
    assert [(part.name, part.start, part.tokens, part.drafts) for part in step] == [("a", 0, 8, 0)]
    of.retire("a")
    step = of.schedule()
    assert [(part.name, part.start, part.tokens, part.drafts) for part in step] == [("a", 8, 4, 0), ("b", 0, 4, 0)]
    for part in step:
        of.retire(part.name)
    assert of.requests["a"].emitted == 1, "the end of the prompt yields a token"
    step = of.schedule()
    assert [(part.name, part.start, part.tokens, part.drafts) for part in step] == [("a", 12, 1, 2), ("b", 4, 2, 0)]
    of.retire("a", accepted=1)
    assert of.requests["a"].emitted == 3
    assert of.requests["a"].settled == of.requests["a"].ahead == 14


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (lambda of: of.submit("b", 0, 1), "request b: prompt is 0, at least 1 is wanted"),
        (lambda of: of.submit("b", -3, 1), "prompt: -3 is no count"),
        (lambda of: of.submit("b", 1, 0), "request b: tokens is 0, at least 1 is wanted"),
        (lambda of: of.submit("b", 1.5, 1), "prompt: 1.5 is no count"),
        (lambda of: of.submit("b", 30, 3), "request b: 30 tokens and 3 to come are more than 32, the longest sequence"),
        (lambda of: of.submit("b", 2**70, 3), f"request b: {2**70} tokens and 3 to come are more than 32"),
        (lambda of: of.submit("b", 1, 1, -1), "priority: -1 is no count"),
        (lambda of: of.submit("a", 1, 1), "request a: is there already"),
        (lambda of: of.submit("b", 28, 4), "request b: can never be served, it needs 8 pages of pool 0, which has 7"),
        (lambda of: of.retire("b"), "request b: there is none"),
        (lambda of: of.retire("a", 3), "request a: 3 of 2 drafts cannot be accepted"),
        (lambda of: of.retire("a", 1.5), "request a: 1.5 of 2 drafts cannot be accepted"),
        (lambda of: of.retire("a", -1), "request a: -1 of 2 drafts cannot be accepted"),
        (lambda of: of.retire("a", 1, 3), "request a: 3 tokens cannot be emitted, at most 2"),
        (lambda of: of.retire("w"), "request w: no step is left to retire"),
        (lambda of: of.block("a"), "request a: runs, so it waits for nothing"),
        (lambda of: of.unblock("w"), "request w: is not blocked"),
        (lambda of: of.cancel("x"), "request x: there is none"),
    ],
)
def test_bad_calls_are_refused_and_change_nothing(call: Callable[[Scheduler], object], reason: str) -> None:
    of = plain(7)
    of.submit("a", 5, 9)
    of.schedule()
    of.retire("a")
    of.submit("w", 20, 5)
    of.schedule()
    of.take_actions()
    before = repr(vars(of))
    with pytest.raises((Misuse, Refused)) as raised:
        call(of)
    assert str(raised.value).startswith(reason)
    if isinstance(raised.value, Refused):
        assert of.take_actions() == [("fairness", "reject", 2)]
        of._submitted -= 1
    assert repr(vars(of)) == before


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: plain(0), "a pool of 0 pages has none beside the 0 that are kept apart"),
        (lambda: Pool(4, apart=4), "a pool of 4 pages has none beside the 4 that are kept apart"),
        (lambda: Pool(4, watermark=-1), "watermark: -1 is no count"),
        (lambda: plain(budget=2), "a step of 2 tokens has no room for a token and 2 drafts"),
        (lambda: plain(budget=0, drafts=0), "a step of 0 tokens has no room for a token and 0 drafts"),
        (lambda: plain(drafts=-1), "drafts: -1 is no count"),
        (lambda: plain(depth=0), "a request has at least 1 step at a time: depth is 0"),
        (lambda: plain(policy="lifo"), "there is no policy 'lifo': fcfs and priority are"),
        (lambda: plain(policy="fcfs").submit("a", 1, 1, 1), "request a: priority 1, but who comes first is served"),
        (lambda: Group("full", 0), "a block holds at least 1 token, not 0"),
        (lambda: Limits(0), "the longest sequence has at least 1 token, not 0"),
    ],
)
def test_bad_configurations_are_refused(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        make()


FAULTS = {
    "the watermark is kept when nobody runs": ("pool.watermark if runs else 0", "pool.watermark"),
    "the first in order is preempted": ("self._behind(request)[-1], request", "self._in_order(True)[0], request"),
    "a blocked request is passed once too often": ("other.passed == self.patience", "other.passed > self.patience"),
    "refused drafts stay counted": ("request.ahead -= drafts - accepted", "request.ahead -= drafts - accepted - 1"),
    "a promise is not used up": ("request.due[at] -= promised", "request.due[at] -= 0"),
    "a preempted request keeps its pages": ("self._hold_nothing(request)\n", "request.running = False\n"),
    "one page fewer is taken": ("for _ in range(more - promised)", "for _ in range(more - promised - 1)"),
    "the window is that of hoped-for positions": ("(group, request.settled)", "(group, request.ahead)"),
    "one token too few is emitted": ("possible = accepted + 1 if", "possible = accepted + 0 if"),
    "who does not fit is passed": ("or not self._admit(request) or", "or (not self._admit(request) and False) or"),
}


def faulty(old: str, new: str) -> Any:
    """The scheduler's class with a fault."""
    source = Path(kvspec_reference.admission.__file__).read_text()
    assert old in source
    name = "kvspec_reference.admission"
    at = source.rindex(old) if old.startswith("self._hold_nothing") else source.index(old)
    if old.startswith("self._hold_nothing"):
        at = source.index(old, source.index("def _drop"))
    changed = source[:at] + new + source[at + len(old) :]
    return plants.load(plants.Plant(name, "", "", old, new, changed), name).__dict__["Scheduler"]


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_caught(fault: str) -> None:
    make = faulty(*FAULTS[fault])
    for seed in range(300):
        of = random.Random(seed)
        try:
            if difference(random_configuration(of), random_program(of, 60), make):
                return
        except (ValueError, IndexError):  # the faulty scheduler fell over
            return
    raise AssertionError("never caught")
