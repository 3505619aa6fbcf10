"""A scheduler that is right, one request at a time, behind the answers that vLLM's worker would give; and its faults.

It caches no prefixes and drafts nothing, and takes the most urgent request, or the first. `FAULTS` names what can be
wrong with it, each with the law that it breaks.
"""

from collections import deque
from typing import Any

import msgspec
from kvspec_record import toy
from kvspec_reference.reservation import Limits, blocks, null_entries

from kvspec_diff.batched import example
from kvspec_diff.schedulers.case import Setup

FAULTS = {
    "last_first": "A3", "keeps_blocks": "A4", "forgets": "A6", "another_token": "A4", "a_token_more": "A4",
    "short_table": "C1", "null_block": "R3", "skips_a_token": "R4", "another_block": "R1", "all_is_found": "P12",
    "says_stored": "P15", "raises": "raised", "too_many_blocks": "A6",
}  # fmt: skip
IDLE = 3


class Request:
    """A request of the fake."""

    def __init__(self, number: int, prompt: int, shared: int, tokens: int, priority: int, groups: int) -> None:
        self.number, self.order = number, priority
        self.known = toy.prompt(number, prompt, shared)
        self.end, self.start = prompt + tokens, 0
        self.tables: list[list[int]] = [[] for _ in range(groups)]

    @property
    def held(self) -> list[int]:
        """Its blocks."""
        return [block for table in self.tables for block in table if block]


class Scheduler:
    """Runs one request at a time."""

    def __init__(self, setup: Setup, fault: str) -> None:
        self.setup, self.fault = setup, fault
        self.free = deque(range(1, setup.pool + 1))
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.flying: deque[list[Any]] = deque()
        self.events: list[list[Any]] = []

    def run(self, op: list[Any]) -> dict[str, Any]:
        """The answer to an operation."""
        self.events = []
        answer = {"op": op, "done": True, **getattr(self, f"_{op[0]}")(*op[1:])}
        running = [each.number for each in self.running]
        used = sum(len(each.held) for each in self.running)
        says = [["stored", 0, ["abc"]]] if self.fault == "says_stored" and op[0] == "retire" else []
        return answer | {"events": self.events, "running": running, "free": len(self.free),
                         "used": used, "index": [], "published": says}  # fmt: skip

    def _add(self, r: int, prompt: int, shared: int, tokens: int, priority: int) -> dict[str, Any]:
        self.waiting.append(Request(r, prompt, shared, tokens, priority, len(self.setup.groups)))
        return {}

    def _schedule(self) -> dict[str, Any]:
        if self.flying or not (self.running or self.waiting):
            return {"done": False}
        if self.fault == "raises" and len(self.waiting) > 1:
            return {"raised": "ValueError: two at `raise ValueError` in schedule"}
        if not self.running and not (self.fault == "forgets" and self.waiting[0].number == 1):
            pick = max if self.fault == "last_first" else min
            self.running.append(pick(self.waiting, key=lambda each: (each.order, self.waiting.index(each))))
            self.waiting.remove(self.running[0])
        parts = [self._part(request) for request in self.running]
        self.flying.append(parts)
        return {"parts": parts}

    def _part(self, request: Request) -> list[Any]:
        fresh = not request.start
        if fresh and self.fault == "all_is_found":
            request.start = len(request.known)
        count = max(min(self.setup.budget, len(request.known) - request.start), 1)
        limits = Limits(self.setup.length, 0, 0, 0)
        back = []
        for group, table in zip(self.setup.described, request.tables, strict=True):
            for place in range(min(null_entries(group, request.start), len(table))):
                back += [table[place]] if table[place] else []
                table[place] = 0
        self.free.extend(back)
        added = []
        for group, table in zip(self.setup.described, request.tables, strict=True):
            wanted = blocks(group, request.start + count, limits) + 9 * (self.fault == "too_many_blocks")
            taken = [self.free.popleft() for _ in range(min(wanted - len(table), len(self.free)))]
            table += taken
            added.append(taken)
        flat = [block for taken in added for block in taken]
        self.events.append(["allocate", request.number, count, True, flat, back])
        if self.fault == "short_table":
            added = [taken[:-1] for taken in added]
        if self.fault == "null_block":
            added = [[0 for _ in taken] for taken in added]
        if self.fault == "another_block" and not fresh:
            added = [[1] * len(taken) for taken in added]
        start = request.start + (self.fault == "skips_a_token" and not fresh)
        request.start += count
        return [request.number, start, count, [], added, fresh]

    def _retire(self, right: int, drafts: int) -> dict[str, Any]:
        if not self.flying:
            return {"done": False}
        emitted, ended = [], []
        for part in self.flying.popleft():
            request = next((each for each in self.running if each.number == part[0]), None)
            if request is None or request.start < len(request.known):
                continue
            token = toy.next_token(request.known)
            request.known.append(token)
            over = len(request.known) == request.end
            said = [toy.wrong(token)] if self.fault == "another_token" else [token]
            emitted.append([request.number, said * (2 if self.fault == "a_token_more" and over else 1)])
            if over:
                ended += self._leave(request)
        return {"emitted": emitted, "ended": ended}

    def _leave(self, request: Request) -> list[int]:
        if request in self.waiting:
            self.waiting.remove(request)
            return [request.number]
        self.running.remove(request)
        self.free.extend(request.held[self.fault == "keeps_blocks" :])
        return [request.number]

    def _abort(self, r: int) -> dict[str, Any]:
        found = [each for each in (*self.running, *self.waiting) if each.number == r]
        return {"ended": self._leave(found[0])} if found else {"done": False}

    def _reset(self) -> dict[str, Any]:
        return {"done": False}


def run(setup: Setup, ops: list[list[Any]], fault: str) -> list[dict[str, Any]]:
    """The answers to a program and to what lets every request come to its end."""
    scheduler, answers, idle = Scheduler(setup, fault), [], 0
    for op in ops:
        answers.append(scheduler.run(op))
        if "raised" in answers[-1]:
            return answers
    while (scheduler.running or scheduler.waiting) and idle < IDLE and "raised" not in answers[-1]:
        op = ["retire", 0, 0] if scheduler.flying else ["schedule"]
        answers.append(scheduler.run(op))
        idle = 0 if scheduler.running else idle + (op[0] == "schedule")
    return answers


class Client(example.Client):
    """Asked about schedulers."""

    offered = tuple(FAULTS)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to one question."""
        setup = msgspec.convert(question["setup"], Setup)
        return {"calls": run(setup, [list(step) for step in question["steps"]], self.fault)}
