"""A lookup that is cut by one token takes the state that was recorded one token later."""

from kvspec.language import *
from kvspec.pages import Request
from kvspec.quotients import Position
from kvspec.snapshots import Snapshot, Snapshots


class OneTokenLater(Snapshots, variant="vllm#51094", breaks="S1"):
    """The last token is then computed a second time, on a state that has seen it."""

    @action
    def restore(s, r: Request, x: Snapshot, n: Position):
        """Start at n with the state after n + 1 tokens."""
        s.require(exists(Position, lambda m: And(m == n + 1, s.fits(r, x, m))))
        s.put(r, n, s.content[x])
