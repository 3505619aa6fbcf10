"""What a request reads where: rows of pages, in batches (R1, R4-R6, O7, O8). The contract is `kvspec_reference.rows`.

A batch is a tensor of row ids, no row twice, and for each row the other operands. It is judged as a whole on the state
before the call, and then acts as its operations would one after the other: all of it or nothing. All operands are
int64[batch] on the pool's device. Results that differ in length by row are int64[batch, width], null (0) on the right;
slot 0 is padding, so they can be used as they are (R3).

`most` is the largest number of positions (for `allocate`, `write` and `read`) or entries (elsewhere) that a row of the
batch names; it is the width of results. Without it the host path looks, and the device path assumes a whole row.

Row ids and pin ids are the caller's to choose, below `rows` and `pins`.
"""

from typing import Any

import torch

from kvspec_torch.device.rows import DeviceRows
from kvspec_torch.errors import Misuse
from kvspec_torch.forms import matrix, vector, whole
from kvspec_torch.host.pages import HostPool
from kvspec_torch.host.rows import HostRows
from kvspec_torch.pages import PagePool
from kvspec_torch.states import UNWRITTEN, handed_out


class Rows:
    """The rows of a pool: `rows` page tables of `entries` entries each, `pins` reads at a time.

    Two tensors stand in for the model: `tokens`, what each request is to read, and the content of every cell.
    """

    def __init__(self, pool: PagePool, page_size: int = 1, *, rows: int, entries: int, pins: int = 64) -> None:
        sizes = {"page_size": page_size, "rows": rows, "entries": entries, "pins": pins}
        for name, size in sizes.items():
            if whole(name, size) < 1:
                raise Misuse(f"{name}: at least 1 is wanted, not {size}")
        self.pool = pool
        self.page_size, self.entries, self.positions = page_size, entries, entries * page_size
        long: dict[str, Any] = {"dtype": torch.int64, "device": pool.device}
        self._tensors = {
            "table": torch.zeros(rows + 1, entries, dtype=torch.int32, device=pool.device),
            "length": torch.zeros(rows + 1, **long),
            "request": torch.full((rows + 1,), -1, **long),
            "tokens": torch.zeros(rows + 1, self.positions, **long),
            "settled": torch.zeros(rows + 1, self.positions, dtype=torch.bool, device=pool.device),
            "content": torch.full((pool.pages + 1, page_size), UNWRITTEN, **long),
            "pin_page": torch.zeros(pins + 1, **long),
            "pin_request": torch.zeros(pins + 1, **long),
            "started": torch.zeros(1, **long),
        }  # one row and one pin to spare, for what the device path leaves out
        self._path: HostRows | DeviceRows
        if isinstance(pool._path, HostPool):
            self._path = HostRows(pool._path, page_size, self._tensors)
        else:
            self._path = DeviceRows(pool._path, page_size, self._tensors)

    def start(self, rows: torch.Tensor, tokens: torch.Tensor) -> None:
        """Begin empty rows for requests that are to read `tokens`, int64[batch, entries * page_size] (copied)."""
        self._vectors(rows=rows)
        self._path.start(rows, matrix("tokens", tokens, self.pool.device.type, (rows.numel(), self.positions)))

    def allocate(
        self, rows: torch.Tensor, tokens: torch.Tensor, most: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Reserve so many more positions for each row (O5): the new pages, and the slots of the new positions.

        Int64[batch, ceil(most / page_size)] and int64[batch, most]. Refused if the pages that all of them need exceed
        what is available.
        """
        self._vectors(rows=rows, tokens=tokens)
        return self._path.allocate(rows, tokens, self._most(most, self.positions))

    def write(
        self,
        rows: torch.Tensor,
        starts: torch.Tensor,
        stops: torch.Tensor,
        draft: bool = False,
        most: int | None = None,
    ) -> torch.Tensor:
        """Write the rows' tokens at positions [start, stop) and settle them: their slots, int64[batch, most].

        Each row must be the only holder of unpublished pages there (O7). A draft writes junk (-1 - position), on
        unsettled positions only, and settles nothing.
        """
        self._vectors(rows=rows, starts=starts, stops=stops)
        return self._path.write(rows, starts, stops, draft, self._most(most, self.positions))

    def read(
        self, rows: torch.Tensor, starts: torch.Tensor, stops: torch.Tensor, most: int | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Read the settled positions [start, stop): slots and content, int64[batch, most] each (R1, R4)."""
        self._vectors(rows=rows, starts=starts, stops=stops)
        return self._path.read(rows, starts, stops, self._most(most, self.positions))

    def free(self, rows: torch.Tensor, starts: torch.Tensor, stops: torch.Tensor, most: int | None = None) -> None:
        """Give up the pages of entries [start, stop), all of them live; their positions are not settled any more."""
        self._vectors(rows=rows, starts=starts, stops=stops)
        self._path.free(rows, starts, stops, self._most(most, self.entries))

    def overwrite(
        self,
        rows: torch.Tensor,
        starts: torch.Tensor,
        stops: torch.Tensor,
        sources: torch.Tensor,
        most: int | None = None,
    ) -> torch.Tensor:
        """What a caller writes over its own buffer at the given-up entries [start, stop), int64[batch, most] (D5).

        These are the page ids of the source's row, from the first again after the last. Nothing changes here.
        """
        self._vectors(rows=rows, starts=starts, stops=stops, sources=sources)
        return self._path.overwrite(rows, starts, stops, sources, self._most(most, self.entries))

    def trim(self, rows: torch.Tensor, tokens: torch.Tensor, most: int | None = None) -> None:
        """Keep the first `tokens` positions of each row; pages that hold none of them are given up (R5, O10)."""
        self._vectors(rows=rows, tokens=tokens)
        self._path.trim(rows, tokens, self._most(most, self.entries))

    def finish(self, rows: torch.Tensor, most: int | None = None) -> None:
        """Give up whole rows; their ids may be started again. Pins that they began stay."""
        self._vectors(rows=rows)
        self._path.finish(rows, self._most(most, self.entries))

    def publish(self, rows: torch.Tensor, starts: torch.Tensor, stops: torch.Tensor, most: int | None = None) -> None:
        """Put the pages of entries [start, stop) into the prefix cache; every position of them must be settled."""
        self._vectors(rows=rows, starts=starts, stops=stops)
        self._path.publish(rows, starts, stops, self._most(most, self.entries))

    def share(
        self,
        rows: torch.Tensor,
        sources: torch.Tensor,
        starts: torch.Tensor,
        stops: torch.Tensor,
        most: int | None = None,
    ) -> None:
        """Append the published pages of the sources' entries [start, stop), which hold the rows' own next tokens."""
        self._vectors(rows=rows, sources=sources, starts=starts, stops=stops)
        self._path.share(rows, sources, starts, stops, self._most(most, self.entries))

    def replace(self, rows: torch.Tensor, entries: torch.Tensor, sources: torch.Tensor) -> None:
        """Swap each row's own page at its entry, a duplicate, for the source's published page of the same tokens."""
        self._vectors(rows=rows, entries=entries, sources=sources)
        self._path.replace(rows, entries, sources)

    def copy(self, rows: torch.Tensor, entries: torch.Tensor) -> torch.Tensor:
        """Copy on write: the new page of each row at its entry, int64[batch], null where it has its own (O7, O8).

        Refused if all the pages needed exceed what is available.
        """
        self._vectors(rows=rows, entries=entries)
        return self._path.copy(rows, entries)

    def evict(self, count: int) -> torch.Tensor:
        """As `PagePool.evict`."""
        return self.pool.evict(count)

    def pin(self, pins: torch.Tensor, rows: torch.Tensor, entries: torch.Tensor) -> None:
        """Begin reads of the pages at the entries; a row pins a page once at a time (R2)."""
        self._vectors(pins=pins, rows=rows, entries=entries)
        self._path.pin(pins, rows, entries)

    def unpin(self, pins: torch.Tensor) -> None:
        """End reads."""
        self._vectors(pins=pins)
        self._path.unpin(pins)

    @property
    def status(self) -> torch.Tensor:
        """As `PagePool.status`."""
        return self.pool.status

    def check(self) -> None:
        """As `PagePool.check`."""
        self.pool.check()

    def backup(self) -> dict[str, torch.Tensor]:
        """A copy of the whole state, the pool's included (D6)."""
        return self.pool.backup() | {name: tensor.clone() for name, tensor in self._tensors.items()}

    def restore(self, saved: dict[str, torch.Tensor]) -> None:
        """Make the state that of a `backup` of rows of these sizes; misuse if it is none."""
        for name, tensor in self._tensors.items():
            if name not in saved or saved[name].shape != tensor.shape or saved[name].dtype != tensor.dtype:
                raise Misuse("restore: not the backup of rows of this size")
        self.pool.restore({name: tensor for name, tensor in saved.items() if name not in self._tensors})
        for name, tensor in self._tensors.items():
            tensor.copy_(saved[name])

    def snapshot(self) -> dict[str, Any]:
        """The whole state in the reference's form, for comparing. Reads everything: not for use on a device at work."""
        saved = {name: tensor.cpu() for name, tensor in self.backup().items()}
        live = [(row, request) for row, request in enumerate(saved["request"][:-1].tolist()) if request >= 0]
        tables = {request: _sparse(saved["table"][row]) for row, request in live}
        settled = {
            request: [divmod(at, self.page_size) for at in _sparse(saved["settled"][row])] for row, request in live
        }
        content = saved["content"].masked_fill(~handed_out(saved["state"])[:, None], UNWRITTEN)
        written = (content != UNWRITTEN).nonzero().tolist()
        pinned = saved["pin_page"][:-1].nonzero().flatten().tolist()
        return self.pool.snapshot() | {
            "rows": {request: table for request, table in tables.items() if table},
            "settled": {request: cells for request, cells in settled.items() if cells},
            "content": {(page, offset): content[page, offset].item() for page, offset in written},
            "reading": sorted((saved["pin_request"][pin].item(), saved["pin_page"][pin].item()) for pin in pinned),
        }

    def _vectors(self, **operands: torch.Tensor) -> None:
        length = None
        for name, operand in operands.items():
            length = vector(name, operand, self.pool.device.type, length).numel()

    def _most(self, most: int | None, limit: int) -> int | None:
        if most is not None and not 0 <= whole("most", most) <= limit:
            raise Misuse(f"most: a row has up to {limit} of them, not {most}")
        return most


def _sparse(row: torch.Tensor) -> dict[int, int]:
    """The elements that are not zero, by their index."""
    indices = row.nonzero().flatten()
    return dict(zip(indices.tolist(), row[indices].tolist(), strict=True))
