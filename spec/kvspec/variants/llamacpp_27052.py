"""What fails midway leaves damage behind."""

from kvspec.language import *
from kvspec.tiers import Key, Tiers


class FailsMidway(Tiers, variant="llamacpp#27052", breaks="T6"):
    """The entry that was there is gone too."""

    @action
    def fail(s, k: Key):
        """Give up, with the old file already overwritten."""
        d = s.place[k]
        s.require(s.temp[k] != 0)
        s.used[d] = s.used[d] - s.filed(k)
        s.temp[k], s.shown[k], s.indexed[k] = 0, 0, False
        s.latest[k] = If(s.hot[k] != 0, s.hot[k], s.queued[k])
