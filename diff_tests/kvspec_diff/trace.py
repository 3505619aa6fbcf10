"""Trace files: JSON Lines, a header, then one operation a line with the outcome that was observed, if any.

    {"kvspec":1,"machine":"deferred_free","configuration":{"pages":4,"page_size":1},"subject":"reference"}
    {"op":"start","row":"a","prompt":0,"outcome":{"status":"done"}}

Reading and writing stream, a line at a time. A file appears whole or not at all: it is written beside its place,
synced, then renamed. Whatever is wrong is one `TraceError` of one line, `file:line: what is wrong; what to do`.
"""

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from reprlib import repr as brief
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

import msgspec
from kvspec.operations import AnyOperation, Configuration, Outcome

from kvspec_diff.program import OPERATIONS, Names, Program, ProgramError, nearest

Built = TypeVar("Built", bound=msgspec.Struct)

FORMAT = 1
"""The version of the format that is written, and the only one that is read."""

LONGEST_LINE = 2**24
"""Bytes. A longer line is not read, so that a wrong file cannot fill the memory; none is written."""

MACHINES = ("deferred_free",)
"""The machines that a trace may be a run of."""


class TraceError(Exception):
    """A trace that cannot be read or written; `str` is one line that begins with the file and, if known, the line."""

    def __init__(self, path: Path | str, line: int | None, text: str) -> None:
        place = str(path) if line is None else f"{path}:{line}"
        super().__init__(" ".join(f"{place}: {text}".split("\n")))


class Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True):
    """A trace's first line. `subject` says what ran it, `law` what it breaks, `note` why it is kept."""

    kvspec: int
    machine: str
    configuration: Configuration
    subject: str = ""
    law: str = ""
    note: str = ""


class Trace(msgspec.Struct, frozen=True):
    """A program and, operation by operation, what was observed (None where nothing was)."""

    header: Header
    operations: tuple[AnyOperation, ...]
    outcomes: tuple[Outcome | None, ...]

    @property
    def program(self) -> Program:
        """What to run, on any subject."""
        return Program(self.header.configuration, self.operations)


def header(configuration: Configuration, *, subject: str = "", law: str = "", note: str = "") -> Header:
    """A header of the format that is written."""
    return Header(kvspec=FORMAT, machine=MACHINES[0], configuration=configuration, subject=subject, law=law, note=note)


def read(path: Path | str) -> Trace:
    """Read and check a whole trace; `TraceError` for anything wrong with it."""
    first, steps = stream(path)
    pairs = list(steps)
    return Trace(first, tuple(operation for operation, _ in pairs), tuple(outcome for _, outcome in pairs))


def stream(path: Path | str) -> tuple[Header, Iterator[tuple[AnyOperation, Outcome | None]]]:
    """The header, read and checked, and the steps as they are asked for; either raises `TraceError`."""
    lines = _lines(Path(path))
    line = next(lines, None)
    if line is None:
        raise TraceError(path, 1, "the file is empty; a trace begins with a header line")
    try:
        first = _header(line)
    except ValueError as error:
        raise TraceError(path, 1, str(error)) from None
    return first, _steps(Path(path), lines)


def write(path: Path | str, trace: Trace) -> None:
    """Write a whole trace; `TraceError`, and no file, when that fails."""
    with Writer(path, trace.header) as writer:
        for operation, outcome in zip(trace.operations, trace.outcomes, strict=True):
            writer.add(operation, outcome)


class Writer:
    """Writes a trace step by step, in a `with`: the file appears when it ends well and never when it does not."""

    def __init__(self, path: Path | str, first: Header) -> None:
        self._path = Path(path)
        self._part = self._path.with_name(f".{self._path.name}.{secrets.token_hex(4)}.part")
        self._header = first
        self._lines = 0
        self._file: BinaryIO | None = None

    def __enter__(self) -> Self:
        if self._path.exists() and not self._path.is_file():
            raise TraceError(self._path, None, "is not a file; give the name of a file to write")
        try:
            self._file = self._part.open("xb")
            self._put(msgspec.json.encode(self._header))
        except BaseException as error:
            self._discard()
            raise self._explained(error) from None
        return self

    def add(self, operation: AnyOperation, outcome: Outcome | None = None) -> None:
        """Append one step."""
        fields = msgspec.to_builtins(operation)
        if outcome is not None:
            fields["outcome"] = _outcome_fields(outcome)
        self._put(msgspec.json.encode(fields))

    def _put(self, line: bytes) -> None:
        assert self._file is not None, "a Writer is used in a with statement"
        self._lines += 1
        if len(line) >= LONGEST_LINE:
            problem = f"the line would have {len(line)} bytes, the most is {LONGEST_LINE}; use a smaller pool"
            raise TraceError(self._path, self._lines, problem)
        try:
            self._file.write(line + b"\n")
        except OSError as error:
            raise self._explained(error) from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._file is not None, "a Writer is used in a with statement"
        if kind is not None:
            self._discard()
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._part, self._path)
            _sync_folder(self._path.parent)
        except BaseException as failure:
            self._discard()
            raise self._explained(failure) from None

    def _discard(self) -> None:
        """Close and remove what was written so far; a second failure has nothing to add to the first."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError:
                self._file = None
        self._part.unlink(missing_ok=True)

    def _explained(self, error: BaseException) -> BaseException:
        if isinstance(error, OSError):
            return TraceError(self._path, None, f"cannot be written ({error.strerror}); nothing was left there")
        return error


def _sync_folder(folder: Path) -> None:
    """Make a rename in `folder` last."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _outcome_fields(outcome: Outcome) -> dict[str, Any]:
    """The outcome without what is empty, to keep lines short."""
    fields: dict[str, Any] = msgspec.to_builtins(outcome)
    optional = {"blank", "available"}
    return {name: value for name, value in fields.items() if value or (name in optional and value is not None)}


