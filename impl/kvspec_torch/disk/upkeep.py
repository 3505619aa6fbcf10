"""Looking after a store's folder: everything read, older versions written anew, less of it kept (E3, E5, T2).

Each of these is a generator which says of one entry after the other what was done. It may be left at any time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from kvspec_torch.disk.frames import Entry, Miss
from kvspec_torch.disk.reports import Report
from kvspec_torch.errors import Misuse
from kvspec_torch.store import Store


@dataclass(frozen=True)
class Checked:
    """An entry's file, how long it is, and what came of it; `miss` says why, if something is wrong with it."""

    key: str
    bytes: int
    outcome: Literal["whole", "older", "upgraded", "evicted", "miss", "failed"]
    miss: Miss | None = None


def verify(store: Store) -> Iterator[Checked]:
    """Read every file under a key: it is whole, or older and could be upgraded, or a miss."""
    for key, size in _all(store):
        found = store.examine(key)
        if isinstance(found, Miss):
            if found.reason != "absent":  # evicted since
                yield Checked(key, size, "miss", found)
        else:
            header = store.shelf.entries.get(key)
            older = header is not None and header.older
            yield Checked(key, size, "older" if older else "whole")


def upgrade(store: Store, step: Callable[[], Report]) -> Iterator[Checked]:
    """Write each entry of an older version anew, with the same meaning; what cannot be read stays as it is (E3).

    `step` writes the next of the queue. If an entry cannot be written the old one stays, and may be tried again.
    """
    for key, size in _all(store):
        header = store.shelf.entries.get(key)
        if header is None or not header.older:
            continue
        found = store.peek(key)
        if not isinstance(found, Entry):
            yield Checked(key, size, "miss", found)
            continue
        data = store.format.write(key, found.parent, found.block)
        while len(store.queue) + len(store.writing) >= store.slots and step().progress:
            pass
        store.save(key, data)
        while not store.filed(key) and (report := step()).progress:
            pass
        if store.filed(key):
            yield Checked(key, len(data), "upgraded")
        else:
            yield Checked(key, size, "failed", Miss("unreadable", report.reason))


def gc(store: Store, budget: int, step: Callable[[], Report]) -> Iterator[Checked]:
    """Evict until all files take at most `budget` bytes: foreign ones first, then the least recently used."""
    if type(budget) is not int or budget < 0:
        raise Misuse(f"budget: {budget!r}, at least 0 is wanted")
    while store.used > budget and (key := store.shelf.victim()):
        size = store.evict(key)
        store.take_actions()
        yield Checked(key, size, "evicted")
    step()


def _all(store: Store) -> list[tuple[str, int]]:
    with store.lock:
        ours = [(key, header.size) for key, header in store.shelf.entries.items()]
        return ours + [(key, size) for key, (size, _) in store.shelf.foreign.items()]
