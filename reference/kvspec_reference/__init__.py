"""The readable reference of KV-cache memory: plain Python, first in first out, one file a subject.

Read `pages` first (who holds a page), then `rows` (what a request reads where; its arithmetic is in `geometry`), then
`deferred_free` (groups); and `reservation` (how many blocks a step needs), then `demand` (of each pool), then
`admission` (a scheduler). Apart from these: `blocks` (what a cache is cut into), `entry_format` (an entry as bytes),
`files` (what is asked of a folder), `store` (what survives), `prefixes` (blocks in a store); `snapshots` (states at
positions), `growth` (what blocks cost); `drain` (a speculative decoder, and a late request that joins it).
"""

from kvspec_reference.admission import Scheduler
from kvspec_reference.deferred_free import Cache, DeferredPagePool
from kvspec_reference.demand import Pool
from kvspec_reference.entry_format import Entry, Miss
from kvspec_reference.files import Folder
from kvspec_reference.pages import PagePool
from kvspec_reference.rows import Action, Rows
from kvspec_reference.store import Store

__all__ = [
    "Action",
    "Cache",
    "DeferredPagePool",
    "Entry",
    "Folder",
    "Miss",
    "PagePool",
    "Pool",
    "Rows",
    "Scheduler",
    "Store",
]
