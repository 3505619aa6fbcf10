"""Groups of deferred frees on NumPy views. Contracts and laws: `kvspec_torch.deferred_free`."""

import torch

from kvspec_torch.errors import Misuse
from kvspec_torch.host.pages import HostPool, Ids
from kvspec_torch.states import BLANK, RELEASED


class HostDeferredPool(HostPool):
    """A pool whose freed pages wait, copied, in `released` while a group is open."""

    def __init__(self, pages: int, device: torch.device) -> None:
        super().__init__(pages, device)
        self.released = torch.zeros(pages, dtype=torch.int64)
        self._released: Ids = self.released.numpy()
        self._released1 = self._released.data
        self._blank_marks, self._released_marks = self._marks, RELEASED - self._places
        self.waiting = 0  # how many pages are deferred
        self.open = False

    def begin(self) -> None:
        if self.open:
            raise Misuse("a group is open already")
        self._set_open(True)

    def end(self) -> None:
        if not self.open:
            raise Misuse("no group is open")
        self._set_open(False)
        pages = self._released[: self.waiting]
        self._state[pages] = BLANK
        self._make_blank(pages)
        self.waiting = 0

    def _set_open(self, open_: bool) -> None:
        self.open = open_
        self._marks = self._released_marks if open_ else self._blank_marks

    def _let_go_one(self, page: int) -> None:
        if not self.open:
            super()._let_go_one(page)
        else:
            self._released1[self.waiting] = page
            self.waiting += 1

    def _let_go(self, ids: Ids) -> None:
        if not self.open:
            self._make_blank(ids)
        else:
            self._released[self.waiting : self.waiting + len(ids)] = ids
            self.waiting += len(ids)

    def backup(self) -> dict[str, torch.Tensor]:
        waiting, open_ = torch.tensor(self.waiting), torch.tensor(self.open)
        return super().backup() | {"released": self.released.clone(), "waiting": waiting, "open": open_}

    def restore(self, saved: dict[str, torch.Tensor]) -> None:
        super().restore(saved)
        self.released.copy_(saved["released"])
        self.waiting = int(saved["waiting"])
        self._set_open(bool(saved["open"]))
