"""GitHub annotations: one line a failure, which the Actions runner shows at the change it belongs to.

`::error file=...,line=...,title=...::message`, in the runner's own escaping. The lines go to standard error, from which
the runner takes them too, so that a JSON document on standard output stays whole.
"""

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TextIO

if TYPE_CHECKING:
    from kvspec.language.machine import Machine


class Annotation(NamedTuple):
    """A failure. `file` is shown relative to the workspace, and left out where it is not inside of it."""

    title: str
    message: str
    file: Path | None = None
    line: int | None = None


def wanted(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a GitHub Actions runner reads the output."""
    return environment.get("GITHUB_ACTIONS") == "true"


def annotate(found: Iterable[Annotation], *, always: bool = False, out: TextIO | None = None) -> None:
    """Write the annotations, if a runner reads them or `always`; to standard error unless `out` is given."""
    if always or wanted():
        for each in found:
            print(line_of(each, workspace()), file=out or sys.stderr, flush=True)


def workspace(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder that paths are relative to: the checkout, or the current folder."""
    return Path(environment.get("GITHUB_WORKSPACE") or Path.cwd())


def line_of(found: Annotation, base: Path) -> str:
    """The annotation as the runner's workflow command."""
    properties = {}
    if found.file is not None:
        path = (base / found.file).resolve()
        if path.is_relative_to(base.resolve()):
            properties["file"] = path.relative_to(base.resolve()).as_posix()
            if found.line is not None:
                properties["line"] = str(found.line)
    properties["title"] = found.title
    told = ",".join(f"{name}={_property(text)}" for name, text in properties.items())
    return f"::error {told}::{_message(found.message)}"


def _message(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def law_place(machine: "type[Machine]", name: str) -> tuple[Path, int]:
    """The file and line of a law by its own name; of the machine's module where it has no such law."""
    law = machine.laws.get(name)
    if law is None:
        return Path(sys.modules[machine.__module__].__file__ or ""), 1
    code = law.body.__code__
    return Path(code.co_filename), code.co_firstlineno
