"""Mutants of the specification: which there are, and that what a law misses and what none misses are told apart."""

from typing import Any

import pytest
import z3
from kvspec.language import And, Implies, Machine, Not, SetOf, action, invariant, state, step
from kvspec.language.elaborate import elaborate
from kvspec.language.run import compile_machine
from kvspec.pages import Page
from kvspec.registry import ALGORITHMS, MACHINES, machine
from kvspec_proofs.judged import Judged, by_proof, by_search, judge, unaided
from kvspec_proofs.mutants import (
    ASSIGNMENT,
    KINDS,
    NEGATED,
    PART,
    REDIRECTED,
    STRENGTHENED,
    Mutant,
    conjuncts,
    mutants,
    own_mutants,
    stronger,
)
from kvspec_proofs.survivors import LISTED, reasons, stale, tally, unexplained


class Loose(Machine):
    """With a guard, half of a guard and an assignment that nothing asks for."""

    good, seen, noted = state(SetOf(Page)), state(SetOf(Page)), state(SetOf(Page))

    @action
    def put(s, p: Page):
        """Only what was seen."""
        s.require(And(s.seen[p], Not(s.noted[p])))
        s.require(Not(s.good[p]))
        s.good[p], s.noted[p] = True, True

    @action
    def see(s, p: Page):
        """See a page."""
        s.seen[p] = True

    @invariant("X1")
    def seen_first(s, p: Page):
        """What is good was seen."""
        return Implies(s.good[p], s.seen[p])

    @step("X2", on=("put",))
    def is_good(s, t, p: Page):
        """What is put is good."""
        return t.good[p]


class Looser(Loose):
    """Adds to an action."""

    kept = state(SetOf(Page))

    @action
    def put(s, p: Page):
        """Keep it."""
        super().put(p)
        s.kept[p] = True


def of(machine: type[Machine], action: str) -> dict[str, Mutant]:
    return {mutant.name: mutant for mutant in mutants(machine) if mutant.action == action}


def test_every_part_and_assignment_is_changed() -> None:
    found = of(Loose, "put")
    assert {name: mutant.kind for name, mutant in found.items()} == {
        "put without seen[p]": PART,
        "put without Not(noted[p])": PART,
        "put without Not(good[p])": PART,
        "put without setting good[p]": ASSIGNMENT,
        "put without setting noted[p]": ASSIGNMENT,
        "put sets good[p] to False": NEGATED,
        "put sets noted[p] to False": NEGATED,
        "put sets seen[p] in place of good[p]": REDIRECTED,
        "put sets noted[p] in place of good[p]": REDIRECTED,
        "put sets good[p] in place of noted[p]": REDIRECTED,
        "put sets seen[p] in place of noted[p]": REDIRECTED,
        "put never": STRENGTHENED,
    }
    assert all(mutant.own for mutant in found.values())


def test_what_is_inherited_is_the_parents() -> None:
    own = {mutant.name for mutant in own_mutants(Looser)}
    others = {"good", "seen", "noted"}
    assert own == {
        "put without setting kept[p]",
        "put sets kept[p] to False",
        *(f"put sets {other}[p] in place of kept[p]" for other in others),
    }
    assert {*of(Looser, "put")} > own


def test_proof_and_search_see_the_same() -> None:
    """With each found step replayed by the compiled mutant; what survives is what nothing asks for."""
    surviving = set()
    for name, mutant in of(Loose, "put").items():
        if mutant.kind == STRENGTHENED:
            continue
        found, undecided = by_proof(mutant)
        assert undecided == []
        assert bool(found) == bool(by_search(mutant)), name
        if found is None:
            surviving.add(name)
            continue
        compiled, after = compile_machine(mutant.machine), found.before.copy()
        assert compiled.broken(found.before) == []
        compiled.actions["put"](after, *found.args)
        assert found.obligation.name in {law for _, law in compiled.judge(found.before, "put", found.args, after)}
    assert surviving == {
        "put without Not(noted[p])", "put without Not(good[p])", "put without setting noted[p]",
        "put sets noted[p] to False", "put sets seen[p] in place of noted[p]",
        "put sets good[p] in place of noted[p]",
    }  # fmt: skip


