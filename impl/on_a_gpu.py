"""The step's reservation on a GPU: first whether the plain and the fused path are the reference's there, then how fast.

    python impl/on_a_gpu.py                                            # on the first GPU
    TRITON_INTERPRET=1 python impl/on_a_gpu.py --device cpu --short    # the comparison alone, without one

Exits with 1 at the first difference, before anything is timed.
"""

import argparse
import random
import statistics
import sys
from collections.abc import Callable

import torch
from kvspec_reference import PagePool as PlainPool
from kvspec_reference.reservation import Group, Limits, blocks
from kvspec_torch import BlockTables, Misuse, PagePool

SIZE, LOOKAHEAD = 16, 3


def compare(device: str, steps: int, seed: int) -> int:
    """Decode with both paths and the reference, refusals and misuse included; how many pages went."""
    of, requests, pages, limit = random.Random(seed), 40, 60, 90
    both = [
        BlockTables(
            PagePool(pages, device, "device"), SIZE, requests=requests, limit=limit, lookahead=LOOKAHEAD, fused=f
        )
        for f in (False, True)
    ]
    pool, limits, taken = PlainPool(pages), Limits(limit, LOOKAHEAD), 0
    table: list[list[int]] = [[] for _ in range(requests)]
    length = [0] * requests

    for step in range(steps):
        rows = of.sample(range(requests), of.randint(1, requests))
        more = [of.choice([1, 4, 20]) for _ in rows]
        ends = [length[row] + n for row, n in zip(rows, more, strict=True)]
        needed = [blocks(Group("full", SIZE), min(end, limit), limits) for end in ends]
        lacking = [max(0, n - len(table[row])) for row, n in zip(rows, needed, strict=True)]
        status = 2 if max(ends) > limit else 1 if sum(lacking) > len(pool.blank) else 0
        slots = [0] * sum(more)
        if status == 0:
            new, slots, taken = list(pool.allocate(sum(lacking))), [], taken + sum(lacking)
            for row, n, end in zip(rows, lacking, ends, strict=True):
                table[row] += [new.pop(0) for _ in range(n)]
                slots += [table[row][at // SIZE] * SIZE + at % SIZE for at in range(length[row], end)]
                length[row] = end
        batch = [torch.tensor(one, device=device) for one in (rows, more, [0] * len(rows))]
        found = [each.reserve(*batch, sum(more)) for each in both]
        for name, each, made in zip(("plain", "fused"), both, found, strict=True):
            padded = [row + [0] * (each.tables.shape[1] - len(row)) for row in table]
            same = int(each.pool.status) == status and made.tolist() == slots and each.tables.tolist() == padded
            if not (same and each.pool.snapshot()["blank"] == list(pool.blank)):
                sys.exit(f"step {step} of seed {seed}: the {name} path differs from the reference")
        if status:
            done = [row for row in rows if table[row]]
            for each in both:
                each.finish(torch.tensor(done, dtype=torch.int64, device=device))
            for row in done:
                pool.release(table[row])
                table[row], length[row] = [], 0
        reports = []
        for each in both:
            try:
                each.pool.check()
            except Misuse as error:
                reports.append(str(error))
        if reports != reports[:1] * (2 if status == 2 else 0):
            sys.exit(f"step {step} of seed {seed}: reported as {reports}")
    return taken


def microseconds(requests: int, fused: bool, graph: bool) -> float:
    """A step of one token for each request, from its call to the end of its work: the median of 50."""
    tables = BlockTables(PagePool(100_000, "cuda"), SIZE, requests=requests, limit=4096, lookahead=3, fused=fused)
    rows, one = torch.arange(requests, device="cuda"), torch.ones(requests, dtype=torch.int64, device="cuda")
    zero = torch.zeros_like(one)

    def step() -> None:
        tables.reserve(rows, one, zero, requests)

    for _ in range(8):
        step()
    torch.cuda.synchronize()
    run: Callable[[], object] = step
    if graph:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            step()
        run = captured.replay
    spent = []
    for _ in range(50):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        spent.append(begin.elapsed_time(end) * 1000)
    tables.pool.check()
    return statistics.median(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--short", action="store_true", help="few steps")
    chosen = parser.parse_args()
    if chosen.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch finds no GPU here; --device cpu compares in Triton's interpreter")
    seeds, steps = (2, 8) if chosen.short else (10, 100)
    taken = sum(compare(chosen.device, steps, seed) for seed in range(seeds))
    print(f"plain and fused are the reference's in {seeds * steps} steps, which took {taken} pages")
    if chosen.device == "cpu":
        return
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; µs a step, of 1 token for each request")
    for requests in (1, 16, 256, 4096):
        for graph in (False, True):
            plain, fused = (microseconds(requests, fused, graph) for fused in (False, True))
            how = "in a CUDA graph" if graph else "launched"
            print(f"{requests:5} requests, {how:15}: plain {plain:8.1f}, fused {fused:8.1f}, ratio {plain / fused:.2f}")


if __name__ == "__main__":
    main()
