"""No slots are reserved for what the draft head writes past the step."""

from kvspec.language import If, Or
from kvspec.speculation import Speculation


class ForgetsTheDrafter(Speculation, variant="vllm#16370", breaks="C2"):
    """The lookahead is left out when a step is scheduled."""

    def planned(s, r, g, n, k):
        alone = s.blocks[s.ahead[r] + n + k] + If(s.recurrent[g], s.spares, 0)
        return If(Or(s.crossed[g], s.aligned[g]), super().planned(r, g, n, k), alone)
