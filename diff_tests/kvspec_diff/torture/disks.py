"""A full disk, a read-only folder, two processes on one store: a clear error or correct service, nothing lost (T6)."""

import contextlib
import errno
import os
import resource
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

from kvspec_torch.block_store import BlockStore
from kvspec_torch.blocks import Block
from kvspec_torch.disk.files import Files
from kvspec_torch.entry_format import Miss, chain
from kvspec_torch.errors import Misuse, Refused

from kvspec_diff.torture import toys
from kvspec_diff.torture.figures import Part, Tally, Tell
from kvspec_diff.torture.tight import Tight

WHAT = "a full disk, a file that may not grow, a read-only folder, two processes"
LAYOUT = toys.LAYOUT
BLOCKS = 5
NOBODY = 65534
EXPECTED = ("acknowledged", "unsettled", "waiting", "failed")


def disks(changes: int, reads: int, tell: Tell) -> Part:
    """All of them; the disk is full at each of the first `changes` operations, two processes read so often."""
    tally = Tally("disk", WHAT, tell)
    for failing in range(changes):
        for many in (1, 3, 10_000):
            tell(failing, changes, "operations on a full disk")
            with folder() as path:
                full(path, failing, many, tally)
    for part in (no_larger, read_only, injected_read_only):
        tell(0, None, part.__doc__ or "")
        with folder() as path:
            part(path, tally)
    with folder() as path:
        two(path, reads, tally)
    return tally.part()


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A new folder that everybody may look into."""
    with tempfile.TemporaryDirectory(prefix="kvspec-torture-") as name:
        os.chmod(name, 0o755)
        path = Path(name) / "store"
        path.mkdir()
        yield path


def tokens(number: int) -> list[int]:
    """Of the block of this number."""
    return [number] * toys.TOKENS


KEYS = chain([token for number in range(BLOCKS) for token in tokens(number)], toys.TOKENS, LAYOUT.signature)


def opened(path: Path | Files, **more: bool) -> BlockStore:
    """A store without a writer of its own."""
    return BlockStore(path, LAYOUT, budget=2**20, writer=False, **more)


def save(store: BlockStore, number: int, version: int) -> None:
    """Queue a version of a block."""
    store.save(KEYS[number - 1] if number else None, tokens(number), toys.block(LAYOUT, number, version))


def version_of(store: BlockStore, number: int, versions: int) -> int:
    """Which version is found; 0 for none, -1 for what was never saved."""
    found = store.load(KEYS[number])
    if isinstance(found, Miss):
        return 0 if found.reason == "absent" else -1
    same = (version for version in range(1, versions + 1) if toys.same(found, toys.block(LAYOUT, number, version)))
    return next(same, -1)


def filled(path: Path) -> None:
    """A store with version 1 of each block, acknowledged."""
    with opened(path) as store:
        for number in range(BLOCKS):
            save(store, number, 1)
            if (report := store.write_next()).status != "acknowledged":
                raise AssertionError(f"was not written: {report}")


def demanded(path: Path, floors: list[int], versions: int, tally: Tally, when: str) -> None:
    """Open the folder again: at least these versions are found, and nothing that was never saved."""
    with opened(path) as store:
        for number, least in enumerate(floors):
            found = version_of(store, number, versions)
            tally.count("entries read back")
            if found < 0:
                tally.fault("misread", f"{when}: block {number} is not as it was saved")
            elif found < least:
                tally.fault("lost", f"{when}: block {number} is version {found}, {least} was acknowledged")


def full(path: Path, failing: int, many: int, tally: Tally) -> None:
    """Save while operations fail as on a full disk; then there is room again, and saving goes on."""
    filled(path)
    files, when = Tight(path), f"full at operation {failing}, {many} times"
    floors = [1] * BLOCKS
    with opened(files) as store:
        files.failing, files.many, files.changes = failing, many, 0
        for number in range(BLOCKS):
            save(store, number, 2)
            _said(store, floors, when, tally)
        files.failing = -1
        for number in range(BLOCKS):
            save(store, number, 3)
            _said(store, floors, when, tally)
        while store.write_next().status != "idle":
            pass
        if [version_of(store, number, 3) for number in range(BLOCKS)] != [3] * BLOCKS:
            tally.fault("failed", f"{when}: once there is room again, saving does not go on")
    tally.count("full disks")
    demanded(path, [3] * BLOCKS, 3, tally, when)


def _said(store: BlockStore, floors: list[int], when: str, tally: Tally) -> None:
    """One report: a status that is known, and a reason that tells the system's error; what is acknowledged is found."""
    report = store.write_next()
    tally.count(f"reports, {report.status}")
    if report.status not in EXPECTED or (report.status != "acknowledged" and "No space left" not in report.reason):
        tally.fault("failed", f"{when}: {report}")
    for key in report.acknowledged:
        number = KEYS.index(key)
        floors[number] = max(1, version_of(store, number, 3))
    for number, least in enumerate(floors):
        if version_of(store, number, 3) < least:
            tally.fault("lost", f"{when}: block {number} is not found, version {least} was acknowledged")


