"""Every block holds the whole state of what is before it: a prefix of n blocks costs n * n."""

from kvspec.blocks import Block, Blocks
from kvspec.language import *


class StoresTheWhole(Blocks, variant="omlx#2551", breaks="B6"):
    """282.7 GB on disk, for one session of 84 thousand tokens."""

    @action
    def store(s, b: Block):
        """Store a block with what is before it."""
        super().store(b)
        s.bytes[b] = s.each + b
