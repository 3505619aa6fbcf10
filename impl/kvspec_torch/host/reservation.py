"""Block tables in batches on NumPy views. Contracts and laws: `kvspec_torch.reservation`.

What a step needs of a row is four numbers, gathered at once. Two of them save the table's being looked at: a step that
ends at `STOP` or before it needs no new page and stays on the page of the next position, whose slots are `SHIFT` more
than their positions. Only the other rows, one in `size` or so, are looked at entry by entry.
"""

from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray

from kvspec_torch.errors import Misuse, Refused
from kvspec_torch.host.pages import HostPool, Ids
from kvspec_torch.host.rows import spread

LENGTH, DRAFTS, STOP, SHIFT = range(4)
ABSURD = np.uint64(2**40)
"""More tokens than any limit, and any negative number, when it is read as one without a sign."""


class HostTables:
    """See `kvspec_torch.BlockTables`. Arguments have their form; what they ask for is judged here."""

    def __init__(self, pool: HostPool, size: int, limit: int, lookahead: int, table: torch.Tensor) -> None:
        self.pool, self.size, self.limit, self.lookahead = pool, size, limit, lookahead
        self.requests, self.width = table.shape
        self.table: NDArray[np.int32] = table.numpy()
        self.flat = self.table.reshape(-1)
        self.entries: Ids = np.zeros(self.requests, np.int64)
        self.state: NDArray[np.int64] = np.zeros((4, self.requests), np.int64)
        self.state[STOP] = -lookahead
        self._ready = np.arange(self.width + 1) * size - lookahead  # by entries: where a step may end
        self._ready[-1] = limit
        self._mark: Ids = np.zeros(self.requests, np.int64)
        self._places = np.arange(max(self.requests, limit), dtype=np.int64)

    def reserve(
        self, rows: torch.Tensor, tokens: torch.Tensor, drafts: torch.Tensor, total: int | None
    ) -> torch.Tensor:
        r, n, k = self._rows(rows), tokens.numpy(), drafts.numpy()
        if not len(r):
            return torch.empty(0, dtype=torch.int64)
        length, drafted, stop, shift = self.state.take(r, axis=1)
        more = n + k
        if np.maximum.reduce((n | k).view(np.uint64)) >= ABSURD or np.count_nonzero(drafted):
            self._explain(r, length, drafted, n, k)
        end = length + more
        if total is not None and int(more.sum()) != total:
            raise Misuse(f"total: {total} positions were announced, {int(more.sum())} are asked for")
        special = np.flatnonzero(end > stop)
        if len(special):
            self._lengthen(r[special], length[special], end[special], n, k, special)
        self.state[LENGTH][r] = end
        if np.count_nonzero(k):
            self.state[DRAFTS][r] = k
        return torch.from_numpy(self._slots(r, length, end, more, shift, special))

    def advance(self, rows: torch.Tensor, accepted: torch.Tensor) -> None:
        r, a = self._rows(rows), accepted.numpy()
        length, drafted = self.state[LENGTH].take(r), self.state[DRAFTS].take(r)
        wrong = (a < 0) | (a > drafted)
        if np.count_nonzero(wrong):
            i = int(wrong.argmax())
            raise Misuse(f"row {r[i]}: {a[i]} of {drafted[i]} drafts cannot be accepted")
        end = length - drafted + a
        self.state[DRAFTS][r] = 0
        self.state[LENGTH][r] = end
        back = np.flatnonzero(end // self.size != length // self.size)  # on an earlier page than before
        if len(back):
            rows_back = r[back]
            self._stand(rows_back, end[back], self.entries.take(rows_back))

    def trim(self, rows: torch.Tensor) -> None:
        r = self._rows(rows)
        end, entries = self.state[LENGTH].take(r), self.entries.take(r)
        self._shorten(r, self._wanted(end), entries)
        self._stand(r, end, self.entries.take(r))

    def finish(self, rows: torch.Tensor) -> None:
        r = self._rows(rows)
        entries, drafted = self.entries.take(r), self.state[DRAFTS].take(r)
        if np.count_nonzero(entries == 0):
            raise Misuse(f"row {r[int((entries == 0).argmax())]}: has no table to give back")
        if np.count_nonzero(drafted):
            i = int((drafted > 0).argmax())
            raise Misuse(f"row {r[i]}: has {drafted[i]} drafts that may still be written, advance it first")
        self._shorten(r, np.zeros_like(entries), entries)
        self._stand(r, np.zeros_like(entries), np.zeros_like(entries))

    def backup(self) -> dict[str, torch.Tensor]:
        """A copy of what is observable."""
        named = {"table": self.table, "entries": self.entries, "length": self.state[LENGTH]}
        return {name: torch.tensor(view) for name, view in (named | {"drafts": self.state[DRAFTS]}).items()}

    def _lengthen(self, r: Ids, begin: Ids, end: Ids, n: Ids, k: Ids, which: Ids) -> None:
        """Give these rows of the batch the pages that they lack, all of them or none."""
        beyond = end > self.limit
        if np.count_nonzero(beyond):
            bad = int(beyond.argmax())
            raise self._too_long(r[bad], begin[bad], n[which[bad]], k[which[bad]])
        entries = self.entries.take(r)
        wanted = np.maximum(self._wanted(end), entries)
        number = wanted - entries
        lacking = int(np.add.reduce(number))
        if lacking > self.pool.count:
            raise Refused(f"{lacking} pages wanted, {self.pool.count} available")
        if lacking:
            pages = self.pool.take(lacking)
            if lacking == np.count_nonzero(number):  # one each
                cells = (r * self.width + entries)[number > 0]
            else:
                i, at = spread(entries, wanted)
                cells = r[i] * self.width + at
            self.flat[cells] = pages
            self.entries[r] = wanted
        self._stand(r, end, wanted)

    def _shorten(self, r: Ids, wanted: Ids, entries: Ids) -> None:
        """Release the pages of entries [wanted, entries), row by row."""
        wanted = np.minimum(wanted, entries)
        i, at = spread(wanted, entries)
        cells = r[i] * self.width + at
        pages: Ids = self.flat.take(cells).astype(np.int64)
        self.flat[cells] = 0
        self.entries[r] = wanted
        self.pool.drop(pages)

    def _wanted(self, end: Ids) -> Ids:
        """Entries for a step that ends there (C1, C2)."""
        more = self.size - 1  # to round up
        wanted: Ids = np.minimum(end + (self.lookahead + more), self.limit + more) // self.size
        return wanted

    def _stand(self, r: Ids, end: Ids, entries: Ids) -> None:
        """These rows end there now, with so many entries."""
        entry = np.minimum(end // self.size, self.width - 1)
        self.state[LENGTH][r] = end
        self.state[STOP][r] = np.minimum(self._ready.take(entries), (entry + 1) * self.size)
        self.state[SHIFT][r] = (self.flat.take(r * self.width + entry) - entry) * self.size

    def _slots(self, r: Ids, begin: Ids, end: Ids, more: Ids, shift: Ids, special: Ids) -> Ids:
        """The slots of positions [begin, end) of each row."""
        width = int(more[0])
        if np.count_nonzero(more == width) < len(more):
            i, at = spread(begin, end)
            return self._look(r[i], at)
        if width == 1:
            slots: Ids = shift + begin
            if len(special):
                slots[special] = self._look(r[special], begin[special])
            return slots
        offsets = self._places[:width]
        several: Ids = (shift + begin)[:, None] + offsets
        if len(special):
            several[special] = self._look(r[special][:, None], begin[special][:, None] + offsets)
        return several.reshape(-1)

    def _look(self, r: Ids, at: Ids) -> Ids:
        """The slots of positions, by the table."""
        entry = at // self.size
        slots: Ids = (self.flat.take(r * self.width + entry) - entry) * self.size + at
        return slots

    def _rows(self, rows: torch.Tensor) -> Ids:
        """The row ids: each exists, none is named twice. Ascending ones show that at once."""
        r: Ids = rows.numpy()
        number = len(r)
        if not number:
            return r
        if (r[1:] > r[:-1]).tobytes() == b"\1" * (number - 1):
            if r.item(0) >= 0 and r.item(number - 1) < self.requests:
                return r
        elif not np.count_nonzero((r < 0) | (r >= self.requests)):
            if number <= self.requests:
                places = self._places[:number]
                self._mark[r] = places
                if self._mark.take(r).tobytes() == places.tobytes():
                    return r
            _, first = np.unique(r, return_index=True)
            raise Misuse(f"row {r[np.setdiff1d(np.arange(number), first)[0]]}: is named twice in one call")
        unknown = (r < 0) | (r >= self.requests)
        raise Misuse(f"row {r[int(unknown.argmax())]}: unknown, there are rows 0 to {self.requests - 1}")

    def _explain(self, r: Ids, length: Ids, drafted: Ids, n: Ids, k: Ids) -> NoReturn:
        """Which row asks for what it cannot have, the first one."""
        for i in range(len(r)):
            for number, what in ((int(n[i]), "tokens"), (int(k[i]), "drafts")):
                if number < 0:
                    raise Misuse(f"row {r[i]}: {number} {what} cannot be reserved")
            if drafted[i]:
                raise Misuse(f"row {r[i]}: has {drafted[i]} drafts that are not settled, advance it first")
            if int(length[i]) + int(n[i]) + int(k[i]) > self.limit:
                raise self._too_long(r[i], length[i], n[i], k[i])
        raise AssertionError("nothing is wrong")

    def _too_long(self, row: np.int64, length: np.int64, tokens: np.int64, drafts: np.int64) -> Misuse:
        """A step that ends behind the limit (C4)."""
        asked = f"{length} positions, {tokens} tokens and {drafts} drafts"
        end = int(length) + int(tokens) + int(drafts)
        return Misuse(f"row {row}: {asked} end at {end}, the limit is {self.limit}")
