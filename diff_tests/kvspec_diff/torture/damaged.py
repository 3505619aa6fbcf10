"""Damaged entries on a real folder: each is a miss with a reason, and costs no more than its file (E2, E5).

Every bit of a small entry turned round, every length cut to, and headers of which something is wrong. What the reader
takes is counted by Python and bounded by the system; what it touches is heard of by an audit hook.
"""

import os
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from kvspec_torch.block_store import BlockStore

from kvspec_diff.damage import Harm, every_bit, every_length
from kvspec_diff.torture import toys
from kvspec_diff.torture.figures import Part, Tally, Tell
from kvspec_diff.torture.headers import headers
from kvspec_diff.torture.watch import Taken, Watch, limited

WHAT = "every bit and every length of an entry, and headers of which something is wrong"
AT_MOST = 2**16
"""Bytes that reading may take beside eight times the file's size: what Python needs for a header."""
MAPPED = 2**28
"""Bytes of addresses that the process may take beyond what it has: a header that is believed would take more."""
SLIPS = ("absent", "unreadable")
"""Reasons that would mean that the damaged file was not read at all."""


def damaged(mutated: int, tell: Tell, seed: int = 0, every: int = 1) -> Part:
    """Read each damaged entry through a store; of the bits and lengths only one of `every`."""
    tally = Tally("damage", WHAT, tell)
    with tempfile.TemporaryDirectory(prefix="kvspec-torture-") as name:
        folder = Path(name) / "store"
        folder.mkdir()
        with BlockStore(folder, toys.LAYOUT, budget=2**20, writer=False) as store:
            _read_all(store, folder, tally, mutated, seed, every)
    return tally.part()


def _read_all(store: BlockStore, folder: Path, tally: Tally, mutated: int, seed: int, every: int) -> None:
    parent = store.save(None, [1] * toys.TOKENS, toys.block(toys.LAYOUT, 0, 0))
    key = store.save(parent, [2] * toys.TOKENS, whole := toys.block(toys.LAYOUT, 1, 1))
    wrong = [report for report in store.flush() if report.status not in ("idle", "acknowledged")]
    if wrong:
        raise AssertionError(f"was not written: {wrong[0]}")
    (path,) = [each for each in folder.iterdir() if each.name.startswith(key)]
    entry, harm = path.read_bytes(), Harm()
    harms = list(_harms(entry, mutated, seed, every))
    others = {each: each.read_bytes() for each in folder.iterdir() if each != path}
    if not toys.same(store.load(key), whole):
        tally.fault("failed", "the whole entry is not read")
    most, length = 0, len(entry)
    with limited(MAPPED), Taken() as taken, open(path, "r+b", buffering=0) as file, Watch(folder) as watch:
        for number, (kind, how, data) in enumerate(harms):
            tally.tell(number, len(harms), "damaged entries")
            os.pwrite(file.fileno(), data, 0)
            if len(data) < length:
                file.truncate(len(data))
            length = len(data)
            taken.begin()
            harm.try_one(how, data, lambda _: store.load(key))
            most = max(most, took := taken.most())
            if took > AT_MOST + 8 * len(data):
                tally.fault("failed", f"{how}: reading {len(data)} bytes took {took}")
            tally.count(kind)
    path.write_bytes(entry)
    if not toys.same(store.load(key), whole):
        tally.fault("failed", "the whole entry is not read any more")
    if others != {each: each.read_bytes() for each in folder.iterdir() if each != path}:
        tally.fault("failed", "reading a damaged entry changed other files")
    for how, data in harm.misread:
        tally.fault("misread", f"{how}, {len(data)} bytes")
    for event in watch.strange:
        tally.fault("failed", f"the reader touched {event}")
    for reason, count in sorted(harm.reasons.items()):
        tally.count(f"misses, {reason}", count)
        if reason in SLIPS:
            tally.fault("failed", f"{count} damaged entries were not looked at: {reason}")
    tally.least("opened files", watch.seen, len(harms))
    tally.count("bytes of the entry", len(entry))
    tally.count("most bytes taken", most)


def _harms(entry: bytes, mutated: int, seed: int, every: int) -> Iterator[tuple[str, str, bytes]]:
    sources = {"bits": every_bit(entry), "lengths": every_length(entry)}
    for kind, source in sources.items():
        yield from ((kind, how, data) for at, (how, data) in enumerate(source) if at % every == 0)
    yield from chain(("headers", how, data) for how, data in headers(entry, mutated, seed))
