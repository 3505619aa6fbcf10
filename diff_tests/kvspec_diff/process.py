"""A worker process and the lines it exchanges: whatever it does, the call returns, within its time and memory."""

import contextlib
import os
import selectors
import signal
import subprocess
import time
import weakref
from collections import deque
from collections.abc import Sequence

LARGEST_LINE = 2**24
"""The most bytes that a line from a worker may have."""

ENDING = 10.0
"""Seconds that a process has to end once its output is closed; one with torch takes some on a busy machine."""


class Lost(Exception):
    """The process is of no more use: it died, it hangs or its line has no end. One line says which."""


class Process:
    """A child process, in a session of its own, that answers lines with lines. `close` ends it and all it started."""

    def __init__(self, command: Sequence[str], variables: dict[str, str] | None = None) -> None:
        """Start it. Raises `OSError` when the command cannot be run."""
        child = subprocess.Popen(
            list(command), env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True, bufsize=0,
        )  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        self._child = child
        self._finalizer = weakref.finalize(self, _end, child)
        self._input, self._output, self._errors = child.stdin.fileno(), child.stdout.fileno(), child.stderr.fileno()
        self._unsent = bytearray()
        self._partial = bytearray()
        self._lines: deque[bytes] = deque()
        self._said: deque[bytes] = deque([b""], maxlen=8)
        self._ended = False
        self._streams = selectors.DefaultSelector()
        for descriptor in (self._input, self._output, self._errors):
            os.set_blocking(descriptor, False)
        self._streams.register(self._output, selectors.EVENT_READ, self._hear)
        self._streams.register(self._errors, selectors.EVENT_READ, self._overhear)

    @property
    def unsent(self) -> int:
        """The bytes of what was sent that the process has not taken yet."""
        return len(self._unsent)

    def send(self, line: bytes) -> None:
        """Queue a line, its newline included, and pass on as much as the process takes now."""
        self._unsent += line
        self._pass_on()

    def line(self, deadline: float) -> bytes:
        """The next line without its newline; `Lost` when none comes before `deadline` (of `time.monotonic`)."""
        while not self._lines:
            left = deadline - time.monotonic()
            if self._ended:
                raise Lost(self._death())
            if left <= 0:
                raise Lost("no answer in time")
            ready = self._streams.select(min(left, 1))
            for key, _ in ready:
                key.data()
            # A process that it left behind may keep the pipe open.
            self._ended = self._ended or (not ready and self._child.poll() is not None)
        line = self._lines.popleft()
        if len(line) > LARGEST_LINE:
            raise Lost(f"it wrote a line of more than {LARGEST_LINE} bytes")
        return line

    def close(self) -> None:
        """End the process and everything that it started."""
        self._streams.close()
        self._finalizer()

    def _pass_on(self) -> None:
        try:
            taken = os.write(self._input, self._unsent[:65536])
        except BlockingIOError:
            taken = 0
        except OSError:
            taken = len(self._unsent)  # It is gone, or has closed its input: what its output says next tells.
        del self._unsent[:taken]
        watched = self._input in self._streams.get_map()
        if self._unsent and not watched:
            self._streams.register(self._input, selectors.EVENT_WRITE, self._pass_on)
        elif watched and not self._unsent:
            self._streams.unregister(self._input)

    def _hear(self) -> None:
        data = _read(self._output)
        if data is None:
            return
        first, *others = data.split(b"\n")
        self._partial += first
        if others:
            self._lines.extend((bytes(self._partial), *others[:-1]))
            self._partial = bytearray(others[-1])
        if len(self._partial) > LARGEST_LINE:
            self._lines.append(bytes(self._partial))
        self._ended = not data or len(self._partial) > LARGEST_LINE

    def _overhear(self) -> None:
        data = _read(self._errors)
        if data == b"":
            self._streams.unregister(self._errors)
        *whole, rest = (self._said.pop()[-4096:] + (data or b"")).split(b"\n")
        self._said.extend(text for text in whole if text.strip())
        self._said.append(rest)

    def _death(self) -> str:
        """How it ended, and the last thing that it said on its standard error."""
        try:
            code = self._child.wait(timeout=ENDING)
        except subprocess.TimeoutExpired:
            return "it closed its output and runs on"
        for _ in range(64):
            if self._errors in self._streams.get_map():
                self._overhear()
        last = next((text.decode(errors="replace").strip() for text in reversed(self._said) if text.strip()), "")
        how = f"ended with status {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = f"died by {signal.Signals(-code).name}"
        return how + (f", saying: {last[:2000]}" if last else "")


def _read(descriptor: int) -> bytes | None:
    """What is there now: empty at the end of the stream, None when there is nothing yet."""
    try:
        return os.read(descriptor, 2**18)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def _end(child: "subprocess.Popen[bytes]") -> None:
    """Kill the child's whole session and forget its pipes."""
    with contextlib.suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for stream in (child.stdin, child.stdout, child.stderr):
        if stream is not None:
            with contextlib.suppress(OSError):
                stream.close()