def _lines(path: Path) -> Iterator[bytes]:
    """The file's lines without their ends."""
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise TraceError(path, number, f"a line of more than {LONGEST_LINE} bytes; this is no trace")
                yield line
    except OSError as error:
        raise TraceError(path, None, f"cannot be read ({error.strerror})") from None


def _steps(path: Path, lines: Iterator[bytes]) -> Iterator[tuple[AnyOperation, Outcome | None]]:
    names = Names()
    for number, line in enumerate(lines, start=2):
        try:
            operation, outcome = _step(line)
            problem = names.meet(operation)
            if problem:
                raise ValueError(problem)
        except ValueError as error:
            raise TraceError(path, number, str(error)) from None
        yield operation, outcome


def _parse(line: bytes) -> dict[str, Any]:
    """A line's JSON object."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start + 1} of the line; save the file as UTF-8") from None
    if not text.strip():
        raise ValueError("an empty line; delete it")
    try:
        data = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        if not text.endswith("\n"):
            raise ValueError("the file ends in the middle of this line; complete it or delete it") from None
        raise ValueError(f"not JSON ({_plain(error)}); each line is one JSON object") from None
    if not isinstance(data, dict):
        raise ValueError(f"not a JSON object but {type(data).__name__}; each line is one JSON object")
    return data


def _header(line: bytes) -> Header:
    data = _parse(line)
    version = data.get("kvspec")
    if version is None:
        raise ValueError(f'not a header: no "kvspec"; a trace begins with {{"kvspec":{FORMAT},"machine":…}}')
    if version != FORMAT or version is True:
        raise ValueError(f"format version {brief(version)} is not supported; this kvspec reads version {FORMAT}")
    first = _build(data, Header, "the header")
    if first.machine not in MACHINES:
        raise ValueError(f"unknown machine {brief(first.machine)}{nearest(first.machine[:64], MACHINES)}")
    try:
        Program(first.configuration).validate()
    except ProgramError as error:
        raise ValueError(str(error)) from None
    return first


def _step(line: bytes) -> tuple[AnyOperation, Outcome | None]:
    data = _parse(line)
    observed = data.pop("outcome", None)
    name = data.get("op")
    if name is None:
        raise ValueError('no "op"; each line after the header names an operation')
    if not isinstance(name, str) or name not in OPERATIONS:
        raise ValueError(f"unknown operation {brief(name)}{nearest(str(name)[:64], OPERATIONS)}")
    operation = _build(data, OPERATIONS[name], repr(name))
    if observed is None:
        return operation, None
    if not isinstance(observed, dict):
        raise ValueError(f"the outcome of {name!r} is not a JSON object")
    return operation, _build(observed, Outcome, f"the outcome of {name!r}")


def _build(data: dict[str, Any], kind: type[Built], what: str) -> Built:
    """`data` as a `kind`, or a `ValueError` that names the field."""
    known = kind.__struct_fields__
    for field in data:
        if field not in known and field != kind.__struct_config__.tag_field:
            near = nearest(field[:64], known)
            raise ValueError(f"{what} has no field {brief(field)}{near}; its fields: {', '.join(known)}")
    missing = [field.name for field in msgspec.structs.fields(kind) if field.required and field.name not in data]
    if missing:
        raise ValueError(f"{what} lacks {', '.join(map(repr, missing))}; its fields: {', '.join(known)}")
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise ValueError(f"{what}: {_plain(error)}") from None


def _plain(error: BaseException) -> str:
    """A decoder's message in the words of a trace: `Expected `int`, got `str` - at `$.tokens`` becomes plain text."""
    return str(error).replace(" - at `$.", " at `").replace("`", "")
