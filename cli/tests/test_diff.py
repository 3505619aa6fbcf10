"""`kvspec diff`: what is found, what is known, and that what is printed leads back to it."""

import json
import shlex
from pathlib import Path

import pytest
from kvspec_diff import known, trace
from kvspec_diff.known import Known

PLANTED = ("diff", "--engine", "example==1", "--plant", "keep_views", "--traces", 200)


@pytest.mark.parametrize("subject", [["--subject", "reference"], ["--subject", "torch"], ["--engine", "example==1"]])
def test_nothing_is_found(kvspec, subject: list[str]) -> None:
    done = kvspec("diff", *subject, "--traces", 60)
    assert done.status == 0
    assert done.out.splitlines()[0].startswith(f"{subject[1]}: 60 traces, median ")
    assert "contain a deferred free, " in done.out
    assert done.out.splitlines()[-1] == "Nothing was found."


def test_torch_is_the_subject_unless_another_is_named(kvspec) -> None:
    assert kvspec("diff", "--traces", 5).out.startswith("torch: 5 traces")


def test_what_is_found_is_small_saved_and_found_again(kvspec, tmp_path: Path) -> None:
    done = kvspec(*PLANTED, "--save", tmp_path / "found")
    assert done.status == 1
    assert "operation 4, end, breaks D1: " in done.out
    (path,) = (tmp_path / "found").iterdir()
    saved = trace.read(path)
    assert (saved.header.law, saved.header.subject) == ("D1", "example==1 hostile=true plant keep_views")
    assert len(saved.operations) == 5
    lines = [line.strip() for line in done.out.splitlines()]
    assert f"saved: {path}" in lines
    command = next(line for line in lines if line.startswith("reproduce: "))
    assert kvspec(*shlex.split(command)[2:]).status == 1
    assert kvspec("replay", path, "--engine", "example==1").status == 0
    assert lines[-1] == "Run again: kvspec diff --engine example==1 --plant keep_views --traces 200 --seed 0"


def test_large_numbers_can_be_given_again(kvspec) -> None:
    done = kvspec("diff", "--subject", "reference", "--traces", 12_345_678, "--seconds", 0.25, "--json")
    again = json.loads(done.out)["reproduce"]
    assert again == "kvspec diff --subject reference --seconds 0.25 --traces 12345678 --seed 0"


def test_the_same_seed_finds_the_same(kvspec, tmp_path: Path) -> None:
    for folder, seed in (("one", 3), ("two", 3), ("three", 4)):
        assert kvspec(*PLANTED, "--seed", seed, "--save", tmp_path / folder).status == 1
    one, two = ([path.read_bytes() for path in (tmp_path / name).iterdir()] for name in ("one", "two"))
    assert one == two


def test_what_is_found_as_json(kvspec, folders: Path) -> None:
    done = kvspec(*PLANTED, "--no-hostile", "--json")
    result = json.loads(done.out)
    assert (done.status, result["clean"], result["seed"]) == (1, False, 0)
    (found,) = result["found"]
    assert (found["law"], found["subject"]) == ("D1", "example==1 hostile=false plant keep_views")
    assert [each["op"] for each in found["operations"]].count("end") == 1
    assert Path(found["trace"]).parent == folders / "state" / "kvspec" / "traces"
    assert set(result["figures"]) > {"runs", "median_length", "deferred", "overwritten", "ended", "reused"}
    assert result["figures"]["runs"] == 200
    assert [each["probe"] for each in result["unchecked_misuse"]] == ["free twice"]


def test_seconds(kvspec) -> None:
    done = kvspec("diff", "--engine", "example==1", "--seconds", 0.5)
    assert done.status == 0
    assert "--seconds" not in done.out


def committed(law: str, tmp_path: Path, kvspec) -> list[Known]:
    """What `keep_views` breaks, as a known finding."""
    kvspec(*PLANTED, "--save", tmp_path / "found")
    (path,) = (tmp_path / "found").iterdir()
    read = trace.read(path)
    first = trace.header(read.header.configuration, subject=read.header.subject, law=law, note="It keeps views.")
    return [Known(path.name, trace.Trace(first, read.operations, read.outcomes))]


def test_known_findings_are_no_failure(kvspec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    findings = committed("D1", tmp_path, kvspec)
    monkeypatch.setattr(known, "load", lambda engine, version: findings)
    done = kvspec(*PLANTED)
    assert done.status == 0
    assert f"known finding {findings[0].name} still breaks D1\n  It keeps views." in done.out
    assert "runs failed like the known findings" in done.out
    assert done.out.splitlines()[-1] == "Nothing else was found."
    assert kvspec(*PLANTED, "--unaided").status == 1


@pytest.mark.parametrize(("law", "arguments"), [("O2", PLANTED), ("D1", (*PLANTED[:3], "--traces", 50))])
def test_a_known_finding_must_still_stand(
    kvspec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, law: str, arguments: tuple[object, ...]
) -> None:
    findings = committed(law, tmp_path, kvspec)
    monkeypatch.setattr(known, "load", lambda engine, version: findings)
    done = kvspec(*arguments)
    assert done.status == 1
    assert f"no longer breaks {law}: " in done.out
