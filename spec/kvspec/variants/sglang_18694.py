"""A request that has finished stays in the batch, and is preempted."""

from kvspec.admission import Admission
from kvspec.language import action
from kvspec.pages import Request


class FinishesHalf(Admission, variant="sglang#18694", breaks="A4"):
    """What it had is given back at its end, and once more when it is preempted."""

    @action
    def finish(s, r: Request):
        """It leaves the queue and goes on running."""
        s.alive[r] = False
        s.used = lambda g: s.used[g] - s.has[r, g]
        s.promised = lambda g: s.promised[g] - s.due[r, g]
