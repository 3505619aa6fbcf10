"""Failures on purpose: where an operation may raise, which of those lines a run has reached, and memory that runs out.

A *point* is a line of a package, as `module.function: the statement`. `failing_points` finds every line that raises or
calls a check in the code; `reached` notes the lines on the stack whenever an error of the package is made; an
`Injector` stops a call at its n-th line.
"""

import ast
import importlib.util
import linecache
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from kvspec_diff.plants import _functions


def failing_points(modules: Sequence[str], checks: Collection[str]) -> set[str]:
    """Every line of the modules' functions that raises, or calls one of the functions named, which may."""
    found = set()
    for module in modules:
        path = _path(module)
        with open(path, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        for name, function in _functions(tree, ""):
            for node in ast.walk(function):
                if _may_raise(node, checks):
                    found.add(point(module, name, path, node.lineno))  # type: ignore[attr-defined]
    return found


def _path(module: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    return spec.origin


def _may_raise(node: ast.AST, checks: Collection[str]) -> bool:
    match node:
        case ast.Raise(exc=ast.Call(func=ast.Name(id="Misuse" | "Refused"))):
            return True
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)):
            return name in checks
    return False


def point(module: str, function: str, path: str, line: int) -> str:
    """A line of code, by name and text: the same whatever else changes in the file."""
    return f"{module}.{function}: {linecache.getline(path, line).strip()}"


def _point_of(frame: FrameType, line: int) -> str:
    code = frame.f_code
    return point(str(frame.f_globals.get("__name__")), code.co_qualname, code.co_filename, line)


@contextmanager
def reached(package: str, *errors: type[Exception]) -> Iterator[set[str]]:
    """Notes the package's lines on the stack whenever one of its errors is made."""
    found: set[str] = set()
    for error in errors:
        setattr(error, "__init__", _noting(package, found))  # noqa: B010
    try:
        yield found
    finally:
        for error in errors:
            del error.__init__


def _noting(package: str, found: set[str]) -> Callable[..., None]:
    def note(self: Exception, *arguments: object) -> None:
        Exception.__init__(self, *arguments)
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if str(frame.f_globals.get("__name__")).split(".")[0] == package:
                found.add(_point_of(frame, frame.f_lineno))
            frame = frame.f_back

    return note


class NoMemory(MemoryError):
    """Memory that ran out on purpose."""


class Injector:
    """Raises `NoMemory` in place of the n-th line that a call runs in the functions of a package."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._left = 0
        self.point = ""
        """The line that was not run, or nothing."""

    def run(self, n: int, call: Callable[[], object]) -> bool:
        """Whether the call had an n-th line and was stopped there."""
        self._left, self.point = n, ""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            call()
        except NoMemory:
            pass
        finally:
            sys.settrace(before)
        return bool(self.point)

    def _enter(self, frame: FrameType, event: str, _: Any) -> Any:
        inside = str(frame.f_globals.get("__name__")).split(".")[0] == self._package
        return self._line if event == "call" and inside else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            self._left -= 1
            if self._left == 0:
                self.point = _point_of(frame, frame.f_lineno)
                raise NoMemory(self.point)
        return self._line
