"""The reference scheduler in lockstep with the compiled machines: `fairness` for requests, `speculation` for tables.

A run is recorded first: what each call did, and the scheduler's whole state after it. Then the machines follow. What is
rigid in them (what a request needs of a pool, how long the prompt is that an admission computes) is known by then.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvspec.language.run import State, Violation
from kvspec.operations import Misuse, Refused
from kvspec_reference.admission import Action, Scheduled, Scheduler
from kvspec_reference.demand import Request
from kvspec_reference.geometry import pages_for, place
from kvspec_reference.reservation import RECURRENT, first_read

from kvspec_diff.beside import compiled
from kvspec_diff.lockstep import Parts, snapshot

MACHINES = ("fairness", "speculation")
"""The machines whose actions the scheduler reports."""

Call = tuple[Any, ...]
"""A method of the scheduler and its arguments."""


@dataclass(frozen=True)
class Record:
    """A call: what it was answered, the actions that it reported, the state after it."""

    call: Call
    answer: Any
    actions: list[Action]
    state: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Difference:
    """A law that was broken, or `state` or `answer`; where, and what."""

    call: Call
    law: str
    text: str

    def __str__(self) -> str:
        return f"{self.call}: {self.law}: {self.text}"


class Recorder:
    """Calls a scheduler and keeps what it did. `submitted` has all requests ever, by number."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        self.records = [Record(("start",), None, scheduler.take_actions(), observed(scheduler))]
        self.first: list[list[int]] = []  # of each request, by pool
        self.most: list[list[int]] = []
        self.priority: list[int] = []
        self.known: list[int] = []  # of each admission: the length of its prompt

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method; what it returned, or what it raised."""
        try:
            answer = getattr(self.scheduler, name)(*arguments)
        except (Misuse, Refused) as error:
            answer = error
        if name == "submit" and not isinstance(answer, Misuse):
            _, prompt, tokens, *rest = arguments
            most = self.scheduler.demand.most(prompt + tokens - 1)
            self.most.append(most)
            self.first.append(self.scheduler.demand.first(prompt, most))
            self.priority.append(rest[0] if rest else 0)
        self.known += [at.known for at in _runs(self.scheduler) if at.run >= len(self.known)]
        actions = self.scheduler.take_actions()
        self.records.append(Record((name, *arguments), answer, actions, observed(self.scheduler)))
        return answer


def _runs(scheduler: Scheduler) -> list[Request]:
    return sorted((each for each in scheduler.requests.values() if each.running), key=lambda each: each.run)


def observed(scheduler: Scheduler) -> dict[str, dict[str, Any]]:
    """The scheduler's whole state, in numbers, by machine and variable."""
    live, pools = scheduler.requests.values(), scheduler.pools
    runs = [each for each in live if each.running]
    held = [[entries - lost for entries, lost in zip(each.entries, each.lost, strict=True)] for each in live]
    rows = {each.number: [pool.each * each.running for pool in pools] for each in live}
    tables = {each.number: scheduler.demand.tables(each) for each in live}
    return {
        "fairness": {
            "running": {each.number: each.running for each in live},
            "due": {each.number: list(each.due) for each in live},
            "has": {number: [sum(pair) for pair in zip(rows[number], tables[number], strict=True)] for number in rows},
            "blocked": {each.number: each.blocked for each in live},
            "passed": {each.number: each.passed for each in live},
            "ticket": {each.number: each.order[1] for each in live},
            "emitted": {each.number: each.emitted for each in live},
            "left": {each.number: each.tokens - each.emitted for each in live},
            "lacks": {each.number: False for each in live},
            "free": list(scheduler.free),
        },
        "speculation": {
            "settled": {each.run: each.settled for each in runs},
            "ahead": {each.run: each.ahead for each in runs},
            "entries": {each.run: list(each.entries) for each in runs},
            "lost": {each.run: list(each.lost) for each in runs},
            "drafted": {each.run: sum(drafts for _, drafts in each.flight) for each in runs},
            "stopped": {each.run: each.stopped for each in runs},
            "emitted": {each.run: each.emitted - (each.known - each.prompt) for each in runs},
            "used": [sum(column) for column in zip(*held, strict=True)] if held else [0] * len(scheduler.demand.groups),
        },
    }


def each(name: str, there: str) -> tuple[Callable[[State], Any], tuple[str, ...]]:
    """A variable of the requests that are in the set `there`."""
    return lambda state: {r: getattr(state, name)[r] for r, yes in enumerate(getattr(state, there)) if yes}, (name,)


