"""The draft path reserves one step too many."""

from kvspec.language import If
from kvspec.reservation import Reservation


class OneStepTooMany(Reservation, variant="sglang#20872", breaks="C5"):
    """A block is reserved that no step writes."""

    def planned(s, r, g, n, k):
        end = s.ahead[r] + n + k + n + k
        return s.need(r, g, If(end < s.limit, end, s.limit))
