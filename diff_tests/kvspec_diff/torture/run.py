"""Each part in a process of its own: it forks, lowers limits, and may have a planted fault."""

import os
import sys
import tempfile
import time

import msgspec

from kvspec_diff.process import Lost, Process
from kvspec_diff.torture.figures import Part, Tell

NAMES = ("power", "kills", "damage", "disk")
PATIENCE = 600.0
"""Seconds from one line of a part to the next."""


class Asked(msgspec.Struct, frozen=True):
    """How much of each is done, and what is planted."""

    programs: int = 500
    kills: int = 1000
    headers: int = 10_000
    seed: int = 0
    planted: str = ""
    every: int = 1
    """Of the bits and lengths only one of so many: for a test in a hurry."""


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a part: how far it is, or what came of it."""

    done: int = 0
    of: int | None = None
    at: str = ""
    part: Part | None = None


def here(name: str, asked: Asked, tell: Tell) -> Part:
    """One part in this process."""
    from kvspec_diff.torture import plants

    plants.plant(asked.planted, name)
    if name == "power":
        from kvspec_diff.torture.power import power

        return power(asked.programs, tell, asked.seed)
    if name == "kills":
        from kvspec_diff.torture.kills import kills

        return kills(asked.kills, tell, asked.seed)
    if name == "damage":
        from kvspec_diff.torture.damaged import damaged

        return damaged(asked.headers, tell, asked.seed, asked.every)
    from kvspec_diff.torture.disks import disks

    return disks(40 // asked.every, 2000 // asked.every, tell)


def apart(name: str, asked: Asked, tell: Tell) -> Part:
    """The same in a process of its own, in a folder that is deleted. A part that falls over has failed."""
    with tempfile.TemporaryDirectory(prefix="kvspec-torture-", ignore_cleanup_errors=True) as base:
        os.chmod(base, 0o755)  # one part looks at it as nobody
        command = [sys.executable, "-m", "kvspec_diff.torture", name, msgspec.json.encode(asked).decode(), base]
        process, start = Process(command, os.environ | {"TMPDIR": base}), time.monotonic()
        try:
            while True:
                said = msgspec.json.decode(process.line(time.monotonic() + PATIENCE), type=Said)
                if said.part is not None:
                    return said.part
                tell(said.done, said.of, said.at)
        except (Lost, msgspec.DecodeError) as error:
            seconds = round(time.monotonic() - start, 1)
            return Part(name, "fell over", False, {}, 0, 0, 1, [f"failed: the process fell over: {error}"], seconds)
        finally:
            process.close()
