"""Which files a store has: its entries in the order of their last use, other files under a key, and what they take."""

from collections import OrderedDict
from collections.abc import Sequence

from kvspec_torch.disk.frames import Header, Miss


class Shelf:
    """Entries by key, the least recently used first, and foreign files, with the reason why they are no entries.

    Entries that were found to be `damaged`, or gone, still have their place here, until they are written anew.
    Nothing here costs more for more files. It knows nothing of threads or of the disk.
    """

    def __init__(self) -> None:
        self.entries: OrderedDict[str, Header] = OrderedDict()
        self.foreign: OrderedDict[str, tuple[int, Miss]] = OrderedDict()
        self.damaged: set[str] = set()
        self.entry_bytes = self.foreign_bytes = 0

    def __contains__(self, key: object) -> bool:
        return key in self.entries or key in self.foreign

    def put(self, key: str, found: Header | Miss, size: int) -> None:
        """A file has this name now, in place of whatever had it."""
        self.take(key)
        if isinstance(found, Header):
            self.entries[key] = found
            self.entry_bytes += size
        else:
            self.foreign[key] = size, found
            self.foreign_bytes += size

    def take(self, key: str) -> int:
        """Forget a file, if there is one; its bytes."""
        if key in self.foreign:
            size, _ = self.foreign.pop(key)
            self.foreign_bytes -= size
            return size
        if key not in self.entries:
            return 0
        self.damaged.discard(key)
        size = self.entries.pop(key).size
        self.entry_bytes -= size
        return size

    def doubt(self, key: str, known: Header | None) -> None:
        """The file that is `known` is no entry, as was found out by reading it: what has no place may get one yet."""
        if known is not None and known is self.entries.get(key) and not (known.older and known.index is None):
            self.damaged.add(key)

    def complete(self, key: str) -> bool:
        """Whether there is an entry which no other of its key can have more than."""
        return key in self.entries and key not in self.damaged and self.entries[key].stateful is True

    def lacking(self, keys: Sequence[str]) -> list[int]:
        """Which of these, by their place, have no file that is an entry."""
        return [at for at, key in enumerate(keys) if key not in self.entries or key in self.damaged]

    def victim(self, spared: str | None = None) -> str | None:
        """Whose file is to go next: a foreign one, or the least recently used; `spared` if there is no other."""
        for tier in (self.foreign, self.entries):
            for key in tier:
                if key != spared:
                    return key
        return spared if spared in self else None

    def place(self, key: str) -> int | None:
        """Which block of its prefix an entry is: what it says, or else as many as it has parents here.

        None where that cannot be told: parents are missing or unreadable, or are each other's.
        """
        up: dict[str, Header] = {}
        header = self.entries.get(key)
        while header is not None and header.index is None and header.parent is not None:
            if key in up:
                return None
            up[key] = header
            key = header.parent
            header = self.entries.get(key)
        if header is None or header.start == 0:
            return None
        index = header.index or 0
        for number, below in enumerate(reversed(up.values()), index + 1):
            below.index = number
        return index + len(up)
