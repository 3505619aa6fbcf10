"""A step over several tokens passes a boundary, and the state behind it is filed under the boundary."""

from kvspec.language import *
from kvspec.pages import Request
from kvspec.quotients import Position
from kvspec.snapshots import Snapshot, Snapshots


class FiledTooEarly(Snapshots, variant="atlas#156", breaks="S3"):
    """The label is rounded down, the state is not."""

    @action
    def record(s, r: Request, x: Snapshot, n: Position):
        """Take a snapshot for a position that was passed."""
        s.require(And(s.running[r], Not(s.stored[x]), n <= s.position[r]))
        s.stored[x], s.label[x], s.content[x] = True, s.prefixes[r, n], s.live[r]
