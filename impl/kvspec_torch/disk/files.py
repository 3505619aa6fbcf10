"""The few things that a store asks of a folder, done on a real one (T1, T4). The contract is `kvspec_reference.files`.

A `Files` layer is one folder of plain files. The store creates a file under a temporary name, appends to it, syncs it,
renames it, syncs the folder; it lists, reads and unlinks. Nothing else. A name is a plain name inside the folder: no
path that was read from a file reaches the operating system.

Data are memoryviews of bytes; nothing is copied on the way to the operating system or back.
"""

import errno
import os
import re
import stat
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import numpy as np

from kvspec_torch.errors import Misuse

NAME = re.compile(r"[0-9a-z][0-9a-z._-]{0,99}")
"""What a name may be: lower case, no separator, no leading dot."""

PIECES = 512
"""So many pieces are read by one call of the operating system, which takes at most 1,024."""


class Files(Protocol):
    """One folder. Every method may raise `OSError`; then it did nothing, but `write` may have written a part."""

    def create(self, name: str) -> None:
        """Make an empty file; the name must be new."""

    def write(self, name: str, piece: memoryview) -> None:
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

    def read(self, name: str) -> memoryview:
        """All bytes of a file, in a buffer that is the caller's."""

    def read_into(self, name: str, pieces: Sequence[memoryview]) -> bool:
        """Fill these pieces with a file, one after the other; False, and anything in them, if they are not its size."""

    def head(self, name: str, most: int) -> tuple[bytes, int]:
        """At most so many bytes from the start of a file, and how many bytes it has."""

    def size(self, name: str) -> int:
        """How many bytes a file has."""


def legal(name: str) -> str:
    """The name, if it is a plain one. Raises `Misuse` otherwise."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Misuse(f"{name!r} is no plain file name")
    return name


def buffer(size: int) -> memoryview:
    """So many bytes of memory, with anything in them."""
    return np.empty(size, np.uint8).data


class Folder:
    """A real directory, held open: what is renamed or linked around it does not matter. Links inside are refused."""

    def __init__(self, path: Path | str) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        self._written: dict[str, int] = {}  # files created here, still open: an error of a write is not forgotten

    def close(self) -> None:
        """Let go of the directory and of all files."""
        for name in list(self._written):
            self._let_go(name)
        if self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1

    def create(self, name: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW
        handle = os.open(legal(name), flags, 0o644, dir_fd=self.descriptor)
        self._let_go(name)  # whose file somebody deleted
        self._written[name] = handle

    def write(self, name: str, piece: memoryview) -> None:
        handle, rest = self._handle(name), piece
        while rest:
            rest = rest[os.write(handle, rest) :]

    def sync(self, name: str) -> None:
        os.fsync(self._handle(name))

    def rename(self, old: str, new: str) -> None:
        os.rename(legal(old), legal(new), src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)
        for name in (old, new):  # a file that had the new name is in the folder no more
            self._let_go(name)

    def sync_folder(self) -> None:
        os.fsync(self.descriptor)

    def unlink(self, name: str) -> None:
        os.unlink(legal(name), dir_fd=self.descriptor)
        self._let_go(name)

    def names(self) -> list[str]:
        with os.scandir(self.descriptor) as entries:
            return sorted(
                each.name for each in entries if NAME.fullmatch(each.name) and each.is_file(follow_symlinks=False)
            )

    def read(self, name: str) -> memoryview:
        handle, size = self._open(name)
        try:
            data = buffer(size)
            found = _fill(handle, [data])
        finally:
            os.close(handle)
        return data[:found]

    def pieces(self, name: str, most: int) -> Generator[tuple[memoryview, int], None, None]:
        """A file in pieces of at most so many bytes, each gone with the next, and how many bytes the file had at first.

        A file of no bytes has one piece, an empty one.
        """
        handle, size = self._open(name)
        try:
            data = buffer(min(most, size))
            found = _fill(handle, [data])
            yield data[:found], size
            while found == len(data) and found:
                found = _fill(handle, [data])
                yield data[:found], size
        finally:
            os.close(handle)

    def read_into(self, name: str, pieces: Sequence[memoryview]) -> bool:
        handle, size = self._open(name)
        try:
            return size == sum(map(len, pieces)) == _fill(handle, pieces)
        finally:
            os.close(handle)

    def head(self, name: str, most: int) -> tuple[bytes, int]:
        handle, size = self._open(name)
        try:
            data = buffer(min(most, size))
            return bytes(data[: _fill(handle, [data])]), size
        finally:
            os.close(handle)

    def size(self, name: str) -> int:
        found = os.stat(legal(name), dir_fd=self.descriptor, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, "not a plain file", name)
        return found.st_size

    def _open(self, name: str) -> tuple[int, int]:
        """A file opened to be read, and its size."""
        handle = os.open(legal(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self.descriptor)
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            os.close(handle)
            raise OSError(errno.EINVAL, "not a plain file", name)
        return handle, found.st_size

    def _handle(self, name: str) -> int:
        if legal(name) not in self._written:
            raise Misuse(f"{name}: was not created here, or has its final name")
        return self._written[name]

    def _let_go(self, name: str) -> None:
        if name in self._written:
            with suppress(OSError):  # what was not written `sync` says; the rename or unlink before has been done
                os.close(self._written.pop(name))


def _fill(handle: int, pieces: Sequence[memoryview]) -> int:
    """Read into these pieces, one after the other, till they are full or the file ends. How many bytes were read."""
    rest, total = [piece for piece in pieces if len(piece)], 0
    while rest:
        found = os.readv(handle, rest[:PIECES])
        if not found:
            break
        total += found
        full = 0
        while full < len(rest) and found >= len(rest[full]):
            found -= len(rest[full])
            full += 1
        rest = rest[full:]
        if rest and found:
            rest[0] = rest[0][found:]
    return total
