"""The cache classes of the mlx-lm releases that are installed, unmodified and with planted faults."""

from typing import Any

import pytest
from kvspec_diff.batched.finding import known
from kvspec_diff.caches import promises
from kvspec_diff.caches.case import Case
from kvspec_diff.caches.compare import Comparison, explains
from kvspec_record import toy

RELEASES = ("0.31.3", "0.32.2")
SOME = 100
"""Programs: some seconds of them."""

QUICK = ("kv=grow_by_one_step", "rotating=window_one_short", "batch=extract_the_padded_length")
"""Planted faults that so few programs find."""

HIDDEN = {
    "0.31.3": {
        "chunked=end_of_the_whole", "arrays=fold_a_padding_token", "arrays=chunks_do_not_count",
        "list=finalize_the_first_only",
    }
}  # fmt: skip
"""Plants that look like what is known of the release: `chunk-wide-steps` and `arrays-padding`."""


def asked(made: Any, release: str, layers: list[Any], steps: list[Any], rows: int = 1, dtype: str = "float32") -> Any:
    """The answers of an unmodified release to one program."""
    question = {"do": "caches", "layers": layers, "dtype": dtype, "rows": rows, "steps": steps}
    (answer,) = made.unmodified(release).ask([question])
    return answer["calls"]


def unknown(made: Comparison, release: str) -> set[Any]:
    """What was seen that is neither known nor explained by it."""
    keys = {finding.fault.key for _, finding in known("mlx-lm", release, Case)}
    return {key for key in made.seen if key not in keys and not explains({*keys, *made.seen}, key)}


@pytest.mark.parametrize("release", RELEASES)
def test_the_table_of_promises_is_whole(release: str) -> None:
    assert not list(promises.load("mlx-lm", release).problems())


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_is_wrong_as_it_is_known_to_be(mlx_lm: Any, release: str) -> None:
    made = Comparison(mlx_lm.unmodified(release))
    for name, finding in known("mlx-lm", release, Case):
        assert finding.fault.key in [each.key for each in made.replay(finding)], name
        assert finding.explanation, name
    made.run(programs=SOME)
    assert not unknown(made, release)
    assert made.tally.figures["programs"] == SOME


@pytest.mark.parametrize("release", RELEASES)
def test_every_class_is_read_in_every_dtype(mlx_lm: Any, release: str) -> None:
    table = promises.load("mlx-lm", release)
    for kind, made in table.kinds.items():
        given = {name: values[-1] for name, values in [*made.parameters.items(), *made.choices.items()]}
        for dtype in table.dtypes if made.members else ():
            first = asked(mlx_lm, release, [[kind, given]], [["append", 0, 3]], 1, dtype)[0]
            assert first["status"] == "done", (kind, dtype, first)
            assert len(first["states" if made.members[""][0] == "state" else "reads"]["0"]) == 1
            assert first["dtypes"] == {"0": dtype}


@pytest.mark.parametrize("release", RELEASES)
def test_a_query_reads_what_was_written_at_its_position(mlx_lm: Any, release: str) -> None:
    for kind in (["kv", {"step": 2}], ["quantized", {"group": 32, "bits": 4, "step": 2}], ["rotating", {"size": 4}]):
        first, last = asked(mlx_lm, release, [kind], [["append", 0, 2]])
        tokens = [toy.content(toy.token(0, 0, j)) for j in range(2)]
        assert first["reads"]["0"] == [[[tokens[0], 0, tokens[0]], [tokens[0], 0, tokens[0], tokens[1], 1, tokens[1]]]]
        assert [last["reads"]["0"][0][0][i] for i in (1, 4, 7)] == [0, 1, 2]


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("prompt", [0, 1])
def test_padding_on_either_side_is_not_read(mlx_lm: Any, release: str, prompt: int) -> None:
    layers = [["kv", {"prompt": prompt}], ["rotating", {"size": 3}]]
    first, last = asked(mlx_lm, release, layers, [["padded", 0, 4, 1]], 2)
    assert first["lengths"] == [2, 4]
    for path, most in (("0", 4), ("1", 3)):
        assert [[len(query) // 3 for query in row] for row in first["reads"][path]] == [
            [1, 2], [min(length, most) for length in (1, 2, 3, 4)]
        ]  # fmt: skip
    assert [sorted(row[0][1::3]) for row in last["reads"]["0"]] == [[0, 1, 2], [0, 1, 2, 3, 4]]
    assert [sorted(row[0][1::3]) for row in last["reads"]["1"]] == [[0, 1, 2], [2, 3, 4]]


@pytest.mark.parametrize("release", RELEASES)
def test_a_prompt_in_several_steps_is_read_as_in_one(mlx_lm: Any, release: str) -> None:
    steps = [["append", 0, 7], ["append", 0, 1]]
    at_once, in_steps = (
        asked(mlx_lm, release, [["kv", {"prompt": prompt}], ["arrays", {"count": 2}]], steps) for prompt in (0, 3)
    )
    assert [call["reads"] for call in at_once] == [call["reads"] for call in in_steps]
    assert [call["states"] for call in at_once] == [call["states"] for call in in_steps]


@pytest.mark.parametrize("release", RELEASES)
def test_what_an_engine_does_not_do_is_refused_or_not_asked(mlx_lm: Any, release: str) -> None:
    steps = [["append", 0, 2], ["trim", 0, 1], ["merge", 0, 0], ["filter", 0, 1], ["extract", 0, 0]]
    quantized = asked(mlx_lm, release, [["quantized", {"group": 32, "bits": 8}]], steps)
    assert [call["status"] for call in quantized[1:5]] == ["done", "refused", "nothing", "nothing"]
    assert asked(mlx_lm, release, [["arrays", {"count": 1}]], steps)[1]["status"] == "refused"
    batch = asked(mlx_lm, release, [["kv", {}]], [["append", 0, 2], ["trim", 0, 3]], 2)
    assert batch[1]["status"] == "misuse"
    assert asked(mlx_lm, release, [["no_such", {}]], [])[0]["status"] == "raised"


@pytest.mark.parametrize("release", RELEASES)
def test_a_cache_is_quantized_once_it_is_long_enough(mlx_lm: Any, release: str) -> None:
    steps = [["append", 0, 2], ["merge", 0, 0], ["append", 0, 2], ["merge", 0, 0]]
    calls = asked(mlx_lm, release, [["quantizing", {"start": 3, "group": 32, "bits": 4}]], steps)
    assert [call["status"] for call in calls[:4]] == ["done", "done", "done", "refused"]
    assert calls[4]["reads"]["0"][0][0][1::3] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("release", RELEASES)
def test_every_plant_has_its_place(mlx_lm: Any, release: str) -> None:
    offered = mlx_lm.unmodified(release).offered
    assert len(offered) >= 12
    mlx_lm.client(release, *offered).close()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("plant", QUICK)
def test_a_plant_is_found(mlx_lm: Any, release: str, plant: str) -> None:
    with mlx_lm.client(release, plant) as client:
        made = Comparison(client)
        made.run(programs=SOME)
        assert unknown(made, release)


@pytest.mark.nightly
@pytest.mark.parametrize("release", RELEASES)
def test_plants_are_found(mlx_lm: Any, release: str) -> None:
    missed = []
    for plant in mlx_lm.unmodified(release).offered:
        with mlx_lm.client(release, plant) as client:
            made = Comparison(client)
            made.run(programs=1500)
            if not unknown(made, release):
                missed.append(plant)
    assert not {*missed} - HIDDEN.get(release, set())
