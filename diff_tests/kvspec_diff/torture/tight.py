"""A real folder on a disk on which an operation fails on demand, as on a full or a read-only one."""

import errno
import os
from pathlib import Path
from typing import Any

from kvspec_torch.disk.files import Folder

CHANGES = ("create", "write", "sync", "rename", "sync_folder", "unlink")
"""What changes a folder."""


class Tight(Folder):
    """From the change of number `failing` on, so many of them fail with this error; a write that fails writes half."""

    def __init__(self, path: Path, failing: int = -1, many: int = 1, code: int = errno.ENOSPC) -> None:
        super().__init__(path)
        self.failing, self.many, self.code = failing, many, code
        self.changes = 0

    def create(self, name: str) -> None:
        self._change(name)
        super().create(name)

    def write(self, name: str, piece: Any) -> None:
        try:
            self._change(name)
        except OSError:
            super().write(name, piece[: len(piece) // 2])
            raise
        super().write(name, piece)

    def sync(self, name: str) -> None:
        self._change(name)
        super().sync(name)

    def rename(self, old: str, new: str) -> None:
        self._change(old)
        super().rename(old, new)

    def sync_folder(self) -> None:
        self._change("")
        super().sync_folder()

    def unlink(self, name: str) -> None:
        self._change(name)
        super().unlink(name)

    def _change(self, name: str) -> None:
        number, self.changes = self.changes, self.changes + 1
        if 0 <= self.failing <= number < self.failing + self.many:
            raise OSError(self.code, os.strerror(self.code), name)
