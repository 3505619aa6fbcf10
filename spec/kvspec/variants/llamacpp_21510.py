"""A checkpoint that begins at position 0 is never accepted."""

from kvspec.language import *
from kvspec.pages import Request
from kvspec.quotients import Position
from kvspec.snapshots import Snapshot, Snapshots


class NeverAtZero(Snapshots, variant="llamacpp#21510", breaks="S1"):
    """The test for a valid position leaves out the lowest one."""

    @action
    def miss(s, r: Request, n: Position):
        """Say that there is none, for position 0 in any case."""
        s.expect(Or(n == 0, forall(Snapshot, lambda x: Not(s.fits(r, x, n)))), "S1")
