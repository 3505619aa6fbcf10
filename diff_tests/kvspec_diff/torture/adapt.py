"""What the parts ask of the torch store, in one place."""

from typing import Any

from kvspec_torch.entry_format import CHECKSUM, checksum
from kvspec_torch.store import BlockStore


def seal(data: bytes) -> bytes:
    """An entry with the checksum that fits it, if there is a place for one."""
    if len(data) <= CHECKSUM.stop:
        return data
    return data[: CHECKSUM.start] + checksum(memoryview(data)) + data[CHECKSUM.stop :]


def write_all(store: BlockStore) -> list[Any]:
    """Write the queue of a store without a writer of its own; the reports, each of them `acknowledged`."""
    reports = []
    while (report := store.write_next()).status != "idle":
        reports.append(report)
        if report.status != "acknowledged":
            raise AssertionError(f"was not written: {report}")
    return reports