def test_a_run_of_several_mutated_steps_is_found() -> None:
    """The first of them breaks nothing yet."""

    class Twice(Machine):
        """A page is counted in two steps."""

        first, second = state(SetOf(Page)), state(SetOf(Page))

        @action
        def count(s, p: Page):
            """Once only."""
            s.require(Not(s.first[p]))
            s.second[p] = s.first[p]
            s.first[p] = True

        @invariant("X3")
        def once(s, p: Page):
            """It is never counted again."""
            return Not(s.second[p])

    assert by_search(of(Twice, "count")["count without Not(first[p])"]) == "X3 once"
    assert by_search(of(Twice, "count")["count without setting second[p]"]) == ""


def test_a_strengthened_guard_is_for_the_reference_to_meet() -> None:
    (never,) = [mutant for mutant in mutants(Loose) if mutant.name == "put never"]
    assert judge(Loose, [never])[0].survives
    assert judge(Loose, [never], lambda of, asked: {each.name: "put is forbidden" for each in asked}) == [
        Judged(never, "", "", "put is forbidden")
    ]


def test_the_reference_is_asked_for_what_no_search_meets() -> None:
    asked: list[str] = []

    def lockstep(of: type[Machine], listed: Any) -> dict[str, str]:
        asked.extend(each.name for each in listed)
        return {}

    seen, unseen = (of(Loose, "put")[name] for name in ("put without seen[p]", "put without setting noted[p]"))
    assert [each.survives for each in judge(Loose, [seen, unseen], lockstep)] == [False, True]
    assert asked == [unseen.name]


@pytest.mark.parametrize("name", [*MACHINES, *ALGORITHMS])
def test_names_are_unique(name: str) -> None:
    found = list(mutants(machine(name)))
    assert len({mutant.name for mutant in found}) == len(found)
    assert {mutant.kind for mutant in found} <= set(KINDS)


def test_every_kind_occurs() -> None:
    assert {mutant.kind for mutant in own_mutants(machine("deferred_free"))} == set(KINDS)


@pytest.mark.parametrize("name", [*MACHINES, *ALGORITHMS])
def test_of_a_sample_no_run_breaks_what_is_proved(name: str) -> None:
    """Some six of each machine; all of them are judged for the ledger."""
    found = [mutant for mutant in own_mutants(machine(name)) if mutant.kind != STRENGTHENED]
    judged = [unaided(mutant) for mutant in found[:: len(found) // 6 + 1]]
    assert [each.undecided for each in judged if each.undecided] == []
    assert [each.mutant.name for each in judged if each.search and not each.proof] == []
    assert any(each.proof for each in judged) or not found


def test_a_stronger_guard_implies_the_guard_and_is_not_it() -> None:
    found = 0
    for name in MACHINES:
        for action_ in machine(name).actions:
            for guard in elaborate(machine(name), action_).guards:
                for part in conjuncts(guard.term):
                    for better in stronger(part):
                        found += 1
                        assert holds(z3.Implies(better, part))
                        assert not holds(z3.Implies(part, better))
    assert found > 8


def holds(term: Any) -> bool:
    solver = z3.Solver()
    solver.add(z3.Not(term))
    return bool(solver.check() == z3.unsat)


def test_survivors_and_reasons_are_compared() -> None:
    survivor = next(mutant for mutant in mutants(Loose) if mutant.name == "put never")
    (row,) = tally("loose", [Judged(survivor, "", "", "")])
    assert row.survivors == ("put never",)
    there, listed = ["loose, put never"], {"loose, get never": "it is gone"}
    assert unexplained(there, listed) == there
    assert stale(there, listed) == ["loose, get never"]
    assert unexplained(there, {"loose, put never": "why"}) == stale(there, {"loose, put never": "why"}) == []


def test_the_list_is_read_with_its_reasons(tmp_path: Any) -> None:
    path = tmp_path / "survivors.txt"
    path.write_text("# Because it\n# is so.\none, a\none, b\n\n# Otherwise.\ntwo, c\n")
    assert reasons(path) == {"one, a": "Because it is so.", "one, b": "Because it is so.", "two, c": "Otherwise."}
    for wrong in ("one, a\n", "# Why.\none, a\n\none, b\n", "# Why.\none, a\none, a\n"):
        path.write_text(wrong)
        with pytest.raises(ValueError, match="one, "):
            reasons(path)


def test_every_survivor_is_a_mutant_and_has_a_reason_in_words() -> None:
    names = {f"{name}, {each.name}" for name in (*MACHINES, *ALGORITHMS) for each in own_mutants(machine(name))}
    assert LISTED.is_file()
    assert reasons().keys() <= names
    assert all(len(reason.split()) > 5 for reason in reasons().values())
