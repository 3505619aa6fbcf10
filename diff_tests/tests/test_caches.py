"""The comparison of caches, on ones that are right and on ones that are not."""

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kvspec.laws import LAWS, OF_CACHES, OF_SCHEDULERS
from kvspec_diff.batched import finding
from kvspec_diff.caches import example, promises
from kvspec_diff.caches.case import ARGUMENTS, Case, Layer, Setup
from kvspec_diff.caches.compare import Comparison, explains, fewer, laid_to
from kvspec_diff.caches.kinds import Family
from kvspec_diff.caches.programs import SMALLER, draw, looked_at
from kvspec_diff.recipes import EngineError
from kvspec_record import caches, toy

FOUND_IN = 400
"""Programs in which every fault is found."""


@pytest.fixture(autouse=True)
def _example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promises, "load", lambda engine, version: example.promises())


def compared(fault: str = "", programs: int = FOUND_IN, **more: Any) -> Comparison:
    client: Any = example.Client(plants=(fault,) if fault else ())
    made = Comparison(client, **more)
    made.run(programs=programs)
    return made


def test_right_caches_break_no_law() -> None:
    made = compared(programs=1000)
    assert made.seen == {}
    figures = made.tally.figures
    assert figures["programs"] == 1000
    assert figures["judged reads"] > 10_000
    assert (figures["raised"], figures["doubtful"]) == (0, 0)
    assert figures["refused"] > 10


def test_every_operation_that_is_promised_is_done_and_held() -> None:
    held = compared(programs=1500).tally.held
    table = example.promises()
    for name in table.classes:
        for operation in table.judged:
            there = held.get(name, {}).get(operation, 0) > 0
            verdict = table.of(name, operation).verdict
            assert there or verdict != "promised", (name, operation)


@pytest.mark.parametrize("fault", example.FAULTS)
def test_every_fault_is_found_by_its_law_and_made_small(fault: str) -> None:
    made = compared(fault)
    law = example.FAULTS[fault]
    own = [key for key in made.seen if key[0] == law]
    (small,) = made.findings(made.seen.keys() - {min(own, key=lambda key: len(laid_to(key)))})
    assert len(small.case.steps) <= 6
    assert len(list(small.case.setup.every)) <= 2
    wrong: Any = example.Client(plants=(fault,))
    assert small.fault.key in [each.key for each in Comparison(wrong).replay(small)]
    right: Any = example.Client()
    assert Comparison(right).replay(small) == []


def test_only_the_laws_that_are_asked_for() -> None:
    assert compared("merge_swaps_rows", laws=["B1"]).seen == {}
    assert {law for law, _, _ in compared("reset_raises", 60, laws=["B1"]).seen} == {"raised"}


def test_what_is_known_is_not_made_small() -> None:
    made = compared("window_is_short", 100)
    assert made.findings(made.seen.keys()) == []


def test_a_fault_of_appending_is_not_laid_to_what_was_done_before() -> None:
    keys = {each.fault.key[:2] for each in compared("state_begins_anew").findings()}
    assert keys == {("S2", "append")}


def test_a_worker_that_cannot_answer() -> None:
    client: Any = example.Client()
    client.answer = lambda question: {"error": "KeyError: x"}
    made = Comparison(client)
    made.run(programs=3)
    assert made.seen == {("raised", "worker", ""): 3}


def test_laid_to() -> None:
    assert laid_to(("R1", "append", "Full")) == set()
    assert laid_to(("B5", "copy, file: positions", "Full")) == {"copy", "file"}
    both = ("B1", "copy, file", "Full")
    assert explains({("S4", "copy", "Full")}, both)
    assert not explains({("S4", "copy", "Rows")}, both), "of another class"
    assert not explains({("S4", "trim", "Full"), both}, both)
    assert not explains({("S4", "copy", "Full")}, ("S4", "copy", "Rows")), "one operation is told of each class"
    faults = [finding.Fault(*key, "") for key in (both, ("S4", "copy", "Full"), ("B8", "trim", "Full"))]
    assert fewer(faults[0], faults) is faults[1]
    assert fewer(faults[2], faults) is None


def test_the_laws() -> None:
    assert "B9" in OF_CACHES
    assert "B9" not in LAWS
    assert "B9" not in OF_SCHEDULERS
    assert {*example.FAULTS.values()} - {"raised"} == {*OF_CACHES}


# Programs.


def test_what_is_drawn_is_promised_and_bounded() -> None:
    table = example.promises()
    for seed in range(300):
        case = draw(table, random.Random(seed))
        table.check(case.setup, "")
        assert case.steps[0][0] == "append"
        assert {step[0] for step in case.steps} <= {*table.operations}
        assert case.tokens <= 480
        calls = caches.run(example.Driver(), case.question)
        assert not [each for each in calls if each["status"] in ("misuse", "raised")]
        nothing = [each["op"] for each in calls if each["status"] == "nothing"]
        assert len(nothing) <= 2, nothing


def test_windows_are_met_at_their_ends() -> None:
    table, lengths = example.promises(), set()
    for seed in range(400):
        case = draw(table, random.Random(seed))
        if [layer.kind for layer in case.setup.layers] == ["window"]:
            lengths.add(int(case.steps[0][2]) - case.setup.layers[0].numbers[0])
    assert {-1, 0, 1} <= lengths


def test_smaller_cases_are_no_larger_and_make_sense() -> None:
    table = example.promises()
    for seed in range(60):
        case = draw(table, random.Random(seed))
        for change in SMALLER:
            for smaller in change(case, table):
                assert smaller != case
                assert smaller.weight[0] <= case.weight[0]
                assert len(smaller.steps) <= len(case.steps)
                assert smaller.weight < case.weight or smaller.setup != case.setup
                table.check(smaller.setup, "")


