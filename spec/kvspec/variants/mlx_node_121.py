"""A stop in the middle of a queue keeps a cache that is ahead of what was emitted, under the shorter key."""

from kvspec.drain import Drain
from kvspec.language import action


class KeepsWhatWasNotEmitted(Drain, variant="mlx-node#121", breaks="J3"):
    """What is queued behind the last token stays in the cache."""

    @action
    def finish(s):
        """Leave the cache to the keeper as it is."""
        super().finish()
        s.fed = s.committed - 1
