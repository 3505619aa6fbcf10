"""Groups of deferred frees without host waits. Contracts and laws: `kvspec_torch.deferred_free`. Unverified on CUDA.

Whether a group is open is known on the host, since the caller's calls decide it; how many pages wait is known on the
device, and on the host only that they are no more than the calls in the group have named.
"""

import torch

from kvspec_torch.device.pages import DevicePool
from kvspec_torch.errors import Misuse
from kvspec_torch.states import BLANK, NULL, RELEASED


class DeviceDeferredPool(DevicePool):
    """A pool whose freed pages wait, copied, in `released` while a group is open."""

    def __init__(self, pages: int, device: torch.device) -> None:
        super().__init__(pages, device)
        self.released = torch.zeros(pages + 1, dtype=torch.int64, device=device)  # one cell to spare
        self.waiting = torch.zeros((), dtype=torch.int64, device=device)
        self.most_waiting = 0
        self.open = False

    def begin(self) -> None:
        if self.open:
            raise Misuse("a group is open already")
        self.report.done()
        self._set_open(True)

    def end(self) -> None:
        if not self.open:
            raise Misuse("no group is open")
        self.report.done()
        self._set_open(False)
        which = self.places[: self.most_waiting] < self.waiting
        pages = torch.where(which, self.released[: self.most_waiting], 0)
        self.state.scatter_(0, pages, torch.where(which, BLANK, NULL).to(torch.int32))
        self._make_blank(pages, which)
        self.waiting.zero_()
        self.most_waiting = 0

    def _set_open(self, open_: bool) -> None:
        self.open = open_
        self._mark = RELEASED if open_ else BLANK

    def _let_go(self, ids: torch.Tensor, which: torch.Tensor) -> None:
        if not self.open:
            self._make_blank(ids, which)
            return
        cell = torch.where(which, self.waiting + which.cumsum(0) - 1, self.pages)
        self.released.scatter_(0, cell, ids)
        self.waiting += which.sum()
        self.most_waiting = min(self.most_waiting + ids.numel(), self.pages)

    def backup(self) -> dict[str, torch.Tensor]:
        released, waiting = self.released.clone(), self.waiting.clone()
        return super().backup() | {"released": released, "waiting": waiting, "open": torch.tensor(self.open)}

    def restore(self, saved: dict[str, torch.Tensor]) -> None:
        super().restore(saved)
        self.released.copy_(saved["released"])
        self.waiting.copy_(saved["waiting"])
        self.most_waiting = self.pages
        self._set_open(bool(saved["open"]))  # kept on the host
