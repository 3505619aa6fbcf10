"""Tests of an allocator of your own, against the specification: subclass `Conformance`, and pytest collects them.

    from kvspec_diff.conformance import Allocator, Conformance

    class Mine(Allocator):
        ...

    class TestMine(Conformance):
        allocator = Mine

What is found is made small and shown as Python that calls your class; its trace is saved. The options are those of the
pytest plugin: `--kvspec-profile`, `--kvspec-seconds`, `--kvspec-seed`, `--kvspec-traces`.
"""

import hashlib
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from kvspec.operations import Configuration

from kvspec_diff import trace
from kvspec_diff.generate import programs
from kvspec_diff.hosted import HOOKS, Allocator
from kvspec_diff.profiles import EXAMPLES
from kvspec_diff.program import Program
from kvspec_diff.pytest_plugin import option
from kvspec_diff.recipes import EngineError
from kvspec_diff.snippet import snippet
from kvspec_diff.subject import CAPABILITIES, Subject
from kvspec_diff.suite import CommandSubject, Driven, Hosted, Suite, driven_by, law_of, to_the_end
from kvspec_diff.targets import Examined, Target

__all__ = ["Allocator", "Conformance"]

BULK = 2
"""Bulk programs for each example of the profile."""

OWNERSHIP = {
    "O1": "every page is accounted for",
    "O2": "a page is freed once",
    "O4": "a held page is safe",
    "O5": "only blank pages are handed out",
    "R3": "the null page is never handed out",
}
CAPACITY = {
    "O5 refused": "all pages asked for or none if too few",
    "O6": "available is what is blank",
    "P13": "no more is evicted than asked for",
}
DEFERRAL = {
    "D1": "a group frees what was named in it",
    "D3": "what is named waits for the end",
    "D4": "groups do not nest",
    "D5": "a list that is kept is copied",
}
MOST_PAGES, MOST_SLOTS = 2**22, 1024
"""Of a pool, and of a page."""

READ_LAW = {
    "R1": "a request reads its own prefix",
    "R6": "a read goes where the write went",
}
ANSWERS = {
    "raised": "nothing is raised",
    "contract": "what is allowed is no misuse",
    "worker": "the worker answers",
    "other": "every other law",
}
NEEDS = {"O6": "available", "P13": "cache", "D1": "groups", "D3": "groups", "D4": "checks and groups"}


def _ids(laws: Mapping[str, str]) -> dict[str, Any]:
    """The laws as parameters of a test, with what they say in its id."""
    ids = [f"{law.split()[0]} {text}".replace(" ", "-") for law, text in laws.items()]
    return {"argvalues": list(laws), "ids": ids}


