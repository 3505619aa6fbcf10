"""Blocks whose rows lie in the pages of a pool: gathered from there, and scattered to other pages (B3, B6, B10, R3).

A slot is page * page_size + offset, as in `Rows` and `BlockTables`; page 0 is null, and its slots are padding. The
tensors of the members share the page ids. A pooled member has one row for each `ratio` slots of a page, so that a page
of it has page_size / ratio rows. Windows and recurrent members have states, which are not in these pages.
"""

from collections.abc import Mapping

import torch
from kvspec.members import Layout, Leaf, Pooled

from kvspec_torch.blocks import Block, fit_block
from kvspec_torch.device.paged import Rows, judge
from kvspec_torch.device.report import REASONS, Report
from kvspec_torch.errors import Misuse
from kvspec_torch.forms import vector, whole
from kvspec_torch.members.parts import Form, Parts, copied, count_of, fit
from kvspec_torch.pages import Path


class KVPages:
    """The sliced members of `layout` in pages 0 to `pages`, those of a `PagePool` of `pages` pages and the null page.

    `tensors` has for each of their parts, by path, ((pages + 1) * size, *row) or (pages + 1, size, *row); `size` is
    the page size, by the ratio for a pooled member. They stay the caller's, are all on one device, and may be views
    with gaps between the pages. Raises `Misuse` for tensors of another form, and for a page size that is no multiple
    of a ratio.

    `path` is as in `PagePool`. On the host path a call raises `Misuse` and changes nothing. On the device path what is
    wrong without a look at the slots raises at once; a misuse of the slots makes the call void on the device: nothing
    is written, and what is gathered are rows of the null page. `check` reports it.
    """

    def __init__(
        self, layout: Layout, tensors: Parts, pages: int, page_size: int = 1, *, path: Path | None = None
    ) -> None:
        self._form = Form(layout)
        self.layout, self.pages, self.page_size = (
            self._form.layout,
            whole("pages", pages),
            whole("page_size", page_size),
        )
        if self.pages < 1 or self.page_size < 1:
            raise Misuse(f"at least 1 page of at least 1 slot is wanted, not {pages} of {page_size}")
        self._members = {at: member for at, member in self._form.members.items() if member[0].sliced}
        sizes = {at: self._size(at, leaf) for at, (leaf, _) in self._members.items()}
        wanted = {}
        for at, (_, part) in self._members.items():
            apart = isinstance(tensors, Mapping) and _dimensions(tensors.get(at)) == len(part.shape) + 2
            first = (self.pages + 1, sizes[at]) if apart else ((self.pages + 1) * sizes[at],)
            wanted[at] = part, (*first, *part.shape)
        fit("tensors", tensors, wanted)
        devices = {tensor.device for tensor in tensors.values()}
        if len(devices) != 1:
            raise Misuse(f"tensors: all on one device are wanted, not on {len(devices)}")
        (self.device,) = devices
        self.path: Path = path or ("host" if self.device.type == "cpu" else "device")
        if self.path not in ("host", "device") or (self.path == "host" and self.device.type != "cpu"):
            raise Misuse(f"path: {path!r} is none for {self.device}, 'device' is one and for the CPU 'host'")
        self._rows = {at: Rows(tensors[at], part.shape, sizes[at]) for at, (_, part) in self._members.items()}
        self._memory = {tensor.untyped_storage()._cdata for tensor in tensors.values()}
        self._report = Report(self.device)

    def slots(self, pages: torch.Tensor, start: int, stop: int) -> torch.Tensor:
        """The slots of the positions [start, stop) of a row with these pages, int64, from its first position on.

        Misuse if the row has too few pages. What the pages are is judged when the slots are used.
        """
        start, stop = count_of("start", start), count_of("stop", stop)
        if start > stop or stop > vector("pages", pages, self.device.type).numel() * self.page_size:
            raise Misuse(f"positions {start} to {stop}: the row has {pages.numel()} pages of {self.page_size}")
        at = torch.arange(start, stop, device=self.device)
        known = pages.clamp(-1, self.pages + 1)  # so that no product overflows into a slot that exists
        return known.index_select(0, at // self.page_size) * self.page_size + at % self.page_size

    def gather(self, slots: torch.Tensor, start: int = 0) -> dict[str, torch.Tensor]:
        """The rows of the tokens from position `start` on, which have these slots, int64[tokens]; by path, compact.

        A pooled member's rows are those that these tokens complete. Misuse if a slot is null, unknown, or named twice,
        and if it is not where its position belongs: a page has `page_size` positions in order.
        """
        start, _ = self._form_of(slots, start)
        done = self._settle("gather", slots, start)
        if done is not None:
            slots = torch.where(done, slots, 0)
        return {at: self._rows[at].take(self._own(at, slots, start)) for at in self._members}

    def scatter(self, slots: torch.Tensor, parts: Parts, start: int = 0) -> None:
        """Write what `gather` would read: the rows of the tokens from position `start` on, to these slots.

        The parts may be on another device. Misuse as in `gather`, and if parts share memory with the pages.
        """
        start, count = self._form_of(slots, start)
        rows = {at: leaf.rows(start + count) - leaf.rows(start) for at, (leaf, _) in self._members.items()}
        fit("scatter", parts, {at: (part, (rows[at], *part.shape)) for at, (_, part) in self._members.items()})
        for at, tensor in parts.items():
            if tensor.untyped_storage()._cdata in self._memory:
                raise Misuse(f"scatter: {at}: is in the memory of the pages, copy it first")
        done = self._settle("scatter", slots, start)
        with torch.inference_mode():  # so may be the tensors
            for at, kept in self._rows.items():
                kept.put(self._own(at, slots, start), parts[at], done)

    def block(self, index: int, slots: torch.Tensor, states: Parts | None = None) -> Block:
        """Block `index`, whose tokens have these slots, and whose states at its end are `states` (copied; B10, S3).

        States are a window's ring in the order of its slots, and a recurrent state. Misuse as in `gather`, and if there
        are not exactly as many slots as a block has tokens.
        """
        index, size = count_of("index", index), self.layout.block_size
        if vector("slots", slots, self.device.type).numel() != size:
            raise Misuse(f"slots: {slots.numel()} are given, a block has {size} tokens")
        stateful = states is not None or self._form.stateless
        wanted = self._form.block(index, stateful)
        fit("states", states or {}, {at: form for at, form in wanted.items() if at not in self._members})
        parts = self.gather(slots, index * size)
        return Block(index, {at: parts[at] if at in parts else copied((states or {})[at]) for at in wanted}, stateful)

    def put(self, slots: torch.Tensor, block: Block) -> None:
        """Write the rows of a block to the slots of its tokens; its states are for the caller to put where they belong.

        Misuse as in `scatter`, and for a block that is none of this layout.
        """
        fit_block(self._form, block)
        self.scatter(slots, {at: block.parts[at] for at in self._members}, block.index * self.layout.block_size)

    @property
    def status(self) -> torch.Tensor:
        """What became of the last operation, an int64 scalar on the device: 0 done, 2 misuse."""
        return self._report.status.clone()

    def check(self) -> None:
        """Raise the first `Misuse` since the last check. Device path: the only place where the host waits and reads."""
        self._report.check()

    def _size(self, at: str, leaf: Leaf) -> int:
        """Rows in a page."""
        ratio = leaf.ratio if isinstance(leaf, Pooled) else 1
        if self.page_size % ratio:
            raise Misuse(f"page_size: {self.page_size} is no multiple of {ratio}, the ratio of {at}")
        return self.page_size // ratio

    def _form_of(self, slots: torch.Tensor, start: int) -> tuple[int, int]:
        """Where the slots start and how many they are, which can be seen without a look at them."""
        return count_of("start", start), vector("slots", slots, self.device.type).numel()

    def _settle(self, what: str, slots: torch.Tensor, start: int) -> torch.Tensor | None:
        """Whether to go on, a bool scalar on the device; on the host path None, or `Misuse`."""
        verdict = judge(slots, start, self.page_size, self.pages + 1)
        if self.path == "device":
            return self._report.settle(what, verdict)
        found = verdict.found
        if found[0].any():
            reason, _, page = found[:, found[0].nonzero()[0]].flatten().tolist()
            raise Misuse(f"{what}: page {page}: {REASONS[reason]}")
        return None

    def _own(self, at: str, slots: torch.Tensor, start: int) -> torch.Tensor:
        """A member's own slots: of a pooled one, those of the rows that are completed."""
        leaf = self._members[at][0]
        if not isinstance(leaf, Pooled):
            return slots
        last = (leaf.rows(start) + 1) * leaf.ratio - 1  # the position that completes the first one
        return slots[last - start :: leaf.ratio] // leaf.ratio


def _dimensions(tensor: object) -> int:
    return tensor.dim() if isinstance(tensor, torch.Tensor) else 0
