"""The comparison of capacity, on a manager that is right and on one that is not."""

from pathlib import Path
from typing import Any

import pytest
from kvspec_diff.batched import finding
from kvspec_diff.batched.fault import declines
from kvspec_diff.batched.finding import Finding
from kvspec_diff.capacity import compare, programs
from kvspec_diff.capacity.case import Case, judged
from kvspec_diff.capacity.configuration import KINDS, SIZES, Cell, cells, distinct
from kvspec_diff.capacity.example import FAULTS, ROWS, Client
from kvspec_diff.lookahead import Row, rows, written
from kvspec_diff.recipes import EngineError

LAWS = {
    "no_lookahead": {"C1", "C2", "C3", "C7"},
    "no_spares": {"C2", "C3", "C7"},  # With blocks of one token it looks as if one position less were written.
    "one_too_many": {"C3", "C5"},
    "refusal_takes": {"C9"},
    "end_forgets": {"C9"},
    "window_too_short": {"R4"},
    "warm-up": {"C3"},
}


def compared(fault: str = "", configurations: int = 1500, **more: Any) -> compare.Comparison:
    client: Any = Client(plants=(fault,) if fault else ())
    made = compare.Comparison(client, **more)
    made.methods()
    made.run(configurations=configurations)
    return made


def test_a_right_manager_agrees() -> None:
    made = compared()
    assert made.seen == {}
    assert sum(count.configurations for count in made.counts) == 1500
    assert all(count.configurations and count.warmups for count in made.counts)


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_found_and_made_small(fault: str) -> None:
    made = compared(fault)
    assert {law for law, _, _ in made.seen} <= LAWS[fault]
    found = made.findings()
    assert found[0].case.weight <= (1, 6, 60), found[0]
    (answer,) = Client(plants=(fault,)).ask([found[0].case.question])
    assert found[0].fault.key in [each.key for each in judged(found[0].case, answer, ROWS)]
    (right,) = Client().ask([found[0].case.question])
    assert judged(found[0].case, right, ROWS) == []


def test_only_the_laws_that_are_asked_for() -> None:
    assert compared("no_spares", 300, laws=["C9"]).seen == {}


def test_what_is_known_is_not_made_small() -> None:
    made = compared("end_forgets", 300)
    assert made.findings(made.seen.keys()) == []


def test_cells_have_distinct_configurations() -> None:
    for cell in (Cell("none", ("full",), 1), Cell("eagle", ("full", "align"), 16)):
        some = [each for each, _ in zip(distinct(cell, 3), range(600), strict=False)]
        assert len(set(some)) == 600
        assert {(each.method, each.kinds, each.groups[0][1]) for each in some} == {cell}
    assert len(cells(("none", "eagle"))) == 2 * len(KINDS) * len(SIZES)
    assert Cell("none", ("full", "align"), 1).mode == "align"


def test_programs_end_with_nobody_running() -> None:
    import random

    made = next(distinct(Cell("eagle", ("full",), 4), 1))
    for seed in range(50):
        running: dict[Any, int] = {}
        for kind, request, *_ in programs.draw(made, random.Random(seed)):
            running[request] = running.get(request, 0) + {"admit": 1, "step": 1, "retire": -1, "finish": 0}[str(kind)]
            assert 0 <= running[request] <= programs.LATE
            if kind == "finish":
                assert running.pop(request) == 0
        assert running == {}


def test_a_finding_is_written_and_read(tmp_path: Path) -> None:
    made = Finding("vllm", "0.33.0", compared("end_forgets", 200).findings()[0].fault,
                   Case("warmup", next(distinct(Cell("none", ("full",), 1), 0))), "why", "where")  # fmt: skip
    finding.write(tmp_path / "x.json", made)
    assert finding.read(tmp_path / "x.json", Case) == made
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(EngineError, match="missing required field"):
        finding.read(tmp_path / "x.json", Case)
    with pytest.raises(EngineError, match="No such file"):
        finding.read(tmp_path / "y.json", Case)


def test_the_committed_findings_say_why() -> None:
    found = finding.known("vllm", "0.26.0", Case)
    assert len(found) >= 2
    for _, each in found:
        assert each.explanation
        assert each.upstream.startswith("https://github.com/vllm-project/vllm/")
    assert finding.known("vllm", "0.33.0", Case) == []


def test_lookahead_is_a_table() -> None:
    assert written(rows("vllm", "0.33.0")["dflash"], 3) == 4
    assert written(rows("vllm", "0.33.0")["none"], 0) == 0
    assert "medusa" in rows("vllm", "0.26.0")
    assert "medusa" not in rows("vllm", "0.33.0")
    assert all(row.source for row in rows("vllm", "0.26.0").values())
    with pytest.raises(EngineError, match="no table says how far sglang"):
        rows("sglang", "0.5.17")


@pytest.mark.parametrize(
    ("told", "law"), [((3, 3), None), ((2, 2), "C2"), ((4, 4), "C2"), ((3, 2), "C3"), ((3, None), None)]
)
def test_how_far_a_release_looks_ahead(told: tuple[int, int | None], law: str | None) -> None:
    made = next(distinct(Cell("eagle", ("full",), 1), 0))
    asked = Case("lookahead", compare._of(made, "eagle", 3))
    found = judged(asked, {"scheduler": told[0], "config": told[1]}, {"eagle": Row("x", "1", "1", "eagle", 1, 0, "")})
    assert [each.law for each in found] == ([] if law is None else [law])


def test_what_an_engine_raises() -> None:
    made = Case("program", next(distinct(Cell("none", ("full",), 1), 0)), (("admit", 0, 1, 0, 1),))
    (raised,) = judged(made, {"calls": ["ValueError: too bad"]}, ROWS)
    assert raised.law == "raised"
    assert judged(made, {"calls": ["AssertionError: this is not supported"]}, ROWS) == []
    assert judged(made, {"error": "KeyError: x"}, ROWS)[0].law == "raised"
    assert not declines("KeyError: not supported")
