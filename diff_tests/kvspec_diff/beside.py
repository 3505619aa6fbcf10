"""A machine beside something real: it takes the steps that the other one reports, and says which law they break."""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

from kvspec.language.run import Compiled, State, Violation, compile_machine
from kvspec.registry import machine

Step = tuple[str, tuple[int, ...]]
"""An action and its arguments."""


class Broken(Exception):
    """A law was broken, or `state` or `answer`: the two are not as the machine says."""

    def __init__(self, law: str, text: str) -> None:
        super().__init__(f"{law}: {text}")
        self.law = law


@cache
def compiled(name: str) -> Compiled:
    """A machine of the specification, compiled once."""
    return compile_machine(machine(name))


class Beside:
    """The machine of this name, at first in the initial state of these sizes and rigid variables.

    `steps` are those that it took, each an action and its arguments; `agreed` says after how many of them the two were
    found to be alike.
    """

    def __init__(self, name: str, sizes: Mapping[str, int], rigid: Mapping[str, Any]) -> None:
        self.name, self.sizes, self.rigid = name, dict(sizes), dict(rigid)
        self.state = compiled(name).start(self.sizes, self.rigid)
        self.steps: list[Step] = []
        self.agreed: list[int] = []

    def mark(self) -> tuple[State, int]:
        """Where it is now, to come back to."""
        return self.state.copy(), len(self.steps)

    def back(self, mark: tuple[State, int]) -> list[Step]:
        """Come back to a mark; the steps that it had taken since."""
        state, length = mark
        self.state, since = state.copy(), self.steps[length:]
        del self.steps[length:]
        self.agreed = [count for count in self.agreed if count <= length]
        return since

    def agrees(self) -> None:
        """The other one was found to be as the machine says, now."""
        self.agreed.append(len(self.steps))

    @property
    def done(self) -> Counter[str]:
        """How often each action was taken."""
        return Counter(action for action, _ in self.steps)

    def step(self, action: str, *arguments: int) -> None:
        """Take a step. Raises `Broken` with the law, if the machine forbids it or a law does not hold afterwards."""
        of, before = compiled(self.name), self.state.copy()
        try:
            of.actions[action](self.state, *arguments)
        except Violation as violation:
            raise Broken(violation.law or "misuse", f"{action}{arguments}: {violation.text}") from None
        if broken := of.judge(before, action, arguments, self.state):
            raise Broken(broken[0][0], f"{action}{arguments}: {broken}")
        self.steps.append((action, arguments))
