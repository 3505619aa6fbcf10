"""What was taken from a live cache is changed in place by the cache's next step."""

from kvspec.language import *
from kvspec.pages import Request
from kvspec.quotients import Position
from kvspec.snapshots import Snapshots


class Borrowed(Snapshots, variant="mlx-lm#1699", breaks="S4"):
    """A snapshot of where the request stands is a reference to its live state."""

    @action
    def compute(s, r: Request, n: Position):
        """Change the state in place, and with it what was taken of it."""
        super().compute(r, n)
        taken = lambda x: And(s.running[r], s.stored[x], s.label[x] == s.prefixes[r, s.position[r]])
        s.content = lambda x: If(taken(x), s.after[s.prefixes[r, n]], s.content[x])
