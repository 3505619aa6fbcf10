"""Shrinking: what is left fails still, and nothing in it is in vain."""

from itertools import islice

from kvspec.operations import (
    Allocate,
    Begin,
    Configuration,
    End,
    Free,
    Outcome,
    Overwrite,
    Start,
    Trim,
)
from kvspec_diff.generate import Generator
from kvspec_diff.lockstep import lockstep
from kvspec_diff.monitor import judge
from kvspec_diff.program import Program, operation_name
from kvspec_diff.shrink import shrink
from kvspec_diff.subject import EVERYTHING
from kvspec_diff.subjects.reference import perform
from kvspec_reference import Cache


class Views(Cache):
    """Keeps views of the rows in place of the pages they named (sglang#34067): an overwrite changes what is freed."""

    def __init__(self, pages: int, page_size: int = 1) -> None:
        super().__init__(pages, page_size)
        self.views: dict[tuple[int, int], int] = {}

    def free(self, row: str, start: int, stop: int) -> Outcome:
        of = self._row(row)
        self.views |= {(of.request, entry): page for entry, page in of.pages.items()}
        return super().free(row, start, stop)

    def overwrite(self, row: str, start: int, stop: int, source: str) -> Outcome:
        outcome = super().overwrite(row, start, stop, source)
        for entry in range(start, stop):
            page = self.views.get((self.rows[row].request, entry))
            if page in self.groups.released:
                wrong = min(self.rows[source].pages.values())
                self.groups.released[self.groups.released.index(page)] = wrong
        return outcome


class Forgetful(Cache):
    """Frees one page too few when a row is cut to nothing."""

    def trim(self, row: str, tokens: int) -> Outcome:
        of = self._row(row)
        if tokens == 0 and len(of.pages) > 1:
            of.pages.popitem()
        return super().trim(row, tokens)


def run(kind: type[Cache], program: Program) -> list[Outcome]:
    cache = kind(program.configuration.pages, program.configuration.page_size)
    outcomes = []
    for operation in program.operations:
        try:
            outcomes.append(perform(cache, operation))
        except KeyError:  # some time after the wrong page was freed
            break
    return outcomes


def smallest(kind: type[Cache], seed: int, law: str) -> Program:
    """The first program that catches the bug, shrunk with the law that it breaks kept."""

    def fails(program: Program) -> bool:
        found = judge(program, run(kind, program))
        return found is not None and found.law == law

    program = next(filter(fails, Generator(EVERYTHING).bulk(seed)))
    small = shrink(program, fails)
    assert fails(small)
    small.validate()
    return small


def kinds(program: Program) -> list[str]:
    return sorted(map(operation_name, program.operations))


def test_the_aliasing_bug_needs_eight_operations() -> None:
    for seed in range(20):
        small = smallest(Views, seed, "D1")
        assert kinds(small) == ["allocate", "allocate", "begin", "end", "free", "overwrite", "start", "start"]
        assert small.configuration.page_size == 1


def test_a_leak_needs_three_operations() -> None:
    for seed in range(20):
        small = smallest(Forgetful, seed, "O1")
        assert small == Program(Configuration(2), (Start("a", 0), Allocate("a", 2), Trim("a", 0))) or (
            kinds(small) == ["allocate", "finish", "start"]
        )


def test_the_lockstep_sees_them_too() -> None:
    program = Program(Configuration(2), (
        Start("a", 0), Start("b", 0), Allocate("a", 1), Allocate("b", 1),
        Begin(), Free("a", 0, 1), Overwrite("a", 0, 1, "b"), End(),
    ))  # fmt: skip
    found = lockstep(program, Views(2))
    assert found is not None
    assert (found.index, found.law) == (6, "state")
    assert lockstep(program) is None


def test_unknown_operands_are_never_tried() -> None:
    tried: list[Program] = []

    def fails(program: Program) -> bool:
        tried.append(program)
        program.validate()
        return any(isinstance(operation, Free) for operation in program.operations)

    first = next(filter(fails, Generator(EVERYTHING).bulk(1)))
    small = shrink(first, fails)
    assert small == Program(Configuration(1), (Start("a", 0), Free("a", 0, 0)))
    assert len(tried) == len(set(tried))


def test_the_budget_is_kept() -> None:
    calls = 0

    def fails(_: Program) -> bool:
        nonlocal calls
        calls += 1
        return False

    first = next(islice(Generator(EVERYTHING).bulk(1), 1))
    assert shrink(first, fails, budget=7) == first
    assert calls == 7
