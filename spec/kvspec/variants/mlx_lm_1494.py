"""A trim reports what it did to the first layer."""

from kvspec.blocks import Block, Blocks, Member
from kvspec.language import *


class ReportsTheFirst(Blocks, variant="mlx-lm#1494", breaks="B8"):
    """Layers that cannot be trimmed keep their length, and the cache is longer than its key."""

    @action
    def trim(s, n: Block):
        """Shorten those that can be."""
        s.require(forall(Member, lambda m: n <= s.length[m]))
        s.length = lambda m: If(s.sliced[m], n, s.length[m])
