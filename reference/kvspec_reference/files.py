"""The few things that a store asks of a folder, done on a real one or recorded in memory (T1, T4).

A `Files` layer is one folder of plain files. The store creates a file under a temporary name, appends to it piece by
piece, syncs it, renames it, syncs the folder; it lists, reads and unlinks. Nothing else. A name is a plain name inside
the folder: no path that was read from a file reaches the operating system.

`Recording` keeps the order of everything and knows what a loss of power could leave at any point. It is more hostile
than any one file system: what POSIX does not promise, it takes away.
"""

import errno
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Protocol

from kvspec.operations import Misuse

NAME = re.compile(r"[0-9a-z][0-9a-z._-]{0,99}")
"""What a name may be: lower case, no separator, no leading dot."""


class Files(Protocol):
    """One folder. Every method may raise `OSError`; then it did nothing, but `write` may have written a part."""

    def create(self, name: str) -> None:
        """Make an empty file; the name must be new."""

    def write(self, name: str, piece: bytes) -> None:
        """Append a piece to a file that was created here."""

    def sync(self, name: str) -> None:
        """Bring the contents of a file that was created here to the disk."""

    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in place of whatever had it."""

    def sync_folder(self) -> None:
        """Bring the folder's names to the disk."""

    def unlink(self, name: str) -> None:
        """Take a name out of the folder."""

    def names(self) -> list[str]:
        """The plain files of the folder whose names are legal, sorted."""

    def read(self, name: str) -> bytes:
        """All bytes of a file."""

    def size(self, name: str) -> int:
        """How many bytes a file has."""


