"""The machines themselves: short, complete, documented; and checking guards is enough to keep every law."""

import importlib
import inspect
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from kvspec.language import Machine, SpecificationError
from kvspec.language.elaborate import elaborate
from kvspec.language.machine import count
from kvspec.language.run import Compiled, State, compile_machine
from kvspec.language.solver import statement
from kvspec.laws import LAWS, STANDS_IN
from kvspec.registry import ALGORITHMS, MACHINES, machine, sorts, variant, variant_names

ALL = (*MACHINES, *ALGORITHMS)


def stated(machines: list[type[Machine]]) -> set[str]:
    """The law ids that some law or counter serves."""
    laws = {law.law for of in machines for law in of.laws.values() if law.kind not in ("claim", "assumption")}
    return laws | {var.law for of in machines for var in of.variables.values() if isinstance(var, count)}


def guarded(of: type[Machine]) -> set[str]:
    """The law ids that guards name."""
    return {guard.law for name in of.actions for guard in elaborate(of, name).guards} - {""}


@pytest.mark.parametrize("name", [*ALL, *(f"variants.{name.replace('-', '_')}" for name in variant_names())])
def test_a_module_is_short_and_documented(name: str) -> None:
    module = importlib.import_module(f"kvspec.{name}")
    assert module.__file__ is not None
    assert len(Path(module.__file__).read_text(encoding="utf-8").splitlines()) <= 149
    assert module.__doc__
    assert all(item.__doc__ for item in vars(module).values() if inspect.isclass(item))


@pytest.mark.parametrize("name", ALL)
def test_everything_is_documented(name: str) -> None:
    of = machine(name)
    assert undocumented(of) == []
    for name in list(of.actions)[:1]:
        assert undocumented(type("Mute", (of,), {name: mute(of.actions[name])})) == [name]


def undocumented(of: type[Machine]) -> list[str]:
    laws = [law.name for law in of.laws.values() if law.kind != "claim" and not law.doc]
    return [*laws, *(act.name for act in of.actions.values() if not act.doc)]


def mute(act: Any) -> Any:
    """An action without its docstring."""

    def body(s: Any, *args: Any) -> None:
        act.body(s, *args)

    body.__name__, body.__signature__ = act.name, inspect.signature(act.body)  # type: ignore[attr-defined]
    return type(act)(body)


def test_every_law_is_stated_or_a_test_stands_in() -> None:
    """Of S, B, E and T those are there that a machine states; a test that stands in for a stated law is stale."""
    ranges = (("R", 6), ("O", 11), ("D", 6), ("C", 9), ("A", 7), ("S", 4), ("B", 10), ("E", 6), ("T", 7), ("J", 5))
    later = ("B9",)
    every = [f"{letter}{number}" for letter, last in ranges for number in range(1, last + 1)]
    assert list(LAWS) == [law for law in every if law not in later]
    found = stated([machine(name) for name in MACHINES])
    assert found <= LAWS.keys()
    assert LAWS.keys() - found == STANDS_IN.keys()
    assert stated([machine("pages")]) < found
    assert stated([machine(name) for name in ALGORITHMS]) <= LAWS.keys()


@pytest.mark.parametrize("law", STANDS_IN)
def test_a_test_that_stands_in_exists(law: str) -> None:
    path, _, name = STANDS_IN[law].partition("::")
    assert f"def {name}(" in (Path(__file__).parents[2] / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ALL)
def test_guards_name_laws_that_exist(name: str) -> None:
    assert guarded(machine(name)) <= LAWS.keys()


def test_a_subject_states_its_own_laws() -> None:
    pages, read_law, deferred_free = (set(machine(name).laws) for name in ("pages", "read_law", "deferred_free"))
    assert pages < read_law < deferred_free


@pytest.mark.parametrize("name", variant_names())
def test_a_known_bug_changes_what_is_done_and_no_law(name: str) -> None:
    bug = variant(name)
    (right,) = bug.__bases__
    assert bug.breaks in stated([bug])
    assert bug.variant.lower().replace("#", "-") == name
    assert bug.__doc__
    assert changed_laws(bug, right) == []
    assert bug.variables == right.variables
    done = [str(elaborate(of, action)) for of in (bug, right) for action in of.actions]
    assert done[: len(bug.actions)] != done[len(bug.actions) :]


def changed_laws(one: type[Machine], other: type[Machine]) -> list[str]:
    return [law for law in other.laws if said(one, law) != said(other, law)]


