"""A loaded chunk is written over pages that the engine had cached and shares."""

from kvspec.language import And, Implies, action
from kvspec.pages import Entry, Offset, Request
from kvspec.read_law import ReadLaw, Token


class WritesShared(ReadLaw, variant="LMCache#2206", breaks="O7"):
    """A write goes to the row's page without asking who else has it."""

    @action
    def write(s, r: Request, k: Entry, o: Offset, t: Token):
        """Write t at a position of r."""
        p = s.row[r, k]
        s.require(And(s.live[r, k], Implies(s.settled[r, k, o], t == s.prefix[r, k, o])))
        s.content[p, o], s.written[p, o] = t, True
