"""With a full queue, what leaves the memory is dropped, and nothing says so."""

from kvspec.language import action
from kvspec.tiers import Key, Tiers


class DropsSilently(Tiers, variant="omlx#1070", breaks="T6"):
    """The later blocks of its chain are of no use any more."""

    @action
    def cool(s, k: Key):
        """Drop the copy in memory, wherever else it is."""
        s.require(s.hot[k] != 0)
        s.hot[k], s.latest[k] = 0, s.below(k)
