"""Runs one part in this process: `python -m kvspec_diff.torture PART NUMBERS`. Progress and the part as JSON lines."""

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


if __name__ == "__main__":
    asked = msgspec.json.decode(sys.argv[2], type=Asked)
    say(Said(part=here(sys.argv[1], asked, telling())))
