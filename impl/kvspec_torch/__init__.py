"""KV-cache memory on torch tensors: the reference's operations, in batches, with the same results.

`PagePool` and `DeferredPagePool` are usable alone; `Rows` and `Cache` put page tables on top. See `pages` for the two
paths, `rows` for batches, `deferred_free` for groups, `reservation` for tables that are reserved step by step.
`block_store.BlockStore` keeps blocks of prefixes on disk. What is imported here needs torch and NumPy alone, so that it
runs in an engine's environment.
"""

from kvspec_torch.deferred_free import Cache, DeferredPagePool
from kvspec_torch.errors import Misuse, Refused
from kvspec_torch.pages import PagePool
from kvspec_torch.reservation import BlockTables
from kvspec_torch.rows import Rows

__all__ = ["BlockTables", "Cache", "DeferredPagePool", "Misuse", "PagePool", "Refused", "Rows"]