def said(of: type[Machine], name: str) -> str:
    law = of.laws[name]
    if law.kind == "claim":
        return ""
    moments = {"step": [of.moment(), of.moment("+")], "lemma": []}.get(law.kind, [of.moment()])
    return str(statement(law, *moments))


def test_a_bug_that_changes_a_law_through_a_helper_is_noticed() -> None:
    right = machine("pages")

    class Lax(right, variant="lax#1", breaks="O4"):  # type: ignore[misc, valid-type]
        def holds(s, r, p):
            return s.live[r, s.place[r, p]]

    assert changed_laws(Lax, right) == ["held_safe"]


def test_names_that_do_not_exist() -> None:
    with pytest.raises(ModuleNotFoundError):
        machine("pagez")
    with pytest.raises(LookupError, match="must define exactly one machine, not 0"):
        machine("operations")


# Checking guards is enough

SCOPES = [
    {"Page": 3, "Request": 2, "Entry": 1, "Offset": 1, "Stop": 2, "Call": 1, "Token": 2, "Nat": 2, "Slot": 3,
     "Position": 4, "Group": 1, "Pool": 1, "Key": 1, "Disk": 1, "Snapshot": 1, "Prefix": 4, "Content": 2, "Member": 2,
     "Block": 3, "Part": 2, "File": 1, "Signature": 2, "Meaning": 2, "Host": 2, "Text": 2, "Owner": 4},
    {"Page": 3, "Request": 2, "Entry": 2, "Offset": 2, "Stop": 3, "Call": 2, "Token": 2, "Nat": 3, "Slot": 2,
     "Position": 6, "Group": 2, "Pool": 2, "Key": 3, "Disk": 2, "Snapshot": 2, "Prefix": 12, "Content": 3, "Member": 3,
     "Block": 3, "Part": 3, "File": 2, "Signature": 2, "Meaning": 3, "Host": 2, "Text": 2, "Owner": 4},
    {"Page": 5, "Request": 3, "Entry": 2, "Offset": 1, "Stop": 3, "Call": 3, "Token": 2, "Nat": 5, "Slot": 4,
     "Position": 9, "Group": 3, "Pool": 2, "Key": 3, "Disk": 1, "Snapshot": 3, "Prefix": 27, "Content": 5, "Member": 2,
     "Block": 4, "Part": 2, "File": 3, "Signature": 3, "Meaning": 5, "Host": 3, "Text": 1, "Owner": 4},
]  # fmt: skip
PROMPTS = ("one", "own")
"""All requests have one prompt and priority, or each its own."""
FULL = "full"
"""As "one", and start-up needs all pages for itself."""


def rigid(sizes: dict[str, int], prompts: str) -> dict[str, Any]:
    def token(r: int, k: int, o: int) -> int:
        return ((r if prompts == "own" else 0) + k + o) % sizes["Token"]

    ranges = [range(sizes[sort]) for sort in ("Request", "Entry", "Offset")]
    return (
        blocks(sizes, prompts == "own")
        | pools(sizes, prompts)
        | stores(sizes, prompts == "own")
        | streams(prompts == "own")
        | {
            "null": 0,
            "prefix": [[[token(r, k, o) for o in ranges[2]] for k in ranges[1]] for r in ranges[0]],
            "order": [slot + 1 if slot + 1 < sizes["Page"] else 0 for slot in range(sizes["Slot"])],
            "rank": [max(page - 1, 0) for page in range(sizes["Page"])],
        }
    )


