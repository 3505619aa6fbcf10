"""Each known bug is refuted by the law that it names, is reached from the start, and its runs and states are real."""

import pytest
from kvspec.language.run import Compiled, compile_machine
from kvspec.pages import Pages
from kvspec.registry import variant, variant_names
from kvspec_proofs.prove import prove, reach, refuted
from kvspec_proofs.search import Run
from kvspec_proofs.tables import counterexample_rows, run_rows, shown

SHORTEST = {
    "lmcache-2206": ["acquire", "begin_read", "write"],
    "lmcache-3130": ["acquire", "publish", "evict"],
    "mlx-lm-1494": ["store", "restore", "trim"],
    "omlx-2550": ["store", "restore"],
    "omlx-2551": ["store"],
    "sglang-27779": ["acquire", "write", "settle", "release"],
    "sglang-34067": ["acquire", "begin", "release", "acquire", "end"],
    "sglang-36739": ["acquire", "begin", "release", "end"],
    "vllm-56524": ["acquire", "settle"],
    "vllm-metal-144": ["store", "restore"],
}
"""The shortest run from the start to the bug, as far as the search tells.

Of a machine with assumptions it depends on the rigid variables, of which a solver draws some.
"""


def test_every_variant_of_a_machine_without_assumptions_has_a_shortest_run() -> None:
    assert SHORTEST.keys() == {name for name in variant_names() if not variant(name).of_kind("assumption")}


@pytest.mark.parametrize("name", variant_names())
def test_its_law_is_refuted_by_states_from_which_it_breaks_and_the_specification_does_not(name: str) -> None:
    of = variant(name)
    failed = prove(of).failed
    assert of.breaks in {verdict.obligation.law for verdict in failed}
    (buggy,) = {verdict.obligation.action for verdict in failed}
    assert buggy == SHORTEST.get(name, [buggy])[-1]
    bug, right = compile_machine(of), compile_machine(of.__bases__[0])
    for verdict in failed:
        found, (law, action) = verdict.refuted, (verdict.obligation.law, verdict.obligation.action)
        assert found is not None, "what fails is shown, and not just given up"
        assert bug.broken(found.before) == [], "every law holds before the step"
        after = found.before.copy()
        bug.actions[action](after, *found.args)
        name_of_law = verdict.obligation.name.replace(" delta", "_counts")
        assert (law, name_of_law) in bug.judge(found.before, action, found.args, after)
        changed = {variable for variable, _, now in counterexample_rows(of, found) if now}
        old = vars(found.before)
        assert changed == {variable for variable in shown(of) if vars(after)[variable] != old[variable]}
        after = found.before.copy()
        if right.enabled[action](after, *found.args):
            right.actions[action](after, *found.args)
            assert right.judge(found.before, action, found.args, after) == []


@pytest.mark.parametrize("name", variant_names())
def test_a_run_from_the_start_breaks_the_law_at_its_last_step_and_no_earlier(name: str) -> None:
    of = variant(name)
    verdict = refuted(of, of.breaks)
    assert verdict is not None
    found = reach(of, of.breaks, near=verdict.refuted)
    bug, run = compile_machine(of), found.run
    assert run is not None
    assert run.moves[-1].action == verdict.obligation.action
    if name in SHORTEST:
        assert [move.action for move in run.moves] == SHORTEST[name]
    at = bug.start(found.sizes, {name: getattr(run.start, name) for name, var in of.variables.items() if var.rigid})
    assert vars(at) == vars(run.start)
    broken: list[list[tuple[str, str]]] = [bug.broken(at)]
    for move in run.moves:
        before = at.copy()
        bug.actions[move.action](at, *move.args)
        assert vars(at) == vars(move.after)
        broken.append(bug.judge(before, move.action, move.args, at))
    assert broken[:-1] == [[]] * len(run.moves)
    assert tuple(broken[-1]) == run.broken
    assert of.breaks in {law for law, _ in run.broken}
    assert len(run_rows(of, run)) == len(run.moves)
    follows_the_specification(compile_machine(of.__bases__[0]), run)


def follows_the_specification(right: Compiled, run: Run) -> None:
    """The same run breaks nothing there: either a guard stops its last step, or that does what is right."""
    at = run.start.copy()
    for move in run.moves:
        before = at.copy()
        if not right.enabled[move.action](at, *move.args):
            assert move is run.moves[-1]
            return
        right.actions[move.action](at, *move.args)
        assert right.judge(before, move.action, move.args, at) == []


def test_what_changes_nothing_is_no_bug() -> None:
    class Harmless(Pages, variant="none#1", breaks="O1"):
        """Only by its name."""

    assert prove(Harmless).failed == []
    assert reach(Harmless, "O1", (300,)).run is None
