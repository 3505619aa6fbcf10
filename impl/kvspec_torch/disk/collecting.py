"""Makes a store's folder smaller, whoever's entries are in it: nothing here knows a layout (T2, T7).

First goes what is of use to nobody: temporary files, then, while there is too much, what says nothing of itself, and
entries whose parent is not there, since no prefix gets to them. Then the entries that were not written for longest,
but an entry never before those that follow it: what is left are prefixes from their start. Stopped at any moment, that
holds as well.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from kvspec_torch.disk.files import Folder
from kvspec_torch.disk.looking import File, look, names
from kvspec_torch.entry_format import Miss

Why = Literal["temporary", "of no use", "without its parent", "oldest"]


@dataclass
class Collected:
    """What went, by reason, and what is left."""

    gone: Counter[Why] = field(default_factory=Counter)
    bytes: int = 0
    entries_left: int = 0
    bytes_left: int = 0


def collect(folder: Folder, budget: int, tell: Callable[[int, int, str], None]) -> Collected:
    """Delete entries until those left have at most `budget` bytes. The caller holds the folder's lock."""
    done, there = Collected(), names(folder)
    for name in there.temporary:
        done.bytes += folder.size(name)
        folder.unlink(name)
        done.gone["temporary"] += 1
    files: dict[str, File] = {}
    for number, file in enumerate(look(folder, there.keys)):
        tell(number, len(there.keys), "entries looked at")
        files[file.key] = file
    done.entries_left, done.bytes_left = len(files), sum(file.size for file in files.values())
    excess = max(0, done.bytes_left - budget)
    for file, why in order(files):
        if done.bytes_left <= budget:
            break
        tell(budget + excess - done.bytes_left, excess, "bytes deleted")
        folder.unlink(file.name)
        done.gone[why] += 1
        done.bytes += file.size
        done.entries_left, done.bytes_left = done.entries_left - 1, done.bytes_left - file.size
    folder.sync_folder()
    return done


def order(files: dict[str, File]) -> "list[tuple[File, Why]]":
    """Who goes first."""
    useless = sorted((file for file in files.values() if isinstance(file.said, Miss)), key=lambda file: file.key)
    found: list[tuple[File, Why]] = [(file, "of no use") for file in useless]
    rest = {key: file for key, file in files.items() if not isinstance(file.said, Miss)}
    reached = _reached(rest)
    for why, keys in (("without its parent", rest.keys() - reached), ("oldest", reached)):
        found += [(file, why) for file in _from_the_ends({key: rest[key] for key in keys})]  # type: ignore[misc]
    return found


def parent_of(file: File) -> str | None:
    """The key before."""
    return None if isinstance(file.said, Miss) else file.said.parent


def _reached(files: dict[str, File]) -> set[str]:
    """Who has all parents, up to the start of a prefix; a circle has none."""
    below: dict[str | None, list[str]] = {}
    for key, file in files.items():
        below.setdefault(parent_of(file), []).append(key)
    reached, open_ = set(), list(below.get(None, []))
    while open_:
        reached.add(key := open_.pop())
        open_ += below.get(key, [])
    return reached


def _from_the_ends(files: dict[str, File]) -> list[File]:
    """The longest unwritten first, but none before those that follow it; those in a circle last."""
    following = Counter(parent for file in files.values() if (parent := parent_of(file)) in files)
    heap = [(file.written, key) for key, file in files.items() if not following[key]]
    heapq.heapify(heap)
    found = []
    while heap:
        _, key = heapq.heappop(heap)
        found.append(files[key])
        parent = parent_of(files[key])
        if parent in files:
            following[parent] -= 1
            if not following[parent]:
                heapq.heappush(heap, (files[parent].written, parent))
    gone = {file.key for file in found}
    return [*found, *(file for key, file in sorted(files.items()) if key not in gone)]
