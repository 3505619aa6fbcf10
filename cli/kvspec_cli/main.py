"""The command line: reads it, runs one command, and turns every known error into one line. Status 0, 1 or 2.

0: everything held. 1: something was found. 2: the input cannot be used, or the run was cut short; nothing was left half
written. Everything is imported inside `main`, where Ctrl-C is heard; commands import what they need when they run, so
that `--help` answers at once.
"""

import contextlib
import os
import sys
from collections.abc import Sequence

from kvspec_cli.interrupts import Interrupts
from kvspec_cli.plain import visible

USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `kvspec` with these arguments, or the process's own; the exit status."""
    with Interrupts() as interrupts:
        try:
            if not stand_in():
                return failed("standard output is closed; send it to a file, or to /dev/null")
            for stream in (sys.stdout, sys.stderr):
                if hasattr(stream, "reconfigure"):
                    stream.reconfigure(errors="backslashreplace")
            return run(sys.argv[1:] if arguments is None else list(arguments))
        except BaseException as error:
            if interrupts.asked or isinstance(error, KeyboardInterrupt):
                return failed("interrupted; nothing was left half written")
            from kvspec_cli.errors import explained

            line = explained(error)
            if line is None:
                raise
            return failed(line)


def stand_in() -> bool:
    """Put an empty stream in the place of each standard one that is closed; False when standard output was.

    The next file that is opened would take its number, and be written to by whoever takes it for the stream.
    """
    open_ = sys.stdout is not None
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):
                if os.open(os.devnull, os.O_RDWR) == number:
                    os.set_inheritable(number, True)
            setattr(sys, name, open(os.devnull, "w" if number else "r"))  # noqa: SIM115
    return open_


def run(arguments: list[str]) -> int:
    """Run one command, and see to it that what it printed is out."""
    from kvspec_cli.app import APP
    from kvspec_cli.screen import writing

    try:
        status = APP(arguments, exit_on_error=False, print_error=False)
        with writing():
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit):  # whoever read our output has seen enough; rich exits then
        silence()
        return USAGE
    return int(status or 0)


def failed(line: str) -> int:
    """Say what is wrong; the exit status for it."""
    silence()
    try:
        print(f"kvspec: {visible(line)}", file=sys.stderr, flush=True)
    except OSError:  # there is nobody left to tell, and what is left would fail again when Python ends
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    return USAGE


def silence() -> None:
    """What is still to be written to a standard output that takes nothing any more is dropped, without a word."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
