"""The SGLang releases that are installed, unmodified: what each does with free groups, and what it leaves unchecked."""

from collections.abc import Iterator
from itertools import islice

import pytest
from kvspec.operations import (
    Allocate,
    Begin,
    Checkpoint,
    Configuration,
    End,
    Finish,
    Free,
    Outcome,
    Overwrite,
    Read,
    Start,
    Trim,
    Write,
)
from kvspec_diff import engines
from kvspec_diff.generate import CONFIGURATIONS, Generator
from kvspec_diff.monitor import judge
from kvspec_diff.program import Program
from kvspec_diff.recipes import EngineError
from kvspec_diff.worker import EngineSubject, ProgramFault, Worker

RELEASES = ("0.5.17", "0.5.18", "0.5.23")
IDENTITY = "copy_for_free_group=identity"
TOKEN = {"allocator": "token"}
PAGED = {"allocator": "paged"}
SIX = (Start("a", 0), Allocate("a", 4), Begin(), Trim("a", 0), Allocate("a", 2), End())
OVERWRITTEN = (Start("a", 0), Start("b", 1), Allocate("a", 4), Allocate("b", 4), Begin(), Free("a", 0, 1),
               Overwrite("a", 0, 1, "b"), End())  # fmt: skip

workers: dict[tuple[str, tuple[str, ...]], Worker] = {}
"""One process a release and plant, for the whole module: it takes seconds to start."""


def subject(version: str, options: dict[str, object], *plants: str) -> EngineSubject:
    try:
        made = EngineSubject("sglang", version, options, plants, timeout=120)
    except EngineError as error:
        pytest.skip(str(error))
    made.worker = workers.setdefault((version, plants), made.worker)
    return made


@pytest.fixture(scope="module", autouse=True)
def _end() -> Iterator[None]:
    yield
    for worker in workers.values():
        worker.close()
    workers.clear()


def findings(made: EngineSubject, count: int, seed: int = 5) -> list[str]:
    """The laws that the release breaks in `count` generated programs."""
    generator = Generator(made.capabilities, [pool for pool in CONFIGURATIONS if made.takes(pool)])
    programs = list(islice(generator.bulk(seed), count))
    found = []
    for program, outcomes in zip(programs, made.run_many(programs), strict=True):
        assert isinstance(outcomes, list), str(outcomes)
        assert [outcome.reason for outcome in outcomes if outcome.status == "error"] == []
        verdict = judge(program, outcomes)
        if verdict is not None:
            found.append(verdict.law)
    return found


CHOICES = [
    {**allocator, "sort": sort, "segments": segments}
    for allocator in (TOKEN, PAGED)
    for sort in (False, True)
    for segments in (False, True)
]


@pytest.mark.parametrize("options", CHOICES, ids=str)
@pytest.mark.parametrize("operations", [SIX, OVERWRITTEN], ids=["six", "overwritten"])
@pytest.mark.parametrize("version", RELEASES)
def test_a_view_in_a_free_group(version: str, operations: tuple[object, ...], options: dict[str, object]) -> None:
    """sglang#34067: 0.5.17 frees what stands in the caller's row when the group ends."""
    program = Program(Configuration(8, 1 if options["allocator"] == "token" else 2), operations)  # type: ignore[arg-type]
    found = judge(program, subject(version, options).run(program))
    assert (found is not None) == (version == "0.5.17")
    if found is not None:
        assert (found.law, found.operation) == ("D1", End())


@pytest.mark.parametrize("version", RELEASES[1:])
def test_the_copy_is_what_prevents_it(version: str) -> None:
    for options, size in ((TOKEN, 1), (PAGED, 2)):
        program = Program(Configuration(8, size), SIX)
        found = judge(program, subject(version, options, IDENTITY).run(program))
        assert found is not None
        assert found.law == "D1"


def test_there_is_no_copy_to_take_away_in_the_old_release() -> None:
    with pytest.raises(EngineError, match="this release has no _copy_for_free_group"):
        subject("0.5.17", TOKEN, IDENTITY).run(Program(Configuration(1), ()))


@pytest.mark.parametrize("hostile", [False, True])
@pytest.mark.parametrize("version", RELEASES[1:])
def test_nothing_else_is_found_in_the_later_releases(version: str, hostile: bool) -> None:
    assert findings(subject(version, {**TOKEN, "hostile": hostile, "sort": hostile}), 300) == []
    few = 150 if version == "0.5.23" else 20
    assert findings(subject(version, {**PAGED, "hostile": hostile, "segments": hostile}), few) == []


@pytest.mark.parametrize("options", [TOKEN, PAGED], ids=str)
def test_a_hostile_caller_finds_the_fault_without_operations_made_for_it(options: dict[str, object]) -> None:
    program = Program(Configuration(8, 1 if options is TOKEN else 2), (*SIX[:4], End()))
    assert judge(program, subject("0.5.17", options).run(program)) is None
    assert judge(program, subject("0.5.17", {**options, "hostile": True}).run(program)) is not None


@pytest.mark.parametrize(("options", "size"), [(TOKEN, 1), (PAGED, 2)], ids=["token", "paged"])
@pytest.mark.parametrize("version", RELEASES[:2])
def test_two_requests_with_one_prompt_in_a_radix_cache(version: str, options: dict[str, object], size: int) -> None:
    """The second is a duplicate: its pages are freed as a view of its row, which then gets the first one's pages."""
    length = 2 * size
    operations = [step for row in "ab" for step in (Start(row, 0), Allocate(row, length), Write(row, 0, length))]
    operations += [Begin(), Checkpoint("a"), Checkpoint("b"), End(), Read("b", 0, length), Finish("a"), Finish("b")]
    program = Program(Configuration(6, size), tuple(operations))
    outcomes = subject(version, {**options, "subject": "radix"}).run(program)
    assert outcomes[7].pages == outcomes[8].pages == (1, 2)
    assert outcomes[8].state == {"cached": [1, 2]}
    assert outcomes[9].available == 4, "the total is right in either release"
    freed = set(outcomes[9].blank or ()) - set(outcomes[8].blank or ())
    assert freed == ({1, 2} if version == "0.5.17" else {3, 4})
    found = judge(program, outcomes)
    assert (None if found is None else (found.law, found.index)) == (("D1", 9) if version == "0.5.17" else None)


