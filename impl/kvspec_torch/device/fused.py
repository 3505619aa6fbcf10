"""A step's reservation in two Triton kernels, bit for bit that of `device.reservation`. Unverified on CUDA.

The first kernel, one program, judges the whole batch and decides: the status, the first misuse, how many pages go. The
second, a program for each row, writes what was decided: pages into the table, slots, lengths. Nothing waits. No GPU was
at hand to measure whether it pays beside the plain path, so it is off by default (`impl/on_a_gpu.py` measures it). What
it was run in is Triton's interpreter, on CPU tensors; and it was compiled for NVIDIA GPUs, without running.
"""

import torch
import triton
import triton.language as tl

from kvspec_torch.device.pages import DevicePool
from kvspec_torch.device.report import DONE, MISUSE, OPERATIONS, REASONS, REFUSED, WHAT
from kvspec_torch.device.reservation import ABSURD, DeviceTables

MOST = tl.constexpr(ABSURD)
FAR = tl.constexpr(2**62)
"""Behind every row of a batch: nothing is wrong."""
REASON = tl.constexpr(64)
"""More than there are reasons: what is wrong with a batch is one number, its row's place * 64 + the reason."""
UNKNOWN = tl.constexpr(REASONS.index("unknown"))
TWICE = tl.constexpr(REASONS.index("is named twice in one call"))
NO_NUMBER = tl.constexpr(REASONS.index("asks for less than nothing or more than there is"))
DRAFTED = tl.constexpr(REASONS.index("has drafts that are not settled"))
TOO_LONG = tl.constexpr(REASONS.index("asks for more than the limit"))
OTHER_TOTAL = tl.constexpr(REASONS.index("asks for more or less than was announced"))
ROW, RESERVE = tl.constexpr(WHAT.index("row")), tl.constexpr(OPERATIONS.index("reserve"))
IS_DONE, IS_REFUSED, IS_MISUSE = tl.constexpr(DONE), tl.constexpr(REFUSED), tl.constexpr(MISUSE)


