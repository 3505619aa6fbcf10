"""The small scopes at which counterexamples are looked for, smallest first, and what the rigid variables are there."""

from collections.abc import Iterator
from random import Random
from typing import Any

from kvspec.language.machine import Machine
from kvspec.language.sorts import Sort, domains, value_sort
from kvspec.registry import sorts

from kvspec_proofs.finite import Counterexample, assumed

BASE = {"Page": 3, "Request": 2, "Entry": 1, "Offset": 1, "Stop": 2, "Call": 1, "Token": 2, "Nat": 2, "Slot": 3,
        "Position": 4, "Group": 1, "Pool": 1, "Key": 1, "Disk": 1,
        "Snapshot": 1, "Prefix": 4, "Content": 2, "Member": 2, "Block": 3, "Part": 2,
        "File": 1, "Signature": 2, "Meaning": 2, "Host": 2, "Text": 1,
        "Owner": 4}  # fmt: skip
"""Page 0 is null. `Stop` is one more than `Entry`."""

SCOPES = (
    BASE, BASE | {"Offset": 2, "Key": 2}, BASE | {"Entry": 2, "Stop": 3}, BASE | {"Page": 4, "Call": 2, "Slot": 4},
    BASE | {"Request": 3},
)  # fmt: skip

DRAWS = 6
"""How often the rigid variables of a machine with assumptions are drawn."""


def sizes_for(machine: type[Machine], scope: dict[str, int]) -> dict[str, int]:
    """The sizes of the machine's own sorts."""
    missing = sorts(machine).keys() - scope.keys()
    if missing:
        raise LookupError(f"{machine.__name__}: no size for the sort {min(missing)}; add it to a scope")
    return {name: scope[name] for name in sorts(machine)}


def rigid_choices(machine: type[Machine], sizes: dict[str, int]) -> Iterator[dict[str, Any]]:
    """Values of the rigid variables: everything 0 (one prompt for all requests), then everything by its first index.

    A machine with assumptions gets values that meet them, some of them drawn.
    """
    if machine.of_kind("assumption"):
        yield assumed(machine, sizes)
        yield from (assumed(machine, sizes, Random(seed)) for seed in range(DRAWS))
        return
    rigid = {name: var for name, var in machine.variables.items() if var.rigid}
    values = sizes | {"Bool": 2}
    for choose in (lambda index, size: 0, lambda index, size: index[0] % size):
        yield {
            name: _filled(domains(var.kind), sizes, (), values[value_sort(var.kind).name], choose)
            if domains(var.kind)
            else 0
            for name, var in rigid.items()
        }


def _filled(left: tuple[Sort, ...], sizes: dict[str, int], index: tuple[int, ...], size: int, choose: Any) -> Any:
    if not left:
        return choose(index, size)
    return [_filled(left[1:], sizes, (*index, number), size, choose) for number in range(sizes[left[0].name])]


def starts(machine: type[Machine]) -> Iterator[tuple[dict[str, int], dict[str, Any]]]:
    """Every scope with every choice of the rigid variables, smallest first, repetitions left out."""
    seen: list[Any] = []
    for sizes in scopes(machine):
        for rigid in rigid_choices(machine, sizes):
            if (sizes, rigid) not in seen:
                seen.append((sizes, rigid))
                yield sizes, rigid


def scopes(machine: type[Machine]) -> list[dict[str, int]]:
    """The scopes of a machine, smallest first; those that differ in sorts of other machines alone are one."""
    found: list[dict[str, int]] = []
    for scope in SCOPES:
        if (sizes := sizes_for(machine, scope)) not in found:
            found.append(sizes)
    return found


def of_counterexample(machine: type[Machine], found: Counterexample) -> tuple[dict[str, int], dict[str, Any]]:
    """The scope and the rigid variables of a counterexample."""
    sizes = {name: getattr(found.before, f"n_{name}") for name in sorts(machine)}
    return sizes, {name: getattr(found.before, name) for name, var in machine.variables.items() if var.rigid}
