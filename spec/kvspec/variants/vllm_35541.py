"""A request that is larger than the pool is queued, and waits for ever."""

from kvspec.admission import Admission
from kvspec.language import action
from kvspec.pages import Request


class QueuesAnything(Admission, variant="vllm#35541", breaks="A6"):
    """Nobody asks whether it can ever be served."""

    @action
    def arrive(s, r: Request):
        """Queue it."""
        s.require(s.started)
        s.alive[r] = True