def blocks(sizes: dict[str, int], own: bool) -> dict[str, Any]:
    """Blocks of two positions; the second group is cross-attention, the others have a window and, if `own`, a state."""
    positions, groups = range(sizes["Position"]), range(sizes["Group"])
    return {
        "limit": len(positions) - 1, "lookahead": 1, "spares": 1,
        "crossed": [g == 1 for g in groups], "recurrent": [own] * len(groups), "aligned": [own] * len(groups),
        "prompt": [1 + r % 2 for r in range(sizes["Request"])], "encoded": [len(positions) - 1] * sizes["Request"],
        "since": [[0 if g == 1 else max(0, t - 1) for t in positions] for g in groups],
        "blocks": [(t + 1) // 2 for t in positions], "whole": [t // 2 for t in positions],
    }  # fmt: skip


def stores(sizes: dict[str, int], own: bool) -> dict[str, Any]:
    """Room for two entries; the first member of a block is sliced; all requests have one prefix, or each its own."""
    each = {name: range(count) for name, count in sizes.items()}
    count = sizes["Position"]
    prefixes = [[((r if own else 0) * count + n) % sizes["Prefix"] for n in each["Position"]] for r in each["Request"]]
    return {
        "size": [1 + own for _ in each["Key"]], "place": [k % sizes["Disk"] for k in each["Key"]],
        "budget": [2 * (1 + own) for _ in each["Disk"]], "slots": [1 + own for _ in each["Disk"]],
        "prefixes": prefixes, "after": [(p + 1) % sizes["Content"] for p in each["Prefix"]],
        "sliced": [m == 0 for m in each["Member"]], "each": 2,
        "computed": [[(m + b + 1) % sizes["Part"] for b in each["Block"]] for m in each["Member"]],
        "wanted": [[(k + g) % sizes["Meaning"] for g in each["Signature"]] for k in each["Key"]],
        "mine": 0, "oldest": 1, "newest": sizes["Nat"] - 1, "key_of": [x % sizes["Key"] for x in each["Text"]],
    }  # fmt: skip


def streams(own: bool) -> dict[str, Any]:
    """Drafts of a token, or of three; a cool-down of as many steps."""
    return {"stream": 0, "handoff": 1, "batch": 2, "keeper": 3, "drafts": 3 if own else 1, "pause": 3 if own else 1}


def pools(sizes: dict[str, int], prompts: str) -> dict[str, Any]:
    """Room for two or three pages; if "own", the last request can never be served."""
    requests, pools, own = range(sizes["Request"]), range(sizes["Pool"]), prompts == "own"
    most = [9 if own and r == len(requests) - 1 else 2 for r in requests]
    return {
        "pages": [3 + g for g in pools], "apart": [3 + g if prompts == FULL else 1 for g in pools],
        "watermark": [0 for _ in pools],
        "first": [[1 + (own and r > 0) for _ in pools] for r in requests],
        "most": [[most[r] for _ in pools] for r in requests],
        "priority": [r if own else 0 for r in requests], "patience": 1,
    }  # fmt: skip


def walk(compiled: Compiled, at: State, random: Random, steps: int) -> tuple[Counter[str], list[tuple[str, str]]]:
    """Takes any steps that pass all guards; how often each action was taken, and the first laws broken, if any."""
    taken: Counter[str] = Counter()
    names = list(compiled.actions)
    for _ in range(40 * steps):
        if taken.total() == steps:
            break
        action = random.choice(names)
        for _ in range(12):
            args = tuple(random.randrange(getattr(at, f"n_{sort.name}")) for sort in compiled.params[action])
            if compiled.enabled[action](at, *args):
                before = at.copy()
                compiled.actions[action](at, *args)
                taken[action] += 1
                if broken := compiled.judge(before, action, args, at):
                    return taken, broken
                break
    return taken, []


def walks(
    of: type[Machine], seeds: int, steps: int, prompts: tuple[str, ...] = PROMPTS
) -> tuple[Counter[str], list[tuple[str, str]]]:
    """Walks from the start at every scope, until a law is broken."""
    compiled, taken = compile_machine(of), Counter[str]()
    for seed in range(seeds):
        for sizes in SCOPES:
            own = {name: sizes[name] for name in sorts(of)}
            start = compiled.start(own, rigid(sizes, prompts[seed % len(prompts)]))
            if broken := compiled.broken(start):
                return taken, broken
            more, broken = walk(compiled, start, Random(seed), steps)
            taken += more
            if broken:
                return taken, broken
    return taken, []


@pytest.mark.parametrize(
    ("name", "seeds"),
    [("deferred_free", 20), ("ring", 4), ("row_table", 4), ("speculation", 20), ("fairness", 20), ("drain", 20)],
)
def test_after_any_steps_that_pass_the_guards_every_law_holds(name: str, seeds: int) -> None:
    of = machine(name)
    taken, broken = walks(of, seeds, 1_000)
    assert broken == []
    assert taken.total() == seeds * 1_000 * len(SCOPES)
    assert min(taken[action] for action in of.actions) >= 3 * seeds, taken


@pytest.mark.parametrize("name", variant_names())
def test_where_a_guard_or_an_assignment_is_wrong_a_law_is_broken(name: str) -> None:
    bug = variant(name)
    _, broken = walks(bug, 9, 500, (*PROMPTS, FULL))
    assert broken


def test_registry_lists_machines_that_can_be_compiled_and_their_sorts() -> None:
    assert set(sorts(machine("pages"))) == {"Page", "Request", "Entry", "Offset", "Stop", "Nat"}
    with pytest.raises(SpecificationError, match="rigid variable 'prefix'"):
        compile_machine(machine("read_law")).start(SCOPES[0], {"null": 0})