@pytest.mark.parametrize("options", [TOKEN, PAGED], ids=str)
def test_nothing_else_is_found_in_the_radix_cache(options: dict[str, object]) -> None:
    made = subject("0.5.18", {**options, "subject": "radix", "hostile": True})
    assert findings(made, 100 if options is TOKEN else 20) == []


def test_a_radix_row_trimmed_below_what_the_tree_holds() -> None:
    operations = (Start("a", 0), Allocate("a", 7), Write("a", 0, 7), Checkpoint("a"), Trim("a", 3), Allocate("a", 4),
                  Checkpoint("a"), Write("a", 3, 4), Free("a", 2, 3), Finish("a"))  # fmt: skip
    program = Program(Configuration(8, 2), operations)
    outcomes = subject("0.5.18", {**PAGED, "subject": "radix"}).run(program)
    assert judge(program, outcomes) is None
    assert [outcome.status for outcome in outcomes] == ["done"] * 7 + ["misuse", "done", "done"]
    assert outcomes[-1].state == {"cached": [1, 2, 3]}


def test_the_radix_cache_of_the_last_release_is_not_offered() -> None:
    made = subject("0.5.23", {"subject": "radix"})
    with pytest.raises(EngineError, match="this release offers no subject 'radix', only pool"):
        _ = made.operations


@pytest.mark.parametrize("version", RELEASES)
def test_growth_inside_pages(version: str) -> None:
    operations = (Start("a", 0), *(Allocate("a", tokens) for tokens in (3, 1, 1, 6, 5, 8, 100, 1)), Start("b", 0))
    outcomes = subject(version, {**PAGED, "sort": True}).run(Program(Configuration(7, 4), (*operations, Finish("a"))))
    assert [outcome.pages for outcome in outcomes[1:7]] == [(1,), (), (2,), (3,), (4,), (5, 6)]
    slots = [slot for outcome in outcomes[1:7] for slot in outcome.slots]
    assert slots == list(range(4, 28))
    assert [outcome.status for outcome in outcomes[7:]] == ["refused", "done", "done", "done"]
    assert sorted(outcomes[-1].blank or ()) == [1, 2, 3, 4, 5, 6, 7]


def test_page_sizes_that_the_kernels_do_not_take() -> None:
    made = subject("0.5.17", PAGED)
    assert made.takes(Configuration(1, 4))
    assert not made.takes(Configuration(1, 3))
    assert not subject("0.5.17", TOKEN).takes(Configuration(1, 4))
    with pytest.raises(ProgramFault, match="does not take it: page_size is 3: the paged allocator takes one of"):
        made.run(Program(Configuration(1, 3), ()))


def test_an_option_that_there_is_not() -> None:
    for options, reason in (({"allocator": "slab"}, "allocator is 'slab'"), ({"colour": 1}, "unknown option 'colour'")):
        with pytest.raises(ProgramFault, match=reason):
            subject("0.5.17", options).run(Program(Configuration(1), ()))


PLANTED = {
    "free=forget_last": TOKEN,
    "free=twice": PAGED,
    "free_group_end=lose": TOKEN,
    "alloc=refuse_the_last": TOKEN,
    "alloc=hand_out_again": PAGED,
}


@pytest.mark.parametrize(("plant", "options"), PLANTED.items(), ids=list(PLANTED))
def test_every_plant_is_found(plant: str, options: dict[str, object]) -> None:
    made = subject("0.5.23", options, plant)
    assert set(made.worker.hello.plants) == {*PLANTED, IDENTITY}
    assert findings(made, 30) != []


@pytest.mark.parametrize("version", RELEASES)
def test_misuse_that_is_not_checked(version: str) -> None:
    token = dict(subject(version, TOKEN).misuse())
    paged = dict(subject(version, PAGED).misuse())
    assert token.keys() == paged.keys()
    assert token["free twice"] == "accepted; free list [3, 4, 5, 6, 1, 2, 1, 2], 8 slots available, a page twice"
    assert "gave [1, 2, 3, 4, 5]" in token["allocate a negative number"]
    nested = "raised AssertionError" if version == "0.5.23" else "accepted; free list [3, 4, 5, 6], 4 slots available"
    assert token["begin twice"].startswith(nested), "up to 0.5.18 the pages of the first group are lost"
    assert ("a page twice" in token["end twice"]) == (version != "0.5.23")
    empty = "refused" if version == "0.5.23" else "the worker failed: died by SIGSEGV"
    assert paged["extend an empty pool"].startswith(empty)


def test_an_installed_release_is_not_built_again() -> None:
    subject("0.5.17", TOKEN)
    said: list[str] = []
    built = engines.install("sglang", "0.5.17", lambda step, steps, text: said.append(text))
    assert built in engines.installed()
    assert said == []


def test_an_empty_program() -> None:
    assert subject("0.5.23", TOKEN).run(Program(Configuration(1), ())) == []
    assert subject("0.5.23", TOKEN).run(Program(Configuration(1), (Start("a", 0),))) == [
        Outcome("done", blank=(1,), available=1)
    ]
