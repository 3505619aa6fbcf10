"""What a store says of its writing: nothing goes wrong silently (T6)."""

from dataclasses import dataclass
from typing import Literal

Status = Literal["idle", "acknowledged", "unsettled", "waiting", "failed"]


@dataclass(frozen=True)
class Report:
    """What a call of `write_next` came to, for the first key of the queue.

    idle: there is nothing to write. acknowledged: it will be found after a crash. unsettled: it is in the folder, but a
    crash may still take it; the next call tries again. waiting: it is still queued, since more has to go, or the folder
    could not be synced; the next call tries again. failed: its file was given up, and the one that was there stays
    (T6); a store with `again` has queued it once more.
    """

    status: Status
    key: str | None = None
    reason: str = ""
    evicted: tuple[str, ...] = ()
    acknowledged: tuple[str, ...] = ()  # all that are since this call
    error: OSError | None = None

    @property
    def progress(self) -> bool:
        """Whether it brought the queue nearer to its end."""
        return self.status == "acknowledged" or bool(self.evicted)
