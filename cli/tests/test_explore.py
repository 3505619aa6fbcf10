"""`kvspec explore`: the search, how far it went, and the run that it found."""

import json
import shlex

import pytest


@pytest.mark.parametrize("subject", ["pages", "ring", "row_table"])
def test_nothing_is_left(kvspec, subject: str) -> None:
    done = kvspec("explore", subject, "--pages", 1, "--requests", 1)
    title, figures, verdict = done.out.splitlines()
    assert (done.status, title, verdict) == (0, subject, "No run breaks a law.")
    assert figures.endswith(": nothing is left")


def test_a_search_that_is_cut_short(kvspec) -> None:
    done = kvspec("explore", "deferred_free", "--max-states", 100)
    assert done.status == 0
    assert "100 states" in done.out
    assert "stopped at --max-states" in done.out
    assert done.out.endswith("No run breaks a law, as far as the search went.\n")


@pytest.mark.parametrize("law", ["D1", "O2"])
def test_the_shortest_run_and_the_command_for_it(kvspec, law: str) -> None:
    done = kvspec("explore", "--variant", "sglang-34067", "--law", law, "--prompts", "many")
    assert done.status == 1
    assert f"{law} " in done.out.splitlines()[-2]
    command = done.out.splitlines()[-1].removeprefix("Reproduce: kvspec ")
    again = kvspec(*shlex.split(command))
    assert (again.status, again.out) == (1, done.out)


def test_the_search_as_json(kvspec) -> None:
    done = kvspec("explore", "--variant", "lmcache-2206", "--json")
    found = json.loads(done.out)
    assert done.status == 1
    assert (found["subject"], found["variant"], found["exhausted"]) == ("lmcache-2206", "LMCache#2206", False)
    assert found["depth"] == len(found["run"]["steps"])
    assert found["sizes"]["Page"] == 3
    assert found["reproduce"].startswith("kvspec explore --variant lmcache-2206 ")
