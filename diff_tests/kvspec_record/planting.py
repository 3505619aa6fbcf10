"""Faults that are planted into an engine at run time, to see them found.

Each changes one line of one method of the installed release: the method's source is read, a fragment of it replaced,
and the result compiled in its place. So a fault is in the release's own code, whichever release it is.
"""

import inspect
import linecache
import sys
import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

from kvspec_record.caller import RequestError


class Plant(NamedTuple):
    """In `owner.method`, `old` becomes `new`."""

    owner: Any
    method: str
    old: str
    new: str


def plant(name: str, plants: Mapping[str, Plant]) -> None:
    """Plant the fault; `RequestError` when it is unknown or the release has no place for it."""
    if name not in plants:
        raise RequestError(f"unknown plant {name!r}: there are {', '.join(plants)}")
    owner, method, old, new = plants[name]
    place = owner if method in vars(owner) else next((base for base in owner.__mro__ if method in vars(base)), None)
    source = "" if place is None else textwrap.dedent(inspect.getsource(vars(place)[method]))
    if source.count(old) != 1:
        raise RequestError(f"this release has no place for {name}: {owner.__name__}.{method} is written otherwise")
    setattr(owner, method, compiled(place, method, source.replace(old, new)))


def compiled(owner: Any, method: str, source: str) -> Any:
    """The method as the source has it, in its module, with `super()` as in its class; tracebacks can show its lines."""
    wrapped = f"def make(__class__):\n{textwrap.indent(source, '    ')}\n    return {method}\n"
    file = f"<planted {owner.__name__}.{method}>"
    linecache.cache[file] = (len(wrapped), None, wrapped.splitlines(keepends=True), file)
    names: dict[str, Any] = {}
    exec(compile(wrapped, file, "exec"), vars(sys.modules[owner.__module__]), names)
    return names["make"](owner)
