"""The same operations as rules of a Hypothesis state machine: a run is kept as a program and checked when it ends."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from kvspec.operations import AnyOperation

from kvspec_diff.generate import Generator
from kvspec_diff.program import Program
from kvspec_diff.sketch import Sketch

BYTE = st.integers(0, 255)


class Author(RuleBasedStateMachine):
    """Writes a program, rule by rule; `state_machine` adds a rule for each kind of operation."""

    generator: Generator
    check: Callable[[Program], None]

    def __init__(self) -> None:
        super().__init__()
        self.configuration = self.generator.configurations[0]
        self.sketch = Sketch(self.configuration)
        self.operations: list[AnyOperation] = []

    @initialize(choice=BYTE)
    def pool(self, choice: int) -> None:
        """Choose the pool."""
        self.configuration = self.generator.configurations[choice % len(self.generator.configurations)]
        self.sketch = Sketch(self.configuration)

    def add(self, kind: str, a: int, b: int, c: int) -> None:
        """Add an operation of a kind, if there is one to add."""
        operation = self.generator.made(self.sketch, kind, a, b, c)
        if operation is not None:
            self.operations.append(operation)

    def teardown(self) -> None:
        """Check the program that was written."""
        type(self).check(Program(self.configuration, tuple(self.operations)))


def state_machine(generator: Generator, check: Callable[[Program], None]) -> type[Author]:
    """A state machine of the generator's kinds of operations; `check` raises what is wrong with a program."""
    rules: dict[str, Any] = {f"do_{kind}": _rule(kind) for kind in [*generator.kinds, *generator.extra]}
    return type("Programs", (Author,), rules | {"generator": generator, "check": staticmethod(check)})


def _rule(kind: str) -> Any:
    def add(self: Author, a: int, b: int, c: int) -> None:
        self.add(kind, a, b, c)

    add.__name__ = f"do_{kind}"
    return rule(a=BYTE, b=BYTE, c=BYTE)(add)
