"""Entries of older versions, written anew with the same meaning (E3)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from kvspec_torch.disk.frames import Entry, Miss
from kvspec_torch.disk.reports import Report
from kvspec_torch.store import Store


@dataclass(frozen=True)
class Upgraded:
    """What came of an older entry; if it is not `upgraded`, `miss` says why it cannot be read or written."""

    key: str
    outcome: Literal["upgraded", "miss", "failed"]
    miss: Miss | None = None


def upgrade(store: Store, step: Callable[[], Report]) -> Iterator[Upgraded]:
    """Write each older entry in the newest version, and say what came of it; this may be left at any time.

    What cannot be read stays as it is. If one cannot be written the old one stays, and may be tried again. `step`
    writes the next of the queue.
    """
    with store.lock:
        older = [key for key, header in store.shelf.entries.items() if header.older]
    for key in older:
        header = store.shelf.entries.get(key)
        if header is None or not header.older:
            continue  # it was evicted, or saved anew
        found = store.peek(key)
        if not isinstance(found, Entry):
            yield Upgraded(key, "miss", found)
            continue
        data = store.format.write(key, found.parent, found.block)
        while len(store.queue) + len(store.writing) >= store.slots and step().progress:
            pass
        store.save(key, data)
        while not store.filed(key) and (report := step()).progress:
            pass
        if store.filed(key):
            yield Upgraded(key, "upgraded")
        else:
            yield Upgraded(key, "failed", Miss("unreadable", report.reason))
