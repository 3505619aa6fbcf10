"""A resize counts blocks again that are there already."""

from kvspec.reservation import Reservation


class CountsAgain(Reservation, variant="trtllm#14531", breaks="C5"):
    """The spare blocks are added to a table that has them."""

    def planned(s, r, g, n, k):
        return super().planned(r, g, n, k) + s.spares
