"""Ctrl-C that does not get lost.

Python raises `KeyboardInterrupt` wherever it is. Inside a destructor it is dropped, and inside a call into a C library,
as z3's, it may come out as another error. Both happen within a few tries while a proof runs.
"""

import contextlib
import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Self

AGAIN = 0.05
"""Seconds until a dropped interrupt is tried again."""


class Interrupts:
    """In a `with`: `asked` tells whether the user pressed Ctrl-C; where that was dropped, it is raised again."""

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None
        self._hook = sys.unraisablehook

    def __enter__(self) -> Self:
        with contextlib.suppress(ValueError):  # only the main thread has signals
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        self._hook, sys.unraisablehook = sys.unraisablehook, self._dropped
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        sys.unraisablehook = self._hook
        if self._before is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN if self.asked else self._before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        raise KeyboardInterrupt

    def _dropped(self, dropped: "sys.UnraisableHookArgs") -> None:
        if not self.asked:
            self._hook(dropped)
            return
        timer = threading.Timer(AGAIN, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()
