"""Victims leave the index, and the eviction fails: nobody puts them back."""

from kvspec.language import *
from kvspec.tiers import Key, Tiers


class VanishesFromTheIndex(Tiers, variant="Mooncake#2963", breaks="T7"):
    """The file stays, and cannot be found."""

    @action
    def evict(s, k: Key):
        """Take it out of the index, then fail to delete it."""
        s.require(s.shown[k] != 0)
        s.indexed[k] = False
        s.latest[k] = If(s.hot[k] != 0, s.hot[k], If(s.queued[k] != 0, s.queued[k], s.temp[k]))
