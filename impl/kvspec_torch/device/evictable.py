"""Which published pages have no holder, longest published first: a tree of counts. Unverified on CUDA.

Every page gets the next cell when it is published. A cell counts 1 while its page has no holder, and each node above
counts 64 below it; so the j-th evictable page is found from the root down, all j of a call at once, at a cost that
follows the number of pages asked for. The cells are renumbered when the host, which knows how many pages calls have
named, cannot rule out that they have run out: after as many pages as the pool has, so at a constant cost for each.
"""

import torch

FAN = 64


class Evictable:
    """Cells of the published pages of a pool, `order` on the pool's device."""

    def __init__(self, pages: int, state: torch.Tensor, unheld: int, places: torch.Tensor) -> None:
        device = state.device
        self.pages, self.cells = pages, 2 * pages
        self.state, self.unheld, self.places = state, unheld, places
        self.order = torch.zeros(pages + 1, dtype=torch.int64, device=device)  # the cell of each published page
        self.page = torch.zeros(self.cells + 1, dtype=torch.int64, device=device)  # the page of each cell; one to spare
        self.tail = torch.zeros((), dtype=torch.int64, device=device)
        self.most_used = 0  # what the host knows of `tail`
        self.levels: list[torch.Tensor] = []  # counts, of cells first
        size = self.cells
        while not self.levels or self.levels[-1].numel() > FAN:
            size = -(-size // FAN)
            self.levels.append(torch.zeros(size * FAN, dtype=torch.int64, device=device))

    def publish(self, ids: torch.Tensor, which: torch.Tensor) -> None:
        """Give the pages of `ids` where `which` holds, distinct and held, the next cells in order."""
        self._make_room(min(ids.numel(), self.pages))
        cell = torch.where(which, self.tail + which.cumsum(0) - 1, self.cells)
        self.page.scatter_(0, cell, ids)
        self.order.scatter_(0, torch.where(which, ids, 0), cell)
        self.tail += which.sum()

    def count(self, ids: torch.Tensor, which: torch.Tensor, by: int) -> None:
        """The pages where `which` holds have lost their last holder (by 1) or found one again (by -1)."""
        cell = self.order.index_select(0, torch.where(which, ids, 0))
        change = torch.where(which, by, 0)
        for level in self.levels:
            level.index_add_(0, torch.where(which, cell, 0), change)
            cell = cell // FAN

    def take(self, n: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The first n pages, int64[n], and which of them exist, bool[n]; they are published no more."""
        rank, node = self.places[:n], torch.zeros_like(self.places[:n])
        which = rank < self.levels[-1].sum()
        for level in reversed(self.levels):
            children = level.view(-1, FAN).index_select(0, node.clamp(max=level.numel() // FAN - 1))
            upto = children.cumsum(1)
            child = (upto <= rank[:, None]).sum(1, keepdim=True).clamp(max=FAN - 1)
            rank = rank - (upto - children).gather(1, child).squeeze(1)
            node = node * FAN + child.squeeze(1)
        cell = torch.where(which, node, self.cells)
        ids = torch.where(which, self.page.index_select(0, cell), 0)
        self.count(ids, which, -1)
        self.page.scatter_(0, cell, torch.zeros_like(ids))
        return ids, which

    def rebuild(self) -> None:
        """Renumber the cells from 0 on and count again from the pages' states: what follows the pool, not the batch."""
        live = self.page > 0
        live[self.cells] = False
        number = live.cumsum(0) - 1
        page = torch.zeros_like(self.page).scatter_(0, torch.where(live, number, self.cells), self.page)
        self.order.scatter_(0, torch.where(live, self.page, 0), torch.where(live, number, 0))
        self.page.copy_(page)
        self.tail.copy_(live.sum())
        self.most_used = self.pages
        counts = (self.state.index_select(0, page[: self.cells]) == self.unheld).long()
        for level in self.levels:
            level.zero_()[: counts.numel()] = counts
            counts = level.view(-1, FAN).sum(1)

    def _make_room(self, n: int) -> None:
        if self.most_used + n > self.cells:
            self.rebuild()
        self.most_used += n
