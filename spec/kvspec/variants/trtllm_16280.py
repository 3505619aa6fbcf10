"""The host reserves from what it knows to be settled, while the device runs one draft round ahead."""

from kvspec.speculation import Speculation


class ReservesBehind(Speculation, variant="trtllm#16280", breaks="C4"):
    """Steps that have not retired are not reckoned with."""

    def planned(s, r, g, n, k):
        return s.need(r, g, s.settled[r] + n + k)
