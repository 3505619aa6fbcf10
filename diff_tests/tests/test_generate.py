"""Generators: any bytes are a program, most operations mean something, and the bulk run is dense in what matters."""

from collections import Counter
from itertools import islice
from random import Random

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from kvspec.operations import Allocate, Begin, Configuration, End, Free, Outcome, Overwrite, Start
from kvspec_diff.generate import CONFIGURATIONS, Generator, programs
from kvspec_diff.makers import MAKERS
from kvspec_diff.profiles import EXAMPLES, load, register
from kvspec_diff.program import OPERATIONS, Program, operation_name
from kvspec_diff.quality import Tally, quality
from kvspec_diff.sketch import Sketch
from kvspec_diff.subject import BASIC, CAPABILITIES, EVERYTHING, offered
from kvspec_diff.subjects.reference import Reference

register()

ALLOCATOR = frozenset({"groups"})
SUBJECTS = [ALLOCATOR, frozenset({"groups", "cache", "copies"}), EVERYTHING, EVERYTHING | {"radix"}, frozenset[str]()]


@settings(settings.get_profile("pr"))
@given(st.binary(max_size=200), st.sampled_from(SUBJECTS))
def test_any_bytes_are_a_program_of_what_is_offered(data: bytes, capabilities: frozenset[str]) -> None:
    program = Generator(capabilities).decode(data)
    program.validate()
    assert program.configuration in CONFIGURATIONS
    assert {operation_name(operation) for operation in program.operations} <= offered(capabilities)
    assert program == Generator(capabilities).decode(data)


def test_every_operation_has_a_maker_and_a_capability() -> None:
    assert MAKERS.keys() == OPERATIONS.keys()
    assert BASIC.union(*CAPABILITIES.values()) == OPERATIONS.keys()


def test_bulk_is_the_same_for_the_same_seed() -> None:
    first, again, other = (list(islice(Generator(EVERYTHING).bulk(seed), 50)) for seed in (1, 1, 2))
    assert first == again
    assert first != other


@pytest.mark.parametrize("pages", [4, 5, 8])
def test_bulk_for_the_allocator_is_dense(pages: int) -> None:
    """Half as much again as an engine's run has to show, for its policy may differ; at every size."""
    pools = [pool for pool in CONFIGURATIONS if pool.pages == pages]
    tally = Tally()
    for program in islice(Generator(ALLOCATOR, pools).bulk(pages), 400):
        tally.add(quality(program, Reference().run(program)))
    figures = tally.figures()
    assert figures["runs"] == 400
    assert figures["median_length"] >= 20, str(tally)
    assert figures["reused"] >= 0.45, str(tally)


@pytest.mark.parametrize("capabilities", SUBJECTS[:3])
def test_the_sketch_agrees_with_the_reference(capabilities: frozenset[str]) -> None:
    """Every operation is tried, refused or misused by the reference exactly when the sketch says so."""
    seen: Counter[tuple[str, str]] = Counter()
    for program in islice(Generator(capabilities).bulk(3), 600):
        sketch = Sketch(program.configuration)
        for operation, outcome in zip(program.operations, Reference().run(program), strict=True):
            assert sketch.apply(operation) == (outcome.status != "misuse"), operation
            assert sketch.blank == outcome.available, operation
            seen[operation_name(operation), outcome.status] += 1
    done = {name for name, status in seen if status == "done"}
    assert done == offered(capabilities)
    misused = {name for name, status in seen if status == "misuse"}
    assert misused == (offered(capabilities) if "checks" in capabilities else set())
    assert {name for name, status in seen if status == "refused"} == {"allocate", "copy"} & offered(capabilities)


def test_hypothesis_finds_and_shrinks() -> None:
    """A free that waits, an overwrite of its buffer, a flush, and a reuse: nothing in the smallest run is in vain."""
    reference, generator = Reference(), Generator(ALLOCATOR)
    smallest = find(
        programs(generator),
        lambda program: quality(program, reference.run(program)).reused,
        settings=settings(max_examples=2_000, deadline=None, database=None),
        random=Random(1),  # else it ends now and then in another smallest run, of which an allocation is split
    )
    kinds = Counter(map(type, smallest.operations))
    assert kinds == {Start: 2, Allocate: 3, Begin: 1, Free: 1, Overwrite: 1, End: 1}


def test_quality_asks_for_the_same_page_in_order() -> None:
    pool = Configuration(3)
    steps = (
        Start("a", 0), Start("b", 0), Allocate("a", 2), Allocate("b", 1),
        Begin(), Free("a", 0, 1), Overwrite("a", 0, 1, "b"), End(), Allocate("b", 1),
    )  # fmt: skip
    program = Program(pool, steps)
    assert quality(program, Reference().run(program)) == (9, True, True, True, True)
    for without, expected in [(8, (8, True, True, True, False)), (7, (8, True, True, False, False)),
                              (6, (8, True, False, False, False)), (4, (8, False, False, False, False))]:  # fmt: skip
        program = Program(pool, steps[:without] + steps[without + 1 :])
        assert quality(program, Reference().run(program)) == expected
    assert quality(program, [Outcome("misuse")] * 8) == (8, False, False, False, False)


def test_tally_of_nothing() -> None:
    assert Tally().figures()["runs"] == 0
    assert str(Tally()).startswith("0 traces, median 0 operations; 0% contain")


def test_profiles_do_not_repeat_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "1")
    for name, examples in EXAMPLES.items():
        profile = settings.get_profile(name)
        assert (profile.max_examples, profile.derandomize, profile.deadline) == (examples, False, None)
    with pytest.raises(KeyError, match="no profile 'ci'"):
        load("ci")
