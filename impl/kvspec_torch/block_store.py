"""Blocks of prefixes in one folder, that survive the process and a loss of power (B4, E4-E6, T1-T7).

`save` queues a block, and it can be read at once; a thread writes what is queued; `flush` waits until all of it will be
found after a crash, and says what went wrong. Nothing is given up: what could not be written stays queued.

A store may be used by several threads of the process that opened it. Another process that opens the folder is refused,
unless it only reads.
"""

import atexit
import os
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Condition
from typing import Any

import torch
from kvspec.members import Layout

from kvspec_torch.blocks import Block, Cache
from kvspec_torch.disk import layouts
from kvspec_torch.disk.files import Files, Folder
from kvspec_torch.disk.filling import cut, restored
from kvspec_torch.disk.lock import Lock
from kvspec_torch.disk.reports import Report
from kvspec_torch.disk.upgrading import Upgraded, upgrade
from kvspec_torch.disk.writer import Writer
from kvspec_torch.entry_format import Entry, Format, Miss, extended, key_of
from kvspec_torch.errors import Misuse, Refused
from kvspec_torch.members.parts import device_of
from kvspec_torch.store import Store
from kvspec_torch.tokens import Tokens, tokens_of

KEPT = 4096
"""So many reports of what went well are kept for the next `flush`, and so many of what went wrong, one of each kind."""

LAYER = [name for name in vars(Files) if not name.startswith("_")]
"""What a `Files` layer can do."""


@dataclass(frozen=True)
class Stats:
    """Entries of this layout and other files under a key, what they take, and what is still to be written."""

    entries: int
    bytes: int
    foreign_entries: int
    foreign_bytes: int
    queued: int
    acknowledged: int


class Unwritten(OSError):
    """Some of the queue could not be written. It is still queued, unless the store is closed."""

    def __init__(self, reports: list[Report], left: int) -> None:
        last = next((report for report in reversed(reports) if report.reason), Report("waiting"))
        errno = last.error.errno if last.error is not None else None
        text = f"not all is on the disk, {left} entries are queued: {last.reason or 'others are being saved'}"
        super().__init__(*(text,) if errno is None else (errno, text))
        self.reports = reports


