"""Between the queue and the file an entry is in the writer's hands, where no reader looks."""

from kvspec.language import *
from kvspec.tiers import Key, Tiers


class WritesUnseen(Tiers, variant="omlx#1298", breaks="T3"):
    """Whoever asks for it then finds nothing, and takes it out of the index."""

    @action
    def begin(s, k: Key):
        """The writer takes what is queued."""
        d = s.place[k]
        s.require(And(s.queued[k] != 0, s.temp[k] == 0))
        s.queued[k], s.waiting[d] = 0, s.waiting[d] - 1
