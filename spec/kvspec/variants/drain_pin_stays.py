"""A hand-off raises, and the pin that holds the batch is never released: no engine's, but easily made."""

from kvspec.drain import Drain
from kvspec.language import action


class KeepsThePin(Drain, variant="drain-pin-stays", breaks="J5"):
    """The pin is released where the hand-off ends well, and nowhere else."""

    @action
    def fail(s):
        """The stream has its cache again, and the batch is still pinned."""
        super().fail()
        s.pinned = True
