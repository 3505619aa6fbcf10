"""A store of entries in one folder: what is saved, what is found again, what may be said when (T1-T7).

The contract is `kvspec_reference.store`: the same atomic actions in the same order. An entry goes down the tiers:
memory and the queue, then a temporary file, then the entry's own file. Every tier has the whole bytes of the entry, and
all are read by the same function (T3); no bytes are changed once they are here.

Callers may be on several threads. `lock` guards what is in memory and is never held while the disk is used; `disk` is
held by whoever changes the folder, and is taken first. No call costs more for more entries, but opening.

Entries that cannot be ours, by their headers, are counted and are the first to go; nothing reads them.
"""

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from threading import RLock

from kvspec_torch.disk.files import Files, buffer
from kvspec_torch.disk.frames import DIGEST, Header
from kvspec_torch.disk.reports import Report, Status
from kvspec_torch.disk.shelf import Shelf
from kvspec_torch.entry_format import Entry, Format, Miss, digest
from kvspec_torch.errors import Misuse, Refused

Action = tuple[str, str, str]

ENTRY, TEMPORARY = ".safetensors", ".temporary"


class Store:
    """Entries of one format, with at most `budget` bytes of files and `memory` bytes of copies in memory.

    The queue takes `slots` keys; one call of `write_next` evicts at most `evictions` entries, foreign ones first, then
    the least recently used, and writes its file in pieces of `piece` bytes. After opening, what was found counts as
    used in the order of the keys, since files do not tell. With `again`, what could not be written is queued again.

    Opening finds the entries by the names and headers of the files alone, deletes what is temporary and what exceeds
    the budget, and acknowledges what it found. It raises `OSError` if the folder cannot be looked after, and may then
    be tried again. With `read_only` it changes nothing, and nothing may be saved or evicted.
    """

    def __init__(
        self,
        files: Files,
        form: Format,
        *,
        budget: int,
        slots: int = 4,
        memory: int = 0,
        evictions: int = 1,
        piece: int = 2**20,
        again: bool = False,
        read_only: bool = False,
    ) -> None:
        for name, value, least in (
            ("budget", budget, 1), ("slots", slots, 1), ("memory", memory, 0), ("evictions", evictions, 1),
            ("piece", piece, 1),
        ):  # fmt: skip
            if type(value) is not int or value < least:
                raise Misuse(f"{name}: a whole number from {least} is wanted, not {value!r}")
        self.files, self.format = files, form
        self.budget, self.slots, self.memory, self.evictions = budget, slots, memory, evictions
        self.piece, self.again, self.read_only = piece, again, read_only
        self.lock, self.disk = RLock(), RLock()
        self.hot: OrderedDict[str, memoryview] = OrderedDict()  # copies in memory, the least recently used first
        self.queue: OrderedDict[str, memoryview] = OrderedDict()  # what is to be written, the longest queued first
        self.writing: dict[str, memoryview] = {}  # what is in a temporary file; in memory, too, until that is renamed
        self.shelf = Shelf()  # the files
        self.acknowledged: set[str] = set()
        self.hot_bytes = self._writing_bytes = 0
        self._unsettled: dict[str, None] = {}  # names were changed since the folder was synced
        self._in_the_way: set[str] = set()  # keys whose temporary name somebody else's file or folder has: not ours
        self._actions: list[Action] = []
        self._open()

    @property
    def used(self) -> int:
        """Bytes of all files, the temporary ones at their full length (T2)."""
        return self.shelf.entry_bytes + self.shelf.foreign_bytes + self._writing_bytes

    def is_busy(self) -> bool:
        """Whether there is something to write, or to settle."""
        return bool(self.queue or self.writing or self._unsettled)

    def take_actions(self) -> list[Action]:
        """The atomic actions performed since the last call of this method."""
        with self.lock:
            actions, self._actions = self._actions, []
        return actions

    def save(self, key: str, data: memoryview) -> None:
        """Queue an entry: it can be read at once. In the queue it takes the place of an older one of its key (T5).

        The bytes are the store's from now on. Raises `Refused` if the queue is full, or if they exceed the budget.
        """
        digest("key", key)
        with self.lock:
            if len(data) > self.budget:
                raise Refused(f"entry {key}: has {len(data)} bytes, the budget is {self.budget}")
            if key not in self.queue and len(self.queue) >= self.slots:
                self._did("refuse", key)
                raise Refused(f"entry {key}: the queue is full, it has {self.slots} slots")
            self._queue(key, data)

    def read(self, key: str) -> Entry | Miss:
        """The latest version of an entry, and count that as a use; or why there is none. Changes nothing else (T6)."""
        found = self.peek(key)
        if isinstance(found, Entry):
            self.use(key)
        return found

    def use(self, key: str) -> None:
        """Count this as a use of an entry."""
        with self.lock:
            for tier in (self.hot, self.shelf.entries):
                if key in tier:
                    tier.move_to_end(key)

    def peek(self, key: str) -> Entry | Miss:
        """The same as `read`, and nobody is to notice."""
        known = self.shelf.entries.get(digest("key", key))
        found = self._find(key)
        if isinstance(found, OSError):
            with self.disk:  # perhaps somebody was about to evict it
                found = self._find(key)
        return self._said(key, found, known)

    def header(self, key: str) -> Header | None:
        """What the latest version of an entry says of itself, or None if there is none that can be read."""
        if self.read_only and not self.shelf.complete(key):  # somebody else may have written it, or written it anew
            with suppress(OSError):
                self._discover(key)
        with self.lock:
            for tier in (self.hot, self.queue, self.writing):
                if key in tier:
                    return self._judge(tier[key])
            return None if key in self.shelf.damaged else self.shelf.entries.get(key)

    def lacking(self, keys: Sequence[str]) -> list[int]:
        """Which of these, by their place, have no entry that can be read."""
        with self.lock:
            lacking = self.shelf.lacking(keys)
            return [at for at in lacking if keys[at] not in self.queue and keys[at] not in self.writing]

    def filed(self, key: str) -> bool:
        """Whether the latest version of an entry is the one in its file."""
        with self.lock:
            return key in self.shelf.entries and not any(key in tier for tier in (self.hot, self.queue, self.writing))

    def evict(self, key: str) -> int:
        """Delete an entry's file; how many bytes it had. A later version that is still to be written stays.

        Raises `Misuse` if there is no file, and `OSError` if it cannot be deleted; then nothing has changed.
        """
        digest("key", key)
        with self.disk:
            if key not in self.shelf:
                raise Misuse(f"entry {key}: has no file")
            with suppress(FileNotFoundError):  # somebody deleted it
                self.files.unlink(key + ENTRY)
            with self.lock:
                self._unsettled[key] = None
                if key in self.shelf.foreign:
                    return self.shelf.take(key)
                if key in self.hot and key not in self.queue and key not in self.writing:
                    self._cool(key)
                self.acknowledged.discard(key)
                self._did("evict", key)
                return self.shelf.take(key)

    def write_next(self) -> Report:
        """Write the first entry of the queue, and say what came of it. `OSError` is never raised."""
        with self.disk:
            return self._write_next()

    # The parts of writing, and opening.

    def _write_next(self) -> Report:
        for key in list(self.writing):  # of a call that failed
            if (left := self._give_up(key)) is not None:
                return Report("failed", key, f"its temporary file cannot be deleted: {left}", error=left)
        with self.lock:
            key, data = next(iter(self.queue.items()), ("", buffer(0)))
        if not key:
            return self._nothing_to_write()
        evicted, reason, error = self._make_room(key, len(data))
        acknowledged: tuple[str, ...] = ()
        if not reason:  # what was deleted is to be gone before something else takes its room
            acknowledged, error = self._settle()
            reason = _unsynced(error)
        if reason:
            return Report("waiting", key, reason, evicted, error=error)
        if (why := self._write(key)) is not None:
            left = self._give_up(key)
            reason = str(why) if left is None else f"{why}; its temporary file cannot be deleted: {left}"
            return Report("failed", key, reason, evicted, acknowledged, why)
        more, error = self._settle()
        status: Status = "acknowledged" if error is None else "unsettled"
        return Report(status, key, _unsynced(error), evicted, acknowledged + more, error)

    def _nothing_to_write(self) -> Report:
        """What an earlier call left is settled."""
        acknowledged, error = self._settle()
        status: Status = "idle" if error is None else "unsettled"
        return Report(status, None, _unsynced(error), (), acknowledged, error)

    def _make_room(self, key: str, size: int) -> tuple[tuple[str, ...], str, OSError | None]:
        """Evict so that `size` bytes fit, at most `evictions` entries. Who was evicted, and why it is not enough.

        The file that is to be replaced is the last to go: until then there is the old version or the new one.
        """
        evicted: list[str] = []
        while self.used + size > self.budget:
            lacking = f"{self.used + size - self.budget} bytes are lacking"
            if len(evicted) == self.evictions:
                return tuple(evicted), f"{lacking}, and one call evicts at most {self.evictions}", None
            victim = self.shelf.victim(key) or key
            try:
                self.evict(victim)
            except OSError as error:
                return tuple(evicted), f"{lacking}, and entry {victim} cannot be deleted: {error}", error
            evicted.append(victim)
        return tuple(evicted), "", None

    def _write(self, key: str) -> OSError | None:
        """From the queue into a file of its own name; the error, if that fails before the name is there."""
        temporary, created = key + TEMPORARY, False
        with self.lock:
            data = self.writing[key] = self.queue.pop(key)
            self._writing_bytes += len(data)
            self._did("begin", key)
        try:
            self.files.create(temporary)
            created = True
            for start in range(0, len(data), self.piece):
                self.files.write(temporary, data[start : start + self.piece])
            self.files.sync(temporary)
            self._did("sync", key)
            self.files.rename(temporary, key + ENTRY)
        except OSError as error:
            self._in_the_way.update([key] * (not created and isinstance(error, FileExistsError)))
            return error
        with self.lock:
            del self.writing[key]
            self._writing_bytes -= len(data)
            self.shelf.put(key, self._judge(data), len(data))
            self._unsettled[key] = None
            self._did("rename", key)
        return None

    def _give_up(self, key: str) -> OSError | None:
        """Delete the temporary file of a version that could not be written; the error, if even that fails."""
        try:
            with suppress(FileNotFoundError):
                self.files.unlink(key + TEMPORARY)
        except OSError as error:
            if key not in self._in_the_way:
                return error
        self._in_the_way.discard(key)
        with self.lock:
            if key in self.hot and key not in self.queue:
                self._cool(key)
            data = self.writing.pop(key)
            self._writing_bytes -= len(data)
            self._unsettled[key] = None
            self._did("fail", key)
            if self.again and key not in self.queue:
                self._queue(key, data)
        return None

    def _settle(self) -> tuple[tuple[str, ...], OSError | None]:
        """If names were changed, sync the folder: what they say will be found after a crash.

        Which entries are acknowledged, and the error if it could not be done.
        """
        if not self._unsettled:
            return (), None
        try:
            self.files.sync_folder()
        except OSError as error:
            return (), error
        with self.lock:
            changed, self._unsettled = list(self._unsettled), {}
            for key in changed:
                self._did("settle", key)
            there = tuple(key for key in changed if key in self.shelf.entries)
            for key in there:
                self._acknowledge(key)
        return there, None

    def _acknowledge(self, key: str) -> None:
        self.acknowledged.add(key)
        self._did("acknowledge", key)

    def _open(self) -> None:
        """Find the entries, delete what is temporary and what exceeds the budget, make all of that last."""
        for name in self.files.names():
            key, dot, kind = name.partition(".")
            if not DIGEST.fullmatch(key):
                continue  # somebody else's
            if dot + kind == TEMPORARY and not self.read_only:
                self.files.unlink(name)
            elif dot + kind == ENTRY:
                self._discover(key)
        if self.read_only:
            return
        reclaimed = []
        while self.used > self.budget and (victim := self.shelf.victim()):
            self.files.unlink(victim + ENTRY)
            reclaimed.append(victim)
            self.shelf.take(victim)
        self.files.sync_folder()
        for key in reclaimed:
            self._did("reclaim", key)
        for key in self.shelf.entries:
            self._did("recover", key)
            self._acknowledge(key)

    def _discover(self, key: str) -> None:
        """Judge a file that was found under a key; what cannot be read yet may be ours."""
        try:
            head, size = self.files.head(key + ENTRY, self.format.longest)
        except FileNotFoundError:
            return  # somebody deleted it
        except OSError:
            size = self.files.size(key + ENTRY)
            found: Header | Miss = Header(key, None, size, 0)
        else:
            found = self.format.judge(head, size)
        if isinstance(found, Header) and found.key != key:
            found = Miss("key", f"key {found.key}, {key} is wanted")
        with self.lock:
            self.shelf.put(key, found, size)

    def _find(self, key: str) -> memoryview | Miss | OSError:
        """The bytes of the latest version, for the caller to keep."""
        absent = Miss("absent", f"entry {key} is not in the store")
        with self.lock:
            data = next((tier[key] for tier in (self.hot, self.queue, self.writing) if key in tier), None)
            known = key in self.shelf.entries
            if data is None and not known and not self.read_only:
                return self.shelf.foreign.get(key, (0, absent))[1]
        if data is not None:
            copy = buffer(len(data))
            copy[:] = data
            return copy
        found = self._read(key)
        return absent if isinstance(found, FileNotFoundError) and not known else found

    def _read(self, key: str) -> memoryview | Miss | OSError:
        """A file's bytes, if it says that it is an entry: nobody knows how long another one is."""
        try:
            found = self.format.judge(*self.files.head(key + ENTRY, self.format.longest))
            return found if isinstance(found, Miss) else self.files.read(key + ENTRY)
        except OSError as error:
            return error

    def _said(self, key: str, found: memoryview | Miss | OSError, known: Header | None) -> Entry | Miss:
        """What the bytes of an entry say, or why there are none; if the file that is `known` is no entry, note that."""
        with self.lock:
            index = self.shelf.place(key)
        if isinstance(found, memoryview):
            entry = self.format.read(found, key, index)
        elif isinstance(found, FileNotFoundError):  # somebody deleted it
            entry = Miss("absent", f"entry {key} is not in the store any more: its file is gone")
        else:
            entry = found if isinstance(found, Miss) else Miss("unreadable", str(found))
        if isinstance(entry, Miss) and entry.reason != "unreadable":
            with self.lock:
                self.shelf.doubt(key, known)
        return entry

    def _queue(self, key: str, data: memoryview) -> None:
        self.hot_bytes += len(data) - len(self.hot.get(key, b""))
        self.queue[key] = self.hot[key] = data
        self.hot.move_to_end(key)
        self._did("save", key)
        while self.hot_bytes > self.memory:
            self._cool(next(iter(self.hot)))

    def _cool(self, key: str) -> None:
        """Drop the copy in memory; a lower tier has that version."""
        self.hot_bytes -= len(self.hot.pop(key))
        self._did("cool", key)

    def _judge(self, data: memoryview) -> Header:
        header = self.format.judge(bytes(data[: self.format.longest]), len(data))
        assert isinstance(header, Header)
        return header

    def _did(self, action: str, key: str) -> None:
        self._actions.append(("store", action, key))


def _unsynced(error: OSError | None) -> str:
    return "" if error is None else f"the folder cannot be synced: {error}"
