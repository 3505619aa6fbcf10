"""The machines and the known bugs by name."""

import importlib
import pkgutil
from collections.abc import Iterator

from kvspec import variants
from kvspec.language.machine import Machine
from kvspec.language.sorts import Sort, domains, value_sort

MACHINES = (
    "pages", "read_law", "deferred_free", "quotients", "reservation", "speculation", "admission", "fairness",
    "tiers", "store", "snapshots", "blocks", "entry_format", "stream", "drain",
)  # fmt: skip
ALGORITHMS = ("ring", "row_table")
"""Refinements of `pages`: how the implementations keep what it says."""


def machine(name: str) -> type[Machine]:
    """The machine of a subject: the one class that its module defines."""
    return _defined(f"kvspec.{name}")


def complete() -> list[str]:
    """The machines that no other one extends: between them they have every law."""
    found = {name: machine(name) for name in MACHINES}
    return [name for name, of in found.items() if not any(issubclass(o, of) and o is not of for o in found.values())]


def variant(name: str) -> type[Machine]:
    """A known bug by its name, such as `sglang-34067`."""
    return _defined(f"kvspec.variants.{name.replace('-', '_')}")


def variant_names() -> list[str]:
    """The names of all known bugs."""
    return sorted(module.name.replace("_", "-") for module in pkgutil.iter_modules(variants.__path__))


def sorts(of: type[Machine]) -> dict[str, Sort]:
    """The sorts that a machine speaks of, in its state or in its actions' parameters."""
    return {sort.name: sort for sort in _mentioned(of) if sort.name != "Bool"}


def _mentioned(of: type[Machine]) -> Iterator[Sort]:
    for var in of.variables.values():
        yield from (*domains(var.kind), value_sort(var.kind))
    for act in of.actions.values():
        yield from act.params.values()


def _defined(path: str) -> type[Machine]:
    module = importlib.import_module(path)
    found = [item for item in vars(module).values() if isinstance(item, type) and issubclass(item, Machine)]
    own = [item for item in found if item.__module__ == path]
    if len(own) != 1:
        raise LookupError(f"{path} must define exactly one machine, not {len(own)}")
    return own[0]
