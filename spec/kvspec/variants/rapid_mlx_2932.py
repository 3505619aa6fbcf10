"""An exception in a hand-off leaves a request that neither side has."""

from kvspec.drain import Drain
from kvspec.language import action


class LosesItsOwner(Drain, variant="rapid-mlx#2932", breaks="J3"):
    """The stream gave its cache away before the batch was ready for it."""

    @action
    def fail(s):
        """Nobody takes it back."""
        super().fail()
        s.owns[s.stream] = False
