"""Blocks in the pages of a pool, on both paths: gathered, scattered, and what is refused before anything is written."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kvspec.members import Layout, Part, Plain, Pooled, Quantized, Recurrent, Window
from kvspec_diff.profiles import register
from kvspec_torch import BlockTables, Misuse, PagePool, Rows
from kvspec_torch.blocks import Block, Cache, restore
from kvspec_torch.members.parts import same, same_parts
from kvspec_torch.paged import KVPages

register()

PAGE, PAGES, BLOCK = 4, 12, 8
LAYOUT = Layout(
    "toy",
    BLOCK,
    (
        Plain((Part("keys", (2, 3), "bfloat16"), Part("values", (2, 3), "bfloat16"))),
        Quantized((Part("values", (5,), "uint8"), Part("scales", (), "float8_e4m3fn")), bits=8, group=5),
        Pooled((Part("mean", (2, 0), "bool"), Part("index", (1,), "bool")), ratio=2),
        Pooled((Part("mean", (3,), "float64"),), ratio=4),
    ),
)
RATIOS = {"0.keys": 1, "0.values": 1, "1.values": 1, "1.scales": 1, "2.mean": 2, "2.index": 2, "3.mean": 4}
STATES = Layout("toy", BLOCK, (*LAYOUT.members[:1], Window((Part("keys", (3,), "float32"),), size=6),
                               Recurrent((Part("state", (2,), "float32"),))))  # fmt: skip


def tensors(apart: bool, neighbours: bool = False) -> dict[str, torch.Tensor]:
    """Pages of zeros; with `neighbours` those of keys lie between others."""
    made = {}
    for layer, member in enumerate(LAYOUT.members):
        for part in member.parts:  # type: ignore[union-attr]
            path = f"{layer}.{part.name}"
            per_page, kind = PAGE // RATIOS[path], getattr(torch, part.dtype)
            if apart or neighbours:
                both = torch.zeros(PAGES + 1, 2, per_page, *part.shape, dtype=kind)
                made[path] = both[:, 1] if neighbours else both[:, 1].contiguous()
            else:
                made[path] = torch.zeros((PAGES + 1) * per_page, *part.shape, dtype=kind)
    return made


def contents(of: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {path: tensor.clone() for path, tensor in of.items()}


def anything(count: int, start: int = 0, seed: int = 0) -> dict[str, torch.Tensor]:
    """Random bits for the tokens from `start` on, of bools 0 and 1 only."""
    of, made = torch.Generator().manual_seed(seed), {}
    for path, tensor in tensors(False).items():
        rows = (start + count) // RATIOS[path] - start // RATIOS[path]
        shape = (rows, *tensor.shape[1:])
        made[path] = torch.randint(0, 2 if tensor.dtype is torch.bool else 256, shape, generator=of).to(torch.uint8)
        if tensor.element_size() > 1:
            made[path] = torch.randint(0, 2**15, (*shape[:-1], shape[-1] * tensor.element_size() // 2), generator=of)
            made[path] = made[path].to(torch.int16)
        made[path] = made[path].view(tensor.dtype)
    return made


def junk(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, with something in it, as what lies in the null page."""
    return tensor.fill_(1)


def attempt(pages: KVPages, call: Any) -> str:
    """What a call is told, on the device path afterwards."""
    try:
        call()
        pages.check()
    except Misuse as error:
        return str(error)
    return ""


