"""Planted faults: with each of them its part has to fail. `kvspec store torture --planted NAME`."""

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from kvspec_diff.torture.figures import Part


class Plant(NamedTuple):
    """A fault: the part that finds it, as what, what it is, and what puts it into this process."""

    part: str
    found: str
    what: str
    put: Callable[[], None]


def plant(name: str, part: str) -> None:
    """Plant a fault in this process, if it is one of this part."""
    if name and PLANTS[name].part == part:
        PLANTS[name].put()


def caught(name: str, part: Part) -> bool:
    """Whether a part with this fault says so."""
    return not part.ok and getattr(part, PLANTS[name].found) > 0


class Without:
    """A folder that does not do one thing."""

    def __init__(self, files: Any, undone: str) -> None:
        self._files, self._undone = files, undone

    def __getattr__(self, name: str) -> Any:
        return (lambda *_: None) if name == self._undone else getattr(self._files, name)


def _without(undone: str) -> Callable[[], None]:
    def put() -> None:
        from kvspec_diff.torture import power

        power.wrap = lambda files: Without(files, undone)

    return put


def _early() -> None:
    from kvspec_torch.block_store import BlockStore
    from kvspec_torch.disk.reports import Report

    def flush(self: BlockStore) -> list[Report]:
        return [Report("acknowledged", key, acknowledged=(key,)) for key in list(self._core.queue)]

    BlockStore.flush = flush  # type: ignore[method-assign]


def _in_place() -> None:
    from kvspec_torch.disk.files import Folder

    def rename(self: Folder, old: str, new: str) -> None:
        data = self.read(old)
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644, dir_fd=self.descriptor)
        os.write(handle, data[: len(data) // 2])
        time.sleep(0.002)
        os.write(handle, data[len(data) // 2 :])
        os.close(handle)
        self.unlink(old)

    Folder.rename = rename  # type: ignore[method-assign]


def _kept() -> None:
    from kvspec_torch.disk.files import Folder
    from kvspec_torch.store import TEMPORARY

    unlink = Folder.unlink
    Folder.unlink = lambda self, name: None if name.endswith(TEMPORARY) else unlink(self, name)  # type: ignore[method-assign]


class Alike(bytes):
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _unchecked() -> None:
    from kvspec_torch import entry_format

    checksum = entry_format.checksum
    entry_format.checksum = lambda pieces: Alike(checksum(pieces))


def _greedy() -> None:
    from kvspec_torch.disk.files import Folder, buffer

    head = Folder.head

    def reads(self: Folder, name: str, most: int) -> tuple[bytes, int]:
        data, size = head(self, name, most)
        buffer(int.from_bytes(data[:8], "little"))  # as long as the header says that it is
        return data, size

    Folder.head = reads  # type: ignore[method-assign]


def _astray() -> None:
    from kvspec_torch.entry_format import Format

    read = Format.read

    def reads(self: Format, data: memoryview, *more: Any) -> Any:
        with open("/dev/null", "rb"):
            return read(self, data, *more)

    Format.read = reads  # type: ignore[method-assign,assignment]


def _deaf() -> None:
    from kvspec_torch.disk.reports import Report
    from kvspec_torch.store import Store

    write_next = Store.write_next

    def writes(self: Store) -> Report:
        report = write_next(self)
        if report.status == "failed" and report.key is not None:
            return Report("acknowledged", report.key, acknowledged=(report.key,))
        return report

    Store.write_next = writes  # type: ignore[method-assign]


def _unlocked() -> None:
    import fcntl

    fcntl.flock = lambda *_: None


PLANTS: dict[str, Plant] = {
    "no-fsync": Plant("power", "misread", "files are not synced before they get their name", _without("sync")),
    "no-folder-sync": Plant("power", "lost", "entries are acknowledged before the folder is synced",
                            _without("sync_folder")),
    "early": Plant("kills", "lost", "entries are acknowledged when they are queued", _early),
    "in-place": Plant("kills", "misread", "entries are written in place", _in_place),
    "kept": Plant("kills", "failed", "temporary files are left at opening", _kept),
    "unchecked": Plant("damage", "misread", "the checksum is not compared", _unchecked),
    "greedy": Plant("damage", "failed", "as much memory is taken as a header says", _greedy),
    "astray": Plant("damage", "failed", "the reader opens a file outside of the folder", _astray),
    "deaf": Plant("disk", "failed", "a write that failed is taken for done", _deaf),
    "unlocked": Plant("disk", "failed", "nobody has the folder for himself", _unlocked),
}  # fmt: skip