def legal(name: str) -> str:
    """The name, if it is a plain one. Raises `Misuse` otherwise."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Misuse(f"{name!r} is no plain file name")
    return name


class Folder:
    """A real directory, held open: what is renamed or linked around it does not matter. Links inside are refused."""

    def __init__(self, path: Path | str) -> None:
        self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self._written: dict[str, int] = {}  # files created here, still open: an error of a write is not forgotten

    def close(self) -> None:
        """Let go of the directory and of all files."""
        for name in list(self._written):
            self._let_go(name)
        os.close(self._folder)

    def create(self, name: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
        self._written[name] = os.open(legal(name), flags, 0o644, dir_fd=self._folder)

    def write(self, name: str, piece: bytes) -> None:
        handle, rest = self._handle(name), memoryview(piece)
        while rest:
            rest = rest[os.write(handle, rest) :]

    def sync(self, name: str) -> None:
        os.fsync(self._handle(name))

    def rename(self, old: str, new: str) -> None:
        os.rename(legal(old), legal(new), src_dir_fd=self._folder, dst_dir_fd=self._folder)
        for name in (old, new):  # a file that had the new name is in the folder no more
            self._let_go(name)

    def sync_folder(self) -> None:
        os.fsync(self._folder)

    def unlink(self, name: str) -> None:
        os.unlink(legal(name), dir_fd=self._folder)
        self._let_go(name)

    def names(self) -> list[str]:
        with os.scandir(self._folder) as entries:
            return sorted(each.name for each in entries if NAME.fullmatch(each.name) and self._is_plain(each))

    def read(self, name: str) -> bytes:
        handle = os.open(legal(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._folder)
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "not a plain file", name)
            return file.read()

    def size(self, name: str) -> int:
        found = os.stat(legal(name), dir_fd=self._folder, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", name)
        return found.st_size

    @staticmethod
    def _is_plain(entry: "os.DirEntry[str]") -> bool:
        return entry.is_file(follow_symlinks=False)

    def _handle(self, name: str) -> int:
        if legal(name) not in self._written:
            raise Misuse(f"{name}: was not created here, or has its final name")
        return self._written[name]

    def _let_go(self, name: str) -> None:
        if name in self._written:
            os.close(self._written.pop(name))


@dataclass
class Contents:
    """What a file holds: what is on the disk for certain, then the pieces written since it was synced."""

    firm: bytes = b""
    loose: tuple[bytes, ...] = ()

    def now(self) -> bytes:
        """All of it."""
        return self.firm + b"".join(self.loose)

    def after_loss(self, cuts: int) -> set[bytes]:
        """What a loss of power may leave.

        Of each loose piece nothing, all, or one of `cuts` - 1 equal parts from its start; what is missing before
        something that is there reads as zeros, and the length may have come to the disk without the contents.
        """
        found = set()
        for kept in product(range(cuts + 1), repeat=len(self.loose)):
            whole, end = b"", 0
            for piece, n in zip(self.loose, kept, strict=True):
                part = piece[: len(piece) * n // cuts]
                end = len(whole) + len(part) if part else end
                whole += part.ljust(len(piece), b"\0")
            found |= {self.firm + whole, self.firm + whole[:end]}
        return found


@dataclass(frozen=True)
class Point:
    """The folder between two operations: by name everything it may stand for after a loss of power, the latest last."""

    names: Mapping[str, tuple[Contents | None, ...]]

    def after_loss(self, cuts: int = 2) -> Iterator[dict[str, bytes]]:
        """Every folder that a loss of power here may leave: each name and each contents for itself."""
        choices = []
        for history in self.names.values():
            found: set[bytes | None] = set()
            for contents in history:
                found |= {None} if contents is None else contents.after_loss(cuts)
            choices.append(sorted(found, key=lambda each: (each is not None, each or b"")))
        for chosen in product(*choices):
            yield {name: each for name, each in zip(self.names, chosen, strict=True) if each is not None}


class Killed(BaseException):
    """The process ends here; what it asked of the operating system stays asked."""


@dataclass
class Recording:
    """A folder in memory. `points` has one point before the first operation and one after each.

    An operation whose number, counted from the last `plan`, is in `failing` raises `OSError`; a write that fails writes
    half. The operation of number `killing` raises `Killed` in place of being done.
    """

    folder: dict[str, Contents] = field(default_factory=dict)
    log: list[tuple[str, ...]] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    failing: frozenset[int] = frozenset()
    killing: int | None = None
    _number: int = 0
    _histories: dict[str, tuple[Contents | None, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._histories = {name: (contents,) for name, contents in self.folder.items()}
        self._mark()

    @classmethod
    def of(cls, state: Mapping[str, bytes]) -> "Recording":
        """A folder found after a loss of power: all of it is on the disk."""
        return cls({name: Contents(data) for name, data in state.items()})

    def plan(self, failing: frozenset[int] = frozenset(), killing: int | None = None) -> None:
        """What goes wrong from here on."""
        self.failing, self.killing, self._number = failing, killing, 0

    def create(self, name: str) -> None:
        self._begin("create", name)
        if legal(name) in self.folder:
            raise FileExistsError(errno.EEXIST, "is there already", name)
        self._show(name, Contents())
        self._end("create", name)

    def write(self, name: str, piece: bytes) -> None:
        contents = self._there(name)
        try:
            self._begin("write", name)
        except OSError:
            contents.loose += (piece[: len(piece) // 2],)
            self._end("write", name, "half")
            raise
        contents.loose += (bytes(piece),)
        self._end("write", name)

    def sync(self, name: str) -> None:
        contents = self._there(name)
        self._begin("sync", name)
        contents.firm, contents.loose = contents.now(), ()
        self._end("sync", name)

    def rename(self, old: str, new: str) -> None:
        contents = self._there(old)
        legal(new)
        self._begin("rename", old)
        del self.folder[old]
        self._histories[old] += (None,)
        self._show(new, contents)
        self._end("rename", old, new)

    def sync_folder(self) -> None:
        self._begin("sync_folder")
        self._histories = {name: (contents,) for name, contents in self.folder.items()}
        self._end("sync_folder")

    def unlink(self, name: str) -> None:
        self._there(name)
        self._begin("unlink", name)
        del self.folder[name]
        self._histories[name] += (None,)
        self._end("unlink", name)

    def names(self) -> list[str]:
        self._begin("names")
        return sorted(self.folder)

    def read(self, name: str) -> bytes:
        contents = self._there(name)
        self._begin("read", name)
        return contents.now()

    def size(self, name: str) -> int:
        contents = self._there(name)
        self._begin("size", name)
        return len(contents.now())

    def _there(self, name: str) -> Contents:
        if legal(name) not in self.folder:
            raise FileNotFoundError(errno.ENOENT, "is not there", name)
        return self.folder[name]

    def _show(self, name: str, contents: Contents) -> None:
        self.folder[name] = contents
        self._histories[name] = (*self._histories.get(name, (None,)), contents)

    def _begin(self, operation: str, name: str = "") -> None:
        number, self._number = self._number, self._number + 1
        if number == self.killing:
            raise Killed(f"killed at {operation} {name}")
        if number in self.failing:
            raise OSError(errno.EIO, f"{operation} fails on purpose", name)

    def _end(self, *operation: str) -> None:
        self.log.append(operation)
        self._mark()

    def _mark(self) -> None:
        """Keep what may become of every name: contents change later, so they are copied."""
        copies: dict[int, Contents] = {}
        for history in self._histories.values():
            copies.update({id(each): Contents(each.firm, each.loose) for each in history if each is not None})
        names = {
            name: tuple(None if each is None else copies[id(each)] for each in history)
            for name, history in self._histories.items()
        }
        self.points.append(Point(names))
