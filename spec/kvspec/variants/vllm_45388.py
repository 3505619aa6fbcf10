"""A request that waits for its load holds the pages of the loaded prefix; such requests strand each other."""

from kvspec.fairness import Fairness
from kvspec.language import action
from kvspec.pages import Request


class HoldsWhileItWaits(Fairness, variant="vllm#45388", breaks="A3"):
    """Pages are handed out for the load, and nothing is promised for what comes after it."""

    @action
    def block(s, r: Request):
        """Wait for a load, with pages in hand."""
        s.require(s.waiting(r))
        s.expect(s.fits(r), "A1")
        s.blocked[r] = True
        s.used = lambda g: s.used[g] + s.first[r, g] - s.has[r, g]
        s.has[r] = s.first[r]
