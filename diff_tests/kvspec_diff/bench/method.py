"""What each side does in `kvspec bench store`; a part of the docs, which is read without importing torch."""

STORE_METHOD = """
Everything is on one disk, in a new folder of the system's place for temporary files (`TMPDIR`), by one process with
one thread of torch, the garbage collector off. The clock is the wall's, since what is waited for is the disk; the sides
take turns, round by round, and the turn changes: who was first is second next. What was written is deleted off the
clock, and the folder synced.

- `save`: blocks of eight layers, each with keys and values, 16 MiB a round, at least four blocks. Ours,
  `block_store.BlockStore`, queues a block, which copies it, takes the checksum, writes, syncs, renames, syncs the
  folder, and is done when the entry is acknowledged. `safetensors.torch.save_file` writes the same tensors under a
  temporary name, which is synced and renamed, and the folder is synced; it has no checksum.
- `restore`: ours finds the entries of the 1,000 blocks by the keys of their tokens, reads them, checks the header, the
  chain and the checksum of each, and joins them to a cache. The peer reads the same files, which it is given by name,
  into a new buffer each, and looks at nothing. All are in the system's page cache.
- `append`: the rows of one block are appended to a cache of 4,096 blocks, cut out again, and saved to the
  acknowledgement; against the same with 64 blocks. In both stores all earlier blocks are there, and the two take turns
  block by block. The disk takes most of it; `append-work` is the process's processor time alone, for the same blocks.
- `disk` and `memory`: a hybrid cache of plain, quantized, pooled, windowed and recurrent members, saved block by block
  as it grows. On disk count the files' lengths; in memory what the process grows by (its resident set, in a process of
  its own) while it holds the blocks' slices. `whole` is the layout that stores the whole state of the cache at each
  block: its size is quadratic, the growth tends to 4.
"""
