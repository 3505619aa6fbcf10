"""Recurrent states at positions of prefixes: each is used at exactly the position that it was taken at (S1, S3, S4).

Rows of tokens can be shared by all requests that begin alike; a recurrent state cannot be cut, so it is kept apart, as
it was after so many tokens of a prefix.
"""

from kvspec.members import Layout, Recurrent, checked
from kvspec.operations import Misuse

from kvspec_reference.blocks import Cache, Parts, parts_of


class Snapshots:
    """States of recurrent members, by the name of a prefix and the position in it.

    Every method checks everything before it changes anything.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = checked(layout)
        self.paths = [path for path, (leaf, _) in parts_of(layout).items() if isinstance(leaf, Recurrent)]
        self._stored: dict[tuple[str, int], Parts] = {}

    def record(self, prefix: str, position: int, cache: Cache) -> None:
        """Keep the states of a cache that stands at this position of the prefix, in place of what was there.

        Raises `Misuse` if it stands elsewhere: what it has is then no state of this position (S3).
        """
        if cache.layout != self.layout:
            raise Misuse(f"the cache has signature {cache.layout.signature}, {self.layout.signature} is wanted")
        if cache.position != position:
            raise Misuse(f"position: {position}, the cache stands at {cache.position}")
        self._stored[prefix, position] = {path: cache.read(path) for path in self.paths}

    def find(self, prefix: str, position: int) -> Parts | None:
        """The states after exactly so many tokens of the prefix, or None (S1). A new cache may be given them."""
        found = self._stored.get((prefix, position))
        return None if found is None else dict(found)

    def positions(self, prefix: str) -> list[int]:
        """Where there are states of a prefix, in order."""
        return sorted(position for name, position in self._stored if name == prefix)

    def drop(self, prefix: str, position: int) -> None:
        """Forget a snapshot, if there is one."""
        self._stored.pop((prefix, position), None)
