"""The readable reference as a subject."""

from kvspec.operations import AnyOperation, Misuse, Outcome, Refused
from kvspec_reference import Cache
from msgspec import structs

from kvspec_diff.program import Program, operation_name
from kvspec_diff.subject import EVERYTHING, Show


class Reference:
    """Runs programs on `kvspec_reference.Cache`."""

    name = "reference"
    capabilities = EVERYTHING

    def __init__(self, show: Show = "blank") -> None:
        self._show: Show = show

    def run(self, program: Program) -> list[Outcome]:
        """Run the whole program on a fresh cache."""
        cache = Cache(program.configuration.pages, program.configuration.page_size)
        if self._show != "end":
            return [perform(cache, operation, whole=self._show == "whole") for operation in program.operations]
        outcomes = [_attempt(cache, operation) for operation in program.operations]
        return [*outcomes[:-1], *(_observed(cache, outcome, whole=True) for outcome in outcomes[-1:])]


def perform(cache: Cache, operation: AnyOperation, *, whole: bool = False) -> Outcome:
    """Do one operation and say what came of it and what can be seen afterwards."""
    return _observed(cache, _attempt(cache, operation), whole=whole)


def _attempt(cache: Cache, operation: AnyOperation) -> Outcome:
    try:
        outcome: Outcome = getattr(cache, operation_name(operation))(**structs.asdict(operation))
    except Misuse as error:
        return Outcome("misuse", reason=str(error))
    except Refused as error:
        return Outcome("refused", reason=str(error))
    return outcome


def _observed(cache: Cache, outcome: Outcome, *, whole: bool) -> Outcome:
    return structs.replace(
        outcome,
        blank=tuple(cache.pool.blank),
        available=cache.pool.available,
        state=cache.snapshot() if whole else {},
    )
