"""A slot that was taken before admission declined is not put back."""

from kvspec.admission import Admission
from kvspec.language import action
from kvspec.pages import Request


class LosesASlot(Admission, variant="sglang#16067", breaks="A2"):
    """Each time a request is declined there is less."""

    @action
    def decline(s, r: Request):
        """What was taken for it stays taken."""
        super().decline(r)
        s.used = lambda g: s.used[g] + 1
