"""The speculative extra is subtracted after the length was cut at the limit, where it had no part in it."""

from kvspec.language import If, Or
from kvspec.reservation import Reservation


class SubtractsTwice(Reservation, variant="trtllm#13935", breaks="C1"):
    """Near the limit the table is too short."""

    def planned(s, r, g, n, k):
        end = s.ahead[r] + n + k + s.lookahead
        cut = s.blocks[s.more(If(end < s.limit, end, s.limit), s.lookahead)] + If(s.recurrent[g], s.spares, 0)
        return If(Or(s.crossed[g], s.aligned[g]), super().planned(r, g, n, k), cut)
