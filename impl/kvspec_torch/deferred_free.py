"""Frees that wait for the end of their group (D1-D6), on torch tensors: `kvspec_reference.deferred_free`, in batches.

What is deferred is the page that was named when the call was made, copied: what the caller does to its tensors
afterwards changes nothing (D1, D5).
"""

import torch

from kvspec_torch.device.deferred_free import DeviceDeferredPool
from kvspec_torch.host.deferred_free import HostDeferredPool
from kvspec_torch.pages import PagePool, Path
from kvspec_torch.rows import Rows


class DeferredPagePool(PagePool):
    """A pool with groups of deferred frees."""

    _host = HostDeferredPool
    _device = DeviceDeferredPool
    _path: HostDeferredPool | DeviceDeferredPool

    def begin(self) -> None:
        """Open a group, one at a time (D4): a page whose last holder leaves is deferred instead of becoming blank."""
        self._path.begin()

    def end(self) -> None:
        """Close the group: the deferred pages become blank, in the order they were deferred (D2, D3)."""
        self._path.end()


class Cache(Rows):
    """Everything at once: rows over a pool with deferred frees."""

    def __init__(
        self,
        pages: int,
        page_size: int = 1,
        *,
        rows: int,
        entries: int,
        pins: int = 64,
        device: torch.device | str = "cpu",
        path: Path | None = None,
    ) -> None:
        self.groups = DeferredPagePool(pages, device, path)
        super().__init__(self.groups, page_size, rows=rows, entries=entries, pins=pins)

    def begin(self) -> None:
        """Open a group of deferred frees; misuse if one is open."""
        self.groups.begin()

    def end(self) -> None:
        """Close the group: everything named in it is freed, once. Misuse if none is open."""
        self.groups.end()