def _free(state: State) -> list[int]:
    return [state.pages[g] - state.apart[g] - state.used[g] - state.promised[g] for g in range(state.n_Pool)]


PARTS: Mapping[str, Parts] = {
    "fairness": {
        name: each(name, "alive")
        for name in ("running", "due", "has", "blocked", "passed", "ticket", "emitted", "left", "lacks")
    } | {"free": (_free, ("pages",))},
    "speculation": {
        name: each(name, "running")
        for name in ("settled", "ahead", "entries", "lost", "drafted", "stopped", "emitted")
    } | {"used": (lambda state: list(state.used), ("used",))},
}  # fmt: skip
"""The same of the machines' states."""


def settings(recorder: Recorder) -> dict[str, tuple[dict[str, int], dict[str, Any]]]:
    """By machine, the sizes of its sorts and its rigid variables for what was recorded."""
    of = recorder.scheduler
    limits, groups = of.limits, [group for _, group in of.demand.groups]
    positions = range(limits.length + 1)
    sizes = {group.size for group in groups}
    assert len(sizes) == 1, "the machine has blocks of one size"
    size = sizes.pop()
    fair = (
        {"Pool": len(of.pools), "Request": len(recorder.most)},
        {
            "pages": [pool.pages for pool in of.pools], "apart": [pool.apart for pool in of.pools],
            "watermark": [pool.watermark for pool in of.pools], "first": recorder.first, "most": recorder.most,
            "priority": recorder.priority, "patience": of.patience,
        },
    )  # fmt: skip
    tables = (
        {"Position": len(positions), "Request": len(recorder.known), "Group": len(groups)},
        {
            "blocks": [pages_for(t, size) for t in positions], "whole": [place(t, size)[0] for t in positions],
            "limit": limits.length, "lookahead": limits.lookahead, "spares": limits.spares,
            "crossed": [group.kind == "cross" for group in groups],
            "recurrent": [group.kind in RECURRENT for group in groups],
            "aligned": [group.kind == "align" for group in groups],
            "prompt": recorder.known, "encoded": [limits.encoded] * len(recorder.known),
            "since": [[first_read(group, t) for t in positions] for group in groups],
        },
    )  # fmt: skip
    return {"fairness": fair, "speculation": tables}


def compare(recorder: Recorder) -> Difference | None:
    """Let the machines follow what was recorded: the first difference."""
    states = {name: compiled(name).start(*made) for name, made in settings(recorder).items()}
    last: Mapping[str, Any] = recorder.records[0].state
    for record in recorder.records:
        found = _followed(record, states) or _answered(record, last, recorder.scheduler.budget)
        found = found or _differs(record, states)
        if found is not None:
            return found
        last = record.state
    return None


def _differs(record: Record, states: Mapping[str, State]) -> Difference | None:
    """The first part of the state that is not what is specified."""
    for name, state in states.items():
        for part, wanted in snapshot(state, PARTS[name]).items():
            if (done := record.state[name][part]) != wanted:
                return Difference(record.call, "state", f"{name} {part}: {done}, specified is {wanted}")
    return None


def _followed(record: Record, states: Mapping[str, State]) -> Difference | None:
    """Take the steps that a call reported; every law is evaluated after each."""
    for name, action, *arguments in record.actions:
        of, state = compiled(str(name)), states[str(name)]
        before = state.copy()
        try:
            of.actions[str(action)](state, *arguments)
        except Violation as violation:
            return Difference(record.call, violation.law or "misuse", f"{name} {action}{arguments}: {violation.text}")
        broken = of.judge(before, str(action), tuple(arguments), state)
        if broken:
            return Difference(record.call, broken[0][0], f"{name} {action}{arguments}: {broken}")
    return None


def _answered(record: Record, before: Mapping[str, Any], budget: int) -> Difference | None:
    """What was refused changed nothing, and a step is what was scheduled, within the budget."""
    kinds = [action[1] for action in record.actions]
    if isinstance(record.answer, Exception):
        wanted = ["reject"] if isinstance(record.answer, Refused) else []
        if kinds != wanted or record.state != before:
            return Difference(record.call, "A2", f"{record.answer!r}, and yet it did {record.actions}")
    if record.call[0] == "schedule":
        step: Sequence[Scheduled] = record.answer
        done = [tuple(action[3:]) for action in record.actions if action[1] == "schedule"]
        if [(part.tokens, part.drafts) for part in step] != done:
            return Difference(record.call, "answer", f"{step}, but {done} was scheduled")
        if sum(part.tokens + part.drafts for part in step) > budget:
            return Difference(record.call, "answer", f"{step} has more than {budget} tokens")
    return None
