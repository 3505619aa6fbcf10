"""What the parts ask of the torch store, in one place."""

from kvspec_torch.block_store import BlockStore
from kvspec_torch.disk.reports import Report


def step(store: BlockStore) -> Report:
    """Write the first of the queue, as the store's writer does in the background."""
    return store._step()


def write_all(store: BlockStore) -> None:
    """Write the queue of a store without a writer of its own; nothing may go wrong."""
    while (report := step(store)).status != "idle":
        if report.status != "acknowledged":
            raise AssertionError(f"was not written: {report}")
