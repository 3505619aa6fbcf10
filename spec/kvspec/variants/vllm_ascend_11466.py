"""The table of a recurrent group has no columns for the states of drafts."""

from kvspec.language import If
from kvspec.speculation import Speculation


class NoSpareStates(Speculation, variant="vllm-ascend#11466", breaks="C7"):
    """The state blocks for speculation are left out."""

    def planned(s, r, g, n, k):
        return super().planned(r, g, n, k) - If(s.recurrent[g], s.spares, 0)
