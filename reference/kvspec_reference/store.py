"""A store of entries in one folder: what is saved, what is found again, what may be said when (T1-T7).

An entry goes down the tiers: memory and the queue, then a temporary file, then the entry's own file. Whoever reads
looks from above; every tier has the whole bytes of the entry, and all are read by the same function (T3).

`write_next` takes the first of the queue through

    make room, sync the folder | create, write, sync, rename | sync the folder, acknowledge

so that a name never stands for contents which are not on the disk (T1), files and temporary files are within the
budget after any crash, too (T2), and what is acknowledged survives one (T4). Nothing is written behind the caller's
back, and nothing is dropped silently: what goes wrong is in the report of the call in which it went wrong.

Every method checks everything before it changes anything: it raises `Misuse` (the caller's) or `Refused` (there is no
room), and leaves all as it was. Every method records the atomic actions it performed, as (machine, action, key), of the
machine `store`.
"""

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from kvspec.operations import Misuse, Refused

from kvspec_reference.entry_format import (
    DIGEST,
    Entry,
    Miss,
    claimed_signature,
    digest,
    read_entry,
    upgrade,
    write_entry,
)
from kvspec_reference.files import Files

Action = tuple[str, str, str]
Status = Literal["idle", "acknowledged", "unsettled", "waiting", "failed"]

ENTRY, TEMPORARY = ".entry", ".temporary"


@dataclass(frozen=True)
class Report:
    """What a call of `write_next` came to, for the first key of the queue.

    idle: there is nothing to write. acknowledged: it will be found after a crash. unsettled: it is in the folder, but a
    crash may still take it; the next call tries again. waiting: it is still queued, since more has to go, or the folder
    could not be synced; the next call tries again. failed: it was given up, and the file that was there stays (T6).
    """

    status: Status
    key: str | None = None
    reason: str = ""
    evicted: tuple[str, ...] = ()
    acknowledged: tuple[str, ...] = ()  # all that are since this call


