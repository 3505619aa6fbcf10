"""How fast an engine's pool and ours are, side by side in one process of the engine's environment."""

METHOD = """
Both sides have 1,048,576 slots of one token each and run on one thread of one process, with the garbage collector off.
Each pool is scrambled first: everything is handed out and given back in a random order, as after a long time at work.
Calls are timed in batches: some `allocate` calls, then the `release` of each one's result, whose order was shuffled in
between, off the clock. The clock is the thread's processor time, so that other processes' turns do not count, only
what they leave in the caches. The sides take turns, round by round, and the turn changes: who was first is second next.

- Ours, `kvspec_torch.PagePool` on its host path, checks everything it always checks: that each page exists, is not
  null, is held and is named once. `allocate` copies page ids off a ring, `release` writes them to its end.
- SGLang's `TokenToKVPoolAllocator` checks nothing. `alloc` cuts a view off the front of the tensor of free slots.
  `free`, unsorted, makes a new tensor of all free slots, the old ones and the freed: its cost follows how many are
  free. `free`, sorted, does so with the slots freed since the last sort, and an `alloc` that finds too few sorts all.
- vLLM's `BlockPool`, its prefix cache on, is a Python object a block in a linked list. `get_new_blocks` takes them off
  the front, looks for a hash to forget and counts a reference; `free_blocks` uncounts it and links them to the front
  again. No block here has a hash, which costs vLLM least: the same few blocks, warm in the processor's caches, go in
  and out. Ours walks round the whole ring all the while.
- The state of a page is what a new pool allocates, by the counts that Python and NumPy keep and the sizes of torch's
  storages. vLLM's block counts with its number, its place in a list and the garbage collector's header.
- The monitor is the machine `kvspec.deferred_free`, compiled to Python, against a class written by hand that checks the
  same and keeps what it needs for that. Both take the events of the programs that `kvspec diff` draws.
"""
"""What each side does; a part of the docs."""

STEP_METHOD = """
Pages have 16 positions, the pool 100,000 of them, handed out and given back in a random order first. Every request
begins with 96 positions and up to a page more, so that at every step some leave their page. After a step that does not
count and 16 that do, all is given back and begins again, off the clock. One thread, the garbage collector off, the
thread's processor time; the sides take turns, round by round.

- Ours, `kvspec_torch.BlockTables` on its host path with a lookahead of 3, checks everything it always checks: that each
  row exists and is named once, that no number is negative, that no draft is outstanding and that no sequence ends
  behind its limit. One call reserves the step for all requests and returns the slots.
- vLLM's `KVCacheManager`, a group of full attention and no prefix cache, which costs it least: `allocate_slots` for
  each request, 4 new tokens and 3 ahead. It returns blocks; no slots are computed. Its requests' counts are advanced
  off the clock.
- Against the same, `step-settled` takes 3 of our 4 tokens as drafts, of which none to all are right, and has `advance`
  on the clock as well, which takes the others back. vLLM's side does no such thing there.
- SGLang's decode step: the gather of each request's last slot, `alloc_decode` of its paged allocator (without Triton,
  as on any CPU) and the write of the new slots into its table. It looks nothing ahead and checks nothing.
- Ours against ours: contexts of 960 positions against 96, both with a limit of 40,960 and 1,000,000 pages; a pool of
  1,000,000 pages against one of 100,000; a limit of 40,960 positions, whose tables lie ten times farther apart in
  memory, against one of 4,096.
"""
"""What each side does in a step; a part of the docs."""
