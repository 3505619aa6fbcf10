"""The conformance class: our own subjects pass it, and each of its tests fails for an allocator that deserves it."""

import importlib.util
import re
import sys
from pathlib import Path
from types import MappingProxyType
from typing import Any

import kvspec_torch
import pytest
import torch
from kvspec.operations import Allocate, Configuration, Copy, Outcome, Publish, Read, Share, Start, Write
from kvspec_diff import conformance
from kvspec_diff.conformance import Allocator, Conformance
from kvspec_diff.hosted import HOOKS, HOSTILE, SCRIBBLE, Run
from kvspec_diff.program import Program
from kvspec_diff.snippet import snippet
from kvspec_diff.subject import EVERYTHING, WorkerFault
from kvspec_diff.subjects.reference import Reference
from kvspec_diff.subjects.torch import Torch
from kvspec_diff.suite import Driven, Hosted, Suite, law_of, read_wrong, to_the_end
from kvspec_reference import DeferredPagePool
from msgspec import structs

SPEC = importlib.util.spec_from_file_location("faulty_allocators", Path(__file__).with_name("faulty_allocators.py"))
assert SPEC is not None
assert SPEC.loader is not None
faulty = sys.modules.setdefault("faulty_allocators", importlib.util.module_from_spec(SPEC))
SPEC.loader.exec_module(faulty)

POOLS = tuple(Configuration(pages, size) for size in (1, 2) for pages in (4, 5, 8))
TABLES = conformance.OWNERSHIP, conformance.CAPACITY, conformance.DEFERRAL, conformance.READ_LAW, conformance.ANSWERS


# Our own.


class TestReference(Conformance):
    subject = Reference()


class TestTorchHost(Conformance):
    subject = Torch("host")


class TestTorchDevice(Conformance):
    subject = Torch("device")


class Alone(Allocator):
    """The reference's pool without rows, as an author would plug it in."""

    def __init__(self, pages: int, page_size: int) -> None:
        self.pool = DeferredPagePool(pages, page_size)
        for name in ("allocate", "release", "begin", "end", "publish", "share", "evict"):
            setattr(self, name, getattr(self.pool, name))

    def allocate(self, n: int) -> tuple[int, ...]:
        raise NotImplementedError

    release = begin = end = publish = share = evict = allocate

    def blank(self) -> list[int]:
        return list(self.pool.blank)

    def available(self) -> int:
        return self.pool.available

    def pin(self, page: int) -> None:
        self.pool.share([page])

    def unpin(self, page: int) -> None:
        self.pool.release([page])


class TestAlone(Conformance):
    allocator = Alone
    capabilities = ("groups", "cache", "pins", "checks")


class TestExampleWorker(Conformance):
    worker = (sys.executable, "-m", "kvspec_record.worker", "--adapter", "example")
    options = MappingProxyType({"hostile": True})


class TestRight(Conformance):
    allocator = faulty.Right
    capabilities = faulty.EVERYTHING


class TestHidden(Conformance):
    allocator = faulty.Hidden
    capabilities = faulty.EVERYTHING


class TestRaising(Conformance):
    allocator = faulty.Raising
    capabilities = ("groups", "cache", "copies", "pins")


class Pool(Allocator):
    """The fast implementation's pool alone; its lists of pages are tensors."""

    def __init__(self, pages: int, page_size: int) -> None:
        self.pool = kvspec_torch.PagePool(pages)

    def allocate(self, n: int) -> torch.Tensor | None:
        try:
            return self.pool.allocate(n)
        except kvspec_torch.Refused:
            return None

    def release(self, pages: torch.Tensor) -> None:
        self.pool.release(pages)

    def blank(self) -> list[int]:
        return list(self.pool.snapshot()["blank"])


class TestTensors(Conformance):
    allocator = Pool
    buffer = torch.tensor
    capabilities = ("checks",)


