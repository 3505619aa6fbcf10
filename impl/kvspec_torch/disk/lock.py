"""One process at a time writes to a store's folder: a lock that the operating system takes back with the process."""

import fcntl
import os
import stat
import weakref
from contextlib import suppress

from kvspec_torch.errors import Refused

NAME = "lock"
KINDS = {stat.S_IFDIR: "a folder", stat.S_IFLNK: "a link", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}


class Lock:
    """The lock of the folder that this descriptor is of, held from the start until `release`.

    Raises `Refused`, which names the folder as `where`, if another store has it, or if no file can be made there.
    """

    def __init__(self, folder: int, where: str) -> None:
        self._handle, flags = -1, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        try:
            self._handle = os.open(NAME, flags, 0o644, dir_fd=folder)
        except OSError as error:
            _plain(folder, where)
            raise Refused(f"{where} cannot be written, it can only be read: {error}") from error
        try:
            _plain(folder, where)
        except BaseException:
            self.release()
            raise
        _held.add(self)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            other = self._other()
            self.release()
            busy = isinstance(error, BlockingIOError)
            raise Refused(f"{where} is in use by process {other}" if busy else f"{where}: {error}") from error
        with suppress(OSError):  # the lock is held without the number, too, as on a full disk
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Let go of it; that is all right more than once."""
        if self._handle >= 0:
            _held.discard(self)
            os.close(self._handle)
        self._handle = -1

    def _other(self) -> str:
        with suppress(OSError):
            return os.pread(self._handle, 20, 0).decode("ascii", "replace").strip() or "unknown"
        return "unknown"


def _plain(folder: int, where: str) -> None:
    """Raises `Refused` if what has the name of the lock is no plain file: another process would not see it held."""
    with suppress(OSError):
        mode = os.stat(NAME, dir_fd=folder, follow_symlinks=False).st_mode
        if not stat.S_ISREG(mode):
            what = KINDS.get(stat.S_IFMT(mode), "no plain file")
            raise Refused(f"{where}: {NAME} in it is {what}, a plain file is wanted: take it away")


_held: "weakref.WeakSet[Lock]" = weakref.WeakSet()


def _forked() -> None:
    """A child does not keep its parent's locks alive; what it closes here its parent still has."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_forked)
