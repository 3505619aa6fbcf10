"""Pages for drafts are never recorded, and so not given back."""

from kvspec.language import action
from kvspec.pages import Request
from kvspec.reservation import Reservation


class FreesTheComputed(Reservation, variant="sglang#13741", breaks="C9"):
    """The end of a request frees what its settled positions need."""

    @action
    def finish(s, r: Request):
        """What was reserved beyond what is settled is lost."""
        super().finish(r)
        s.used = lambda g: s.more(s.used[g], s.blocks[s.settled[r]])
