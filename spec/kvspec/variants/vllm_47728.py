"""What left the window is freed by the length that is hoped for, drafts included."""

from kvspec.language import action
from kvspec.pages import Request
from kvspec.reservation import Reservation


class SlidesAhead(Reservation, variant="vllm#47728", breaks="R4"):
    """When drafts are refused, the next step reads a page that was given back."""

    @action
    def slide(s, r: Request):
        """Null what is before the window of the last step that was scheduled."""
        s.require(s.running[r])
        s.forget(r, lambda g: s.more(s.whole[s.since[g, s.ahead[r]]], s.lost[r, g]))
