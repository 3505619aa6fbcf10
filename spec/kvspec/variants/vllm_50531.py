"""Warm-up reserves less than the scheduler would: no lookahead, spare states in one mode only."""

from kvspec.language import If, action
from kvspec.pages import Request
from kvspec.quotients import Position
from kvspec.reservation import Reservation


class WarmsUpShort(Reservation, variant="vllm#50531", breaks="C3"):
    """Warm-up divides what is new by the size of a block."""

    @action
    def warm(s, r: Request, t: Position):
        """Without lookahead, and with spare states in mode `align` alone."""
        s.begin(r, 0, t, lambda g: s.blocks[t] + If(s.aligned[g], s.spares, 0))
