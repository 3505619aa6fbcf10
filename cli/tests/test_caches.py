"""`kvspec diff --engine mlx-lm==...` on caches of lists in this process, right and wrong."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kvspec_cli import findings
from kvspec_diff import engines
from kvspec_diff.batched import client, finding
from kvspec_diff.caches import compare, example, promises

FOUND, RAISES = "trims_and_says_nothing", "reset_raises"
RELEASE = "mlx-lm==0.32.2"


class Client(example.Client):
    def __init__(self, engine: str = "mlx-lm", version: str = "0.32.2", plants: tuple[str, ...] = ()) -> None:
        super().__init__(engine, version, plants)
        self.engine, self.version = engine, version


@pytest.fixture(autouse=True)
def _example(monkeypatch: pytest.MonkeyPatch) -> None:
    there = engines.Environment("mlx-lm", "0.32.2", Path(), "mlx-lm", Path(sys.executable))
    monkeypatch.setattr(engines, "find", lambda name, version: there)
    monkeypatch.setattr(client, "Client", Client)
    monkeypatch.setattr(finding, "known", lambda engine, version, case: [])
    monkeypatch.setattr(promises, "load", lambda engine, version: example.promises())


def diff(kvspec: Any, *words: Any) -> Any:
    return kvspec("diff", "--engine", RELEASE, *words)


def found(fault: str = FOUND, law: str = "B8") -> Any:
    wrong: Any = Client(plants=(fault,))
    made = compare.Comparison(wrong)
    made.run(programs=100)
    key = next(key for key in made.seen if key[0] == law)
    return made.findings(made.seen.keys() - {key})[0]


def test_caches_that_are_right(kvspec: Any, tmp_path: Path) -> None:
    done = diff(kvspec, "--traces", 100, "--save", tmp_path)
    assert done.status == 0
    lines = done.out.splitlines()
    assert lines[0].startswith("mlx-lm==0.32.2: 100 programs, ")
    assert lines[1].startswith("class ")
    assert lines[-1] == "Nothing was found."
    assert list(tmp_path.iterdir()) == []


def test_ten_seconds_when_nothing_is_said(kvspec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(compare.Comparison, "run", lambda self, **limits: asked.append(limits))
    assert diff(kvspec, "--save", tmp_path).status == 0
    assert diff(kvspec, "--save", tmp_path, "--traces", 7).status == 0
    assert [(each["seconds"], each["programs"]) for each in asked] == [(10.0, None), (None, 7)]


def test_what_breaks_a_law_is_told_and_replayed(kvspec: Any, tmp_path: Path) -> None:
    done = diff(kvspec, "--plant", FOUND, "--laws", "B8", "--traces", 100, "--save", tmp_path)
    assert done.status == 1
    assert "B8: row 0 of object 0, layer 0 (Full): the query at position 0 sees 1 rows that are not of what" in done.out
    assert "  full; float32, rows 1\n    append(object 0, tokens 1)\n    trim(object 0, tokens 1)\n" in done.out
    assert "    and then a token more for every object\n" in done.out
    assert done.out.splitlines()[-1] == (
        f"Run again: kvspec diff --engine {RELEASE} --plant {FOUND} --laws B8 --seed 0 --traces 100"
    )
    path = next(path for path in tmp_path.iterdir() if "(Full)" in path.read_text())
    again = kvspec("replay", path, "--engine", RELEASE, "--plant", FOUND)
    assert again.status == 1
    assert "B8: row 0 of object 0, layer 0 (Full)" in again.out
    right = kvspec("replay", path)
    assert (right.status, right.out.splitlines()[-1]) == (0, "Nothing disagrees.")


def test_laws_that_are_not_asked_for(kvspec: Any, tmp_path: Path) -> None:
    words = ("--plant", "merge_swaps_rows", "--traces", 100, "--save", tmp_path)
    assert diff(kvspec, *words, "--laws", "B1-B5,S").status == 0
    assert diff(kvspec, *words, "--laws", "B9").status == 1
    assert diff(kvspec, *words).status == 1


def test_json(kvspec: Any, tmp_path: Path) -> None:
    done = diff(kvspec, "--plant", RAISES, "--traces", 60, "--save", tmp_path, "--json")
    told = json.loads(done.out)
    assert (done.status, told["clean"], told["found"][0]["law"]) == (1, False, "raised")
    assert told["figures"]["programs"] == 60
    assert told["held"]["Full"]["append"] > 10


def test_known_findings_are_no_failure(kvspec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = found(RAISES, "raised")
    monkeypatch.setattr(finding, "known", lambda engine, version, case: [("one", one)])
    words = ("--traces", 60, "--save", tmp_path)
    stands = diff(kvspec, "--plant", RAISES, *words)
    assert stands.status == 0
    assert "known finding one still breaks raised; seen " in stands.out
    assert "Nothing else was found." in stands.out
    gone = diff(kvspec, *words)
    assert gone.status == 1
    assert "known finding one no longer breaks raised; seen 0 times" in gone.out
    assert diff(kvspec, "--plant", RAISES, *words, "--unaided").status == 1


def test_a_replay_says_why(kvspec: Any, tmp_path: Path) -> None:
    finding.write(tmp_path / "x.json", msgspec.structs.replace(found(), explanation="because", upstream="u"))
    done = kvspec("replay", tmp_path / "x.json", "--plant", FOUND)
    assert done.status == 1
    assert done.out.endswith("Found on mlx-lm 0.32.2: because\n  u\n")


CHANGES: dict[str, tuple[str, Any, str]] = {
    "a chunk of too many tokens": ("steps", [["append", 0, 10**6]], "step 0 is no operation with its numbers"),
    "a chunk that is too long": ("steps", [["append", 0, 99]], "step 0: tokens of append is 99; it is 1 to 64"),
    "too many tokens": ("steps", [["append", 0, 64]] * 9, "a program gives a row 512 tokens at most, not 576"),
    "too many steps": ("steps", [["read", 0]] * 65, "Expected `array` of length <= 64 - at `$.case.steps`"),
    "an empty step": ("steps", [[]], "step 0 is no operation with its numbers"),
    "an unknown step": ("steps", [["explode", 1]], "step 0 is no operation with its numbers"),
    "no layers": ("setup.layers", [], "Expected `array` of length >= 1 - at `$.case.setup.layers`"),
    "too many layers": ("setup.layers", [["full", [], []]] * 7, "Expected `array` of length <= 6"),
    "an unknown kind": ("setup.layers", [["x", [], []]], f"{RELEASE} has no cache of kind 'x': it has full, window"),
    "a huge window": ("setup.layers", [["window", [["size", 10**9], ["keep", 0]], []]], "Expected `int` <= 512"),
    "no window": ("setup.layers", [["window", [["size", 0], ["keep", 0]], []]], "no Window has window(0, 0)"),
    "an unknown parameter": ("setup.layers", [["full", [["size", 1]], []]], "full has no parameters"),
    "lists in lists": (
        "setup.layers",
        [["list", [], [["list", [], [["full", [], []]]]]]],
        "a list of layers has no list in it",
    ),
    "too many rows": ("setup.rows", 10**6, "Expected `int` <= 8 - at `$.case.setup.rows`"),
    "an unknown dtype": ("setup.dtype", "float8", "Invalid enum value 'float8' - at `$.case.setup.dtype`"),
    "an unknown field": ("setup.more", 1, "contains unknown field `more`"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_finding_that_was_changed_by_hand(kvspec: Any, tmp_path: Path, change: str) -> None:
    finding.write(tmp_path / "x.json", found())
    told = json.loads((tmp_path / "x.json").read_text())
    path, value, says = CHANGES[change]
    at = told["case"]
    *outer, last = path.split(".")
    for name in outer:
        at = at[name]
    at[last] = value
    (tmp_path / "x.json").write_text(json.dumps(told))
    done = kvspec("replay", tmp_path / "x.json")
    assert (done.status, done.out) == (2, "")
    assert says in done.complaint


def test_a_finding_of_another_kind_of_engine(kvspec: Any, tmp_path: Path) -> None:
    finding.write(tmp_path / "x.json", found())
    done = kvspec("replay", tmp_path / "x.json", "--engine", "vllm==0.33.0")
    assert (done.status, done.out) == (2, "")
    assert "is about mlx-lm, and vllm==0.33.0 is compared otherwise" in done.complaint


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--traces", "0"), "--traces is 0; give a number above 0"),
        (("--seconds", "-1"), "--seconds is -1; give a number above 0"),
        (("--seed", "-1"), "--seed is -1; give 0 or more"),
        (
            ("--configurations", "3"),
            "--configurations is not for mlx-lm, whose cache classes are compared: give --laws",
        ),
        (("--policy", "fcfs"), "--policy is not for mlx-lm, whose cache classes are compared: give --laws, --traces"),
        (("--part", "pool"), "--part is not for mlx-lm, whose cache classes are compared"),
        (
            ("--laws", "C"),
            "--laws is 'C'; the laws of caches are R1, S1, S2, S3, S4, B1, B2, B3, B4, B5, B7, B8, B9: w",
        ),
        (("--laws", ""), "--laws is ''; the laws of caches are"),
    ],
)
def test_bad_input(kvspec: Any, words: tuple[str, ...], says: str) -> None:
    done = diff(kvspec, *words)
    assert (done.status, done.out) == (2, "")
    assert says in done.complaint


def test_the_engines_of_caches_have_tables() -> None:
    assert {*promises.engines()} <= {*findings.CACHES}


def test_a_finding_is_a_file(kvspec: Any, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.json")
    done = kvspec("replay", tmp_path / "x.json")
    assert (done.status, done.out) == (2, "")
    assert "x.json: is a pipe or a device: a finding is a file" in done.err


@pytest.mark.parametrize("words", [("--subject", "torch"), ("--sort",), ("--engine", RELEASE, "--allocator", "paged")])
def test_a_finding_has_an_engine_and_no_options(kvspec: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    finding.write(tmp_path / "x.json", found())
    done = kvspec("replay", tmp_path / "x.json", *words)
    assert (done.status, done.out) == (2, "")
    assert f"x.json is a finding about {RELEASE}: it takes --engine and --plant, and nothing else" in done.err


def test_an_explanation_is_told_once(kvspec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = msgspec.structs.replace(found(RAISES, "raised"), explanation="because")
    monkeypatch.setattr(finding, "known", lambda engine, version, case: [("one", one), ("two", one)])
    done = diff(kvspec, "--plant", RAISES, "--traces", 20, "--save", tmp_path)
    assert done.status == 0
    assert "known finding two still breaks raised" in done.out
    assert done.out.count("  because\n") == 1
