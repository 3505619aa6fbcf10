"""Bad input, and what is said of it: one line with what is wrong, where, and what to do. Exit status 2."""

import math
from collections.abc import Iterable

from kvspec_diff.program import nearest


class BadInput(Exception):
    """What the user gave cannot be used; the text is one line."""


def unknown(kind: str, name: str, known: Iterable[str]) -> BadInput:
    """`unknown subject 'page' (did you mean 'pages'?); there are pages, read_law, deferred_free`."""
    names = list(known)
    return BadInput(f"unknown {kind} {name!r}{nearest(name, names)}; there are {', '.join(names)}")


def number(value: float) -> str:
    """As the option takes it: `60`, `0.5`, and 1000000 traces are not `1e+06`."""
    return str(int(value)) if math.isfinite(value) and value == int(value) else str(value)


def positive(option: str, value: float | None, *, or_zero: bool = False) -> None:
    """Refuse an option's number that is not finite and above 0, or 0 where that has a meaning."""
    if value is not None and not (math.isfinite(value) and (value > 0 or (or_zero and value == 0))):
        raise BadInput(f"{option} is {number(value)}; give a number above 0{', or 0 for none' * or_zero}")


def explained(error: BaseException) -> str | None:
    """The line that a known error becomes, or None for one that nobody foresaw."""
    from cyclopts import CycloptsError
    from kvspec_diff.recipes import EngineError
    from kvspec_diff.subject import WorkerFault
    from kvspec_diff.trace import TraceError

    if isinstance(error, BadInput | EngineError | TraceError | WorkerFault):
        return " ".join(str(error).split())
    if isinstance(error, CycloptsError):
        text = " ".join(str(error).split())
        command = " ".join(("kvspec", *(error.command_chain or ())))
        return text if "Available commands" in text else f"{text} Try `{command} --help`."
    if isinstance(error, OSError):
        place = f"{error.filename}: " if error.filename else ""
        return f"{place}{error.strerror or error}"
    return None
