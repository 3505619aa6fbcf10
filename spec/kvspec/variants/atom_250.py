"""A decode step makes room for one new token only, though drafts are scheduled with it."""

from kvspec.speculation import Speculation


class AppendsOne(Speculation, variant="ATOM#250", breaks="C4"):
    """A step is taken to be one position long."""

    def planned(s, r, g, n, k):
        return s.need(r, g, s.ahead[r] + 1)
