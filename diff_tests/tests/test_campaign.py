"""A campaign: turns, limits, what is kept of failures and how they are made small; targets and where they come from."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from kvspec.operations import Allocate, Begin, Configuration, End, Finish, Free, Outcome, Overwrite, Start, Trim
from kvspec_diff import campaign, known, trace
from kvspec_diff.campaign import Campaign, Key, key_of
from kvspec_diff.generate import Generator
from kvspec_diff.known import Known
from kvspec_diff.program import Program
from kvspec_diff.recipes import EngineError
from kvspec_diff.sources import Own, Release, described
from kvspec_diff.subject import EVERYTHING
from kvspec_diff.subjects.reference import Reference
from kvspec_diff.subjects.torch import Torch
from kvspec_diff.targets import Anything, Examined, Fault, ReferenceTarget, TorchTarget
from msgspec import structs

VIEWS = Program(Configuration(4, 1), (Start("a", 0), Allocate("a", 2), Begin(), Trim("a", 0), Allocate("a", 2), End()))


class Fake(Anything):
    """Fails where a program has an operation of a kind."""

    part = "fake"

    def __init__(self, name: str, fails: type | None = None, law: str = "X1", operation: str = "free") -> None:
        self.name = name
        self.generator = Generator(EVERYTHING)
        self.law, self.operation, self.fails = law, operation, fails
        self.runs = 0

    def examine(self, programs: Iterable[Program]) -> Iterator[Examined]:
        for program in programs:
            self.runs += 1
            hits = [i for i, step in enumerate(program.operations) if self.fails and isinstance(step, self.fails)]
            fault = Fault(self.law, hits[0], self.operation, "it does") if hits else None
            yield Examined(program, tuple(Reference().run(program)), fault)


def test_targets_take_turns_and_traces_are_counted() -> None:
    one, two = Fake("one"), Fake("two")
    made = Campaign([one, two])
    seen: list[tuple[int, int]] = []
    made.run(traces=campaign.TURN * 3 + 5, progress=lambda runs, failed: seen.append((runs, failed)))
    assert (one.runs, two.runs) == (2 * campaign.TURN, campaign.TURN + 5)
    assert seen[-1] == (made.runs, 0) == (campaign.TURN * 3 + 5, 0)
    assert made.tally.figures()["runs"] == made.runs
    assert list(made.failures()) == []


def test_what_comes_after_a_fault_is_not_looked_at() -> None:
    class Nonsense(Fake):
        """Hands out nothing, and says that all is done."""

        def examine(self, programs: Iterable[Program]) -> Iterator[Examined]:
            for each in super().examine(programs):
                yield each._replace(outcomes=tuple(Outcome("done") for _ in each.outcomes))

    made = Campaign([Nonsense("one", Start)])
    made.run(traces=50)
    assert made.runs == 50
    assert made.tally.figures()["deferred"] == 0


def test_time_is_a_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(1000))
    monkeypatch.setattr(campaign.time, "monotonic", lambda: next(clock))
    made = Campaign([Fake("one")])
    made.run(seconds=7, traces=500)
    assert made.runs == 7


def test_one_failure_a_kind_and_that_small() -> None:
    targets = [Fake("one", Free), Fake("two", Trim, law="X2", operation="trim"), Fake("three", Free)]
    made = Campaign(targets, seed=2)
    made.run(traces=300)
    failures = list(made.failures())
    assert [(key.law, key.operation, key.part) for key in made.seen] == [("X1", "free", "fake"), ("X2", "trim", "fake")]
    assert sum(made.seen.values()) == sum(failure.runs for failure in failures) > 100
    assert [type(step) for step in failures[0].examined.program.operations] == [Start, Free]
    assert [type(step) for step in failures[1].examined.program.operations] == [Start, Trim]
    assert failures[0].examined.program.configuration == Configuration(1, 1)
    assert failures[0].fault == Fault("X1", 1, "free", "it does")


def test_known_failures_are_counted_and_not_kept() -> None:
    made = Campaign([Fake("one", Free)], known={Key("X1", "free", "fake")})
    made.run(traces=50)
    assert made.seen[Key("X1", "free", "fake")] > 10
    assert list(made.failures()) == []


def test_time_for_making_small_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Fake("one", Free)
    made = Campaign([target])
    made.run(traces=20)
    monkeypatch.setattr(campaign, "SHRINK_SECONDS", 0.0)
    before = target.runs
    (failure,) = made.failures()
    assert target.runs == before
    assert len(failure.examined.program.operations) > 10


def test_it_ends_when_workers_keep_dying() -> None:
    made = Campaign([Fake("one", Start, law="worker", operation="")])
    made.run(traces=100_000)
    assert made.runs < 1000
    assert made.seen[Key("worker", "", "fake")] >= campaign.WORKERS_LOST


def test_unchecked_misuse_is_no_failure() -> None:
    class Unchecked(Fake):
        def examine(self, programs: Iterable[Program]) -> Iterator[Examined]:
            for each in super().examine(programs):
                yield each._replace(fault=each.fault and structs.replace(each.fault, unchecked=True))

    made = Campaign([Unchecked("one", Free)])
    made.run(traces=50)
    assert made.seen == {}


def test_the_reference_and_torch_pass() -> None:
    for target in (ReferenceTarget(), TorchTarget("host"), TorchTarget("device")):
        (examined,) = target.examine([VIEWS])
        assert (examined.program, examined.fault) == (VIEWS, None)
        assert len(examined.outcomes) == len(VIEWS.operations)


def test_a_difference_that_breaks_no_law(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Torch.run

    def reversed_frees(self: Torch, program: Program) -> list[Outcome]:
        """Blank pages in another order: the reference's policy, but no law."""
        outcomes = run(self, program)
        return [structs.replace(each, blank=each.blank and each.blank[::-1]) for each in outcomes]

    monkeypatch.setattr(Torch, "run", reversed_frees)
    (examined,) = TorchTarget("host").examine([VIEWS])
    assert examined.fault is not None
    assert (examined.fault.law, examined.fault.index, examined.fault.operation) == ("reference", 0, "start")
    assert examined.fault.explanation == "operation 0: blank is (4, 3, 2, 1), expected (1, 2, 3, 4)"


