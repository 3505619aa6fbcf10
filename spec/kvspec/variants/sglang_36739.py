"""Ending a group resets the flag and keeps the list, so that a second end frees everything again."""

from kvspec.deferred_free import DeferredFree
from kvspec.language import Or, action


class ListKept(DeferredFree, variant="sglang#36739", breaks="D3"):
    """The end forgets to empty the queue."""

    @action
    def end(s):
        """Close the group, and keep what it named."""
        s.require(s.open)
        s.open = False
        s.blank = lambda p: Or(s.blank[p], s.named(p))