class KeepsTensor(Pool):
    def __init__(self, pages: int) -> None:
        super().__init__(pages, 1)
        self.kept = torch.tensor([], dtype=torch.int64)

    def allocate(self, n: int) -> torch.Tensor | None:
        self.pool.release(self.kept)
        self.kept = self.kept[:0]
        return super().allocate(n)

    def release(self, pages: torch.Tensor) -> None:
        self.pool.release(self.kept)
        self.kept = pages

    def blank(self) -> list[int]:
        return super().blank() + self.kept.tolist()


class LendsTensor(Allocator):
    def __init__(self, pages: int) -> None:
        self.free = torch.arange(1, pages + 1)
        self.used = 0

    def allocate(self, n: int) -> torch.Tensor | None:
        if n > len(self.free) - self.used:
            return None
        self.used += n
        return self.free[self.used - n : self.used]

    def release(self, pages: torch.Tensor) -> None:
        self.used -= len(pages)
        kept = self.free[: self.used + len(pages)]
        self.free = torch.cat([kept[~torch.isin(kept, pages)], pages, self.free[self.used + len(pages) :]])

    def blank(self) -> list[int]:
        return self.free[self.used :].tolist()


# Each fault is found.


def suite_of(kind: type, capabilities: Any = faulty.EVERYTHING, programs: int = 120) -> Suite:
    suite = Suite(Hosted(kind, frozenset(capabilities), POOLS, {}))
    suite.bulk(0, programs=programs)
    return suite


def code(suite: Suite, law: str) -> str:
    """The snippet of a failure, made small."""
    small = suite.small(suite.found[law])
    assert law_of(small) == law
    lines = snippet(suite.target, small, TestRight).splitlines()
    assert all(not line or line.startswith("    ") for line in lines)
    return "\n".join(line[4:] for line in lines)


@pytest.mark.parametrize("kind", faulty.FAULTS, ids=lambda kind: kind.__name__)
def test_a_fault_breaks_its_law(kind: type) -> None:
    """What is printed fails when it is run, and not on the right allocator."""
    suite = suite_of(kind)
    laws = faulty.FAULTS[kind]
    assert laws <= suite.found.keys()
    for law in laws:
        text = code(suite, law)
        assert f"pool = {kind.__name__}(pages=" in text
        assert len(text.splitlines()) < 26
        with pytest.raises((AssertionError, IndexError, RuntimeError, ValueError)):
            exec(text, {})
        if law != "R1" and "raise AssertionError" not in text:
            exec(text.replace(kind.__name__, "Right"), {})


