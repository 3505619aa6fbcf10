"""Makes a store's folder smaller, whosever entries are in it: nothing here knows a layout (T2, T7).

First goes what is of use to nobody: temporary files, then, while there is too much, what says nothing of itself, and
entries whose parent is not there, since no prefix gets to them. Then the entries that were not written for longest,
but an entry never before those that follow it: what is left are prefixes from their start. Stopped at any moment, that
holds as well.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kvspec_torch.disk.files import Folder
from kvspec_torch.disk.looking import File, Said, look, names

Why = Literal["temporary", "of no use", "without its parent", "oldest"]


@dataclass
class Collected:
    """What went, by reason, and what is left."""

    gone: Counter[Why] = field(default_factory=Counter)
    bytes: int = 0
    entries_left: int = 0
    bytes_left: int = 0


def collect(folder: Folder, budget: int, tell: Callable[[int, int, str], None]) -> Collected:
    """Delete entries until those left have at most `budget` bytes. The caller holds the folder's lock.

    `tell` is called with how much is done, of how much, and of what.
    """
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


def told(files: Iterable[File]) -> dict[str, Said]:
    """By key, what those of them say that are entries."""
    return {file.key: file.said for file in files if isinstance(file.said, Said)}


def order(files: dict[str, File]) -> list[tuple[File, Why]]:
    """Who goes first."""
    said = told(files.values())
    found: list[tuple[File, Why]] = [(files[key], "of no use") for key in sorted(files.keys() - said.keys())]
    reached = depths(said).keys()
    whys: list[Why] = ["without its parent", "oldest"]
    for why, keys in zip(whys, (said.keys() - reached, reached), strict=True):
        found += [(file, why) for file in _from_the_ends([files[key] for key in keys], said)]
    return found


def depths(said: Mapping[str, Said]) -> dict[str, tuple[int, int]]:
    """Of the entries that all parents are there of: how many blocks and tokens the prefix has that ends there."""
    below: dict[str | None, list[str]] = {}
    for key, each in said.items():
        below.setdefault(each.parent, []).append(key)
    found: dict[str, tuple[int, int]] = {}
    open_ = [(key, 0, 0) for key in below.get(None, [])]
    while open_:
        key, blocks, tokens = open_.pop()
        found[key] = blocks + 1, tokens + said[key].tokens
        open_ += [(each, *found[key]) for each in below.get(key, [])]
    return found


def _from_the_ends(files: list[File], said: Mapping[str, Said]) -> list[File]:
    """The longest unwritten first, but none before those that follow it; those in a circle last."""
    rest = {file.key: file for file in files}
    following = Counter(said[key].parent for key in rest)
    heap = [(file.written, key) for key, file in rest.items() if not following[key]]
    heapq.heapify(heap)
    found = []
    while heap:
        _, key = heapq.heappop(heap)
        found.append(rest.pop(key))
        parent = said[key].parent
        following[parent] -= 1
        if parent in rest and not following[parent]:
            heapq.heappush(heap, (rest[parent].written, parent))
    return [*found, *(file for _, file in sorted(rest.items()))]
