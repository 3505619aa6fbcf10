"""A deferred free keeps a view of the caller's row, and the row is rewritten before the group ends."""

from kvspec.deferred_free import Call, DeferredFree
from kvspec.language import And, exists
from kvspec.pages import Entry


class ViewQueued(DeferredFree, variant="sglang#34067", breaks="D1"):
    """The end of the group looks each queued page up again, in the row that it was named from."""

    def end_with(s, freed):
        viewed = lambda p: exists(Call, Entry, lambda c, j: And(s.queued[c, j], s.row[s.source[c], j] == p))
        super().end_with(viewed)
