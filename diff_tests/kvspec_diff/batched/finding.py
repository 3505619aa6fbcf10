"""Findings: a case on a release, the fault that it shows, and why; as files."""

from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from kvspec_diff.batched.fault import Fault
from kvspec_diff.recipes import EngineError


class Asked(Protocol):
    """A case: what is asked, one of the `KINDS` that its type is for."""

    KINDS: ClassVar[tuple[str, ...]]

    @property
    def do(self) -> str:
        """The kind of question."""

    @property
    def question(self) -> dict[str, Any]:
        """As the worker takes it."""

    def check(self, table: Any, release: str) -> None:
        """Raise `EngineError` for what the release has not got."""

    @property
    def weight(self) -> tuple[int, int, int]:
        """What makes one case smaller than another."""


C = TypeVar("C", bound=Asked)


class Finding(msgspec.Struct, Generic[C], frozen=True, forbid_unknown_fields=True):
    """A case on a release, the fault that it shows, and, when it is known, why and where that was reported."""

    engine: str
    version: str
    fault: Fault
    case: C
    explanation: str = ""
    upstream: str = ""


class _Case(msgspec.Struct):
    do: str


class _Head(msgspec.Struct):
    engine: str
    version: str
    case: _Case


def _decoded(path: Path, kind: type) -> object:
    if path.exists() and not path.is_file() and not path.is_dir():
        raise EngineError(f"{path}: is a pipe or a device: a finding is a file")
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise EngineError(f"{path}: {error.strerror}") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise EngineError(f"{path}: no finding that kvspec has written: {' '.join(str(error).split())}") from error


def release_and_kind(path: Path) -> tuple[str, str]:
    """The release on which a finding was made, as in `vllm==0.26.0`, and the kind of its case."""
    head = _decoded(path, _Head)
    assert isinstance(head, _Head)
    return f"{head.engine}=={head.version}", head.case.do


def read(path: Path, case: type[C]) -> Finding[C]:
    """A finding from its file; `EngineError` for one that is malformed."""
    found = _decoded(path, Finding[case])  # type: ignore[valid-type]
    assert isinstance(found, Finding)
    return found


def write(path: Path, finding: Finding[C]) -> None:
    """Write the file."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(finding)) + b"\n")


def known(engine: str, version: str, case: type[C], folder: Path | None = None) -> list[tuple[str, Finding[C]]]:
    """The known findings of a release with such a case, by their files' names, from the package or another `folder`."""
    with as_file(files("kvspec_diff") / "findings") as own:
        paths = sorted(((folder or own) / engine / version).glob("*.json"))
        return [(path.stem, read(path, case)) for path in paths if release_and_kind(path)[1] in case.KINDS]