class BlockStore:
    """The blocks of caches of one layout, with at most `budget` bytes of files and `memory` bytes of copies in memory.

    The queue takes `slots` blocks, one that is being written among them. Each write evicts at most `evictions` entries:
    first those of other layouts, then the least recently used. Without `writer` nothing is written before somebody
    calls `write_next`, `flush` or `close`, or `save_prefix` needs room. With `read_only` nothing in the folder is
    changed, and what another process writes there is found. A `Files` layer in place of a path is the caller's to
    close, and to keep others away from.

    An entry that turns out to be damaged is a miss, and is saved anew with its prefix. The folder has two files besides
    that do not count: `lock`, and the layout, for whoever looks after the folder.

    Raises `Refused` if another store has the folder open, or if it cannot be written.
    """

    def __init__(
        self,
        folder: Path | str | Files,
        layout: Layout,
        *,
        budget: int,
        slots: int = 64,
        memory: int = 0,
        evictions: int = 8,
        writer: bool = True,
        read_only: bool = False,
    ) -> None:
        self._format, self._process = Format(layout), os.getpid()
        self._lock: Lock | None = None
        if not isinstance(folder, Path | str) and not all(callable(getattr(folder, each, None)) for each in LAYER):
            raise Misuse(f"folder: a path is wanted, a str or a Path, not {folder!r}")
        self._folder = _folder(folder) if isinstance(folder, Path | str) else None
        files: Files = self._folder or folder  # type: ignore[assignment]
        self._good: deque[tuple[int, Report]] = deque(maxlen=KEPT)
        self._bad: dict[tuple[str, str | None, str], tuple[int, Report]] = {}
        self._number = 0
        self._wanted: list[Counter[str]] = []  # by each flush that waits, how many versions of which keys
        self._chain: tuple[list[int], list[str]] = ([], [])
        self._closed = False
        try:
            if self._folder and not read_only:
                self._lock = Lock(self._folder.descriptor, str(folder))
            try:
                self._core = Store(
                    files, self._format, budget=budget, slots=slots, memory=memory, evictions=evictions, again=True,
                    read_only=read_only,
                )  # fmt: skip
                self._core.take_actions()  # nobody asks for them here
                if not read_only:
                    layouts.keep(files, self._format.layout)
            except OSError as error:
                raise Refused(f"{folder} cannot be looked after: {error}") from error
            self._woken = Condition(self._core.lock)
            self._writer = Writer(self._step, self._core.is_busy, self._woken) if writer and not read_only else None
        except BaseException:
            self._let_go()
            raise
        atexit.register(self._end)

    def __enter__(self) -> "BlockStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise Misuse("a store belongs to the process that opened it")

    @property
    def signature(self) -> str:
        """Of the layout."""
        return self._format.signature

    # Blocks.

    def save(self, parent: str | None, tokens: Tokens, block: Block) -> str:
        """Queue the block of these tokens after those of `parent`; its key. The tensors are copied.

        A block without its states never takes the place of one with them: then nothing is queued (B10).
        Raises `Refused` if the queue is full, or if the block exceeds the budget.
        """
        self._open_to_write()
        tokens = tokens_of(tokens)
        if len(tokens) != self._format.layout.block_size:
            raise Misuse(f"{len(tokens)} tokens, a block has {self._format.layout.block_size}")
        key = key_of(parent, tokens, self.signature)
        if isinstance(block, Block) and (parent is None) != (block.index == 0):
            raise Misuse(f"block {block.index}: the first block of a prefix, and no other, has no parent")
        self._put(key, parent, block)
        return key

    def load(self, key: str) -> Block | Miss:
        """The block of this key, with everything checked, or why there is none. It is the caller's own."""
        self._open()
        found = self._core.read(key)
        return found.block if isinstance(found, Entry) else found

    def save_prefix(self, tokens: Tokens, cache: Cache) -> list[str]:
        """The keys of the whole blocks of a cache of these tokens, which are saved if they are not there yet.

        The last one is saved anew if only now it has its states. If the queue is full, this waits for the disk. Raises
        `Refused` if it is full and cannot be written.
        """
        self._open_to_write()
        if not isinstance(cache, Cache) or cache.layout != self._format.layout:
            raise Misuse("the cache is not of the store's layout")
        tokens = tokens_of(tokens)
        if len(tokens) != cache.position:
            raise Misuse(f"{len(tokens)} tokens, the cache is at {cache.position}")
        keys = self._keys(tokens)
        wanted = self._core.lacking(keys)
        if keys and cache.position == len(keys) * self._format.layout.block_size and len(keys) - 1 not in wanted[-1:]:
            header = self._core.header(keys[-1])
            wanted += [len(keys) - 1] * (header is None or not header.stateful)
        for index in wanted:
            self._make_way(keys[index])
            self._put(keys[index], keys[index - 1] if index else None, cut(cache, index))
        return keys

    def restore(self, tokens: Tokens, device: torch.device | str = "cpu") -> Cache:
        """A cache at the end of the longest prefix of these tokens that is stored whole (B4, B5, E4)."""
        self._open()
        found = tokens_of(tokens)
        if (wanted := device_of(device)).type == "meta":
            raise Misuse("device: 'meta' keeps no bytes, nothing can be restored to it")
        return restored(self._core, self._keys(found), wanted)

    def evict(self, key: str) -> None:
        """Delete an entry's file; `Misuse` if there is none, `OSError` if that fails."""
        self._open_to_write()
        self._core.evict(key)
        self._core.take_actions()
        self._wake()

    # The disk.

    def flush(self) -> list[Report]:
        """Write all that is queued, and wait until a crash will leave it there; the reports since the last call.

        Raises `Unwritten`, an `OSError` with the reports, if that fails; then what is left is still queued.
        """
        self._open()
        return self._flush()

    def _flush(self) -> list[Report]:
        whole = self._core.read_only or self._drain()
        with self._core.lock:
            reports = [report for _, report in sorted([*self._good, *self._bad.values()], key=lambda each: each[0])]
            self._good.clear()
            self._bad.clear()
            left = len(self._core.queue) + len(self._core.writing)
        if self._writer is not None and self._writer.error is not None:
            raise self._writer.error
        if not whole:
            raise Unwritten(reports, left)
        return reports

    def _drain(self) -> bool:
        """Write what is queued now, whatever others queue meanwhile; False if that fails."""
        core, tries, settled = self._core, 0, False
        with core.lock:
            wanted = Counter([*core.queue, *core.writing])
            self._wanted.append(wanted)
        while core.is_busy() and not (settled and self._written(wanted)) and tries <= len(core.queue) + 1:
            report = self._step()
            tries = 0 if report.progress else tries + 1
            settled = settled or report.status in ("acknowledged", "idle")
        with core.lock:
            self._wanted = [each for each in self._wanted if each is not wanted]
        return not core.is_busy() or (settled and self._written(wanted))

    def _written(self, wanted: Counter[str]) -> bool:
        """Whether there is nothing left of this: it was acknowledged so often, or gave way to a later version."""
        with self._core.lock:
            return not any(key in self._core.queue or key in self._core.writing for key in wanted)

    def stats(self) -> Stats:
        """What there is."""
        self._open()
        core = self._core
        with core.lock:
            queued = len(core.queue) + len(core.writing)
            ours = len(core.shelf.entries), core.shelf.entry_bytes
            return Stats(*ours, len(core.shelf.foreign), core.shelf.foreign_bytes, queued, len(core.acknowledged))

    def write_next(self) -> Report:
        """Write the first of the queue, as the store's writer does in the background; what came of it."""
        self._open_to_write()
        return self._step()

    def upgrade(self) -> Iterator[Upgraded]:
        """Write the entries of older versions anew, one after the other, and say of each what came of it."""
        self._open_to_write()
        return upgrade(self._core, self._step)

    def close(self) -> None:
        """Write all that is queued, and let go of the folder. Raises `Unwritten` if something could not be written."""
        if self._closed:
            return
        self._own()
        with self._core.lock:
            self._closed = True  # nothing is queued from here on
        if self._writer is not None:
            self._writer.stop()
        try:
            self._flush()
        finally:
            self._let_go()
            atexit.unregister(self._end)

    def _end(self) -> None:
        """The process ends, and nobody closed the store."""
        if os.getpid() == self._process:
            self.close()

    # What several of these need.

    def _keys(self, tokens: list[int]) -> list[str]:
        """The chain of a prefix; what it has in common with the last one is not worked out again."""
        size, (known, keys) = self._format.layout.block_size, self._chain
        shared = min(len(keys), len(tokens) // size)
        while shared and tokens[: shared * size] != (known if shared == len(keys) else known[: shared * size]):
            shared = shared // 2
        found = extended(keys[:shared], tokens, size, self.signature)
        self._chain = tokens[: len(found) * size], found
        return list(found)

    def _put(self, key: str, parent: str | None, block: Block) -> None:
        data = self._format.write(key, parent, block)
        with self._core.lock:
            self._open()
            if not block.stateful and (there := self._core.header(key)) is not None and there.stateful:
                return  # perhaps somebody else saved it meanwhile
            if key not in self._core.queue and self._full():
                raise Refused(f"entry {key}: the queue is full, it has {self._core.slots} slots")
            self._core.save(key, data)
            self._core.take_actions()
            self._woken.notify_all()

    def _make_way(self, key: str) -> None:
        """Write until there is room in the queue."""
        failed: set[str | None] = set()  # each goes to the end of the queue, the others come before it
        while self._full() and key not in self._core.queue:
            report = self._step()
            again = report.status != "failed" or report.key in failed or report.key in self._core.writing
            failed.add(report.key)
            if again and self._full() and not report.progress and report.status != "idle":
                raise Refused(f"entry {key}: the queue is full and cannot be written: {report.reason}")

    def _full(self) -> bool:
        """What is being written has a slot, too, where it comes back to if that fails."""
        return len(self._core.queue) + len(self._core.writing) >= self._core.slots

    def _step(self) -> Report:
        """Write the first of the queue, and keep the report."""
        report = self._core.write_next()
        with self._core.lock:
            self._core.take_actions()
            for wanted in self._wanted:
                wanted -= Counter(report.acknowledged)
            self._number += 1
            if report.error is not None:
                report.error.__traceback__ = None  # whose frames hold the bytes of the entry
                self._bad[report.status, report.key, report.reason] = self._number, report
                if len(self._bad) > KEPT:
                    del self._bad[next(iter(self._bad))]
            elif report.status != "idle" or report.acknowledged:
                self._good.append((self._number, report))
            self._woken.notify_all()
        return report

    def _wake(self) -> None:
        with self._woken:
            self._woken.notify_all()

    def _own(self) -> None:
        if os.getpid() != self._process:
            raise Misuse(f"the store belongs to process {self._process}, which opened it; this is {os.getpid()}")

    def _open(self) -> None:
        self._own()
        if self._closed:
            raise Misuse("the store is closed")

    def _open_to_write(self) -> None:
        self._open()
        if self._core.read_only:
            raise Misuse("the store was opened to be read only")

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.release()
        if self._folder is not None:
            self._folder.close()


def _folder(path: Path | str) -> Folder:
    try:
        return Folder(path)
    except OSError as error:
        raise Refused(f"{path} cannot be opened: {error}") from error
    except ValueError as error:  # a NUL, or what no name in a file system can be
        raise Misuse(f"folder: {str(path)!r} is no path") from error
