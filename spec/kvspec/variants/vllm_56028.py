"""A request preempts itself when it runs alone, again and again."""

from kvspec.admission import Pool
from kvspec.fairness import Fairness
from kvspec.language import And, action
from kvspec.pages import Request


class PreemptsItself(Fairness, variant="vllm#56028", breaks="A3"):
    """The last request that runs may be the one that wants the page."""

    @action
    def preempt(s, r: Request, b: Request, g: Pool):
        """Make room at the expense of anybody."""
        s.require(And(s.running[r], s.wants(b, g), s.free(g) < 1))
        s.drop(r)
        s.lacks[b], s.lacks[r] = True, False
