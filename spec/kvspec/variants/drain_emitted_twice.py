"""The last token queued is emitted by the drain, and again as the next input: no engine's, but easily made."""

from kvspec.drain import Drain
from kvspec.language import action


class EmitsTwice(Drain, variant="drain-emitted-twice", breaks="J1"):
    """What is taken as the next input is taken for emitted too."""

    @action
    def take(s):
        """Emit the last one, and keep it."""
        super().take()
        s.emitted = s.emitted + 1