class Conformance:
    """Set one of `allocator` (a class), `worker` (a command) and `subject`; the rest have defaults.

    What is declared is tested: `capabilities` are those of an allocator (see `Allocator` for the methods that come with
    each); a worker says itself what it takes.
    """

    __test__ = False
    allocator: ClassVar[type | None] = None
    worker: ClassVar[Sequence[str] | None] = None
    subject: ClassVar[Subject | None] = None
    capabilities: ClassVar[Collection[str]] = frozenset()
    pages: ClassVar[int | Sequence[int]] = (4, 5, 8)
    """The sizes of the pools, in pages."""
    page_size: ClassVar[int | Sequence[int]] = (1, 2)
    """Slots a page: the sizes to try."""
    options: ClassVar[Mapping[str, Any]] = {}
    """More arguments of the allocator's constructor; more of the worker's configuration."""
    buffer: ClassVar[Callable[[list[int]], Any]] = list
    """Makes what the allocator is passed from a list of page ids, such as a tensor."""
    timeout: ClassVar[float] = 60.0
    """Seconds that a worker has for each program."""
    _made: ClassVar[Suite | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls._made = None
        given = [name for name in ("allocator", "worker", "subject") if getattr(cls, name) is not None]
        if given:
            _check(cls, given)
        cls.__test__ = bool(given) or cls.__name__.startswith("Test")

    @pytest.mark.parametrize("law", **_ids(OWNERSHIP))
    def test_ownership(self, request: pytest.FixtureRequest, law: str) -> None:
        """Who holds a page, and when it may be handed out again."""
        self._expect(request, law)

    @pytest.mark.parametrize("law", **_ids(CAPACITY))
    def test_capacity(self, request: pytest.FixtureRequest, law: str) -> None:
        """How much there is."""
        self._expect(request, law)

    @pytest.mark.parametrize("law", **_ids(DEFERRAL))
    def test_deferral(self, request: pytest.FixtureRequest, law: str) -> None:
        """Pages that wait for the end of a group, and lists that are kept."""
        self._expect(request, law)

    @pytest.mark.parametrize("law", **_ids(READ_LAW))
    def test_read_law(self, request: pytest.FixtureRequest, law: str) -> None:
        """What a request reads is its own."""
        self._expect(request, law)

    @pytest.mark.parametrize("law", **_ids(ANSWERS))
    def test_answers(self, request: pytest.FixtureRequest, law: str) -> None:
        """What is no answer at all, and laws that have no test of their own."""
        self._expect(request, law)

    def test_programs(self, request: pytest.FixtureRequest) -> None:
        """Programs by Hypothesis: fresh ones in every run, and those again that failed before."""
        suite = self._suite(request.config, bulk=False)
        failed: list[Examined] = []

        def check(program: Program) -> None:
            (examined,) = suite.target.examine((to_the_end(program, suite.target.operations),))
            if examined.fault is not None and not examined.fault.unchecked:
                failed.append(examined)
                raise _Failed

        test = given(programs(suite.target.generator))(check)
        if (number := option(request.config, "seed")) is not None:
            test = seed(number)(test)
        with suppress(_Failed):
            _profile(request.config)(test)()
        if failed:
            self._fail(request.config, suite, min(failed, key=lambda each: len(each.program.operations)))

    @classmethod
    def teardown_class(cls) -> None:
        """End the worker."""
        if cls._made is not None:
            cls._made.close()
        cls._made = None

    def _expect(self, request: pytest.FixtureRequest, law: str) -> None:
        """Fail if bulk programs broke the law; skip it if nothing that is declared can break it."""
        suite = self._suite(request.config)
        own = {*OWNERSHIP, *CAPACITY, *DEFERRAL, *READ_LAW, *ANSWERS}
        broken = [key for key in suite.found if key == law or (law == "other" and key not in own)]
        if broken:
            self._fail(request.config, suite, suite.found[broken[0]])
        missing = self._missing(law, suite.target)
        if missing:
            pytest.skip(missing)

    def _missing(self, law: str, target: Target) -> str:
        """Why nothing could break this law."""
        if law == "worker":
            return "" if type(self).worker is not None else "not a worker"
        if law == "R6":
            return "the addresses are the caller's" if isinstance(target, Hosted) else ""
        if law == "O6" and isinstance(target, Hosted):
            own = getattr(target.kind, "available", None)
            return "" if own not in (None, Allocator.available) else "no available()"
        for need in NEEDS.get(law, "").split(" and ") if law in NEEDS else ():
            if need in CAPABILITIES and not CAPABILITIES[need] <= target.operations:
                return f"the capability {need!r} is not declared"
            if need == "checks" and not target.generator.extra:
                return "the capability 'checks' is not declared"
        return ""

    def _suite(self, config: pytest.Config, *, bulk: bool = True) -> Suite:
        """The class's target; with `bulk` it has run its bulk programs. Both are made once."""
        cls = type(self)
        suite = cls._made = cls._made or self._make()
        if bulk and not suite.runs:
            examples = EXAMPLES[option(config, "profile") or "pr"]
            suite.bulk(option(config, "seed") or 0, programs=BULK * examples, seconds=option(config, "seconds"))
        return suite

    def _make(self) -> Suite:
        cls = type(self)
        pools = [Configuration(pages, size) for size in _each(cls.page_size) for pages in _each(cls.pages)]
        if cls.subject is not None:
            return Suite(Driven(cls.subject, pools))
        if cls.worker is not None:
            command = CommandSubject(cls.worker, cls.options, timeout=cls.timeout)
            try:
                return Suite(driven_by(command, pools), command.close)
            except EngineError as error:
                pytest.fail(str(error), pytrace=False)
        if cls.allocator is None:
            pytest.fail(f"{cls.__name__} says not what to test; set its allocator, worker or subject", pytrace=False)
        return Suite(Hosted(cls.allocator, frozenset(cls.capabilities), pools, cls.options, cls.buffer))

    def _fail(self, config: pytest.Config, suite: Suite, examined: Examined) -> None:
        """Fail with the smallest program that fails in this way, as Python; save its trace."""
        small = suite.small(examined)
        fault = small.fault
        assert fault is not None
        key = law_of(small)
        texts = OWNERSHIP | CAPACITY | DEFERRAL | READ_LAW | ANSWERS
        says = f": {texts[key]}" if key in texts else ""
        verb = fault.law if key in ANSWERS else f"breaks {fault.law}"
        folder = Path(option(config, "traces") or "kvspec-traces")
        lines = [
            f"{suite.target.name} {verb}{says}",
            f"{fault.operation or 'the program'}: {fault.explanation}",
            "",
            snippet(suite.target, small, type(self)),
            "",
            f"trace: {_saved(folder, suite.target.name, small)}",
        ]
        pytest.fail("\n".join(lines), pytrace=False)


class _Failed(Exception):
    """A program failed; which one is kept elsewhere."""


def _each(sizes: int | Sequence[int]) -> Sequence[int]:
    return [sizes] if isinstance(sizes, int) else sizes


def _check_settings(cls: type[Conformance]) -> None:
    """Whether each setting is of its kind: a pool of no pages, say, would pass every test."""

    def sizes(most: int) -> Callable[[Any], bool]:
        return lambda value: (
            isinstance(value, int | Sequence)
            and bool(_each(value))
            and all(type(size) is int and 1 <= size <= most for size in _each(value))
        )

    def words(value: Any) -> bool:
        several = isinstance(value, Collection) and not isinstance(value, str)
        return several and all(isinstance(word, str | os.PathLike) for word in value)

    kinds: list[tuple[str, Callable[[Any], bool], str]] = [
        ("pages", sizes(MOST_PAGES), f"a number from 1 to {MOST_PAGES}, or several"),
        ("page_size", sizes(MOST_SLOTS), f"a number from 1 to {MOST_SLOTS}, or several"),
        ("capabilities", words, "several names, as in ('groups',)"),
        ("worker", lambda value: value is None or (words(value) and bool(value)), "a command, as in ('node', 'my.js')"),
        ("options", lambda value: isinstance(value, Mapping), "a dictionary"),
        ("buffer", callable, "a function of a list of page ids"),
        ("timeout", lambda value: isinstance(value, int | float) and 0 < value < inf, "a number of seconds above 0"),
    ]
    for setting, right, says in kinds:
        value = getattr(cls, setting)
        if not right(value):
            raise TypeError(f"{cls.__name__}.{setting} is {value!r}; it is {says}")


def _check(cls: type[Conformance], given: list[str]) -> None:
    """Whether what a subclass says goes together; `TypeError`, so that it fails to be collected."""
    name = cls.__name__
    if len(given) > 1:
        raise TypeError(f"{name} sets {' and '.join(given)}; it tests one of them")
    _check_settings(cls)
    unknown = sorted(set(cls.capabilities) - HOOKS.keys())
    if unknown:
        raise TypeError(f"{name} declares the unknown capability {unknown[0]!r}; there are {', '.join(HOOKS)}")
    if given != ["allocator"]:
        if cls.capabilities:
            raise TypeError(f"{name} declares capabilities; a {given[0]} has its own")
        return
    if not isinstance(cls.allocator, type):
        raise TypeError(f"{name}.allocator is {cls.allocator!r}; it is a class, which is called with pages=...")
    wanted = [("", "allocate"), ("", "release")]
    wanted += [(f" for the capability {each!r}", hook) for each in sorted(cls.capabilities) for hook in HOOKS[each]]
    abstract = getattr(cls.allocator, "__abstractmethods__", ())
    for why, hook in wanted:
        if not callable(getattr(cls.allocator, hook, None)) or hook in abstract:
            raise TypeError(f"{cls.allocator.__name__} lacks the method {hook}{why} (declared by {name})")


def _profile(config: pytest.Config) -> settings:
    """Hypothesis as the profile has it, without its own shrinking and report, which come from here."""
    name = option(config, "profile") or "pr"
    common = settings(
        settings.get_profile("default"), max_examples=EXAMPLES[name], deadline=None, derandomize=False,
        suppress_health_check=list(HealthCheck), report_multiple_bugs=False, print_blob=False,
        phases=(Phase.reuse, Phase.generate),
    )  # fmt: skip
    return settings(common, database=None) if name == "fleet" else common


def _saved(folder: Path, name: str, examined: Examined) -> str:
    """Write the trace; where it is."""
    assert examined.fault is not None
    operations = examined.program.operations
    outcomes = [*examined.outcomes, *[None] * (len(operations) - len(examined.outcomes))]
    first = trace.header(
        examined.program.configuration, subject=name, law=examined.fault.law, note=examined.fault.explanation
    )
    digest = hashlib.sha256(msgspec.json.encode([name, examined.program])).hexdigest()[:8]
    plain = "".join(c if c.isalnum() or c in "-_" else "-" for c in name)[:60]
    path = folder / f"{plain}-{examined.fault.law}-{digest}.jsonl"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trace.write(path, trace.Trace(first, operations, tuple(outcomes)))
    except (OSError, trace.TraceError) as error:
        return f"not saved ({error})"
    return str(path)
