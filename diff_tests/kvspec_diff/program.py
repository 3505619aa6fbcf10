"""Programs: a pool's size and the operations to run on it, from empty."""

import difflib
from collections.abc import Iterable
from typing import get_args

import msgspec
from kvspec.operations import AnyOperation, Configuration, Pin, Start, Unpin

LARGEST_POOL = 2**22
"""The most slots (pages times page size) that a program's pool may have; more is taken for a mistake."""

OPERATIONS: dict[str, type[AnyOperation]] = {str(kind.__struct_config__.tag): kind for kind in get_args(AnyOperation)}
"""Every operation by the name that it has in traces and as a method of a subject's pool."""


def operation_name(operation: AnyOperation) -> str:
    """The operation's name in traces, and the method that does it: `allocate` for `Allocate`."""
    return str(type(operation).__struct_config__.tag)


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` with the known name nearest to `name`, or nothing when none is near."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


class ProgramError(ValueError):
    """A program that cannot be run: `index` is the operation at fault (None: the configuration), the text says why."""

    def __init__(self, index: int | None, text: str) -> None:
        super().__init__(text)
        self.index = index


class Program(msgspec.Struct, frozen=True):
    """`operations` in order, on a fresh pool of `configuration`. May hold misuse on purpose, but no unknown operand."""

    configuration: Configuration
    operations: tuple[AnyOperation, ...] = ()

    def validate(self) -> None:
        """Raise `ProgramError` for a pool too large to be meant, and for a row or pin named before anything made it.

        Misuse is allowed (a subject must refuse it and change nothing): a row that has finished, a range too long.
        A row that no earlier operation started is not misuse but a mistake in the program.
        """
        slots = self.configuration.pages * self.configuration.page_size
        if slots > LARGEST_POOL:
            raise ProgramError(None, f"a pool of {slots} slots; the most is {LARGEST_POOL}")
        names = Names()
        for index, operation in enumerate(self.operations):
            problem = names.meet(operation)
            if problem:
                raise ProgramError(index, problem)


class Names:
    """The rows and pins that the operations met so far have made, whether or not they still live."""

    def __init__(self) -> None:
        self.rows: set[str] = set()
        self.pins: set[str] = set()

    def meet(self, operation: AnyOperation) -> str:
        """Take in the next operation; say what is wrong with its operands, or nothing."""
        if isinstance(operation, Start):
            self.rows.add(operation.row)
            return ""
        for field in ("row", "source"):
            row = getattr(operation, field, None)
            if row is not None and row not in self.rows:
                return f"unknown {field} {row!r}: no earlier operation starts it{nearest(row, sorted(self.rows))}"
        if isinstance(operation, Pin):
            self.pins.add(operation.name)
        elif isinstance(operation, Unpin) and operation.name not in self.pins:
            name = operation.name
            return f"unknown pin {name!r}: no earlier operation makes it{nearest(name, sorted(self.pins))}"
        return ""
