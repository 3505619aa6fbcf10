"""SGLang's radix cache, as a scheduler uses it for requests that have not finished (`cache_unfinished_req`)."""

import importlib
from array import array
from types import SimpleNamespace
from typing import Any

import torch

from kvspec_record.caller import Caller, Outcome, Row, prompt_token
from kvspec_record.sglang import AllocatorPool, memory


def _module(name: str) -> Any:
    return importlib.import_module(f"sglang.srt.mem_cache.{name}")


class RadixPool(AllocatorPool):
    """A radix cache over an allocator. Rows are those of SGLang's own request table (int32), and are used again."""

    def __init__(self, allocator: Any) -> None:
        super().__init__(allocator, segments=False)
        self.requests: dict[str, Any] = {}
        self.radix = _module("radix_cache")

    def prepare(self, rows: int, capacity: int) -> None:
        """Make the table: `rows` rows of `capacity` slots."""
        self.table = _module("memory_pool").ReqToTokenPool(max(rows, 1), max(capacity, 1), "cpu", False)
        given = _module("cache_init_params").CacheInitParams(False, self.table, self.allocator, self.page_size)
        self.cache = self.radix.RadixCache(given)

    def buffer(self, row: str, capacity: int) -> tuple[torch.Tensor, memoryview]:
        """A row of the table, for a request that has matched nothing yet."""
        request = SimpleNamespace(
            req_pool_idx=None, inflight_middle_chunks=0, kv_committed_len=0, extra_key=None, cache_salt=None,
            priority=0, cache_protected_len=0, last_node=self.cache.root_node,
            prefix_indices=torch.empty(0, dtype=torch.int64), origin_input_ids=array("q"), output_ids=array("q"),
        )  # fmt: skip
        self.table.alloc([request])
        request.get_fill_ids = lambda: request.origin_input_ids
        self.requests[row] = request
        buffer = self.table.req_to_token[request.req_pool_idx]
        return buffer, memory(buffer)

    def checkpoint(self, row: Row, settled: int) -> None:
        """Offer the row's first `settled` positions to the tree; the row is rewritten up to `cache_protected_len`."""
        request = self.requests[row.name]
        request.origin_input_ids = array("q", [prompt_token(row.prompt, i) for i in range(settled)])
        self.cache.cache_unfinished_req(request)
        row.kept = request.cache_protected_len // self.page_size

    def relock(self, row: Row, keep: int) -> None:
        """Hold only the first `keep` of the entries that the tree holds for the row."""
        request = self.requests[row.name]
        tokens = array("q", [prompt_token(row.prompt, i) for i in range(keep * self.page_size)])
        asked = _module("base_prefix_cache").MatchPrefixParams(key=self.radix.RadixKey(tokens))
        node = self.cache.match_prefix(asked).last_device_node
        self.cache.inc_lock_ref(node)
        self.cache.dec_lock_ref(request.last_node)
        request.last_node, request.cache_protected_len, row.kept = node, keep * self.page_size, keep

    def finish(self, row: Row) -> None:
        """End the request without offering anything more to the tree, and give its row of the table back."""
        request = self.requests.pop(row.name)
        length = max(row.length, row.kept * self.page_size)
        request.origin_input_ids = array("q", [prompt_token(row.prompt, i) for i in range(length)])
        self.cache.cache_finished_req(request, is_insert=False, kv_len_to_handle=length)
        self.table.free(request)

    def cached(self) -> list[int]:
        """The pages that the tree holds, in ascending order."""
        nodes, slots = [self.cache.root_node], []
        while nodes:
            node = nodes.pop()
            nodes += node.children.values()
            slots += list(node.value)[:: self.page_size]
        return sorted(int(slot) // self.page_size for slot in slots)


class RadixCaller(Caller):
    """Programs on a radix cache.

    The tree holds a row's leading entries, `kept` of them, as one locked path. What the row gives up of those stays in
    the tree, and stays locked until the row is trimmed below it or finishes: a path cannot be given up in the middle.
    """

    operations = (*Caller.operations, "checkpoint")
    pool: RadixPool

    def prepare(self) -> None:
        """One row of the table for each name."""
        self.pool.prepare(len(self.capacity), max(self.capacity.values(), default=0))

    def checkpoint(self, row: str) -> Outcome:
        """Cache the whole pages of the row's settled beginning; report the pages of the whole row afterwards.

        Entries that were given up count as the null page. The tree is not asked when it holds that beginning already.
        """
        r = self._row(row)
        settled = next((position for position, done in enumerate(r.settled) if not done), r.length)
        before = r.kept * self.page_size
        if settled // self.page_size > r.kept:
            self.pool.checkpoint(r, settled)
            after, width = r.kept * self.page_size, r.slots.itemsize
            r.mine[before * width : after * width] = r.slots[before:after].cast("B")
        size = self.page_size
        pages = [r.slots[entry * size] // size if live else 0 for entry, live in enumerate(r.live)]
        return {"status": "done", "pages": pages}

    def trim(self, row: str, tokens: int) -> Outcome:
        """Keep the first `tokens` positions, and of the tree's path the entries that hold them."""
        outcome = super().trim(row, tokens)
        r = self._row(row)
        if len(r.live) < r.kept:
            self.pool.relock(r, len(r.live))
        return outcome

    def finish(self, row: str) -> Outcome:
        """End the request."""
        r = self._row(row)
        if not all(r.live[r.kept :]):
            # The cache frees the whole rest of a row, so a row with gaps is cut before.
            super().trim(row, r.kept * self.page_size)
        self.pool.finish(r)
        del self.rows[row]
        if self.hostile:
            self._scribble(r, 0, len(r.live), self._other(r))
        self.buffers.remove(r)
        return {"status": "done"}

    def _give_up(self, r: Row, start: int, stop: int) -> None:
        inside = min(max(start, r.kept), stop)
        super()._give_up(r, inside, stop)
        first, last = start * self.page_size, min(inside * self.page_size, r.length)
        r.live[start:inside] = [False] * (inside - start)
        r.settled[first:last] = [False] * (last - first)

    def _state(self, state: dict[str, Any]) -> dict[str, Any]:
        return super()._state({**state, "cached": self.pool.cached()})