@pytest.mark.parametrize("kind", [KeepsTensor, LendsTensor])
def test_a_tensor_that_is_kept_breaks_its_law(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = Suite(Hosted(kind, frozenset(), POOLS, {}, torch.tensor))
    suite.bulk(0, programs=60)
    small = suite.small(suite.found["D5"])
    lines = snippet(suite.target, small, TestTensors).splitlines()
    assert any(line.strip().startswith(("given[:] = -7 ", "got[:] = -7 ")) for line in lines)
    monkeypatch.setitem(sys.modules, "shown", sys.modules[__name__])
    code = "\n".join(line[4:] for line in lines).replace(f"from {__name__} ", "from shown ")
    with pytest.raises((AssertionError, ValueError)):
        exec(code, {})


class ShowsBadly(faulty.Right):
    def blank(self) -> Any:
        return self.free if self.refs[1] == 0 else ["two"]


def test_what_is_shown_badly_is_raised() -> None:
    suite = suite_of(ShowsBadly, (), 20)
    assert suite.found.keys() == {"raised"}
    text = code(suite, "raised")
    assert "pool.blank()" in text.splitlines()[-1]
    assert "raised TypeError" in text


def test_every_test_of_the_class_can_fail() -> None:
    """What an allocator cannot break, a subject can."""
    found = {law for laws in faulty.FAULTS.values() for law in laws} | {law for _, law in WRONG}
    assert found >= {law for table in TABLES for law in table} - {"other"}
    assert "O7" in found  # one of the others


class Wrong:
    """The reference, with outcomes changed."""

    name = "wrong"

    def __init__(self, change: Any, capabilities: frozenset[str] = EVERYTHING) -> None:
        self.capabilities = capabilities
        self._change = change

    def run(self, program: Program) -> list[Outcome]:
        outcomes = Reference().run(program)
        return [self._change(*each) for each in zip(program.operations, outcomes, strict=True)]


def swapped(operation: Any, outcome: Outcome) -> Outcome:
    slots = outcome.slots[::-1] if isinstance(operation, Read) else outcome.slots
    return structs.replace(outcome, slots=slots)


def other_content(operation: Any, outcome: Outcome) -> Outcome:
    return structs.replace(outcome, tokens=tuple(token + 1 for token in outcome.tokens))


def strict(operation: Any, outcome: Outcome) -> Outcome:
    return Outcome("misuse") if isinstance(operation, Write) and operation.draft else outcome


def lax(operation: Any, outcome: Outcome) -> Outcome:
    return structs.replace(outcome, status="done") if outcome.status == "misuse" else outcome


def uncopied(operation: Any, outcome: Outcome) -> Outcome:
    return structs.replace(outcome, pages=()) if isinstance(operation, Copy) else outcome


def lost(operation: Any, outcome: Outcome) -> Outcome:
    if isinstance(operation, Publish):
        raise WorkerFault("it went away")
    return outcome


WRONG = ((swapped, "R6"), (other_content, "R1"), (strict, "contract"), (lax, "contract"), (uncopied, "O7"),
         (lost, "worker"))  # fmt: skip


@pytest.mark.parametrize(("change", "law"), WRONG, ids=lambda each: getattr(each, "__name__", each))
def test_a_wrong_subject_breaks_its_law(change: Any, law: str) -> None:
    suite = Suite(Driven(Wrong(change), POOLS))
    suite.bulk(0, programs=150)
    assert law in suite.found
    small = suite.small(suite.found[law])
    assert law_of(small) == law
    lines = snippet(suite.target, small, TestReference).splitlines()
    assert sum(f"breaks {law}" in line for line in lines) == (law != "worker")


def test_a_subject_is_shown_as_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails with the law when it is run."""
    suite = Suite(Driven(Wrong(other_content), POOLS))
    suite.bulk(0, programs=50)
    text = snippet(suite.target, suite.small(suite.found["R1"]), TestReference)
    monkeypatch.setitem(sys.modules, "shown", sys.modules[TestReference.__module__])
    code = "\n".join(line[4:] for line in text.splitlines()).replace(f"from {TestReference.__module__} ", "from shown ")
    exec(code, {})
    monkeypatch.setattr(TestReference, "subject", Wrong(other_content))
    with pytest.raises(AssertionError, match="operation 3 breaks R1"):
        exec(code, {})


def test_misuse_counts_only_where_checks_are_promised() -> None:
    suite = Suite(Driven(Wrong(lax, EVERYTHING - {"checks"}), POOLS))
    suite.bulk(0, programs=50)
    assert not suite.found
    assert not suite_of(faulty.FreesWhatNobodyHolds, ("groups", "cache"), 50).found


# The caller.


class Recorder(Allocator):
    """Keeps every list it sees, and gives out lists that it keeps."""

    def __init__(self, pages: int) -> None:
        self.seen: list[list[int]] = []
        self.free = list(range(1, pages + 1))

    def allocate(self, n: int) -> list[int]:
        taken, self.free = self.free[:n], self.free[n:]
        self.seen.append(taken)
        return taken

    def release(self, pages: list[int]) -> None:
        self.free += pages
        self.seen.append(pages)


@pytest.mark.parametrize("hostile", [HOSTILE, frozenset()])
def test_the_caller_overwrites_every_list(hostile: frozenset[str]) -> None:
    pool = Recorder(4)
    program = to_the_end(Program(Configuration(4, 1), (Start("a", 0), Allocate("a", 2), Allocate("a", 1))), frozenset())
    outcomes = Run(pool, program.configuration, list, hostile=hostile).run(program)
    assert [outcome.pages for outcome in outcomes if outcome.pages] == [(1, 2), (3,), (4, 1, 2, 3)]
    expected = [[1, 2], [3], [1, 2, 3], [4, 1, 2, 3]]
    assert pool.seen == ([[SCRIBBLE] * len(pages) for pages in expected] if hostile else expected)


def test_contents_follow_the_pages() -> None:
    program = Program(Configuration(4, 2), (
        Start("a", 0), Allocate("a", 2), Write("a", 0, 2), Publish("a", 0, 1), Start("b", 0), Share("b", "a", 0, 1),
        Copy("b", 0), Read("b", 0, 2), Read("a", 1, 2),
    ))  # fmt: skip
    outcomes = Run(faulty.Right(4), program.configuration, list).run(program)
    assert [outcome.status for outcome in outcomes] == ["done"] * 9
    assert (outcomes[6].pages, outcomes[7].slots, outcomes[7].tokens) == ((2,), (4, 5), (0, 4))
    assert (outcomes[8].slots, outcomes[8].tokens) == ((3,), (4,))
    assert read_wrong(program, outcomes) is None
    wrong = [*outcomes[:8], structs.replace(outcomes[8], tokens=(5,))]
    found = read_wrong(program, wrong)
    assert found is not None
    assert (found.law, found.index) == ("R1", 8)


# What is declared.


def declared(**attributes: Any) -> type:
    return type("TestDeclared", (Conformance,), attributes)


class Bare(Allocator):
    def allocate(self, n: int) -> None:
        return None

    def release(self, pages: list[int]) -> None:
        return None


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"allocator": type("Half", (Allocator,), {"allocate": Bare.allocate})}, "Half lacks the method release "),
        ({"allocator": Bare, "pages": 0}, "TestDeclared.pages is 0; it is a number from 1 to 4194304, or several"),
        ({"allocator": Bare, "pages": ()}, "TestDeclared.pages is (); it is a number from 1"),
        ({"allocator": Bare, "page_size": (1, 5000)}, "TestDeclared.page_size is (1, 5000); it is a number"),
        ({"allocator": Bare, "page_size": "x"}, "TestDeclared.page_size is 'x'; it is a number from 1 to 1024"),
        ({"allocator": Bare, "capabilities": "groups"}, "TestDeclared.capabilities is 'groups'; it is several names"),
        ({"allocator": Bare, "options": 3}, "TestDeclared.options is 3; it is a dictionary"),
        ({"allocator": Bare, "buffer": 3}, "TestDeclared.buffer is 3; it is a function of a list of page ids"),
        ({"worker": ("cat",), "timeout": 0}, "TestDeclared.timeout is 0; it is a number of seconds above 0"),
        ({"worker": "cat"}, "TestDeclared.worker is 'cat'; it is a command, as in ('node', 'my.js')"),
        ({"worker": ()}, "TestDeclared.worker is (); it is a command"),
        ({"allocator": Bare, "capabilities": {"groupz"}}, "unknown capability 'groupz'; there are groups"),
        ({"allocator": Bare(), "capabilities": {"checks"}}, "it is a class"),
        ({"allocator": Bare, "worker": ["node"]}, "sets allocator and worker; it tests one of them"),
        ({"worker": ["node"], "capabilities": {"cache"}}, "a worker has its own"),
        *(({"allocator": Bare, "capabilities": {name}}, f"lacks the method {hooks[0]} for the capability '{name}'")
          for name, hooks in HOOKS.items() if hooks),
    ],
)  # fmt: skip
def test_what_does_not_go_together_fails_to_be_collected(attributes: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=re.escape(says)):
        declared(**attributes)


def test_the_class_itself_is_no_test() -> None:
    assert not Conformance.__test__
    assert declared(allocator=Bare).__test__
    assert not type("Shared", (Conformance,), {}).__test__
