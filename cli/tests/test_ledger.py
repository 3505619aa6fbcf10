"""The ledger's page covers every law and every mutant, and what it says breaks a law still does."""

import json
import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from kvspec.laws import LAWS, STANDS_IN
from kvspec.registry import ALGORITHMS, MACHINES, machine, variant, variant_names
from kvspec_cli import ledger
from kvspec_cli.ledger import INTRODUCTION, MUTATION, SURVIVING, Entry, Ledger, markdown, whole
from kvspec_proofs import survivors
from kvspec_proofs.ledger import Row, breaks, premises, stated
from kvspec_proofs.mutants import mutants, own_mutants
from kvspec_proofs.prove import refuted
from kvspec_proofs.survivors import Tally, reasons
from kvspec_proofs.witnesses import witnesses

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "ledger.md").read_text()
ROWS = {
    found[0]: found
    for line in PAGE.splitlines()
    if re.match(r"\| [A-Z]\d+ \|", line) and (found := [cell.strip() for cell in line.strip("|").split("|")])
}
EVERY = (*MACHINES, *ALGORITHMS)
PROVED = [law for law in LAWS if law not in STANDS_IN]


def test_every_law_has_a_row_and_every_row_a_law() -> None:
    assert list(ROWS) == list(LAWS)


def test_the_page_says_what_the_columns_are() -> None:
    assert PAGE.startswith(INTRODUCTION)
    assert MUTATION in PAGE
    assert SURVIVING in PAGE


def test_no_cell_is_empty() -> None:
    assert not [cells for cells in ROWS.values() if not all(cells)]


@pytest.mark.parametrize("law", PROVED)
def test_what_is_named_breaks_the_laws_own_obligation(law: str) -> None:
    for named in ROWS[law][4].replace("`", "").split("; "):
        if named in variant_names():
            assert refuted(variant(named), law)
        elif named not in premises(law):
            subject, _, name = named.partition(", ")
            found = [each for each in mutants(machine(subject)) if each.name == name]
            assert len(found) == 1, f"no mutant is called {named}: run kvspec prove --ledger --write docs/ledger.md"
            assert breaks(found[0], law)


@pytest.mark.parametrize("law", STANDS_IN)
def test_the_test_that_stands_in_is_there(law: str) -> None:
    path, _, name = STANDS_IN[law].partition("::")
    assert f"def {name}(" in (ROOT / path).read_text()
    assert STANDS_IN[law] in ROWS[law][5]


def test_a_mutant_that_changes_nothing_of_a_law_does_not_break_it() -> None:
    harmless = next(each for each in mutants(machine("pages")) if each.name == "refuse without n > available")
    assert breaks(harmless, "O5")
    assert not breaks(harmless, "O1")


def test_an_empty_cell_is_seen() -> None:
    row = Row("X1", "says", 1, ("M",), ("QF",), "unsat, unsat", (), "acquire", "1 Page", "")
    assert not row.complete
    entry = Entry("X1", "says", 1, ["QF"], "unsat, unsat", ["a bug"], "acquire", "1 Page", "", True)
    text = markdown(Ledger(True, [entry], [], [], []))
    assert "| X1 | 1 | QF | unsat, unsat | `a bug` | acquire | 1 Page |" in text


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def test_the_page_counts_every_mutant() -> None:
    """As many of each kind as there are now; those that nothing sees are those that are listed."""
    rows = [cells(line) for line in PAGE.splitlines() if line.split(" | ")[0].strip("| ") in EVERY]
    counted = Counter((name, each.kind) for name in EVERY for each in own_mutants(machine(name)))
    assert {(row[0], row[1]): int(row[2]) for row in rows} == counted
    kinds = {(name, each.name): each.kind for name in EVERY for each in own_mutants(machine(name))}
    surviving = Counter((name, kinds[name, mutant]) for name, _, mutant in (each.partition(", ") for each in reasons()))
    assert {(row[0], row[1]): int(row[6]) for row in rows if row[6] != "0"} == surviving


def test_the_page_gives_the_reason_of_every_survivor() -> None:
    lines = PAGE[PAGE.index("### What survives") :].splitlines()
    shown = [cells(line) for line in lines if line.startswith("| `")]
    assert sorted((name.strip("`"), reason) for name, reason in shown) == sorted(reasons().items())


def test_the_first_scopes_are_the_smallest() -> None:
    """What the page says of O11 and O3: no smaller scope exercises the law."""
    of = machine("deferred_free")
    for law in ("O3", "O11"):
        found = witnesses(of, {name: each for name, each in stated(of).items() if each == law})[law]
        assert ROWS[law][6] == found.scope
        assert ROWS[law][5].startswith(f"{found.action}, {found.steps} step")
    assert (ROWS["O3"][6], ROWS["O11"][6]) == ("2 Page, else 1", "2 Request, 2 Page, else 1")
    assert not witnesses(of, {"one_writer": "O11", "no such statement": "O11"}, most=7)


def test_a_survivor_without_a_reason_and_a_stale_reason_are_seen(kvspec, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the exit status is 1; all else in the ledger is complete."""
    entry = Entry("X1", "says", 1, ["QF"], "unsat, unsat", ["a bug"], "acquire", "1 Page", "", True)
    tallied = [Tally("pages", "strengthened", 2, 0, 0, 1, (name,)) for name in ("refuse only if n > 0",)]
    for listed, old, new in (
        ({"pages, refuse only if n > 0": "it is so"}, [], []),
        ({}, [], ["pages, refuse only if n > 0"]),
        ({"pages, refuse only if n > 0": "it is so", "pages, gone": "it was so"}, ["pages, gone"], []),
    ):
        monkeypatch.setattr(survivors, "reasons", lambda listed=listed: listed)
        made = whole([entry], tallied)
        assert made.stale == old
        assert [each.mutant for each in made.survivors if not each.reason] == new
        assert made.complete == (not old and not new)
        monkeypatch.setattr(ledger, "compute", lambda seed, screen, made=made: made)
        done = kvspec("prove", "--ledger")
        assert done.status == int(bool(old or new))
        assert ("survivors have no reason" in done.out) == bool(new)
        assert ("A stale reason, for what does not survive: pages, gone" in done.out) == bool(old)
        printed = json.loads(kvspec("prove", "--ledger", "--json").out)
        assert msgspec.convert(printed, Ledger) == made
        assert "| `pages, refuse only if n > 0` |" in markdown(made)
