"""The fast implementation as a subject, one operation a batch, with a hostile caller.

Every tensor that is passed is overwritten as soon as the call has returned, and so is every tensor that came back; one
of those that changes by itself is reported as `changed` in the state (D5). Now and then the state is backed up and
restored into a fresh cache, and the backup overwritten; the program goes on with the one or the other (D6).
"""

from typing import Any, Literal

import kvspec_torch
import torch
from kvspec.operations import AnyOperation, Outcome, Pin, Start, prompt_token
from msgspec import structs

from kvspec_diff.monitor import most_entries
from kvspec_diff.program import Program, operation_name
from kvspec_diff.subject import EVERYTHING, Show

SCRIBBLE = -7
BACKUP_EVERY = 8
"""Operations."""

REFUSED, MISUSED = 1, 2


class Torch:
    """Runs programs on `kvspec_torch.Cache`.

    `path` is the implementation's: `host`, or `device`, here on CPU tensors. `package` has `Cache`, `Misuse` and
    `Refused`, for a test's changed copy.
    """

    capabilities = EVERYTHING

    def __init__(
        self, path: Literal["host", "device"] = "host", show: Show = "blank", package: Any = kvspec_torch
    ) -> None:
        self.name = f"torch-{path}"
        self._path = path
        self._show: Show = show
        self._package = package

    def run(self, program: Program) -> list[Outcome]:
        """Run the whole program on a fresh cache."""
        run = _Run(program, self._path, self._package)
        last = len(program.operations) - 1
        return [
            run.perform(operation, "whole" if self._show == "end" and i == last else self._show)
            for i, operation in enumerate(program.operations)
        ]


class _Run:
    """One program's cache, and its rows and pins by number."""

    def __init__(self, program: Program, path: str, package: Any) -> None:
        pool, steps = program.configuration, program.operations
        self._rows = _numbers(step.row for step in steps if isinstance(step, Start))
        self._pins = _numbers(step.name for step in steps if isinstance(step, Pin))
        self._entries = most_entries(program)
        self._package = package
        self._pool, self._path = pool, path
        self._cache = self._fresh()
        self._done = 0
        self._positions = self._entries * pool.page_size
        self._passed: list[torch.Tensor] = []
        self._returned: list[torch.Tensor] = []

    def perform(self, operation: AnyOperation, show: Show) -> Outcome:
        """Do one operation and say what came of it and what can be seen afterwards."""
        self._done += 1
        if self._done % BACKUP_EVERY == 0:
            self._back_up()
        try:
            outcome = self._status(getattr(self, f"_{operation_name(operation)}", self._plain)(operation))
        except self._package.Misuse as error:
            outcome = Outcome("misuse", reason=str(error))
        except self._package.Refused as error:
            outcome = Outcome("refused", reason=str(error))
        for tensor in self._passed:
            tensor.fill_(SCRIBBLE)
        self._passed.clear()
        if show == "end":
            return outcome
        state = self._cache.snapshot() if show == "whole" else self._cache.pool.snapshot()
        blank, available = tuple(state["blank"]), self._number(self._cache.pool.available)
        changed = [f"result {i}" for i, tensor in enumerate(self._returned) if (tensor != SCRIBBLE).any()]
        seen = (state if show == "whole" else {}) | ({"changed": changed} if changed else {})
        return structs.replace(outcome, blank=blank, available=available, state=seen)

    def _status(self, outcome: Outcome) -> Outcome:
        """On the device path nothing is raised by the call itself."""
        status = self._number(self._cache.status)
        if status == MISUSED:
            self._cache.check()
        return Outcome("refused") if status == REFUSED else outcome

    def _fresh(self) -> Any:
        return self._package.Cache(
            self._pool.pages, self._pool.page_size, path=self._path,
            rows=max(1, len(self._rows)), entries=self._entries, pins=max(1, len(self._pins)),
        )  # fmt: skip

    def _back_up(self) -> None:
        saved, other = self._cache.backup(), self._fresh()
        other.restore(saved)
        for tensor in saved.values():
            tensor.fill_(SCRIBBLE)
        if self._done % (2 * BACKUP_EVERY) == 0:
            self._cache = other

    def _number(self, given: Any) -> int:
        """A number, which the device path gives as a tensor of its own."""
        number = int(given)
        if isinstance(given, torch.Tensor):
            given.fill_(SCRIBBLE)
        return number

    def _pass(self, *numbers: int) -> torch.Tensor:
        tensor = torch.tensor(numbers, dtype=torch.int64)
        self._passed.append(tensor)
        return tensor

    def _take(self, tensor: torch.Tensor, count: int | None = None) -> tuple[int, ...]:
        """The first `count` numbers of a result for one row, or all that are not null."""
        numbers = tensor.flatten().tolist()
        tensor.fill_(SCRIBBLE)
        self._returned.append(tensor)
        return tuple(numbers[:count]) if count is not None else tuple(filter(None, numbers))

    def _start(self, operation: Any) -> Outcome:
        tokens = [prompt_token(operation.prompt, position) for position in range(self._positions)]
        self._cache.start(self._pass(self._rows[operation.row]), self._pass(*tokens).view(1, -1))
        return Outcome("done")

    def _allocate(self, operation: Any) -> Outcome:
        pages, slots = self._cache.allocate(self._pass(self._rows[operation.row]), self._pass(operation.tokens))
        return Outcome("done", pages=self._take(pages), slots=self._take(slots))

    def _write(self, operation: Any) -> Outcome:
        row, start, stop = self._range(operation)
        return Outcome("done", slots=self._take(self._cache.write(row, start, stop, operation.draft)))

    def _read(self, operation: Any) -> Outcome:
        slots, tokens = self._cache.read(*self._range(operation))
        return Outcome("done", slots=self._take(slots), tokens=self._take(tokens, operation.stop - operation.start))

    def _range(self, operation: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self._pass(self._rows[operation.row]), self._pass(operation.start), self._pass(operation.stop)

    def _copy(self, operation: Any) -> Outcome:
        page = self._cache.copy(self._pass(self._rows[operation.row]), self._pass(operation.entry))
        return Outcome("done", pages=self._take(page))

    def _evict(self, operation: Any) -> Outcome:
        return Outcome("done", pages=self._take(self._cache.evict(operation.count)))

    def _plain(self, operation: Any) -> Outcome:
        """An operation whose operands come in the order of its fields, and of which nothing is used that comes back."""
        operands = [
            self._pass(
                self._rows[value] if field in ("row", "source") else self._pins[value] if field == "name" else value
            )
            for field, value in structs.asdict(operation).items()
        ]
        result = getattr(self._cache, operation_name(operation))(*operands)
        if result is not None:
            self._take(result)
        return Outcome("done")


def _numbers(names: Any) -> dict[str, int]:
    """Each name's number, in the order of appearance."""
    return {name: number for number, name in enumerate(dict.fromkeys(names))}
