"""How large the blocks of a context are, on disk and in memory, and what becomes of that when the context is doubled.

`python -m kvspec_diff.bench.growth KIND BLOCKS...` prints by how many bytes the resident set of a process grows while
it holds the blocks of contexts of so many blocks; a process of its own, so that nothing else is in the way.
"""

import ctypes
import gc
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch
from kvspec.members import Layout, Part, Plain, Pooled, Quantized, Recurrent, Window
from kvspec_record.bench.pools import Rounds
from kvspec_torch.block_store import BlockStore
from kvspec_torch.blocks import Block, Cache
from safetensors.torch import save_file

from kvspec_diff.bench.goals import DOUBLED

Held = Mapping[str, torch.Tensor]

LAYOUT = Layout(
    "hybrid",
    64,
    (
        Plain((Part("keys", (2, 128), "bfloat16"), Part("values", (2, 128), "bfloat16"))),
        Quantized((Part("values", (8, 128), "int8"), Part("scales", (8, 4), "float16")), bits=8, group=32),
        Pooled((Part("rows", (512,), "float32"),), ratio=4),
        Window((Part("keys", (2, 128), "bfloat16"),), size=128),
        Recurrent((Part("state", (4, 32, 128), "float32"),)),
    ),
)
"""A block has some 256 KiB, a half of it states."""

KINDS = ("block", "whole")
"""What is kept at each block boundary: the block, or all of the cache."""


def rows(position: int, count: int) -> dict[str, torch.Tensor]:
    """What `count` more tokens append."""
    made = {}
    for path, leaf in LAYOUT.leaves.items():
        for part in leaf.parts:
            shape = part.shape
            if not isinstance(leaf, Recurrent):
                new = count if isinstance(leaf, Window) else leaf.rows(position + count) - leaf.rows(position)
                shape = (new, *shape)
            made[f"{path}.{part.name}"] = torch.full(shape, position % 100, dtype=getattr(torch, part.dtype))
    return made


def grow(blocks: int, keep: Callable[[int, Cache], None]) -> None:
    """A cache that grows block by block; `keep` is called at each boundary."""
    cache = Cache(LAYOUT)
    for i in range(blocks):
        cache.append(LAYOUT.block_size, rows(cache.position, LAYOUT.block_size))
        keep(i, cache)


def whole(cache: Cache) -> dict[str, torch.Tensor]:
    """All of a cache."""
    return {f"{path}.{part.name}": cache.read(f"{path}.{part.name}") for path, leaf in LAYOUT.leaves.items()
            for part in leaf.parts}  # fmt: skip


def on_disk(kind: str, blocks: int) -> int:
    """Bytes of the files of a context."""
    with tempfile.TemporaryDirectory(prefix="kvspec-bench-") as name:
        folder = Path(name)
        if kind == "whole":
            grow(blocks, lambda i, cache: save_file(whole(cache), folder / f"{i}.safetensors"))
        else:
            with BlockStore(folder, LAYOUT, budget=2**40) as store:
                keys: list[str] = []

                def save(i: int, cache: Cache) -> None:
                    keys.append(store.save(keys[-1] if keys else None, [i] * LAYOUT.block_size, cache.block(i)))
                    store.flush()

                grow(blocks, save)
                if store.stats().acknowledged != blocks:
                    raise AssertionError(f"{store.stats()}, and {blocks} blocks were saved")
        return sum(path.stat().st_size for path in folder.iterdir())


def in_memory(kind: str, blocks: int) -> int:
    """By how much this process grows while it holds the blocks of a context."""
    trim, before = ctypes.CDLL(None).malloc_trim, resident()
    held: list[Block | dict[str, torch.Tensor]] = []
    grow(blocks, lambda i, cache: held.append(whole(cache) if kind == "whole" else cache.block(i)))
    gc.collect()
    trim(0)
    return resident() - before


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measured_apart(kind: str, blocks: list[int]) -> list[int]:
    """The same in a process of its own."""
    command = [sys.executable, "-m", __spec__.name, kind, *map(str, blocks)]
    variables = os.environ | {"MALLOC_MMAP_THRESHOLD_": "16384", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def main(kind: str, blocks: list[int]) -> None:
    """Print the growth for each number of blocks; what comes first does not count: it is the code that is loaded."""
    torch.set_num_threads(1)
    in_memory(kind, 8)
    for count in blocks:
        print(in_memory(kind, count), flush=True)


def doubled(where: str, kind: str, blocks: int, rounds: int) -> Rounds:
    """Bytes for a context, for twice as long a one. There is nothing that varies: there is one round."""
    if where == "memory":
        once, twice = measured_apart(kind, [blocks, 2 * blocks])
    else:
        once, twice = (on_disk(kind, count) for count in (blocks, 2 * blocks))
    return [float(once)], [float(twice)]


MEASURED: dict[str, Callable[[int], Rounds]] = {
    f"{'whole-' * (kind == 'whole')}{where}-{blocks}": partial(doubled, where, kind, blocks)
    for kind in KINDS
    for where in ("disk", "memory")
    for blocks in DOUBLED
}
"""What can be measured, by name."""

if __name__ == "__main__":
    main(sys.argv[1], [int(count) for count in sys.argv[2:]])