def no_larger(path: Path, tally: Tally) -> None:
    """The system lets no file grow beyond some bytes."""
    filled(path)
    size = min(each.stat().st_size for each in path.iterdir() if each.name.startswith(KEYS[0]))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(path) as store:
        for limit in range(0, size, max(1, size // 16)):
            save(store, 0, 2)
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
            try:
                report = store.write_next()
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, before)
            tally.count("files that may not grow")
            if report.status != "failed" or os.strerror(errno.EFBIG) not in report.reason:
                tally.fault("failed", f"no file larger than {limit}: {report}")
        save(store, 0, 3)
        while store.write_next().status != "idle":
            pass
    demanded(path, [3] + [1] * (BLOCKS - 1), 3, tally, "after a file was not to grow")


def read_only(path: Path, tally: Tally) -> None:
    """A folder that may not be written, by a process that is not root: it is served, and saving is refused."""
    filled(path)
    os.chmod(path, 0o555)
    status = in_child(lambda: _looks_on(path))
    os.chmod(path, 0o755)
    tally.count("read-only folders")
    if status:
        tally.fault("failed", f"a read-only folder: {status}")
    demanded(path, [1] * BLOCKS, 1, tally, "after it was read-only")


def _looks_on(path: Path) -> str:
    if os.geteuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    with opened(path, read_only=True) as store:
        for number in range(BLOCKS):
            if version_of(store, number, 1) != 1:
                return f"block {number} is not served"
        try:
            save(store, 0, 2)
        except (Misuse, Refused):
            pass
        else:
            return "saving is not refused"
    try:
        opened(path).close()
    except (Refused, OSError) as error:
        return "" if clear(error) else f"the error is not clear: {error!r}"
    return "a folder that cannot be written was opened for writing"


def clear(error: Exception) -> bool:
    """One line, which tells what is wrong with which place."""
    text = str(error)
    wrong = any(word in text.lower() for word in ("permission denied", "read-only", "in use by process"))
    return bool(text) and "\n" not in text and wrong


def injected_read_only(path: Path, tally: Tally) -> None:
    """A disk that turns read-only while a store is open, as ext4 does after an error."""
    filled(path)
    files = Tight(path, code=errno.EROFS)
    with opened(files) as store:
        files.failing, files.many, files.changes = 0, 10_000, 0
        save(store, 0, 2)
        report = store.write_next()
        tally.count("read-only folders")
        if report.status == "acknowledged" or os.strerror(errno.EROFS) not in report.reason:
            tally.fault("failed", f"a disk that is read-only: {report}")
        if version_of(store, 1, 1) != 1:
            tally.fault("lost", "a disk that is read-only does not serve what is there")
        files.failing = -1
    demanded(path, [1] * BLOCKS, 2, tally, "after it was read-only")


def two(path: Path, reads: int, tally: Tally) -> None:
    """A second process is refused and told whose it is; one that only reads is served; after SIGKILL any is."""
    filled(path)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _replaces(path, writing)
    os.close(writing)
    try:
        with open(reading, "rb", buffering=0) as pipe:
            pipe.read(1)
            for number in range(3):
                try:
                    opened(path).close()
                except Refused as error:
                    tally.count("second writers refused")
                    if str(child) not in str(error) or not clear(error):
                        tally.fault("failed", f"a second writer is told: {error}")
                else:
                    tally.fault("failed", f"a second writer was let in, try {number}")
            with opened(path, read_only=True) as store:
                for number in range(reads):
                    found = store.load(KEYS[number % BLOCKS])
                    tally.count("reads beside a writer")
                    whole = isinstance(found, Block) and any(
                        toys.same(found, toys.block(LAYOUT, number % BLOCKS, version)) for version in (1, 2, 3)
                    )
                    if not whole:
                        tally.fault("misread", f"beside a writer: {found}")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    demanded(path, [1] * BLOCKS, 3, tally, "after a writer was killed")


def _replaces(path: Path, pipe: int) -> NoReturn:
    with contextlib.suppress(BaseException), opened(path) as store:
        os.write(pipe, b"!")
        number = 0
        while True:
            number += 1
            save(store, number % BLOCKS, 2 + number % 2)
            store.write_next()
    os._exit(1)


def in_child(job: Callable[[], str]) -> str:
    """What a job says in a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            said = job()
        except BaseException as error:
            said = repr(error)
        os.write(writing, said.encode()[:4000])
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(child, 0)
    return said
