"""Runs in which the case of a law occurs, at the smallest scope that exercises it: all its statements have one there.

Of two scopes the one with fewer elements in all is smaller; of two with as many, the one with fewer of the first sort
in `SORTS`, then of the second, and so on. Every smaller scope is searched whole, and does not exercise it.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from kvspec.language.machine import Machine
from kvspec.language.run import Compiled, compile_machine
from kvspec.registry import sorts

from kvspec_proofs.scopes import rigid_choices, sizes_for, starts
from kvspec_proofs.search import key, successors

SORTS = ("Part", "Block", "Member", "Token", "Call", "Offset", "Entry", "Page", "Request")
"""The sorts that a scope chooses sizes for. `Stop` has one more than `Entry`, and naturals are 0 and 1."""

MOST = 9
"""How many elements a scope has at most, in all."""


@dataclass(frozen=True)
class Witness:
    """At a scope: the action and the least number of steps from init after which the cases of a law have occurred.

    A law has several statements; this is the one whose case takes most steps.
    """

    action: str
    steps: int
    scope: str


def witnesses(of: type[Machine], laws: Mapping[str, str], most: int = MOST) -> dict[str, Witness]:
    """For each law the smallest scope at which the case of each of its statements occurs, and shortest runs to them.

    `laws` gives the law of each statement. Laws without such a scope up to `most` elements are left out.
    """
    compiled = compile_machine(of)
    found: dict[str, Witness] = {}
    for sizes in ordered(of, most):
        missing = {name for name, law in laws.items() if law not in found}
        occur: dict[str, tuple[int, str]] = {}
        for rigid in rigid_choices(of, sizes):
            for name, case in first_cases(compiled, sizes, rigid, missing).items():
                occur[name] = min(case, occur.get(name, case))
        for law in {laws[name] for name in occur}:
            names = {name for name, other in laws.items() if other == law}
            if names <= occur.keys():
                steps, action = max(occur[name] for name in names)
                found[law] = Witness(action, steps, said(sizes))
        if found.keys() >= set(laws.values()):
            break
    return found


def sampled(of: type[Machine], laws: Mapping[str, str], limit: int = 3_000) -> dict[str, Witness]:
    """The same at the scopes where counterexamples are looked for, of each so many states: for what never ends.

    A machine with assumptions counts without end, and has too many rigid variables to try them all.
    """
    compiled = compile_machine(of)
    occur: dict[str, tuple[int, str, str]] = {}
    for sizes, rigid in starts(of):
        missing = laws.keys() - occur.keys()
        for name, (steps, action) in first_cases(compiled, sizes, rigid, missing, limit).items():
            occur[name] = (steps, action, said(sizes))
    found = {}
    for law in set(laws.values()):
        names = {name for name, other in laws.items() if other == law}
        if names <= occur.keys():
            steps, action, scope = max(occur[name] for name in names)
            found[law] = Witness(action, steps, scope)
    return found


def ordered(of: type[Machine], most: int = MOST) -> Iterator[dict[str, int]]:
    """The scopes up to `most` elements, smallest first."""
    chosen = [sort for sort in SORTS if sort in sorts(of)]
    room = most - len(chosen) + 1
    choices = [sizes for sizes in product(range(1, room + 1), repeat=len(chosen)) if sum(sizes) <= most]
    for sizes in sorted(choices, key=lambda each: (sum(each), each)):
        named = dict.fromkeys(SORTS, 1) | dict(zip(chosen, sizes, strict=True))
        yield sizes_for(of, named | {"Stop": named["Entry"] + 1, "Nat": 2, "Slot": named["Page"]})


def first_cases(
    compiled: Compiled, sizes: Mapping[str, int], rigid: Mapping[str, Any], names: Collection[str], limit: int = 0
) -> dict[str, tuple[int, str]]:
    """Breadth first, the whole scope unless all occur: after how many steps a statement's case occurs, and by which.

    With a `limit`, until so many states were seen.
    """
    start = compiled.start(sizes, rigid)
    found: dict[str, tuple[int, str]] = {}
    missing = set(names)
    seen, level, steps = {key(compiled, start)}, [start], 0
    while level and missing and (len(seen) < limit or not limit):
        steps += 1
        following = []
        for state in level:
            for action, args, after in successors(compiled, state):
                for name in compiled.cases(state, action, args, after, among=missing):
                    found[name] = (steps, action)
                    missing.discard(name)
                if (again := key(compiled, after)) not in seen:
                    seen.add(again)
                    following.append(after)
        level = following
    return found


def said(sizes: Mapping[str, int]) -> str:
    """`2 Request, 3 Page, else 1`."""
    named = [*reversed(SORTS), *sorted(sizes.keys() - {*SORTS, "Stop", "Nat", "Slot"})]
    several = [f"{sizes[sort]} {sort}" for sort in named if sizes.get(sort, 1) > 1]
    return ", ".join([*several, "else 1"]) if several else "1 of each"
