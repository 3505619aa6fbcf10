"""A hand-off fails, and the stream falls back into a speculative cycle, so that a late request waits to the end."""

from kvspec.drain import Drain
from kvspec.language import action


class SpeculatesOn(Drain, variant="omlx#2515", breaks="J4"):
    """Each time it is about to join, a queue is before it again."""

    @action
    def fail(s):
        """Emit the next input, and begin another cycle, whose draft is all accepted."""
        super().fail()
        s.speculates = True
        s.fed, s.committed = s.fed + s.drafts + 1, s.committed + s.drafts + 1
        s.queued = s.drafts + 1
