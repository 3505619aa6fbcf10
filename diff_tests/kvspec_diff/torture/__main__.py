"""Runs one part in this process: `python -m kvspec_diff.torture PART NUMBERS`. Progress and the part as JSON lines.

With a third argument, a folder, it ends when its standard input does, that is with its parent; then the folder goes.
"""

import contextlib
import os
import shutil
import signal
import sys
import time

import msgspec

from kvspec_diff.torture.figures import Tell
from kvspec_diff.torture.run import Asked, Said, here

EVERY = 0.2
"""Seconds between two lines of progress."""


def telling() -> Tell:
    """Progress as lines on standard output."""
    last = 0.0

    def tell(done: int, of: int | None, at: str) -> None:
        nonlocal last
        if time.monotonic() - last >= EVERY:
            last = time.monotonic()
            say(Said(done, of, at))

    return tell


def say(said: Said) -> None:
    """One line."""
    sys.stdout.buffer.write(msgspec.json.encode(said) + b"\n")
    sys.stdout.buffer.flush()


def watched(base: str) -> None:
    """Have a process of its own wait for the end of standard input, which is that of the parent, however it ends."""
    part, group = os.getpid(), os.getpgrp()
    if os.fork():
        return
    os.setsid()  # it outlives the group
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nothing, stream)  # the end of the part is that of its output
    with contextlib.suppress(BaseException):
        while os.read(0, 4096):
            pass
        if os.getppid() == part:
            os.killpg(group, signal.SIGKILL)
        for _ in range(50):  # what the group was writing may be there a moment later
            shutil.rmtree(base, ignore_errors=True)
            if not os.path.exists(base):
                break
            time.sleep(0.1)
    os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        watched(sys.argv[3])
    asked = msgspec.json.decode(sys.argv[2], type=Asked)
    say(Said(part=here(sys.argv[1], asked, telling())))