@pytest.mark.parametrize("form", ["flat", "apart", "neighbours"])
@given(st.integers(0, 2**32), st.integers(0, 9), st.integers(0, 30))
@settings(settings.get_profile("pr"), max_examples=25)
def test_what_is_scattered_is_gathered(form: str, seed: int, start: int, count: int) -> None:
    """And it lies where the slots say, one row at a time, and nowhere else."""
    count = min(count, PAGES * PAGE - start)
    order = torch.randperm(PAGES, generator=torch.Generator().manual_seed(seed)) + 1
    for path in "host", "device":
        pool = tensors(form == "apart", form == "neighbours")
        pages = KVPages(LAYOUT, pool, PAGES, PAGE, path=path)
        slots = pages.slots(order, start, start + count)
        assert slots.tolist() == [int(order[at // PAGE]) * PAGE + at % PAGE for at in range(start, start + count)]
        parts = anything(count, start, seed)
        pages.scatter(slots, parts, start)
        pages.check()
        assert int(pages.status) == 0
        wanted = contents(tensors(True))
        for at, rows in parts.items():
            ratio = RATIOS[at]
            for row, value in enumerate(rows):
                first = (start // ratio + row) * ratio
                wanted[at][order[first // PAGE], first % PAGE // ratio] = value
        assert same_parts({at: tensor.reshape(wanted[at].shape) for at, tensor in pool.items()}, wanted)
        found = pages.gather(slots, start)
        assert same_parts(found, parts)
        for rows in found.values():
            assert rows.is_contiguous()
            assert rows.untyped_storage().nbytes() == rows.nbytes


@pytest.mark.parametrize("tables", ["rows", "tables", "pool"])
def test_a_row_moves_to_other_pages(tables: str, path: Any) -> None:
    """Reserve, write, gather its blocks, free, restore into other pages, read equal."""
    pool = PagePool(PAGES, path=path)
    memory = tensors(True)
    pages = KVPages(LAYOUT, memory, PAGES, PAGE, path=path)
    one, count, zero = torch.tensor([0]), torch.tensor([3 * BLOCK]), torch.tensor([0])

    def reserve(row: int) -> tuple[torch.Tensor, Any]:
        of = one + row
        if tables == "rows":
            _, slots = rows.allocate(of, count, most=3 * BLOCK)
            return slots[0], lambda: rows.finish(of)
        if tables == "tables":
            return steps.reserve(of, count, zero, total=3 * BLOCK), lambda: steps.finish(of)
        taken = pool.allocate(6)
        return pages.slots(taken, 0, 3 * BLOCK), lambda: pool.release(taken)

    rows = Rows(pool, PAGE, rows=3, entries=6)
    rows.start(torch.arange(3), torch.zeros(3, 6 * PAGE, dtype=torch.int64))
    steps = BlockTables(pool, PAGE, requests=3, limit=6 * PAGE)
    slots, free = reserve(0)
    parts = anything(3 * BLOCK)
    pages.scatter(slots, parts)
    blocks = [pages.block(n, slots[n * BLOCK : (n + 1) * BLOCK]) for n in range(3)]
    cache = Cache(LAYOUT)
    cache.append(3 * BLOCK, parts)
    assert blocks == [cache.block(n) for n in range(3)], "a block is one wherever it lies"
    free()
    others, _ = reserve(1)
    again, _ = reserve(2)
    assert not set(others.tolist()) & set(slots.tolist())
    assert again.tolist() == slots.tolist()
    pages.scatter(again, anything(3 * BLOCK, seed=1))  # somebody else has the old ones
    for n, block in enumerate(blocks):
        pages.put(others[n * BLOCK : (n + 1) * BLOCK], block)
    assert same_parts(pages.gather(others), parts)
    assert restore(LAYOUT, [pages.block(n, others[n * BLOCK : (n + 1) * BLOCK]) for n in range(3)]).position == 24
    pool.check()
    pages.check()


def test_states_are_the_callers() -> None:
    memory = {at: tensor for at, tensor in tensors(False).items() if at.startswith("0.")}
    pages = KVPages(STATES, memory, PAGES, PAGE)
    slots = pages.slots(torch.tensor([1, 2, 3, 9]), 8, 16)
    bare = pages.block(1, slots)
    assert (bare.stateful, set(bare.parts)) == (False, {"0.keys", "0.values"})
    states = {"1.keys": torch.rand(20, 3)[3:9], "2.state": torch.rand(2)}
    block = pages.block(1, slots, states)
    assert (block.stateful, list(block.parts)) == (True, ["0.keys", "0.values", "1.keys", "2.state"])
    assert block.nbytes == sum(part.nbytes for part in block.parts.values())
    kept = states["1.keys"].clone()
    assert same_parts({at: block.parts[at] for at in states}, states)
    states["1.keys"].zero_()
    assert torch.equal(block.parts["1.keys"], kept), "it is a copy"
    pages.put(slots, block)
    for wrong, reason in (
        ({"1.keys": torch.rand(6, 3)}, "states: 2.state is missing"),
        ({"1.keys": torch.rand(5, 3), "2.state": torch.rand(2)}, "1.keys: float32 of the shape"),
    ):
        with pytest.raises(Misuse, match=reason):
            pages.block(1, slots, wrong)
    with pytest.raises(Misuse, match="slots: 7 are given, a block has 8 tokens"):
        pages.block(1, slots[1:])
    with pytest.raises(Misuse, match=r"block 1: 2\.state is missing"):
        pages.put(slots, Block(1, {at: part for at, part in block.parts.items() if at != "2.state"}, True))


WRONG = {
    "null page": ([3, 0], 0, "page 0: the null page is nobody's"),
    "negative page": ([3, -2], 0, "page -1: unknown"),
    "page behind the last": ([PAGES + 1, 4], 0, f"page {PAGES + 1}: unknown"),
    "page far behind": ([2**62 + 1, 4], 0, f"page {PAGES + 1}: unknown"),
    "page twice": ([4, 4], 0, "page 4: is named twice in one call"),
    "other position": ([4, 5], 1, "page 4: has a slot that is not where its position belongs"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_pages(wrong: str, path: Any) -> None:
    """Nothing is written; on the device path what is gathered is the null page's."""
    ids, shift, reason = WRONG[wrong]
    for form in "flat", "neighbours":
        memory = tensors(False, form == "neighbours")
        pages = KVPages(LAYOUT, memory, PAGES, PAGE, path=path)
        pages.scatter(pages.slots(torch.arange(1, PAGES + 1), 0, PAGES * PAGE), anything(PAGES * PAGE))
        null = {at: junk(tensor[:1] if form == "flat" else tensor[0, :1]) for at, tensor in memory.items()}
        before = contents(memory)
        slots = pages.slots(torch.tensor(ids), 0, 8)
        said = attempt(pages, lambda: pages.scatter(slots, anything(8, shift, 1), shift))  # noqa: B023
        place = " (call 0 since the last check)" if path == "device" else ""
        assert reason in said
        assert said.startswith(f"scatter{place.replace('0', '1')}: ")
        assert same_parts(memory, before)
        assert attempt(pages, lambda: pages.gather(slots, shift)) == f"gather{place}: {reason}"  # noqa: B023
        if path == "device":
            found = pages.gather(slots, shift)
            assert int(pages.status) == 2
            assert all(same(rows, null[at][:1].expand_as(rows)) for at, rows in found.items())
            assert attempt(pages, lambda: None)
        pages.scatter(pages.slots(torch.tensor([3, 4]), 0, 8), anything(8))
        pages.check()


def test_slots_that_leave_their_page(path: Any) -> None:
    pages = KVPages(LAYOUT, tensors(False), PAGES, PAGE, path=path)
    for slots in ([4, 9], [4, 5, 6, 7, 12, 17], [5, 4]):
        assert "has a slot that is not where its position belongs" in attempt(
            pages,
            lambda: pages.gather(torch.tensor(slots)),  # noqa: B023
        )
    assert attempt(pages, lambda: pages.gather(torch.tensor([4, 5, 6, 7, 16, 17, 18, 19, 12]))) == ""
    assert attempt(pages, lambda: pages.gather(torch.tensor([6, 7, 16]), 6)) == ""


def test_the_smallest_pool(path: Any) -> None:
    """One page of one slot, beside other pages; the first and the last slot, and those before and behind."""
    layout = Layout("toy", 1, (Plain((Part("keys", (2,), "int16"),)),))
    both = torch.zeros(2, 3, 1, 2, dtype=torch.int16)
    pages = KVPages(layout, {"0.keys": both[:, 1]}, 1, path=path)
    assert (pages.page_size, pages.slots(torch.tensor([1]), 0, 1).tolist()) == (1, [1])
    pages.put(torch.tensor([1]), Block(7, {"0.keys": torch.tensor([[3, 4]], dtype=torch.int16)}, True))
    assert both.flatten().tolist() == [0] * 8 + [3, 4, 0, 0]
    nothing = torch.zeros(0, dtype=torch.int64)
    assert pages.gather(nothing)["0.keys"].shape == (0, 2)
    pages.scatter(nothing, {"0.keys": torch.zeros(0, 2, dtype=torch.int16)})
    for slot, reason in ((0, "page 0: the null page is nobody's"), (2, "page 2: unknown"), (-1, "page -1: unknown")):
        assert attempt(pages, lambda: pages.gather(torch.tensor([slot]))).endswith(reason)  # noqa: B023
    pages = KVPages(layout, {"0.keys": torch.zeros(10, 1, 2, dtype=torch.int16)}, 9, path=path)
    for slots in ([9, 2, 5, 2], [2, 2], [2, 3, 2, 2]):
        assert "page 2: is named twice" in attempt(pages, lambda: pages.gather(torch.tensor(slots)))  # noqa: B023
    rows = pages.gather(torch.tensor([9, 1, 4]))["0.keys"]
    assert rows.shape == (3, 2)


def test_a_status_is_a_copy(path: Any) -> None:
    pages = KVPages(LAYOUT, tensors(False), PAGES, PAGE, path=path)
    pages.status.fill_(7)
    assert int(pages.status) == 0


def test_the_path_is_that_of_the_device() -> None:
    assert KVPages(LAYOUT, tensors(False), PAGES, PAGE).path == "host"
    there = {at: tensor.to("meta") for at, tensor in tensors(False).items()}
    assert KVPages(LAYOUT, there, PAGES, PAGE).path == "device"
    with pytest.raises(Misuse, match="path: 'host' is none for meta"):
        KVPages(LAYOUT, there, PAGES, PAGE, path="host")


@pytest.mark.parametrize("path", ["host", "device"])
def test_what_is_seen_at_once(path: Any) -> None:
    memory = tensors(False)
    pages = KVPages(LAYOUT, memory, PAGES, PAGE, path=path)
    before, slots, parts = contents(memory), pages.slots(torch.tensor([3, 4]), 0, 8), anything(8)
    calls: list[tuple[Any, str]] = [
        (lambda: pages.slots(torch.tensor([3, 4]), 0, 9), "positions 0 to 9: the row has 2 pages of 4"),
        (lambda: pages.slots(torch.tensor([3, 4]), 3, 2), "positions 3 to 2"),
        (lambda: pages.slots(torch.tensor([3, 4]), -1, 2), "start: a whole number from 0 is wanted"),
        (lambda: pages.slots(torch.tensor([3.0]), 0, 1), "pages: int64 is wanted"),
        (lambda: pages.gather(slots.int()), "slots: int64 is wanted, not int32"),
        (lambda: pages.gather(slots[None]), "slots: one dimension is wanted"),
        (lambda: pages.gather(slots, -1), "start: a whole number from 0 is wanted"),
        (lambda: pages.scatter(slots, {}), "scatter: 0.keys is missing"),
        (lambda: pages.scatter(slots, parts | {"9.keys": slots}), "scatter: 9.keys does not belong here"),
        (lambda: pages.scatter(slots[1:], parts), r"scatter: 0.keys: bfloat16 of the shape \(7, 2, 3\) is wanted"),
        (lambda: pages.scatter(slots, parts | {"0.keys": parts["0.keys"].float()}), "is wanted, not float32"),
        (lambda: pages.scatter(slots, parts | {"0.keys": memory["0.values"][:8]}), "0.keys: is in the memory of the"),
        (lambda: KVPages(LAYOUT, memory, PAGES - 1, PAGE), r"tensors: 0.keys: bfloat16 of the shape \(48, 2, 3\) is"),
        (lambda: KVPages(LAYOUT, memory, PAGES, 6), "page_size: 6 is no multiple of 4, the ratio of 3.mean"),
        (lambda: KVPages(LAYOUT, memory, 0, PAGE), "at least 1 page of at least 1 slot is wanted, not 0 of 4"),
        (lambda: KVPages(LAYOUT, {}, PAGES, PAGE), "tensors: 0.keys is missing"),
        (lambda: KVPages(LAYOUT, memory | {"0.keys": torch.zeros(3)}, PAGES, PAGE), "tensors: 0.keys: bfloat16"),
        (lambda: KVPages(LAYOUT, memory | {"0.keys": memory["0.keys"].to("meta")}, PAGES, PAGE), "on one device"),
        (lambda: KVPages(Layout("toy", 1, ()), {}, PAGES, PAGE), "on one device"),
        (lambda: KVPages(LAYOUT, memory, PAGES, PAGE, path="fast"), "path: 'fast' is none for cpu"),  # type: ignore[arg-type]
    ]
    for call, reason in calls:
        with pytest.raises(Misuse, match=reason):
            call()
    assert same_parts(memory, before)
    pages.check()
    bare = Block(0, {at: part for at, part in parts.items() if at != "0.keys"}, True)
    with pytest.raises(Misuse, match=r"block 0: 0\.keys is missing"):
        pages.put(slots, bare)


def test_pools_of_inference(path: Any) -> None:
    """Tensors that were made under inference mode are written without it too."""
    with torch.inference_mode():
        memory = tensors(False)
    pages = KVPages(LAYOUT, memory, PAGES, PAGE, path=path)
    slots = pages.slots(torch.tensor([3, 4]), 0, 8)
    pages.scatter(slots, parts := anything(8))
    assert same_parts(pages.gather(slots), parts)
