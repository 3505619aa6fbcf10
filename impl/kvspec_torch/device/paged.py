"""Rows in the pages of a pool, by slot, without host waits. Contract: `kvspec_torch.paged`. Unverified on CUDA."""

import torch

from kvspec_torch.device.report import Verdict
from kvspec_torch.members.parts import bits, empty

T = torch.Tensor


def judge(slots: T, start: int, page_size: int, pages: int) -> Verdict:
    """What is wrong with the slots of the positions from `start` on; there are pages 0 to `pages` - 1."""
    verdict = Verdict("page", slots.div(page_size, rounding_mode="floor"))
    verdict.against((slots >= 0) & (slots < page_size), "the null page is nobody's")
    verdict.against((slots < 0) | (slots >= pages * page_size), "unknown")
    offsets = (torch.arange(start, start + slots.numel(), device=slots.device)) % page_size
    astray = slots.remainder(page_size) != offsets
    if slots.numel() > 1:
        ordered, places = slots.sort()
        again = torch.zeros_like(astray).scatter(0, places[1:], ordered[1:] == ordered[:-1])
        verdict.against(again, "is named twice in one call")
        leaves_its_page = (offsets[1:] != 0) & (slots[1:] != slots[:-1] + 1)
        astray = astray | torch.cat((torch.zeros_like(astray[:1]), leaves_its_page))
    verdict.against(astray, "has a slot that is not where its position belongs")
    return verdict


class Rows:
    """The rows of one tensor of the pool, (pages * size, *row) or (pages, size, *row), whose memory stays where it is.

    If the pages lie apart, as where keys and values of a page are neighbours, a row has two indices.
    """

    def __init__(self, tensor: T, row: tuple[int, ...], size: int) -> None:
        self.dtype, self.row, self.size = tensor.dtype, row, size
        whole = bits(tensor)
        self.flat = whole.dim() == len(row) + 1
        if not self.flat and (size == 1 or whole.stride(0) == size * whole.stride(1)):
            whole, self.flat = _flattened(whole, row, size), True
        self.rows = whole

    def take(self, slots: T) -> T:
        """The rows at the slots, in memory of their own."""
        taken = empty((slots.numel(), *self.row), self.dtype, self.rows.device)
        if self.flat:
            torch.index_select(self.rows, 0, slots, out=bits(taken))
        else:
            bits(taken).copy_(self.rows[slots // self.size, slots % self.size])
        return taken

    def put(self, slots: T, rows: T, done: T | None) -> None:
        """Write the rows to the slots; if `done` is false, slot 0 is written back as it was instead."""
        new = bits(rows).to(self.rows.device)
        if done is not None:
            first = self.rows[:1] if self.flat else self.rows[0, :1]
            slots, new = torch.where(done, slots, 0), torch.where(done, new, first)
        if self.flat:
            self.rows.index_copy_(0, slots, new)
        else:
            self.rows[slots // self.size, slots % self.size] = new


def _flattened(whole: T, row: tuple[int, ...], size: int) -> T:
    """The slots of all pages one behind the other, in the same memory."""
    step = whole.stride(0) if size == 1 else whole.stride(1)
    return whole.as_strided((len(whole) * size, *row), (step, *whole.stride()[2:]), whole.storage_offset())
