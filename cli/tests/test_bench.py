"""`kvspec bench`: goals, reasons and exit statuses, on figures made up here; nothing is timed."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from kvspec_cli import bench
from kvspec_diff import recipes
from kvspec_diff.bench import goals, run
from kvspec_diff.bench.goals import GOALS, REASONS, STEPS, STORES, Goal, judged, stale, unexplained

PLAIN = Goal("toy-1", "toy", goals.VLLM, goals.CALL, 2.0)
Made = dict[str, tuple[list[float], list[float]]]


def test_a_figure_is_the_ratio_of_medians() -> None:
    figure = judged(PLAIN, [1e-6, 2e-6, 9e-6], [4e-6, 8e-6, 9e-6], {"toy-1": "never mind"})
    assert (figure.ours, figure.peer, figure.ratio) == pytest.approx((2, 8, 4))
    assert (figure.low, figure.high, figure.rounds) == pytest.approx((1, 4, 3))
    assert (figure.met, figure.reason) == (True, "")
    bytes_ = judged(Goal("toy", "toy", goals.VLLM, goals.PAGE, None), [29.0], [136.0], {})
    assert (bytes_.ours, bytes_.met) == (29, None)


@pytest.mark.parametrize(
    ("peer", "reasons", "missed", "old"),
    [
        ([4.0, 4.0, 4.0], {}, [], []),
        ([1.0, 1.0, 4.0], {}, ["toy-1"], []),
        ([1.0, 1.0, 4.0], {"toy-1": "because"}, [], []),
        ([1.0, 4.0, 4.0], {"toy-1": "sometimes"}, [], []),
        ([4.0, 4.0, 4.0], {"toy-1": "once"}, [], ["toy-1"]),
        ([2.0, 2.0, 2.0], {"toy-2": "no goal", "toy-1": "once"}, [], ["toy-1", "toy-2"]),
    ],
)
def test_reasons(
    peer: list[float], reasons: dict[str, str], missed: list[str], old: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(goals, "GOALS", (PLAIN,))
    monkeypatch.setattr(goals, "STEPS", ())
    monkeypatch.setattr(goals, "STORES", ())
    figures = [judged(PLAIN, [1.0, 1.0, 1.0], peer, reasons)]
    assert unexplained(figures) == missed
    assert stale(figures, reasons) == old


def test_the_goals_are_those_of_the_issue() -> None:
    wanted = {goal.name: goal.goal for goal in GOALS if goal.goal is not None}
    assert wanted == {
        "release-empty-1": 20, "release-empty-64": 20, "release-empty-4096": 8,
        "sorted-1": 1, "sorted-64": 1, "sorted-4096": 2, "vllm-64": 2, "vllm-4096": 20, "monitor": 0.5,
    }  # fmt: skip
    steps = {goal.name: goal.goal for goal in STEPS if goal.goal is not None and goal.peer != goals.SMALLER}
    assert steps == {"step-vllm-256": 15, "step-sglang-256": 1, "step-sglang-4096": 1.5}
    stores = {goal.name: (goal.goal, goal.most) for goal in STORES if goal.goal is not None}
    assert {name: least for name, (least, most) in stores.items() if most is None} == {
        "save-1": 0.8, "save-4": 0.8, "save-16": 0.8, "restore-1000": 0.7, "append-4096": 0.8,
        "append-work-4096": 0.8,
    }  # fmt: skip
    doubled = {name for name, limits in stores.items() if limits == (1.9, 2.1)}
    assert doubled == {f"{kind}-{n}" for kind in ("disk", "memory") for n in goals.DOUBLED}
    every = (*GOALS, *STEPS, *STORES)
    assert len({goal.name for goal in every}) == len(every)
    assert stale([], REASONS) == [], "every reason is that of a goal"
    assert all(REASONS.values())


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Made:
    """What rounds give, by measurement: by default three times as good as the goal, or as the peer."""
    made: Made = {}

    def rounds(peer: str, asked: list[Goal], number: int, tell: Callable[[str], None], facts: list[run.Facts]) -> (
        Iterator[tuple[list[float], list[float]]]
    ):  # fmt: skip
        if "==" in peer:
            facts.append(run.Facts(*peer.split("=="), "3.11.7", "2.13.0+cpu", "2.4.6", 1))
        for goal in asked:
            tell(goal.what)
            yield made.get(goal.name, ([1e-6] * number, [3e-6 * (goal.goal or 1)] * number))

    monkeypatch.setattr(run, "_rounds", rounds)
    monkeypatch.setattr(run, "missing", lambda _: None)
    monkeypatch.setattr(goals, "REASONS", {})
    return made


@pytest.mark.usefixtures("figures")
def test_all_goals_met(kvspec) -> None:
    done = kvspec("bench", "pages", "--json")
    found = json.loads(done.out)
    assert msgspec.json.decode(done.out, type=bench.Result).ok, "it is what its schema says"
    assert (done.status, found["ok"], found["unexplained"], found["stale"]) == (0, True, [], [])
    assert [each["name"] for each in found["figures"]] == [goal.name for goal in GOALS]
    assert {each["met"] for each in found["figures"] if each["goal"] is not None} == {True}
    assert found["figures"][0] | {"ours": 1, "peer": 60, "ratio": 60, "low": 60, "high": 60, "rounds": 11} == (
        pytest.approx(found["figures"][0])
    )
    assert found["machine"]["torch"] == "2.13.0+cpu"
    assert found["machine"]["cores"] >= 1


def test_a_goal_that_is_missed(kvspec, figures: Made) -> None:
    figures["vllm-64"] = [1.0] * 7, [1.5] * 7
    done = kvspec("bench", "pages", "--rounds", 7)
    assert done.status == 1
    assert [line.split()[0] for line in done.out.splitlines() if line.endswith("MISSED")] == ["vllm-64"]
    assert "vllm-64 is missed, and no reason is written down for it." in done.out
    goals.REASONS["vllm-64"] = "it is a made-up figure."
    done = kvspec("bench", "pages", "--rounds", 7)
    assert done.status == 0
    assert "vllm-64 is missed: it is a made-up figure." in done.out
    assert "The compiled monitor takes 1,000,000 events a second." in done.out


@pytest.mark.usefixtures("figures")
def test_a_stale_reason_fails(kvspec) -> None:
    goals.REASONS["sorted-1"] = "it was slow."
    done = kvspec("bench", "pages", "--only", "sorted-1")
    assert done.status == 1
    assert "The reason written down for sorted-1 is stale: remove it." in done.out
    assert kvspec("bench", "pages", "--only", "vllm").status == 0, "what is not measured cannot be told"


@pytest.mark.usefixtures("figures")
@pytest.mark.parametrize(
    ("only", "names"),
    [
        (("monitor",), ["monitor"]),
        (("vllm",), ["vllm-1", "vllm-64", "vllm-4096"]),
        (("release-50", "state"), ["release-50-1", "release-50-64", "release-50-4096", "state"]),
    ],
)
def test_only(kvspec, only: Sequence[str], names: list[str]) -> None:
    asked = [word for name in only for word in ("--only", name)]
    found = json.loads(kvspec("bench", "pages", "--json", *asked).out)
    assert [each["name"] for each in found["figures"]] == names


def test_the_page_is_written(kvspec, figures: Made, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folders)
    (folders / "docs").mkdir()
    figures["sorted-64"] = [1e-6] * 11, [0.25e-6] * 11
    goals.REASONS["sorted-64"] = "it is a made-up figure."
    assert kvspec("bench", "pages", "--write").status == 0
    text = (folders / "docs" / "bench-pages.md").read_text()
    table = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(table) == len(GOALS) + 1
    assert len({line.count("|") for line in table}) == 1
    assert "| sglang==0.5.23 | 1.00 µs a call | 0.25 | 0.25 | 0.25 to 0.25 | 1 | missed |" in text
    assert "sorted-64 is missed: it is a made-up figure." in text
    assert "11 rounds" in text
    assert "torch 2.13.0+cpu" in text


def test_a_step(kvspec, figures: Made, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folders)
    (folders / "docs").mkdir()
    figures["step-vllm-256"] = [1e-6] * 11, [14e-6] * 11
    done = kvspec("bench", "step", "--write", "--json")
    found = json.loads(done.out)
    assert (done.status, found["unexplained"]) == (1, ["step-vllm-256"])
    assert [each["name"] for each in found["figures"]] == [goal.name for goal in STEPS]
    text = (folders / "docs" / "bench-step.md").read_text()
    assert text.startswith("# Speed of a step's reservation\n")
    assert "alloc_decode" in text
    done = kvspec("bench", "step", "--only", "sorted")
    assert done.complaint.startswith("kvspec: unknown measurement 'sorted'; there are step-vllm-1")


@pytest.mark.parametrize(("peer", "met"), [(1.8, False), (1.95, True), (2.1, True), (2.2, False)])
def test_a_growth_is_neither_less_nor_more(peer: float, met: bool) -> None:
    goal = Goal("toy-1", "toy", goals.TWICE, goals.MEGABYTES, 1.9, 2.1)
    figure = judged(goal, [1e6], [peer * 1e6], {})
    assert (figure.ours, figure.met, figure.always, figure.most) == (1, met, met, 2.1)
    assert bench.wanted(figure) == "1.9 to 2.1"


def test_a_store(kvspec, figures: Made, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folders)
    (folders / "docs").mkdir()
    for goal in STORES:
        if goal.most is not None:
            figures[goal.name] = [1e6], [2e6]
    figures["memory-32"] = [1e6], [3e6]
    done = kvspec("bench", "store", "--write", "--json")
    found = json.loads(done.out)
    assert (done.status, found["unexplained"]) == (1, ["memory-32"])
    assert [each["name"] for each in found["figures"]] == [goal.name for goal in STORES]
    text = (folders / "docs" / "bench-store.md").read_text()
    assert text.startswith("# Speed and size of the store\n")
    assert "| 1.9 to 2.1 | MISSED |" in text
    assert "the ratio is the growth" in text
    assert "save_file" in text


@pytest.mark.parametrize("only", ["sorted", "vllm"])
def test_an_engine_that_is_not_installed(kvspec, only: str) -> None:
    name = {"sorted": goals.SGLANG, "vllm": goals.VLLM}[only]
    done = kvspec("bench", "pages", "--only", only)
    complaint = f"kvspec: {name} is not installed: run `kvspec engine install {name}`"
    assert (done.status, done.out, done.complaint) == (2, "", complaint)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--rounds", 6), "--rounds is 6; give 7 or more"),
        (
            ("--only", "sorted-2"),
            "unknown measurement 'sorted-2' (did you mean 'sorted-1'?); there are release-empty-1",
        ),
        (("--only", "vllm", "--write"), "--write is for all figures: leave out --only"),
        (("--write",), "there is no folder docs here: run `kvspec bench pages --write` in the repository"),
    ],
)
def test_bad_input(kvspec, arguments: tuple[str], complaint: str, folders: Path, monkeypatch) -> None:
    monkeypatch.chdir(folders)
    done = kvspec("bench", "pages", *arguments)
    assert (done.status, done.out) == (2, "")
    assert done.complaint.startswith(f"kvspec: {complaint}")


def test_an_engine_without_an_adapter_cannot_be_tested(kvspec, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = msgspec.structs.replace(recipes.recipe_for("vllm", "0.33.0"), adapter="")
    monkeypatch.setattr(recipes, "recipe_for", lambda *_: bare)
    done = kvspec("diff", "--engine", goals.VLLM)
    assert (done.status, done.out) == (2, "")
    assert done.complaint.startswith("kvspec: vllm==0.33.0 cannot be tested yet")
