"""The blocks of cross-attention are counted from the text, not from the encoder's input."""

from kvspec.language import If, action
from kvspec.pages import Request
from kvspec.quotients import Position
from kvspec.reservation import Reservation


class CountsTheText(Reservation, variant="trtllm#19514", breaks="C1"):
    """A long encoder input and a short text do not fit."""

    @action
    def admit(s, r: Request, t: Position):
        """Cross-attention is given what the longest text would need."""
        s.begin(r, t, t, lambda g: If(s.crossed[g], s.blocks[s.limit], s.need(r, g, t)))
