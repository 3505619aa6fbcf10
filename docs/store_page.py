"""What the store's commands print, run on a folder that is made for it."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kvspec_diff.torture import toys
from kvspec_diff.torture.stock import stock

FOLDER = "blocks"


def pages() -> Iterator[tuple[str, str]]:
    """Each command's output, one after the other on the same folder."""
    with tempfile.TemporaryDirectory() as base:
        made(Path(base) / FOLDER)
        yield "store-stats.txt", printed(base, 0, "stats")
        yield "store-verify.txt", printed(base, 1, "verify")
        yield "store-upgrade.txt", printed(base, 0, "upgrade")
        yield "store-gc.txt", printed(base, 0, "gc", "--budget", "100kB")


def made(folder: Path) -> None:
    """Entries of two layouts, some of them older, one damaged, one that was being written."""
    keys = stock(folder, 150)
    stock(folder, 40, older=True)
    stock(folder, 3, layout=toys.LARGE)
    path = folder / f"{keys[120]}.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    (folder / f"{keys[149]}.temporary").write_bytes(data[:300])
    for number, path in enumerate(sorted(folder.iterdir())):
        os.utime(path, (1e9 + number, 1e9 + number))


def printed(base: str, status: int, *words: str) -> str:
    """What a command prints, which must end with this status."""
    command = [sys.executable, "-m", "kvspec_cli", "store", words[0], FOLDER, *words[1:]]
    done = subprocess.run(command, cwd=base, capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        for name, text in pages():
            print(f"== {name}\n{text}")