@triton.jit
def wanted(end, has, limit, lookahead, size):
    """Entries for a step that ends there (C1, C2); a table does not become shorter."""
    return tl.maximum((tl.minimum(end + lookahead, limit) + (size - 1)) // size, has)


@triton.jit(do_not_specialize=["n", "total", "call"])
def decide(
    rows, tokens, drafts, length, drafted, entries, mark, before, numbers, status, first,
    n, total, call, requests, pages, limit, lookahead, size, BLOCK: tl.constexpr,
):  # fmt: skip
    """Judge all n rows, and take their pages from the ring or none.

    `before`, int64[2 * n + 1]: the pages, then the slots, of the rows before each row; last, where the pages begin in
    the ring. `mark` is -1 everywhere, before and after: the last place of each row in the batch stands there meanwhile.
    """
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        row = tl.load(rows + i, mask=i < n, other=-1)
        tl.atomic_max(mark + row, i, mask=(row >= 0) & (row < requests))
    tl.debug_barrier()
    worst = tl.full((), FAR, tl.int64)
    lacking = tl.full((), 0, tl.int64)
    asked = tl.full((), 0, tl.int64)
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        here = i < n
        row = tl.load(rows + i, mask=here, other=-1)
        known = (row >= 0) & (row < requests)
        r = tl.where(known, row, 0)
        some = tl.load(tokens + i, mask=here, other=0)
        ahead = tl.load(drafts + i, mask=here, other=0)
        absurd = (some < 0) | (some > MOST) | (ahead < 0) | (ahead > MOST)
        more = tl.where(absurd, 0, some + ahead)
        end = tl.load(length + r, mask=known, other=0) + more
        has = tl.load(entries + r, mask=known, other=0)
        why = tl.where(end > limit, TOO_LONG, 0)  # the first reason stands, so they are asked for from the last on
        why = tl.where(tl.load(drafted + r, mask=known, other=0) != 0, DRAFTED, why)
        why = tl.where(absurd, NO_NUMBER, why)
        why = tl.where(tl.load(mark + r, mask=known, other=-1, volatile=True) != i, TWICE, why)
        why = tl.where(known, why, UNKNOWN)
        wrong = here & (why != 0)
        worst = tl.minimum(worst, tl.min(tl.where(wrong, i.to(tl.int64) * REASON + why, FAR)))
        number = tl.where(here, wanted(end, has, limit, lookahead, size) - has, 0)
        tl.store(before + i, lacking + tl.cumsum(number) - number, mask=here)
        tl.store(before + n + i, asked + tl.cumsum(more) - more, mask=here)
        lacking += tl.sum(number)
        asked += tl.sum(more)
    worst = tl.where((asked != total) & (worst >= REASON), OTHER_TOTAL, worst)  # of the first row, then
    misuse = worst != FAR
    head, count, seen = tl.load(numbers), tl.load(numbers + 1), tl.load(first)
    refused = lacking > count
    taken = tl.where(misuse | refused, 0, lacking)
    new = misuse & (seen == 0)
    tl.debug_barrier()  # all was read that is written now
    tl.store(status, tl.where(misuse, IS_MISUSE, tl.where(refused, IS_REFUSED, IS_DONE)))
    tl.store(before + 2 * n, head)
    tl.store(numbers, (head + taken) % pages)
    tl.store(numbers + 1, count - taken)
    tl.store(first, worst % REASON, mask=new)
    tl.store(first + 1, ROW, mask=new)
    tl.store(first + 2, tl.load(rows + worst // REASON, mask=new, other=0), mask=new)
    tl.store(first + 3, RESERVE, mask=new)
    tl.store(first + 4, call, mask=new)


@triton.jit(do_not_specialize=["n"])
def write(
    rows, tokens, drafts, length, drafted, entries, mark, before, ring, state, table, slots, status,
    n, requests, pages, limit, lookahead, size, width, BLOCK: tl.constexpr,
):  # fmt: skip
    """Give a row of the batch its pages, and say its slots, if that was decided."""
    i = tl.program_id(0)
    r = tl.load(rows + i)
    known = (r >= 0) & (r < requests)
    if tl.load(status) == IS_DONE:
        begin, has, ahead = tl.load(length + r), tl.load(entries + r), tl.load(drafts + i)
        end = begin + tl.load(tokens + i) + ahead
        will_have = wanted(end, has, limit, lookahead, size)
        head = tl.load(before + 2 * n) + tl.load(before + i) - has  # the page of entry k stands at head + k
        tl.debug_barrier()
        for start in range(has, will_have, BLOCK):
            k = start + tl.arange(0, BLOCK)
            page = tl.load(ring + (head + k) % pages, mask=k < will_have, other=0)
            tl.store(table + r * width + k, page.to(tl.int32), mask=k < will_have)
            tl.store(state + page, 1, mask=k < will_have)
        slot = slots + tl.load(before + n + i) - begin
        for start in range(begin, end, BLOCK):
            at = start + tl.arange(0, BLOCK)
            k = at // size
            old = tl.load(table + r * width + k, mask=(at < end) & (k < has), other=0).to(tl.int64)
            page = old + tl.load(ring + (head + k) % pages, mask=(at < end) & (k >= has), other=0)
            tl.store(slot + at, page * size + at % size, mask=at < end)
        tl.store(length + r, end)
        tl.store(entries + r, will_have)
        tl.store(drafted + r, ahead)
    tl.store(mark + r, -1, mask=known)


class FusedTables(DeviceTables):
    """See `kvspec_torch.BlockTables`. `judged` rows and `written` positions are looked at together; powers of two."""

    judged, written = 1024, 128

    def __init__(self, pool: DevicePool, size: int, limit: int, lookahead: int, table: torch.Tensor) -> None:
        super().__init__(pool, size, limit, lookahead, table)
        self._last = torch.full((self.requests,), -1, dtype=torch.int32, device=table.device)

    def _reserve(self, rows: torch.Tensor, tokens: torch.Tensor, drafts: torch.Tensor, total: int) -> torch.Tensor:
        n, pool, report = rows.numel(), self.pool, self.pool.report
        if n == 0:
            return super()._reserve(rows, tokens, drafts, total)
        slots = torch.zeros(total, dtype=torch.int64, device=rows.device)
        before = torch.empty(2 * n + 1, dtype=torch.int64, device=rows.device)
        batch = [each.contiguous() for each in (rows, tokens, drafts)]
        ours = (self.length, self.drafts, self.entries, self._last, before)
        sizes = (self.requests, pool.pages, self.limit, self.lookahead, self.size)
        result = (report.status, report.first, n, total, report.count())
        written = (pool.ring, pool.state, self.flat, slots, report.status, n)
        with torch.cuda.device_of(rows):
            decide[(1,)](*batch, *ours, pool.numbers, *result, *sizes, self.judged)
            write[(n,)](*batch, *ours, *written, *sizes, self.width, self.written)
        return slots
