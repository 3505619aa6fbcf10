"""A block in the middle has no state, and what is there of the others is joined."""

from kvspec.blocks import Block, Blocks
from kvspec.language import *


class JoinsAcrossAGap(Blocks, variant="omlx#2550", breaks="B4"):
    """The table counts the block, and its tokens are missing."""

    @action
    def restore(s, n: Block, asked: Block):
        """Build a cache of the n blocks that the table counts, if the last one is there."""
        s.require(And(n <= asked, Or(n == 0, s.stored[n - 1])))
        s.length = lambda m: n
        s.cache = lambda m, b: If(And(s.reaches(m, b, n), s.stored[b], s.holds[m, b]), s.part[m, b], s.cache[m, b])
