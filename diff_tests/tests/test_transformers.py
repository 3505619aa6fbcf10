"""The cache classes of the transformers release that is installed, unmodified and with planted faults."""

from typing import Any

import pytest
from kvspec_diff.batched.finding import known
from kvspec_diff.caches import promises
from kvspec_diff.caches.case import Case
from kvspec_diff.caches.compare import Comparison
from kvspec_record import toy

RELEASE = "5.24.0"
SOME = 200
"""Programs: some seconds of them."""

QUICK = ("dynamic=repeat_in_rounds", "sliding=offset_stays", "static=write_from_the_start")


def asked(made: Any, layers: list[Any], steps: list[Any], rows: int = 1, dtype: str = "float32") -> list[Any]:
    """The answers of an unmodified release to one program."""
    question = {"do": "caches", "layers": layers, "dtype": dtype, "rows": rows, "steps": steps}
    (answer,) = made.unmodified(RELEASE).ask([question])
    calls: list[Any] = answer["calls"]
    return calls


def keys() -> set[Any]:
    return {finding.fault.key for _, finding in known("transformers", RELEASE, Case)}


def test_the_table_of_promises_is_whole() -> None:
    assert not list(promises.load("transformers", RELEASE).problems())


def test_a_release_is_wrong_as_it_is_known_to_be(transformers: Any) -> None:
    client = transformers.unmodified(RELEASE)
    for name, finding in known("transformers", RELEASE, Case):
        assert finding.fault.key in [each.key for each in Comparison(client).replay(finding)], name
    made = Comparison(client)
    made.run(programs=SOME)
    assert not made.findings(keys())
    assert made.tally.figures["programs"] >= SOME


def test_every_class_is_read_in_every_dtype(transformers: Any) -> None:
    table = promises.load("transformers", RELEASE)
    for kind, made in table.kinds.items():
        given = {name: values[-1] for name, values in [*made.parameters.items(), *made.choices.items()]}
        for dtype in table.dtypes:
            first, second, last = asked(transformers, [[kind, given]], [["append", 0, 3], ["append", 0, 2]], 2, dtype)
            assert [first["status"], second["status"], last["status"]] == ["done"] * 3, (kind, dtype)
            for member in made.members:
                parts = second["states" if made.members[member][0] == "state" else "reads"]
                assert len(parts[f"0{member}"]) == 2, (kind, member)


def test_a_query_reads_what_was_written_at_its_position(transformers: Any) -> None:
    first, last = asked(transformers, [["dynamic", {}]], [["append", 0, 2]])
    tokens = [toy.content(toy.token(0, 0, j)) for j in range(2)]
    assert first["reads"]["0"] == [[[tokens[0], 0, tokens[0]], [tokens[0], 0, tokens[0], tokens[1], 1, tokens[1]]]]
    assert [last["reads"]["0"][0][0][i] for i in (1, 4, 7)] == [0, 1, 2]


def test_padding_is_on_the_left_and_is_not_read(transformers: Any) -> None:
    first, last = asked(transformers, [["sliding", {"size": 3, "record": 0}]], [["padded", 0, 4, 1]], 2)
    assert first["lengths"] == [2, 4]
    assert [len(query) // 3 for query in first["reads"]["0"][0]] == [1, 2]
    assert [row[0][1::3] for row in last["reads"]["0"]] == [[0, 1, 2], [2, 3, 4]]


def test_what_cannot_be_taken_off_is_refused_or_not_asked(transformers: Any) -> None:
    trimmed = [["append", 0, 5], ["trim", 0, 2]]
    assert asked(transformers, [["fp8", {}]], trimmed)[1]["status"] == "refused"
    assert asked(transformers, [["sliding", {"size": 3, "record": 0}]], trimmed)[1]["status"] == "refused"
    assert asked(transformers, [["sliding", {"size": 3, "record": 1}]], trimmed)[1]["trimmed"] == {"0": 2}
    twice = asked(transformers, [["sliding", {"size": 3, "record": 1}]], [*trimmed, ["trim", 0, 1]])
    assert twice[2]["status"] == "misuse"
    assert asked(transformers, [["dynamic", {}]], [["append", 0, 1], ["trim", 0, 2]])[1]["status"] == "misuse"


def test_a_static_cache_is_not_filled_past_its_end(transformers: Any) -> None:
    steps = [["append", 0, 3], ["append", 0, 2]]
    calls = asked(transformers, [["static", {"length": 4, "early": 1}]], steps)
    assert [call["status"] for call in calls] == ["done", "misuse", "done"]


def test_layers_of_one_type_may_have_different_windows(transformers: Any) -> None:
    layers = [["sliding", {"size": 2, "record": 0}], ["sliding", {"size": 4, "record": 0}]]
    _, last = asked(transformers, layers, [["append", 0, 6]])
    assert [len(last["reads"][path][0][0]) // 3 for path in "01"] == [2, 4]


@pytest.mark.parametrize("plant", QUICK)
def test_a_plant_is_found(transformers: Any, plant: str) -> None:
    with transformers.client(RELEASE, plant) as client:
        made = Comparison(client)
        made.run(programs=SOME)
        assert made.seen.keys() - keys()


@pytest.mark.nightly
def test_plants_are_found(transformers: Any) -> None:
    usual, missed = keys(), []
    for plant in transformers.unmodified(RELEASE).offered:
        with transformers.client(RELEASE, plant) as client:
            made = Comparison(client)
            made.run(programs=1500)
            if not made.findings(usual):
                missed.append(plant)
    assert not missed
