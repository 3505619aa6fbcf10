"""The arrays of a layer are restored, and its position is not."""

from kvspec.blocks import Block, Blocks
from kvspec.language import *


class ForgetsThePosition(Blocks, variant="vllm-metal#144", breaks="B5"):
    """Later tokens are computed at the wrong positions."""

    @action
    def restore(s, n: Block, asked: Block):
        """Build the cache, and leave the counters of what is sliced."""
        super().restore(n, asked)
        s.length = lambda m: If(s.sliced[m], s.length[m], n)
