"""Who is admitted, who is preempted and for whom, followed by the machine `fairness` (A1, A3, A4, A6, A7).

What the scheduler asked of its manager, in order, is told in the machine's actions. One page at a time is handed out;
so a request whose allocation was refused takes what is free, and the first preemption comes when there is none.
Prefixes are not cached here: in the machine a page has one holder.
"""

from collections.abc import Iterator
from typing import Any

from kvspec.language.run import Violation
from kvspec.laws import LAWS

from kvspec_diff.batched.fault import Fault
from kvspec_diff.beside import compiled
from kvspec_diff.lookahead import Row
from kvspec_diff.schedulers.case import Case

MACHINE = "fairness"

CANNOT = {
    "arrive": ("A6", "it is there already"), "admit": ("A3", "it waits for something else"),
    "grow": ("A6", "it has all that it may need, or does not run"), "give_back": ("A4", "it has fewer"),
    "preempt": ("A7", "there was a block for it"), "emit": ("A4", "it does not run, or is at its end"),
}  # fmt: skip
"""The law that an action breaks which is not possible at all, and why it is not."""


WORDS = {
    "start": "the scheduler starts", "arrive": "request {0} comes", "admit": "request {0} is admitted",
    "grow": "request {0} gets a block more", "give_back": "request {0} gives {2} blocks back",
    "preempt": "request {0} is preempted for request {1}", "emit": "request {0} emits a token",
    "finish": "request {0} ends",
}  # fmt: skip
HEAD = ("request", "priority", "came as", "is", "blocks", "may need")


class Order:
    """Follows a scheduler's decisions."""

    def __init__(self, case: Case, row: Row) -> None:
        setup = case.setup
        added = [step for step in case.steps if step[0] == "add"]
        self.numbers: dict[int, int] = {}  # of requests that are not gone, in the machine
        self.names: list[int] = []  # the other way round
        most = [[setup.most(row, int(step[2]) + int(step[4]) - 1)] for step in added]
        self.state = compiled(MACHINE).start(
            {"Pool": 1, "Request": max(len(added), 1)},
            {
                "pages": [setup.pool], "apart": [0], "watermark": [int(setup.watermark * (setup.pool + 1))],
                "first": [[0] for _ in most] or [[0]], "most": most or [[0]],
                "priority": [int(step[5]) for step in added] or [0], "patience": 0,
            },
        )  # fmt: skip
        self.grown: dict[int, int] = {}  # pages that a refused request has in the machine already
        self.refused: int | None = None  # whose allocation was refused last, in this operation
        self.over = False  # a reset preempts everybody for nobody: the machine has no such step
        self.found: Fault | None = None
        self._do("start")

    def follow(self, answer: dict[str, Any]) -> list[Fault]:
        """An operation was answered: the law that it broke, if it is the first."""
        op, *rest = answer["op"]
        self.over = self.over or op == "reset"
        if self.found or self.over:
            return []
        self.refused = None
        if op == "add":
            r, _, _, tokens, _ = rest
            self.numbers[r] = len(self.names)
            self.names.append(r)
            self._do("arrive", self.numbers[r], tokens)
        for event in answer["events"]:
            if self.found:
                break
            if event[0] == "allocate":
                self._allocate(*event[1:])
            elif event[0] == "preempt":
                self._preempt(event[1])
        for r, tokens in answer.get("emitted", ()):
            for _ in tokens:
                self._do("emit", self.numbers[r])
        for r in answer.get("ended", ()):
            self._do("finish", self.numbers.pop(r))
        return [self.found] if self.found else []

    def _allocate(self, r: int, tokens: int, given: bool, taken: list[int], back: list[int]) -> None:
        number = self.numbers[r]
        if given and not self.state.running[number]:
            self._do("admit", number)
        if back:
            self._do("give_back", number, 0, len(back))
        if given:
            for _ in range(len(taken) - self.grown.pop(r, 0)):
                self._do("grow", number, 0)
        self.refused = None if given else r

    def _preempt(self, r: int) -> None:
        if self.refused is None:
            law, why = CANNOT["preempt"]
            self.found = self._fault(law, "preempt", (self.numbers[r], self.numbers[r]), why)
            return
        wants, state = self.numbers[self.refused], self.state
        while not self.found and state.pages[0] - state.apart[0] - state.used[0] - state.promised[0] > 0:
            self._do("grow", wants, 0)
            self.grown[self.refused] = self.grown.get(self.refused, 0) + 1
        self._do("preempt", self.numbers[r], wants, 0)
        self.grown.pop(r, None)

    def _do(self, action: str, *arguments: int) -> None:
        """Take the machine's step, if nothing was wrong before it."""
        if self.found:
            return
        before = self.state.copy()
        try:
            compiled(MACHINE).actions[action](self.state, *arguments)
        except Violation as violation:
            law, why = (violation.law, "") if violation.law else CANNOT[action]
            self.found = self._fault(law, action, arguments, why)
            return
        broken = compiled(MACHINE).judge(before, action, arguments, self.state)
        if broken:
            self.found = self._fault(broken[0][0], action, arguments)

    def _fault(self, law: str, action: str, arguments: tuple[int, ...], why: str = "") -> Fault:
        """What was done, the law that it breaks, and the requests as they were."""
        others = 2 if action == "preempt" else 1
        told = [*(self.names[number] for number in arguments[:others]), *arguments[others:]]
        says = f"{WORDS[action].format(*told)}: {why or LAWS[law][0].lower() + LAWS[law][1:-1]}"
        return Fault(law, "scheduler", action, says, HEAD, tuple(self._rows()))

    def _rows(self) -> Iterator[tuple[str, ...]]:
        state = self.state
        for r, number in self.numbers.items():
            is_now = "running" if state.running[number] else "waiting"
            counts = (state.ticket[number], is_now, state.has[number][0], state.most[number][0])
            yield (str(r), str(state.priority[number]), *map(str, counts))