class Store:
    """Entries of one `signature`, with at most `budget` bytes of files and `memory` bytes of copies in memory.

    The queue takes `slots` keys; one call of `write_next` evicts at most `evictions` entries, the least recently used
    first, and writes its file in pieces of `piece` bytes. After opening, what was found counts as used in the order of
    the keys, since files do not tell.

    Opening finds the entries by the names of their files, deletes what is temporary, and acknowledges what it found.
    An entry of another signature, or of none that can be read, is never returned nor acknowledged; it counts against
    the budget, and is the first to go (E1, T2). It raises `OSError` if the folder cannot be looked after, and may then
    be tried again.
    """

    def __init__(
        self,
        files: Files,
        signature: str,
        *,
        budget: int,
        slots: int = 4,
        memory: int = 0,
        evictions: int = 1,
        piece: int = 2**20,
    ) -> None:
        digest("signature", signature)
        for name, value, least in (
            ("budget", budget, 1), ("slots", slots, 1), ("memory", memory, 0), ("evictions", evictions, 1),
            ("piece", piece, 1),
        ):  # fmt: skip
            if type(value) is not int or value < least:
                raise Misuse(f"{name}: {value!r}, at least {least} is wanted")
        self.files, self.signature = files, signature
        self.budget, self.slots, self.memory, self.evictions = budget, slots, memory, evictions
        self.piece = piece
        self.hot: OrderedDict[str, bytes] = OrderedDict()  # copies in memory, the least recently used first
        self.queue: OrderedDict[str, bytes] = OrderedDict()  # what is to be written, the longest queued first
        self.writing: dict[str, bytes] = {}  # what is in a temporary file; in memory, too, until that is renamed
        self.index: OrderedDict[str, int] = OrderedDict()  # bytes of the entries' files, the least recently used first
        self.acknowledged: set[str] = set()
        self._unsettled: dict[str, None] = {}  # names were changed since the folder was synced
        self._actions: list[Action] = []
        self._open()

    @property
    def used(self) -> int:
        """Bytes of all files, the temporary ones at their full length (T2)."""
        return sum(self.index.values()) + sum(map(len, self.writing.values()))

    def take_actions(self) -> list[Action]:
        """The atomic actions performed since the last call of this method."""
        actions, self._actions = self._actions, []
        return actions

    # What a caller asks for.

    def save(self, key: str, payload: bytes, *, parent: str | None = None, tokens: int = 0) -> None:
        """Queue an entry: it can be read at once. In the queue it takes the place of an older one of its key (T5).

        Raises `Refused` if the queue is full, or if the entry alone exceeds the budget.
        """
        data = write_entry(Entry(key, parent, tokens, payload), self.signature)
        if len(data) > self.budget:
            raise Refused(f"entry {key}: has {len(data)} bytes, the budget is {self.budget}")
        if key not in self.queue and len(self.queue) >= self.slots:
            self._did("refuse", key)
            raise Refused(f"entry {key}: the queue is full, it has {self.slots} slots")
        self.queue[key] = self.hot[key] = data
        self.hot.move_to_end(key)
        self._did("save", key)
        while sum(map(len, self.hot.values())) > self.memory:
            self._cool(next(iter(self.hot)))

    def read(self, key: str) -> Entry | Miss:
        """The latest version of an entry, and count that as a use; or why there is none. Changes nothing else (T6)."""
        found = self.peek(key)
        for tier in (self.hot, self.index):
            if isinstance(found, Entry) and key in tier:
                tier.move_to_end(key)
        return found

    def peek(self, key: str) -> Entry | Miss:
        """The same as `read`, and nobody is to notice."""
        data = self._latest(digest("key", key))
        return data if isinstance(data, Miss) else read_entry(data, self.signature, key)

    def upgrade(self, key: str) -> Entry | Miss:
        """The same, and if it is of an older version, queue it to be written in the newest one (E3).

        Its file stays until it is replaced: if that fails, or the process dies before, it can be done again. Raises
        what `save` raises.
        """
        if isinstance(data := self._latest(digest("key", key)), Miss):
            return data
        found = read_entry(data, self.signature, key)
        if isinstance(found, Entry) and upgrade(data) != data:
            self.save(key, found.payload, parent=found.parent, tokens=found.tokens)
        return found

    def evict(self, key: str) -> None:
        """Delete an entry's file. A later version that is still to be written stays.

        Raises `Misuse` if there is no file, and `OSError` if it cannot be deleted; then nothing has changed.
        """
        if digest("key", key) not in self.index:
            raise Misuse(f"entry {key}: has no file")
        with suppress(FileNotFoundError):  # somebody deleted it
            self.files.unlink(key + ENTRY)
        if key in self.hot and key not in self.queue and key not in self.writing:
            self._cool(key)
        del self.index[key]
        self.acknowledged.discard(key)
        self._unsettled[key] = None
        self._did("evict", key)

    def write_next(self) -> Report:
        """Write the first entry of the queue, and say what came of it. `OSError` is never raised."""
        for key in list(self.writing):  # of a call that failed
            if (left := self._give_up(key)) is not None:
                return Report("failed", key, f"its temporary file cannot be deleted: {left}")
        if not self.queue:
            return self._nothing_to_write()
        key, data = next(iter(self.queue.items()))
        evicted, reason = self._make_room(key, len(data))
        acknowledged: tuple[str, ...] = ()
        if not reason:  # what was deleted is to be gone before something else takes its room
            acknowledged, reason = self._settle()
        if reason:
            return Report("waiting", key, reason, evicted)
        if (why := self._write(key)) is not None:
            left = self._give_up(key)
            reason = str(why) if left is None else f"{why}; its temporary file cannot be deleted: {left}"
            return Report("failed", key, reason, evicted, acknowledged)
        settled, reason = self._settle()
        return Report("unsettled" if reason else "acknowledged", key, reason, evicted, acknowledged + settled)

    # The parts of writing.

    def _nothing_to_write(self) -> Report:
        """What an earlier call left is settled."""
        settled, reason = self._settle()
        return Report("unsettled" if reason else "idle", reason=reason, acknowledged=settled)

    def _make_room(self, key: str, size: int) -> tuple[tuple[str, ...], str]:
        """Evict so that `size` bytes fit, at most `evictions` entries. Who was evicted, and why it is not enough.

        The file that is to be replaced is the last to go: until then there is the old version or the new one.
        """
        evicted: list[str] = []
        while self.used + size > self.budget:
            lacking = f"{self.used + size - self.budget} bytes are lacking"
            if len(evicted) == self.evictions:
                return tuple(evicted), f"{lacking}, and one call evicts at most {self.evictions}"
            victim = next((other for other in self.index if other != key), key)
            try:
                self.evict(victim)
            except OSError as error:
                return tuple(evicted), f"{lacking}, and entry {victim} cannot be deleted: {error}"
            evicted.append(victim)
        return tuple(evicted), ""

    def _write(self, key: str) -> OSError | None:
        """From the queue into a file of its own name; the error, if that fails before the name is there."""
        temporary = key + TEMPORARY
        data = self.writing[key] = self.queue.pop(key)
        self._did("begin", key)
        try:
            self.files.create(temporary)
            for start in range(0, len(data), self.piece):
                self.files.write(temporary, data[start : start + self.piece])
            self.files.sync(temporary)
            self._did("sync", key)
            self.files.rename(temporary, key + ENTRY)
        except OSError as error:
            return error
        self.index[key] = len(self.writing.pop(key))
        self.index.move_to_end(key)
        self._unsettled[key] = None
        self._did("rename", key)
        return None

    def _give_up(self, key: str) -> OSError | None:
        """Delete the temporary file of a version that could not be written; the error, if even that fails."""
        try:
            if key + TEMPORARY in self.files.names():
                self.files.unlink(key + TEMPORARY)
        except OSError as error:
            return error
        if key in self.hot and key not in self.queue:
            self._cool(key)
        del self.writing[key]
        self._unsettled[key] = None
        self._did("fail", key)
        return None

    def _settle(self) -> tuple[tuple[str, ...], str]:
        """If names were changed, sync the folder: what they say will be found after a crash.

        Which entries are acknowledged, and why it could not be done.
        """
        if not self._unsettled:
            return (), ""
        try:
            self.files.sync_folder()
        except OSError as error:
            return (), f"the folder cannot be synced: {error}"
        changed, self._unsettled = list(self._unsettled), {}
        for key in changed:
            self._did("settle", key)
        return tuple(key for key in changed if self._acknowledge(key)), ""

    def _acknowledge(self, key: str) -> bool:
        if key not in self.index:
            return False
        self.acknowledged.add(key)
        self._did("acknowledge", key)
        return True

    # What is done at opening.

    def _open(self) -> None:
        """Find the entries, delete what is temporary and what exceeds the budget, make all of that last."""
        found: OrderedDict[str, int] = OrderedDict()
        foreign = []
        for name in self.files.names():
            key, dot, kind = name.partition(".")
            if not DIGEST.fullmatch(key):
                continue  # somebody else's
            if dot + kind == TEMPORARY:
                self.files.unlink(name)
            elif dot + kind == ENTRY:
                found[key] = self.files.size(name)
                if claimed_signature(self.files.read(name)) != self.signature:
                    foreign.append(key)
                    found.move_to_end(key, last=False)
        reclaimed = []
        while sum(found.values()) > self.budget:
            key, _ = found.popitem(last=False)
            self.files.unlink(key + ENTRY)
            reclaimed.append(key)
        self.files.sync_folder()
        self.index = found
        for key in reclaimed:
            self._did("reclaim", key)
        for key in found:
            self._did("recover", key)
            if key not in foreign:
                self._acknowledge(key)

    # What several of these need.

    def _latest(self, key: str) -> bytes | Miss:
        """The bytes of an entry's latest version."""
        for tier in (self.hot, self.queue, self.writing):
            if key in tier:
                return tier[key]
        if key not in self.index:
            return Miss("absent", f"entry {key} is not in the store")
        try:
            return self.files.read(key + ENTRY)
        except OSError as error:
            return Miss("unreadable", str(error))

    def _cool(self, key: str) -> None:
        """Drop the copy in memory; a lower tier has that version."""
        del self.hot[key]
        self._did("cool", key)

    def _did(self, action: str, key: str) -> None:
        self._actions.append(("store", action, key))
