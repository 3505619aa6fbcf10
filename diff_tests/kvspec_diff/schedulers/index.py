"""What can be found in a prefix cache, and what its events say of it (P9, P15).

A key may have several blocks. By the events a key can be found from the first that stores it to the last that removes
it; whoever keeps a set in place of counts loses a key too early, which is told as a fault of its own.
"""

from collections import Counter
from typing import Any

from kvspec_diff.batched.fault import Fault
from kvspec_diff.schedulers.ghost import fault

Key = tuple[int, str]
"""A group and a hash."""


class Index:
    """Replays the events that a scheduler published."""

    def __init__(self) -> None:
        self.stored: Counter[Key] = Counter()

    def follow(self, answer: dict[str, Any]) -> list[Fault]:
        """An operation was answered: what it broke."""
        faults = []
        for name, *rest in answer["published"]:
            if name == "cleared":
                self.stored.clear()
                continue
            group, hashes = rest
            for key in ((group, digest) for digest in hashes):
                self.stored[key] += 1 if name == "stored" else -1
                if name == "removed" and self.stored[key] > 0:
                    faults.append(fault("P15", "duplicate", f"an event says that {key[1]} is removed, and it can be "
                                        f"found in {self.stored[key]} other blocks"))  # fmt: skip
        found = Counter((group, digest) for group, digest, _ in answer["index"])
        if answer["op"][0] == "reset" and found:
            faults.append(fault("P9", "reset", f"{len(found)} keys can be found after the cache was emptied"))
        if answer["op"][0] == "retire" and found != +self.stored:
            more, less = (found - self.stored).total(), (self.stored - found).total()
            faults.append(fault("P15", "differs", f"{more} blocks can be found that no event told of, and {less} that "
                                "events told of cannot"))  # fmt: skip
        return faults
