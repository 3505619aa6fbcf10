"""The check of what fits counts the null block among what requests may have."""

from kvspec.admission import Admission, Pool
from kvspec.language import action, forall


class CountsNull(Admission, variant="vllm#47272", breaks="A5"):
    """A pool of one block starts, and has no room."""

    @action
    def start(s):
        """Start up with any page at all."""
        s.expect(forall(Pool, lambda g: s.pages[g] > 0), "A5")
        s.started = True
