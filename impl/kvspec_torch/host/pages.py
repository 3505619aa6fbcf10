"""The page pool on NumPy views. Contracts and laws: `kvspec_torch.pages`.

The blank pages are `count` cells of a ring from `head` on. One gather of the pages' states answers all that a release
must ask, except whether a page is named twice, which the places it writes there answer. A page that does not exist has
the null page's state. Whole batches are compared as bytes: that takes NumPy a fraction of what a reduction takes it.
"""

from heapq import heapify, heappop, heappush

import numpy as np
import torch
from numpy.typing import NDArray

from kvspec_torch.errors import Misuse, Refused
from kvspec_torch.forms import page_ids, whole
from kvspec_torch.states import BLANK, CACHED, condition, first_states

Ids = NDArray[np.int64]
INT64 = torch.int64
HELD_ONCE = np.int32(1).tobytes()


class HostPool:
    """See `kvspec_torch.PagePool`. Costs follow the batch; of `evict`, also the logarithm of the published pages."""

    def __init__(self, pages: int, device: torch.device) -> None:
        self.pages = pages
        bounded = torch.cat((first_states(pages, device), first_states(0, device)))
        self.ring = torch.arange(1, pages + 1)
        self.state = bounded[:-1]
        self.order = torch.zeros(pages + 1, dtype=INT64)  # when each page was published
        self.head = 0
        self.count = pages
        self.published = 0  # the order of the next page published
        self._ring: Ids = self.ring.numpy()
        self._state: NDArray[np.int32] = self.state.numpy()
        self._bounded: NDArray[np.int32] = bounded.numpy()  # the states and, above them, another null
        self._order: Ids = self.order.numpy()
        self._ring1, self._state1 = self._ring.data, self._state.data
        self._places = np.arange(pages, dtype=np.int32)
        self._marks = BLANK - self._places  # what the pages of a call get when their last holders leave
        # A heap of order * (pages + 1) + page with every published page without holders. A page that found a holder
        # again may still be in it, once.
        self._evictable: list[int] = []
        self._listed = bytearray(pages + 1)  # whether a page is in the heap

    @property
    def available(self) -> int:
        return self.count

    def allocate(self, n: int) -> torch.Tensor:
        if n.__class__ is not int:
            n = whole("n", n)
        if n != 1:
            return torch.from_numpy(self.take(n))
        if not self.count:
            raise Refused("1 pages wanted, 0 available")
        head, end = self.head, self.head + 1
        self._state1[self._ring1[head]] = 1
        self.head = end if end < self.pages else 0
        self.count -= 1
        return torch.from_numpy(self._ring[head:end].copy())

    def take(self, n: int) -> Ids:
        """`allocate` for rows."""
        if n < 0:
            raise Misuse(f"{n} pages cannot be allocated")
        if n > self.count:
            raise Refused(f"{n} pages wanted, {self.count} available")
        head, end = self.head, self.head + n
        if end < self.pages:
            pages = self._ring[head:end].copy()
            self.head = end
        else:
            self.head = end - self.pages
            pages = np.concatenate((self._ring[head:], self._ring[: self.head]))
        self.count -= n
        self._state[pages] = 1
        return pages

    def release(self, pages: torch.Tensor) -> None:
        try:
            right = pages.dtype is INT64 and pages.dim() == 1 and pages.is_cpu
        except AttributeError:
            right = False
        if not right:
            page_ids(pages, "cpu")
        n = pages.numel()
        if n == 1:
            page = int(pages.item())
            if 0 < page <= self.pages and self._state1[page] == 1:
                self._state1[page] = self._marks.item(0)
                self._let_go_one(page)
                return
        elif n == 0:
            return
        ids = pages.numpy()
        state = self._checked(ids)
        if state.tobytes() == HELD_ONCE * n:
            self._mark(ids, state)
            self._let_go(ids)
            return
        self._explain(ids, state, (state < 1) | (state == CACHED))
        self._mark(ids, state)
        self._leave(ids, state)

    def drop(self, ids: Ids) -> None:
        """Release for rows: pages known to be held. Only a published page may be named several times."""
        state = self._state[ids]
        published = state >= CACHED
        if published.any():
            shared = ids[published]
            np.subtract.at(self._state, shared, 1)
            self._offer(shared[self._state[shared] == CACHED])
            ids, state = ids[~published], state[~published]
        self._leave(ids, state)

    def _leave(self, ids: Ids, state: NDArray[np.int32]) -> None:
        """One holder of each leaves; `state` is what they were before."""
        last = state == 1
        self._state[ids] = np.where(last, self._marks[: len(ids)], state - 1)
        self._let_go(ids[last])
        self._offer(ids[state == CACHED + 1])

    def share(self, pages: torch.Tensor) -> None:
        ids = page_ids(pages, "cpu")
        state = self._held_or_published(ids)
        self._state[ids] = state + 1

    def hold(self, ids: Ids) -> None:
        """Share for rows: pages known to be held; a published one may be named several times."""
        np.add.at(self._state, ids, 1)

    def publish(self, pages: torch.Tensor) -> None:
        ids = page_ids(pages, "cpu")
        state = self._held_or_published(ids)
        self._state[ids] = state
        self.put(ids)

    def put(self, ids: Ids) -> None:
        """Publish for rows: pages known to be held or published; only a published one may be named several times."""
        new = ids[self._state[ids] < CACHED]
        self._state[new] += CACHED
        self._order[new] = np.arange(self.published, self.published + len(new))
        self.published += len(new)

    def evict(self, count: int) -> torch.Tensor:
        count = whole("count", count)
        if count < 0:
            raise Misuse(f"{count} pages cannot be evicted")
        taken: list[int] = []
        while self._evictable and len(taken) < count:
            page = heappop(self._evictable) % (self.pages + 1)
            self._listed[page] = 0
            if self._state1[page] == CACHED:
                taken.append(page)
        ids = np.array(taken, dtype=np.int64)
        self._state[ids] = BLANK
        self._make_blank(ids)
        return torch.from_numpy(ids)

    def _offer(self, ids: Ids) -> None:
        """These published pages have no holder any more (a page may be named several times)."""
        for page in ids.tolist():
            if not self._listed[page]:
                self._listed[page] = 1
                heappush(self._evictable, self._order.item(page) * (self.pages + 1) + page)

    def _let_go_one(self, page: int) -> None:
        tail = self.head + self.count
        self._ring1[tail if tail < self.pages else tail - self.pages] = page
        self.count += 1

    def _let_go(self, ids: Ids) -> None:
        """The last holders of these unpublished pages, already marked, have left."""
        self._make_blank(ids)

    def _make_blank(self, ids: Ids) -> None:
        """Append to the blank pages."""
        n = len(ids)
        tail = self.head + self.count
        if tail >= self.pages:
            tail -= self.pages
        if tail + n <= self.pages:
            self._ring[tail : tail + n] = ids
        else:
            split = self.pages - tail
            self._ring[tail:] = ids[:split]
            self._ring[: n - split] = ids[split:]
        self.count += n

    def _checked(self, ids: Ids) -> NDArray[np.int32]:
        """The states of pages; the null page's for one that does not exist."""
        return self._bounded.take(ids, mode="clip")

    def _held_or_published(self, ids: Ids) -> NDArray[np.int32]:
        """The states of distinct pages, each held or published. The caller writes their new states."""
        if not len(ids):
            return np.empty(0, np.int32)
        state = self._checked(ids)
        self._explain(ids, state, state < 0)
        self._mark(ids, state)
        return state

    def _mark(self, ids: Ids, state: NDArray[np.int32]) -> None:
        """Mark the pages, or raise if one is named twice."""
        marks = self._marks[: len(ids)]
        if len(marks) == len(ids):
            self._state[ids] = marks
            read = self._state[ids]
            if read.tobytes() == marks.tobytes():
                return
            self._state[ids] = state
            page = int(ids[(read != marks).argmax()])
        else:  # more than there are pages
            page = int(np.flatnonzero(np.bincount(ids) > 1)[0])
        raise Misuse(condition(page, 1, self.pages))

    def _explain(self, ids: Ids, state: NDArray[np.int32], bad: NDArray[np.bool_]) -> None:
        if bad.any():
            first = int(bad.argmax())
            raise Misuse(condition(int(ids[first]), int(state[first]), self.pages))

    @property
    def status(self) -> torch.Tensor:
        return torch.zeros((), dtype=INT64)  # what was not done was raised

    def check(self) -> None:
        """Nothing to report: misuse was raised when it happened."""

    def backup(self) -> dict[str, torch.Tensor]:
        numbers = torch.tensor([self.head, self.count, self.published])
        return {"ring": self.ring.clone(), "state": self.state.clone(), "order": self.order.clone(), "numbers": numbers}

    def restore(self, saved: dict[str, torch.Tensor]) -> None:
        for name in "ring", "state", "order":
            getattr(self, name).copy_(saved[name])
        self.head, self.count, self.published = saved["numbers"].tolist()
        unheld = np.flatnonzero(self._state == CACHED)
        self._evictable = [self._order.item(page) * (self.pages + 1) + page for page in unheld.tolist()]
        heapify(self._evictable)
        self._listed = bytearray((self._state == CACHED).view(np.uint8).tobytes())
