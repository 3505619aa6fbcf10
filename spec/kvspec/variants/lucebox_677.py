"""A request is aborted, and its cache is kept for other requests, though it is not that of what was emitted."""

from kvspec.drain import Drain
from kvspec.language import action


class ExportsOnCancel(Drain, variant="lucebox#677", breaks="J3"):
    """What is cancelled is exported like what is finished."""

    @action
    def cancel(s):
        """Leave the cache to the keeper."""
        super().cancel()
        s.owns = lambda o: o == s.keeper
