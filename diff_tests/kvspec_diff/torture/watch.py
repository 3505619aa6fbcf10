"""What a reader touches and how much it takes, while it reads what is damaged."""

import contextlib
import os
import resource
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kvspec_torch.disk.files import NAME

PATHS = {
    "open", "os.chmod", "os.chown", "os.link", "os.listdir", "os.mkdir", "os.remove", "os.rename", "os.rmdir",
    "os.scandir", "os.symlink", "os.truncate", "os.utime", "os.chdir", "shutil.rmtree", "tempfile.mkstemp",
}  # fmt: skip
"""Events of Python that have paths."""
OTHERS = ("subprocess.", "socket.", "os.exec", "os.posix_spawn", "os.system", "ctypes.", "import")

_watches: list["Watch"] = []
_hooked = False


class Watch:
    """In a `with`: `strange` has each event that touches anything but plain files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.seen = 0
        self.strange: list[str] = []

    def __enter__(self) -> "Watch":
        global _hooked
        if not _hooked:  # a hook stays for the life of the process
            _hooked = True
            sys.addaudithook(_hook)
        _watches.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _watches.remove(self)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        """One event."""
        if event.startswith(OTHERS):
            self.strange.append(f"{event}{arguments[:2]}")
        elif event in PATHS:
            self.seen += 1
            for path in arguments[:2] if event in ("os.rename", "os.link", "os.symlink") else arguments[:1]:
                if not self._inside(path):
                    self.strange.append(f"{event}({path!r})")

    def _inside(self, path: Any) -> bool:
        if isinstance(path, int):
            return True
        name = os.fsdecode(path)
        if NAME.fullmatch(name):
            return True  # in a folder that is held open
        return name == self.folder or (os.path.dirname(name) == self.folder and ".." not in name)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    for watch in _watches:
        watch.hear(event, arguments)


@contextlib.contextmanager
def limited(more: int) -> Iterator[None]:
    """In a `with`: this process cannot take more than so many bytes of addresses beyond what it has."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * os.sysconf("SC_PAGE_SIZE") + more, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


class Taken:
    """The most bytes that Python and NumPy took at once during a call."""

    def __enter__(self) -> "Taken":
        tracemalloc.start()
        return self

    def __exit__(self, *_: object) -> None:
        tracemalloc.stop()

    def begin(self) -> None:
        """Count from here on."""
        tracemalloc.reset_peak()
        self._before = tracemalloc.get_traced_memory()[0]

    def most(self) -> int:
        """Since then."""
        return tracemalloc.get_traced_memory()[1] - self._before
