"""Block tables without host waits. Contracts and laws: `kvspec_torch.reservation`. Unverified on CUDA.

As in `rows`, what must not happen is masked: rows that are left out work on a row to spare, the last of the table.
"""

import torch

from kvspec_torch.device.pages import DevicePool
from kvspec_torch.device.report import Verdict
from kvspec_torch.errors import Misuse

ABSURD = 2**40


class DeviceTables:
    """See `kvspec_torch.BlockTables`. Costs follow the batch."""

    def __init__(self, pool: DevicePool, size: int, limit: int, lookahead: int, table: torch.Tensor) -> None:
        self.pool, self.size, self.limit, self.lookahead = pool, size, limit, lookahead
        self.requests, self.width = table.shape[0] - 1, table.shape[1]
        self.table, self.flat = table, table.view(-1)
        self.length, self.drafts, self.entries, self._mark = torch.zeros(
            4, self.requests + 1, dtype=torch.int64, device=table.device
        )

    def reserve(
        self, rows: torch.Tensor, tokens: torch.Tensor, drafts: torch.Tensor, total: int | None
    ) -> torch.Tensor:
        most = rows.numel() * self.limit
        if total is None or not 0 <= total <= most:
            raise Misuse(f"total: the sum of tokens and drafts is wanted, at most {most} here, not {total}")
        return self._reserve(rows, tokens, drafts, total)

    def _reserve(self, rows: torch.Tensor, tokens: torch.Tensor, drafts: torch.Tensor, total: int) -> torch.Tensor:
        r, verdict = self._rows(rows)
        absurd = (tokens < 0) | (tokens > ABSURD) | (drafts < 0) | (drafts > ABSURD)
        verdict.against(absurd, "asks for less than nothing or more than there is")
        verdict.against(self.drafts.index_select(0, r) != 0, "has drafts that are not settled")
        begin, more = self.length.index_select(0, r), torch.where(absurd, 0, tokens + drafts)
        end = begin + more
        verdict.against(end > self.limit, "asks for more than the limit")
        verdict.against((more.sum() != total).expand(r.shape), "asks for more or less than was announced")
        entries = self.entries.index_select(0, r)
        wanted = torch.maximum(self._wanted(end.clamp(max=self.limit)), entries)
        number = wanted - entries
        done = self.pool.report.settle("reserve", verdict, number.sum() > self.pool.count)
        r = torch.where(done, r, self.requests)
        most = min((total + r.numel() * self.lookahead) // self.size + 2 * r.numel(), r.numel() * self.width)
        i, at, there = self._spread(number, most)
        there = there & done
        pages = self.pool.take(there)
        cell = torch.where(there, self._pick(r, i) * self.width + self._pick(entries, i) + at, self._spare())
        self.flat.scatter_(0, cell, pages.to(torch.int32))
        for of, value in ((self.entries, wanted), (self.length, end), (self.drafts, drafts)):
            of.scatter_(0, r, torch.where(done, value, 0))
        i, at, there = self._spread(more, total)
        position = self._pick(begin, i) + at
        cell = torch.where(there & done, self._pick(r, i) * self.width + position // self.size, self._spare())
        page = self.flat.index_select(0, cell).to(torch.int64)
        return torch.where(there & done, page * self.size + position % self.size, 0)

    def advance(self, rows: torch.Tensor, accepted: torch.Tensor) -> None:
        r, verdict = self._rows(rows)
        drafts = self.drafts.index_select(0, r)
        wrong = (accepted < 0) | (accepted > drafts)
        verdict.against(wrong, "asks for less than nothing or more than there is")
        done = self.pool.report.settle("advance", verdict)
        r = torch.where(done, r, self.requests)
        end = self.length.index_select(0, r) - drafts + accepted
        self.length.scatter_(0, r, torch.where(done, end, 0))
        self.drafts.scatter_(0, r, 0)

    def trim(self, rows: torch.Tensor) -> None:
        r, verdict = self._rows(rows)
        done = self.pool.report.settle("trim", verdict)
        self._shorten(torch.where(done, r, self.requests), self._wanted(self.length.index_select(0, r)))

    def finish(self, rows: torch.Tensor) -> None:
        r, verdict = self._rows(rows)
        verdict.against(self.entries.index_select(0, r) == 0, "has no table to give back")
        verdict.against(self.drafts.index_select(0, r) != 0, "has drafts that are not settled")
        done = self.pool.report.settle("finish", verdict)
        r = torch.where(done, r, self.requests)
        self._shorten(r, torch.zeros_like(r))
        self.length.scatter_(0, r, 0)

    def backup(self) -> dict[str, torch.Tensor]:
        """A copy of what is observable."""
        named = {"table": self.table, "entries": self.entries, "length": self.length, "drafts": self.drafts}
        return {name: tensor[: self.requests].clone() for name, tensor in named.items()}

    def _wanted(self, end: torch.Tensor) -> torch.Tensor:
        """Entries for a step that ends there (C1, C2)."""
        return ((end + self.lookahead).clamp(max=self.limit) + (self.size - 1)) // self.size

    def _shorten(self, r: torch.Tensor, wanted: torch.Tensor) -> None:
        """Release the pages of entries [wanted, entries), row by row; the spare row has none."""
        entries = self.entries.index_select(0, r)
        wanted = torch.minimum(wanted, entries)
        i, at, there = self._spread(entries - wanted, r.numel() * self.width)
        cell = torch.where(there, self._pick(r, i) * self.width + self._pick(wanted, i) + at, self._spare())
        self.pool.drop(self.flat.index_select(0, cell).to(torch.int64), there)
        self.flat.scatter_(0, cell, 0)
        self.entries.scatter_(0, r, wanted)

    def _spread(self, sizes: torch.Tensor, most: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The first `most` of so many things a row, in order: of each its row in the batch, its place, if it is one."""
        ends = sizes.cumsum(0)
        places = torch.arange(most, device=sizes.device)
        if not sizes.numel():
            return places, places, places < 0
        i = torch.searchsorted(ends, places, right=True).clamp(max=sizes.numel() - 1)
        return i, places - (ends - sizes).index_select(0, i), places < ends[-1:]

    def _pick(self, of: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return of.index_select(0, i)

    def _spare(self) -> int:
        return self.requests * self.width

    def _rows(self, rows: torch.Tensor) -> tuple[torch.Tensor, Verdict]:
        """Row ids that can be looked up (the spare row for those that exist not), and what is wrong with them."""
        verdict = Verdict("row", rows)
        unknown = (rows < 0) | (rows >= self.requests)
        verdict.against(unknown, "unknown")
        r = torch.where(unknown, self.requests, rows)
        places = torch.arange(r.numel(), device=r.device)
        self._mark.scatter_(0, r, places)
        verdict.against(~unknown & (self._mark.index_select(0, r) != places), "is named twice in one call")
        return r, verdict