def test_looking_more_often_changes_no_numbers() -> None:
    case = Case("caches", Setup((Layer("full"),)), (("append", 0, 2), ("copy", 0), ("state", 3), ("restore", 0)))
    again = looked_at(case)
    assert again is not None
    assert again.steps == (
        ("append", 0, 2), ("append", 0, 1), ("copy", 0), ("append", 0, 1), ("append", 1, 1), ("state", 3),
        ("append", 1, 1), ("restore", 0), ("append", 2, 1),
    )  # fmt: skip
    assert looked_at(msgspec.structs.replace(case, steps=(("append", 0, 1),) * 60)) is None


def test_a_question_is_what_the_worker_takes() -> None:
    inner = Layer("window", (("size", 3), ("keep", 1)))
    case = Case("caches", Setup((Layer("full"), Layer("list", (), (inner,))), rows=1), (("read", 0),))
    assert case.question == {
        "do": "caches", "layers": [["full", {}], ["list", {}, [["window", {"size": 3, "keep": 1}]]]],
        "dtype": "float32", "rows": 1, "steps": (("read", 0),),
    }  # fmt: skip
    assert msgspec.json.decode(msgspec.json.encode(case), type=Case) == case


# Files.


def test_findings_are_written_and_read(tmp_path: Path) -> None:
    (small, *_) = compared("kept_prefix_rots", 40).findings()
    finding.write(tmp_path / "x.json", small)
    assert finding.read(tmp_path / "x.json", Case) == small
    assert finding.release_and_kind(tmp_path / "x.json") == ("vllm==0.33.0", "caches")


BAD = {
    "too many tokens at once": (("append", 0, 65), "tokens of append is 65; it is 1 to 64"),
    "no tokens": (("append", 0, 0), "tokens of append is 0; it is 1 to 64"),
    "too many rows": (("repeat", 0, 5), "times of repeat is 5; it is 1 to 4"),
    "a mask": (("filter", 0, 5000), "mask of filter is 5000; it is 0 to 999"),
    "an unknown step": (("explode", 1), "step 1 is no operation with its numbers"),
    "too few numbers": (("trim", 1), "step 1 is no operation with its numbers"),
    "blocks of nothing": (("reblock", 0, 0), "size of reblock is 0; it is 1 to 512"),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_program_that_no_worker_should_run(bad: str) -> None:
    step, says = BAD[bad]
    with pytest.raises(ValueError, match=says):
        Case("caches", Setup((Layer("full"),)), (("read", 0), step))


def test_a_program_of_too_much() -> None:
    setup = Setup((Layer("full"),))
    with pytest.raises(ValueError, match="512 tokens at most, not 576"):
        Case("caches", setup, (("append", 0, 64),) * 9)
    for text in ('[["full"]]' * 1, '[["list",[],[["list",[],[["full"]]]]]]', '[["full",[["size",513]]]]', "[]"):
        raw = f'{{"do":"caches","setup":{{"layers":{text}}},"steps":[]}}'.encode()
        if text == '[["full"]]':
            assert msgspec.json.decode(raw, type=Case).setup == setup
            continue
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(raw, type=Case)
    many = b'{"do":"caches","setup":{"layers":[["full"]]},"steps":[' + b",".join([b'["read",0]'] * 65) + b"]}"
    with pytest.raises(msgspec.ValidationError, match="length <= 64"):
        msgspec.json.decode(many, type=Case)


@pytest.mark.parametrize(
    ("setup", "says"),
    [
        (Setup((Layer("round"),)), "no cache of kind 'round': it has full, window, chunk, state, list"),
        (Setup((Layer("window", (("size", 4),)),)), "window has size, keep"),
        (Setup((Layer("window", (("size", 2), ("keep", 2))),)), r"no Window has window\(2, 2\)"),
        (Setup((Layer("full", (), (Layer("full"),)),)), "a cache of kind 'full' has no layers in it"),
        (Setup((Layer("full"),), rows=2), "no caches of 2 rows of float32"),
        (Setup((Layer("full"),), dtype="bfloat16"), "no caches of 1 rows of bfloat16"),
    ],
)
def test_a_cache_that_the_engine_has_not(setup: Setup, says: str) -> None:
    with pytest.raises(EngineError, match=f"^x: .*{says}|^x has {says}"):
        example.promises().check(setup, "x")


def test_families_are_named_once() -> None:
    from kvspec_diff.caches.kinds import NUMBERS

    assert {*NUMBERS} == {*Family.__args__}  # type: ignore[attr-defined]


def test_the_toy_tells_tokens_again() -> None:
    rng = random.Random(1)
    seen = set()
    for _ in range(2000):
        place = rng.randrange(4095), rng.randrange(64), rng.randrange(16384)
        content, position = toy.content(toy.token(*place)), rng.randrange(-9, 9000)
        assert toy.told(content) == place
        assert toy.read_key(toy.key(content, position, 32)) == (content, position)
        assert toy.read_value(toy.value(content)) == content
        assert {0, toy.LARGEST} <= {*toy.key(content, position)} & {*toy.value(content)}
        seen.add(content)
    assert len(seen) > 1990
    assert 0 not in seen
    assert toy.fold(0, 1) != toy.fold(0, 1, entry=1) != toy.fold(1, 1)


def test_steps_and_arguments_are_the_same() -> None:
    documented = {word for word in ARGUMENTS if f"`{word} " in (caches.__doc__ or "")}
    assert documented == {*ARGUMENTS}
