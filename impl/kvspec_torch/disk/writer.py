"""Writes what is queued, in the background."""

from collections.abc import Callable
from threading import Condition, Thread

from kvspec_torch.disk.reports import Report

PAUSE = 1.0
"""Seconds until what could not be written is tried again, if nothing is asked before."""


class Writer:
    """A thread that takes a `step` whenever there is something to do, until it is stopped.

    `woken` guards what `busy` looks at, and is notified whenever that changes. A step that made no progress is tried
    again after a pause. An error that no step should raise ends the thread and is kept in `error`.
    """

    def __init__(self, step: Callable[[], Report], busy: Callable[[], bool], woken: Condition) -> None:
        self._step, self._busy, self._woken = step, busy, woken
        self._stopping = False
        self.error: Exception | None = None
        self._thread = Thread(target=self._run, name="kvspec-writer", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """After the step that is being taken; the rest of the queue stays."""
        with self._woken:
            self._stopping = True
            self._woken.notify_all()
        self._thread.join()

    def _run(self) -> None:
        progress = True
        while True:
            with self._woken:
                if not progress:
                    self._woken.wait_for(lambda: self._stopping, PAUSE)
                self._woken.wait_for(lambda: self._stopping or self._busy())
                if self._stopping:
                    return
            try:
                report = self._step()
            except Exception as error:
                self.error = error
                return
            progress = report.progress or report.status == "idle"
