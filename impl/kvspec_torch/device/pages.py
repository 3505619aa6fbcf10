"""The page pool without host waits. Contracts and laws: `kvspec_torch.pages`. Unverified on CUDA.

What the host path decides by raising is decided here by masks: an operation that must not happen writes every cell back
as it was. Cells to spare take what a mask leaves out: page 0's, and one more at the end of a ring.
"""

import torch

from kvspec_torch.device.evictable import Evictable
from kvspec_torch.device.report import Report, Verdict
from kvspec_torch.errors import Misuse, Refused
from kvspec_torch.forms import vector, whole
from kvspec_torch.states import BLANK, CACHED, NULL, RELEASED, first_states


class DevicePool:
    """See `kvspec_torch.PagePool`. Costs follow the batch."""

    def __init__(self, pages: int, device: torch.device) -> None:
        self.pages = pages
        self.device = device
        self.ring = torch.arange(1, pages + 2, device=device)
        self.state = first_states(pages, device)
        self.numbers = torch.tensor([0, pages], device=device)
        self.head, self.count = self.numbers[0], self.numbers[1]
        self.places = torch.arange(pages + 1, device=device)
        self.evictable = Evictable(pages, self.state, CACHED, self.places)
        self.report = Report(device)
        self._scratch = torch.zeros(pages + 1, dtype=torch.int64, device=device)
        self._mark = BLANK  # what a page gets when its last holder leaves, less its place in the call

    @property
    def available(self) -> torch.Tensor:
        return self.count.clone()

    @property
    def status(self) -> torch.Tensor:
        return self.report.status.clone()

    def allocate(self, n: int) -> torch.Tensor:
        n = whole("n", n)
        if n < 0:
            raise Misuse(f"{n} pages cannot be allocated")
        if n > self.pages:
            raise Refused(f"{n} pages wanted, there are {self.pages} at all")
        nothing = Verdict("page", self.places[:0])
        done = self.report.settle("allocate", nothing, n > self.count)
        return self.take(done.expand(n))

    def take(self, which: torch.Tensor) -> torch.Tensor:
        """Blank pages, int64 of the shape of `which`, in order where it holds and null elsewhere. There are enough."""
        flat = which.flatten()
        number = flat.cumsum(0)
        pages = torch.where(flat, self.ring.index_select(0, (self.head + number - 1) % self.pages), 0)
        self.state.scatter_(0, pages, torch.where(flat, 1, NULL).to(torch.int32))
        taken = flat.sum()
        self.head.copy_((self.head + taken) % self.pages)
        self.count -= taken
        return pages.view(which.shape)

    def release(self, pages: torch.Tensor) -> None:
        ids, state, verdict = self._judge(pages)
        verdict.against(state == CACHED, "is published and has no holder")
        marks = self._judge_distinct(ids, verdict)
        done = self.report.settle("release", verdict)
        last = state == 1
        self._write(ids, state, torch.where(last, marks, state - 1), done)
        self._let_go(ids, last & done)
        self.evictable.count(ids, (state == CACHED + 1) & done, 1)

    def drop(self, pages: torch.Tensor, which: torch.Tensor) -> None:
        """Release for rows, where `which` holds; only a published page may be named several times."""
        ids, which = torch.where(which, pages, 0).flatten(), which.flatten()
        before = self.state.index_select(0, ids)
        self.state.index_add_(0, ids, torch.where(which, -1, 0).to(torch.int32))
        last = which & (before == 1)
        self.state.scatter_(0, torch.where(last, ids, 0), torch.where(last, self._mark, NULL).to(torch.int32))
        self._let_go(ids, last)
        unheld = which & (before > CACHED) & (self.state.index_select(0, ids) == CACHED)
        self.evictable.count(ids, self._once(ids, unheld), 1)

    def share(self, pages: torch.Tensor) -> None:
        ids, state, verdict = self._judge(pages)
        self._judge_distinct(ids, verdict)
        done = self.report.settle("share", verdict)
        self._write(ids, state, state + 1, done)
        self.evictable.count(ids, (state == CACHED) & done, -1)

    def hold(self, pages: torch.Tensor, which: torch.Tensor) -> None:
        """Share for rows, pages that are held, where `which` holds; a page may be named several times."""
        self.state.index_add_(0, torch.where(which, pages, 0).flatten(), which.flatten().to(torch.int32))

    def publish(self, pages: torch.Tensor) -> None:
        ids, state, verdict = self._judge(pages)
        self._judge_distinct(ids, verdict)
        done = self.report.settle("publish", verdict)
        self._write(ids, state, state, done)
        self.put(ids, done.expand(ids.shape))

    def put(self, pages: torch.Tensor, which: torch.Tensor) -> None:
        """Publish for rows, where `which` holds; only a published page may be named several times."""
        ids, which = torch.where(which, pages, 0).flatten(), which.flatten()
        state = self.state.index_select(0, ids)
        new = which & (state < CACHED)
        self._write(ids, state, state + CACHED, new)
        self.evictable.publish(ids, new)

    def evict(self, count: int) -> torch.Tensor:
        count = whole("count", count)
        if count < 0:
            raise Misuse(f"{count} pages cannot be evicted")
        self.report.done()
        ids, which = self.evictable.take(min(count, self.pages))
        self.state.scatter_(0, ids, torch.where(which, BLANK, NULL).to(torch.int32))
        self._make_blank(ids, which)
        return ids

    def _let_go(self, ids: torch.Tensor, which: torch.Tensor) -> None:
        """The last holders of these unpublished pages, where `which` holds, have left."""
        self._make_blank(ids, which)

    def _make_blank(self, ids: torch.Tensor, which: torch.Tensor) -> None:
        """Append to the blank pages, where `which` holds."""
        cell = torch.where(which, (self.head + self.count + which.cumsum(0) - 1) % self.pages, self.pages)
        self.ring.scatter_(0, cell, ids)
        self.count += which.sum()

    def _judge(self, pages: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, Verdict]:
        """Ids that can be looked up (null for those that exist not), their states, and what is wrong with them."""
        vector("pages", pages, self.device.type)
        if pages.numel() > self.pages:
            raise Misuse(f"pages: {pages.numel()} are named, there are {self.pages}")
        verdict = Verdict("page", pages)
        verdict.against(pages == 0, "the null page is nobody's")
        verdict.against((pages < 0) | (pages > self.pages), "unknown")
        ids = torch.where(verdict.found[0] == 0, pages, 0)
        state = self.state.index_select(0, ids)
        verdict.against(state <= RELEASED, "was freed already in the open group")
        verdict.against(state <= BLANK, "is blank")
        return ids, state, verdict

    def _judge_distinct(self, ids: torch.Tensor, verdict: Verdict) -> torch.Tensor:
        """Marks for a page each, int32. They stand in the states now: the caller writes those."""
        marks = (self._mark - self.places[: ids.numel()]).to(torch.int32)
        self.state.scatter_(0, ids, marks)
        verdict.against(self.state.index_select(0, ids) != marks, "is named twice in one call")
        return marks

    def _write(self, ids: torch.Tensor, old: torch.Tensor, new: torch.Tensor, which: torch.Tensor) -> None:
        """The pages' states are `new` where `which` holds, else `old`."""
        self.state.scatter_(0, ids, torch.where(which, new, old))

    def _once(self, ids: torch.Tensor, which: torch.Tensor) -> torch.Tensor:
        """`which`, for one of the places of each page."""
        places = self._arange(ids.numel())
        self._scratch.scatter_(0, torch.where(which, ids, 0), places)
        return which & (self._scratch.index_select(0, ids) == places)

    def _arange(self, n: int) -> torch.Tensor:
        return self.places[:n] if n <= self.places.numel() else torch.arange(n, device=self.device)

    def check(self) -> None:
        self.report.check()

    def backup(self) -> dict[str, torch.Tensor]:
        names = ("ring", "state", "numbers")
        saved = {name: getattr(self, name).clone() for name in names}
        return saved | {"order": self.evictable.order.clone(), "cells": self.evictable.page.clone()}

    def restore(self, saved: dict[str, torch.Tensor]) -> None:
        for name in "ring", "state", "numbers":
            getattr(self, name).copy_(saved[name])
        self.evictable.page.copy_(saved["cells"])
        self.evictable.rebuild()
