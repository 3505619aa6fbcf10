"""Block tables that are reserved a step at a time (C1, C2, C4, C5, C8), on torch tensors.

A table has as many entries as its sequence needs when no draft is refused, plus what a drafter writes past its step:
`kvspec_reference.reservation.blocks` of a group of full attention. One call reserves a step for a whole batch of
requests, all of it or nothing, and gives the slots to write to: slot = page * size + offset, page 0 is null.

Pages come from a `PagePool`, in the order they became blank: row by row, in the order of the batch. The host path
raises at once and costs what the batch costs, whatever the length of the sequences and the size of the pool. On the
device path nothing waits: a misuse or a refusal voids the whole call there. Unverified on CUDA.
"""

import torch

from kvspec_torch.device.reservation import DeviceTables
from kvspec_torch.errors import Misuse
from kvspec_torch.forms import vector, whole
from kvspec_torch.host.pages import HostPool
from kvspec_torch.host.reservation import HostTables
from kvspec_torch.pages import PagePool

LONGEST = 2**31
INT64 = torch.int64


def _fused() -> type[DeviceTables]:
    """The tables whose steps are Triton kernels. Triton is imported here, when it is first asked for."""
    try:
        from kvspec_torch.device.fused import FusedTables
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise Misuse("fused: triton is not installed, run pip install 'kvspec[triton]' or leave fused out") from None
    return FusedTables


class BlockTables:
    """The tables of requests 0 to `requests` - 1, each of at most `limit` positions in pages of `size`.

    `tables`, int32[requests, ceil(limit / size)], has the page ids as an attention kernel reads them, null (0) behind
    the last entry. `lookahead` is how many positions a drafter writes past its step. Raises `Misuse` for a size, a
    number of requests or a limit below 1, and for a negative lookahead.

    `fused` chooses two Triton kernels for `reserve` on the device path, with the same results to the bit. It is off
    by default, since no GPU was at hand to measure whether it pays; it needs the extra `triton`. Misuse without that,
    and on the host path.
    """

    def __init__(
        self, pool: PagePool, size: int, *, requests: int, limit: int, lookahead: int = 0, fused: bool = False
    ) -> None:
        for name, value, least in (
            ("size", size, 1), ("requests", requests, 1), ("limit", limit, 1), ("lookahead", lookahead, 0)
        ):  # fmt: skip
            if not least <= whole(name, value) < LONGEST:
                raise Misuse(f"{name}: {least} to {LONGEST - 1} is wanted, not {value}")
        self.pool, self.size, self.requests, self.limit, self.lookahead = pool, size, requests, limit, lookahead
        if fused and isinstance(pool._path, HostPool):
            raise Misuse("fused: only the device path has kernels, make the pool with path='device'")
        spare = 0 if isinstance(pool._path, HostPool) else 1  # a row for what the device path leaves out
        whole_table = torch.zeros(requests + spare, -(-limit // size), dtype=torch.int32, device=pool.device)
        self.tables = whole_table[:requests]
        self._path: HostTables | DeviceTables
        if isinstance(pool._path, HostPool):
            self._path = HostTables(pool._path, size, limit, lookahead, whole_table)
        else:
            self._path = (_fused() if fused else DeviceTables)(pool._path, size, limit, lookahead, whole_table)

    def reserve(
        self, rows: torch.Tensor, tokens: torch.Tensor, drafts: torch.Tensor, total: int | None = None
    ) -> torch.Tensor:
        """Reserve a step: so many tokens and, behind them, drafts for each row. All operands are int64[batch].

        Returns the slots of the new positions, row by row, int64[sum of tokens and drafts]; `total` is that sum, which
        the device path has to be told. Misuse for a row that is unknown, named twice, or has drafts outstanding, for a
        negative number, and where a step ends behind the limit (C4). Refused if all rows together lack more pages than
        are available; the slots are then all 0 on the device path.
        """
        self._vectors(rows=rows, tokens=tokens, drafts=drafts)
        return self._path.reserve(rows, tokens, drafts, None if total is None else whole("total", total))

    def advance(self, rows: torch.Tensor, accepted: torch.Tensor) -> None:
        """The rows' steps are settled, so many of their drafts are right, int64[batch]: the others' positions go (C8).

        The tables keep their pages. Misuse for more than were drafted. A step without drafts is settled by itself.
        """
        self._vectors(rows=rows, accepted=accepted)
        self._path.advance(rows, accepted)

    def trim(self, rows: torch.Tensor) -> None:
        """Give back the pages that only refused drafts needed."""
        self._vectors(rows=rows)
        self._path.trim(rows)

    def finish(self, rows: torch.Tensor) -> None:
        """Give the rows' pages back, in the order of the batch. Misuse for a row without any, or with drafts (C4)."""
        self._vectors(rows=rows)
        self._path.finish(rows)

    def backup(self) -> dict[str, torch.Tensor]:
        """A copy of the state: `table`, `entries`, `length` (what was reserved), `drafts` (outstanding), by row."""
        return self._path.backup()

    def _vectors(self, rows: torch.Tensor, **others: torch.Tensor) -> None:
        """See to it that the operands have their form: each int64[batch] on the pool's device."""
        device, number = self.pool.device, len(rows) if isinstance(rows, torch.Tensor) and rows.dim() else 0
        for value in (rows, *others.values()):
            right = isinstance(value, torch.Tensor) and value.dtype is INT64 and value.device == device
            if not right or value.dim() != 1 or len(value) != number:
                break
        else:
            return
        number = vector("rows", rows, device.type).numel()
        for name, value in others.items():
            vector(name, value, device.type, number)
