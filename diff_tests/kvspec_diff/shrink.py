"""Makes a failing program small: fewer operations first, then smaller numbers, then a smaller pool.

Used after a bulk run, on the program itself rather than on the bytes it was decoded from, since losing a byte there may
change everything after it.
"""

from collections.abc import Callable, Iterator
from itertools import combinations

from kvspec.operations import Allocate, AnyOperation, Configuration, Share, Start
from msgspec import structs

from kvspec_diff.program import Names, Program

Fails = Callable[[Program], bool]

ROOMY = 16
"""Pages of the pool that a program is shrunk on, if it fails there."""

PAIRS_UP_TO = 12
"""Programs of up to this many operations are also tried without any two of them."""


def shrink(program: Program, fails: Fails, budget: int = 5_000) -> Program:
    """The smallest program found that still fails, after at most `budget` calls of `fails`.

    `program` must fail. Only programs without unknown operands are tried.
    """
    search = _Search(program, fails, budget)
    search.larger_pool()
    while search.round():
        pass
    while search.smaller_pool() and search.round():
        pass
    return search.best


class _Search:
    def __init__(self, program: Program, fails: Fails, budget: int) -> None:
        self.best = program
        self.left = budget
        self._fails = fails
        self._tried: set[Program] = {program}

    def larger_pool(self) -> None:
        """Pages to spare make operations independent of each other, so that more of them can go."""
        pool = self.best.configuration
        self._try(Program(Configuration(max(pool.pages, ROOMY), pool.page_size), self.best.operations))

    def smaller_pool(self) -> bool:
        """Shrink the pool; whether that helped."""
        before = self.best
        self._first(_smaller_pools)
        return self.best != before

    def round(self) -> bool:
        """Try everything once; whether anything helped."""
        before = self.best
        self._chunks()
        if len(self.best.operations) <= PAIRS_UP_TO:
            self._first(_without_pairs)
        self._first(_plainer)
        self._first(_lower)
        self._first(_lower_row)
        self._first(_smaller_pages)
        self._try(_renamed(self.best))
        return self.best != before

    def _first(self, smaller: Callable[[Program], Iterator[Program]]) -> None:
        """Take the first of the smaller programs that fails, until none does."""
        while any(self._try(program) for program in smaller(self.best)):
            pass

    def _chunks(self) -> None:
        """Delete runs of operations, long ones first, from the end on."""
        length = len(self.best.operations)
        while length:
            start = len(self.best.operations) - length
            while start >= 0:
                kept = self.best.operations[:start] + self.best.operations[start + length :]
                self._try(_known(self.best.configuration, kept))
                start = min(start, len(self.best.operations)) - length
            length //= 2

    def _try(self, program: Program) -> bool:
        if program in self._tried or not self.left:
            return False
        self._tried.add(program)
        self.left -= 1
        if not self._fails(program):
            return False
        self.best = program
        return True


def _known(configuration: Configuration, operations: tuple[AnyOperation, ...]) -> Program:
    """The program of those operations whose operands the others before them make."""
    names = Names()
    return Program(configuration, tuple(operation for operation in operations if not names.meet(operation)))


def _without_pairs(program: Program) -> Iterator[Program]:
    """The program without any two of its operations."""
    for first, second in combinations(range(len(program.operations)), 2):
        kept = [operation for i, operation in enumerate(program.operations) if i not in (first, second)]
        yield _known(program.configuration, tuple(kept))


def _plainer(program: Program) -> Iterator[Program]:
    """The program with a page allocated where one was shared, so that what was done to share it can go.

    Also with a row's later allocation made part of one before.
    """
    steps, size = program.operations, program.configuration.page_size
    earlier: dict[str, int] = {}
    for i, operation in enumerate(steps):
        if isinstance(operation, Share):
            allocated = Allocate(operation.row, max(1, operation.stop - operation.start) * size)
            yield Program(program.configuration, (*steps[:i], allocated, *steps[i + 1 :]))
        elif isinstance(operation, Allocate):
            first = earlier.setdefault(operation.row, i)
            before = steps[first]
            if first < i and isinstance(before, Allocate):
                both = Allocate(operation.row, before.tokens + operation.tokens)
                yield Program(program.configuration, (*steps[:first], both, *steps[first + 1 : i], *steps[i + 1 :]))


def _lower(program: Program) -> Iterator[Program]:
    """The program with one number of one operation lower, or a flag down."""
    for i, operation in enumerate(program.operations):
        for changes in _lowered(operation):
            changed = (*program.operations[:i], structs.replace(operation, **changes), *program.operations[i + 1 :])
            yield Program(program.configuration, changed)


def _lower_row(program: Program) -> Iterator[Program]:
    """The program with all lengths and ranges of one row lower, and with one operation on the row gone as well."""
    for row in dict.fromkeys(operation.row for operation in program.operations if isinstance(operation, Start)):
        own = [getattr(operation, "row", "") == row for operation in program.operations]
        for less in dict.fromkeys((1, program.configuration.page_size)):
            changed = [
                structs.replace(operation, **_less(operation, less if of_row else 0))
                for operation, of_row in zip(program.operations, own, strict=True)
            ]
            yield Program(program.configuration, tuple(changed))
            for i in (i for i, of_row in enumerate(own) if of_row):
                yield _known(program.configuration, (*changed[:i], *changed[i + 1 :]))


def _less(operation: AnyOperation, by: int) -> dict[str, int]:
    """The operation's lengths and ranges, lower."""
    numbers = {name: getattr(operation, name, 0) for name in ("tokens", "start", "stop", "entry")}
    return {name: max(value - by, int(name in ("tokens", "stop"))) for name, value in numbers.items() if value > 0}


def _renamed(program: Program) -> Program:
    """The program with rows called a, b, c and so on, in the order of their starts."""
    rows = dict.fromkeys(operation.row for operation in program.operations if isinstance(operation, Start))
    names = dict(zip(rows, map(chr, range(ord("a"), ord("z") + 1)), strict=False))
    changed = (
        structs.replace(operation, **{
            field: names.get(getattr(operation, field), getattr(operation, field))
            for field in ("row", "source")
            if hasattr(operation, field)
        })
        for operation in program.operations
    )  # fmt: skip
    return Program(program.configuration, tuple(changed)) if len(rows) <= len(names) else program


def _lowered(operation: AnyOperation) -> Iterator[dict[str, int | bool]]:
    numbers = {name: value for name, value in structs.asdict(operation).items() if isinstance(value, int) and value > 0}
    for name, value in numbers.items():
        yield {name: False} if isinstance(value, bool) else {name: 0}
        if value > 1:
            yield from ({name: value // 2}, {name: value - 1})
    if "start" in numbers and "stop" in numbers:
        yield {"start": numbers["start"] - 1, "stop": numbers["stop"] - 1}


def _smaller_pages(program: Program) -> Iterator[Program]:
    pages, size = program.configuration.pages, program.configuration.page_size
    for less in (1, size - 1):
        if 0 < less < size:
            yield Program(Configuration(pages, less), program.operations)


def _smaller_pools(program: Program) -> Iterator[Program]:
    pages, size = program.configuration.pages, program.configuration.page_size
    for fewer in (1, pages // 2, pages - 1):
        if 0 < fewer < pages:
            yield Program(Configuration(fewer, size), program.operations)
