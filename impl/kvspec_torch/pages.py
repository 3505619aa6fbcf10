"""Who holds a page, and when it may be handed out again (R3, O1-O3, O5, O6), on torch tensors.

Same contract and same results as `kvspec_reference.pages`, page ids and their order included: blank pages are handed
out in the order they became blank. Two paths. The *host* path works on NumPy views of CPU tensors and raises at once.
The *device* path never makes the host wait: a misuse or a refusal makes the whole operation void on the device, and
`check` reports the misuse. Unverified on CUDA: it was run on CPU tensors and traced under FakeTensorMode.
"""

from typing import Any, Literal

import torch

from kvspec_torch.device.pages import DevicePool
from kvspec_torch.errors import Misuse
from kvspec_torch.forms import whole
from kvspec_torch.host.pages import HostPool
from kvspec_torch.states import BLANK, CACHED, MOST_PAGES, RELEASED

Path = Literal["host", "device"]


class PagePool:
    """Pages 1..`pages` on `device`; usable alone, without rows.

    `path` chooses the path; by default `host` on the CPU and `device` elsewhere. Tensors of page ids are int64 of one
    dimension on the pool's device. A tensor handed out is the caller's, one taken is copied if it is kept (D5).

    On the host path a call raises `Misuse` or `Refused` and changes nothing. On the device path a misuse of form (type,
    shape, a negative count) still raises at once; every other failure is on the device, see `status` and `check`.
    """

    _host: type[HostPool] = HostPool
    _device: type[DevicePool] = DevicePool

    def __init__(self, pages: int, device: torch.device | str = "cpu", path: Path | None = None) -> None:
        self.pages = whole("pages", pages)
        if not 1 <= self.pages <= MOST_PAGES:
            raise Misuse(f"a pool has 1 to {MOST_PAGES} pages, not {pages}")
        self.device = torch.device(device)
        self.path: Path = path or ("host" if self.device.type == "cpu" else "device")
        if self.path not in ("host", "device") or (self.path == "host" and self.device.type != "cpu"):
            raise Misuse(f"path: {path!r} is none for {self.device}, 'device' is one and for the CPU 'host'")
        self._path = (self._host if self.path == "host" else self._device)(self.pages, self.device)

    @property
    def available(self) -> int | torch.Tensor:
        """How many pages `allocate` can hand out (O6): an int; on the device path an int64 scalar there."""
        return self._path.available

    def allocate(self, n: int) -> torch.Tensor:
        """Hand out `n` blank pages with one holder each, int64[n], in FIFO order (O5).

        Misuse for n < 0; refused if n exceeds `available`: on the device path the pages are then all null (0).
        """
        return self._path.allocate(n)

    def release(self, pages: torch.Tensor) -> None:
        """Take one holder from each of `pages`; those without one, if not published, become blank in this order (O2).

        Misuse if a page is null, unknown, named twice, or has no holder.
        """
        self._path.release(pages)

    def share(self, pages: torch.Tensor) -> None:
        """Give each of `pages` one more holder: a row entry or a pin. Each must be held or published."""
        self._path.share(pages)

    def publish(self, pages: torch.Tensor) -> None:
        """Put `pages`, each held or published already, into the prefix cache, in this order."""
        self._path.publish(pages)

    def evict(self, count: int) -> torch.Tensor:
        """Make up to `count` published pages without holders blank, longest published first, and return them, int64.

        On the device path the tensor has min(count, pages) elements, null (0) where there was no page to take. Misuse
        for count < 0.
        """
        return self._path.evict(count)

    @property
    def status(self) -> torch.Tensor:
        """What became of the last operation, an int64 scalar on the device: 0 done, 1 refused, 2 misuse."""
        return self._path.status

    def check(self) -> None:
        """Raise the first `Misuse` since the last check. Device path: the only place where the host waits and reads."""
        self._path.check()

    def backup(self) -> dict[str, torch.Tensor]:
        """A copy of the whole state, an open group and what it defers included (D6)."""
        return self._path.backup()

    def restore(self, saved: dict[str, torch.Tensor]) -> None:
        """Make the state that of a `backup` of a pool of this size, class and path; misuse if it is none."""
        now = self._path.backup()
        if saved.keys() != now.keys() or any(
            saved[name].shape != now[name].shape or saved[name].dtype != now[name].dtype for name in now
        ):
            raise Misuse("restore: not the backup of a pool of this size, class and path")
        self._path.restore(saved)

    def snapshot(self) -> dict[str, Any]:
        """The whole state in the reference's form, for comparing. Reads everything: not for use on a device at work."""
        saved = {name: tensor.cpu() for name, tensor in self.backup().items()}
        head, count = saved["numbers"].tolist()[:2]
        state, ring = saved["state"].long(), saved["ring"]
        published = (state >= CACHED).nonzero().flatten()
        holders = torch.where(state > 0, state % CACHED, 0)
        held = holders.nonzero().flatten()
        deferring = "open" in saved
        blank = [ring[(head + i) % self.pages].item() for i in range(count)]
        if sorted(blank) != ((state <= BLANK) & (state > RELEASED)).nonzero().flatten().tolist():
            raise AssertionError("the blank pages of the ring are not those whose state is blank")
        return {
            "blank": blank,
            "cached": published[saved["order"][published].argsort()].tolist(),
            "released": saved["released"][: int(saved["waiting"])].tolist() if deferring else [],
            "refs": dict(zip(held.tolist(), holders[held].tolist(), strict=True)),
            "open": deferring and bool(saved["open"]),
        }