def test_own_subjects() -> None:
    with Own("torch") as source:
        assert [target.name for target in source.targets({})] == ["torch-host", "torch-device"]
        assert source.misuse() == {}
        assert source.parts == {"pool"}
        with pytest.raises(EngineError, match="torch has no option 'sort'"):
            source.targets({"sort": True})


def test_a_release_has_a_target_for_each_choice() -> None:
    with Release("example", "1", ("keep_views",)) as release:
        names = [target.name for target in release.targets({})]
        assert names == ["example==1 hostile=true plant keep_views", "example==1 hostile=false plant keep_views"]
        assert [target.name for target in release.targets({"hostile": False})] == names[1:]
        assert release.parts == {"pool"}
        for chosen, reason in (
            ({"hostil": True}, "no option 'hostil' .did you mean"),
            ({"hostile": 2}, "must be one of"),
        ):
            with pytest.raises(EngineError, match=reason):
                release.targets(chosen)
        ((allocator, (probe,)),) = release.misuse().items()
        assert (allocator, probe.probe) == ("", "free twice")


def test_a_worker_that_fails_is_named() -> None:
    with Release("example", "1") as release:
        (target,) = release.targets({"hostile": False})
        too_large = Program(Configuration(2**23, 1), (Start("a", 0),))
        (examined,) = target.examine([too_large])
        assert examined.fault is not None
        assert (examined.fault.law, examined.fault.operation, examined.outcomes) == ("worker", "", ())
        assert "pages is 8388608" in examined.fault.explanation


def test_the_fault_of_an_engine_is_found_made_small_and_known(tmp_path: Path) -> None:
    with Release("example", "1", ("keep_views",)) as release:
        targets = release.targets({"hostile": False})
        made = Campaign(targets, seed=1)
        made.run(traces=100)
        (failure,) = made.failures()
        kinds = [type(step) for step in failure.examined.program.operations]
        assert failure.fault.law == "D1"
        assert len(kinds) <= 8
        assert {Overwrite, Allocate} & set(kinds)
        assert kinds[-1] is End

        header = trace.header(
            failure.examined.program.configuration, subject=failure.target.name, law="D1", note="It keeps views."
        )
        folder = tmp_path / "example" / "1"
        folder.mkdir(parents=True)
        steps = failure.examined.program.operations, failure.examined.outcomes
        trace.write(folder / "views.jsonl", trace.Trace(header, *steps))
        (finding,) = known.load("example", "1", tmp_path)
        again = known.replay(release, finding)
        assert again.stands
        assert again.key == key_of(failure.target, failure.fault)
        quieter = Campaign(targets, seed=1, known={again.key})
        quieter.run(traces=100)
        assert quieter.seen == made.seen
        assert list(quieter.failures()) == []
    with Release("example", "1") as release:
        assert not known.replay(release, finding).stands
        wrong = Known("x", trace.Trace(structs.replace(header, law="O9"), *steps))
        assert not known.replay(release, wrong).stands


def test_there_are_known_findings_of_the_old_release_only() -> None:
    found = known.load("sglang", "0.5.17")
    assert len(found) >= 3
    for each in found:
        assert each.trace.header.law == "D1"
        assert "sglang" in each.trace.header.note.replace("sgl-project/", "")
        parts = described(each.trace.header.subject)
        assert parts is not None
        assert (parts.engine, parts.version, parts.plants) == ("sglang", "0.5.17", ())
        assert None not in each.trace.outcomes
    assert known.load("sglang", "0.5.18") == known.load("sglang", "0.5.23") == []


def test_names_in_parts() -> None:
    assert described("torch-host") is None
    assert described("") is None
    parts = described("sglang==0.5.17 allocator=paged sort=false plant free=twice plant b")
    assert parts == ("sglang", "0.5.17", {"allocator": "paged", "sort": False}, ("free=twice", "b"))


def test_finishing_is_a_way_to_give_up() -> None:
    program = Program(Configuration(2, 1), (Start("a", 0), Allocate("a", 1), Begin(), Finish("a"), End()))
    with Release("example", "1", ("keep_views",)) as release:
        (target,) = release.targets({"hostile": True})
        (examined,) = target.examine([program])
    assert examined.fault is not None
    assert examined.fault.law == "D1"
