"""Planted faults: with each of them its part fails."""

from collections.abc import Callable

PLANTS: dict[str, tuple[str, Callable[[], None]]] = {}


def plant(name: str, part: str) -> None:
    """Plant a fault in this process, if it is one of this part."""
    if name and PLANTS[name][0] == part:
        PLANTS[name][1]()
