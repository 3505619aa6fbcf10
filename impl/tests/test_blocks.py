"""What torch adds to the contract of blocks: memory, devices, dtypes, bits. The rest is compared in `diff_tests`."""

import pytest
import torch
from kvspec.members import WIDTHS, Layout, Part, Plain, Pooled, Recurrent, Window
from kvspec_torch.blocks import Block, Cache, restore
from kvspec_torch.errors import Misuse, Refused
from kvspec_torch.members.parts import bits, same
from torch.utils._python_dispatch import TorchDispatchMode

SIZE = 4
LAYOUT = Layout(
    "toy",
    SIZE,
    (
        Plain((Part("keys", (2, 3), "bfloat16"),)),
        Window((Part("keys", (3,), "float32"),), size=6),
        Recurrent((Part("state", (2, 2), "float64"),)),
        Pooled((Part("mean", (2,), "float16"),), ratio=3),
    ),
)
ROWS = Layout("toy", SIZE, LAYOUT.members[:1] + LAYOUT.members[3:])


def new(cache: Cache, count: int, seed: int = 0) -> dict[str, torch.Tensor]:
    """Any tensors for `count` tokens more."""
    of = torch.Generator().manual_seed(seed + cache.position)
    start, end = cache.position, cache.position + count
    shapes = {
        "0.keys": (count, 2, 3), "1.keys": (count, 3), "2.state": (2, 2), "3.mean": (end // 3 - start // 3, 2),
        "1.mean": (end // 3 - start // 3, 2),
    }  # fmt: skip
    return {
        path: torch.randn(shapes[path], generator=of).to(cache.read(path).dtype)
        for path in ["0.keys", *(["1.keys", "2.state", "3.mean"] if cache.layout == LAYOUT else ["1.mean"])]
    }


def grown(blocks: int, layout: Layout = LAYOUT) -> tuple[Cache, list[Block]]:
    """A cache of so many blocks, and the blocks, taken as soon as each was whole."""
    cache, taken = Cache(layout), list[Block]()
    for _ in range(blocks):
        cache.append(SIZE, new(cache, SIZE))
        taken.append(cache.block(len(taken)))
    return cache, taken


def pinned(blocks: list[Block]) -> int:
    """Bytes of memory that blocks keep from being freed."""
    return sum({id(block): block.nbytes for block in blocks}.values())


def test_memory_follows_the_blocks() -> None:
    """Blocks that are held cost what they have, wherever they stand; whole states cost a square of it (B6)."""
    cache, blocks = grown(64)
    slices = [block.nbytes for block in blocks]
    state, rows = 6 * 3 * 4 + 4 * 8, SIZE * 6 * 2
    assert slices[3] == rows + state + (16 // 3 - 12 // 3) * 4
    assert pinned(blocks) == 64 * (rows + state) + 256 // 3 * 4 - 2 * 3 * 4, "the first window has 4 rows of 6"
    of = {n: pinned(blocks[:n]) for n in (16, 32, 64)}
    assert 1.9 < of[32] / of[16] < 2.1
    assert 1.9 < of[64] / of[32] < 2.1
    whole = {n: sum(cache.read("0.keys")[: end * SIZE].numel() * 2 for end in range(1, n + 1)) for n in (16, 32, 64)}
    assert [whole[n] for n in (16, 32, 64)] == [n * (n + 1) // 2 * rows for n in (16, 32, 64)]
    assert whole[64] / whole[32] > 3.9
    del cache
    assert pinned(blocks[:1]) == slices[0], "nothing else is pinned"


def test_a_view_would_pin_the_prefix() -> None:
    """What the test above finds."""
    cache, _ = grown(64)
    keys = cache.read("0.keys")
    views = [Block(n, {"0.keys": keys[n * SIZE : (n + 1) * SIZE]}, True) for n in range(64)]
    assert pinned(views) == 64 * 64 * SIZE * 6 * 2


def test_a_cache_has_little_more_memory_than_it_needs() -> None:
    """Twice the rows while it grows, four times after a trim, so many slots in a ring as were used."""
    cache = Cache(ROWS)
    needed = [0]
    for count in (1, 1, 5, 40, 3, 1):
        cache.append(count, new(cache, count))
        needed.append(sum(cache.read(path).nbytes for path in ("0.keys", "1.mean")))
        assert needed[-1] <= cache.nbytes <= 2 * needed[-1] + 8
    room = cache.nbytes
    cache.trim(50)
    assert cache.nbytes == room, "one token less is no reason to move"
    for position in (20, 9, 3, 1):
        cache.trim(position)
        assert cache.nbytes <= 4 * sum(cache.read(path).nbytes for path in ("0.keys", "1.mean")) + 16
        assert cache.position == position
    cache.trim(0)
    assert cache.nbytes == 0
    cache = Cache(ROWS)
    cache.append(10, new(cache, 10))
    cache.append(1, new(cache, 1))
    assert cache.nbytes == 2 * (10 * 12 + 3 * 4) - 3 * 4
    ring = Cache(Layout("toy", SIZE, (Window((Part("keys", (), "int64"),), size=1000),)))
    assert ring.nbytes == 0
    for count in (10, 1, 4):
        ring.append(count, {"0.keys": torch.arange(count)})
    assert ring.nbytes == 2 * 8 * 10
    ring.append(5000, {"0.keys": torch.arange(5000)})
    assert ring.nbytes == 8000
    assert restore(ring.layout, [None]).nbytes == 0
    assert Cache(LAYOUT).nbytes == 4 * 8, "a state"


def test_a_ring_is_cut_down_with_its_rows() -> None:
    ring = Cache(Layout("toy", SIZE, (Window((Part("keys", (), "int64"),), size=1000),)))
    ring.append(900, {"0.keys": torch.arange(900)})
    ring.trim(500)
    assert ring.nbytes == 8 * 900
    ring.trim(3)
    assert ring.nbytes == 8 * 6
    ring.append(10, {"0.keys": torch.arange(10)})
    assert ring.read("0.keys").tolist() == [0, 1, 2, *range(10)]
    ring.trim(0)
    assert ring.nbytes == 0


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (0,), (1, 2, 2)])
def test_every_dtype_keeps_its_bits(dtype: str, shape: tuple[int, ...]) -> None:
    """All bytes survive: payloads of NaN, and of bool what is neither 0 nor 1 (B1)."""
    part = Part("any", shape, dtype)
    layout = Layout("toy", 256, (Plain((part,)), Window((part,), size=100), Recurrent((part,))))
    kind: torch.dtype = getattr(torch, dtype)
    rows = torch.empty((512, *shape), dtype=kind)
    every = torch.arange(512 * part.bytes, dtype=torch.int64).to(torch.uint8)
    rows.reshape(-1).view(torch.uint8).copy_(every)
    cache = Cache(layout)
    for start, stop in ((0, 1), (1, 200), (200, 512)):
        chunk = rows[start:stop]
        cache.append(stop - start, {"0.any": chunk, "1.any": chunk, "2.any": chunk[-1]})
    for this in cache, restore(layout, [cache.block(0), cache.block(1)]):
        assert same(this.read("0.any"), rows)
        assert same(this.read("1.any"), rows[412:])
        assert same(this.read("2.any"), rows[511])
        assert this.block(1) == cache.block(1)
        assert all(part.is_contiguous() for part in this.block(1).parts.values())
        assert this.block(1).nbytes == sum(part.nbytes for part in this.block(1).parts.values())


def test_blocks_are_equal_bit_for_bit() -> None:
    nan = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert same(nan, nan.clone())
    assert not same(nan, nan.flip(0)), "payloads differ"
    zero = torch.zeros(2)
    assert not same(zero, -zero)
    assert not same(zero, zero.to(torch.float16))
    assert not same(zero, zero[:, None])
    block = Block(0, {"0.keys": nan}, True)
    assert block == Block(0, {"0.keys": nan.clone()}, True)
    assert block != "block"
    for other in (
        Block(1, block.parts, True), Block(0, block.parts, False), Block(0, {}, True),
        Block(0, {"0.keys": zero}, True), Block(0, {"1.keys": nan}, True), Block(0, {"0.keys": nan, "1": nan}, True),
    ):  # fmt: skip
        assert block != other
    with pytest.raises(TypeError, match="unhashable"):
        hash(block)


@pytest.mark.parametrize("first", [True, False])
def test_caches_outlive_inference_mode(first: bool) -> None:
    """A cache that was begun under inference mode goes on without it, and the other way round."""
    with torch.inference_mode(first):
        cache = Cache(LAYOUT)
        cache.append(9, new(cache, 9))
    with torch.inference_mode(not first):
        cache.append(3, new(cache, 3))
        again = restore(LAYOUT, [grown(1)[1][0], *(cache.block(index) for index in (1, 2))])
        assert again.position == 12
        again.append(9, new(again, 9))
    cache.append(9, new(cache, 9))
    again.append(1, new(again, 1))
    assert same(again.read("1.keys")[:-1], cache.read("1.keys")[1:])


def test_gradients_are_not_kept() -> None:
    cache = Cache(ROWS)
    wanted = {path: tensor.requires_grad_() for path, tensor in new(cache, SIZE).items()}
    cache.append(SIZE, wanted)
    assert not any(part.requires_grad for part in cache.block(0).parts.values())
    assert same(cache.read("0.keys"), wanted["0.keys"])


def test_what_is_negated_lazily_is_negated() -> None:
    """A view that torch calls negative has other bits than it shows."""
    layout = Layout("toy", 1, (Plain((Part("keys", (), "float32"),)),))
    cache, lazy = Cache(layout), torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert lazy.is_neg()
    cache.append(2, {"0.keys": lazy})
    assert cache.read("0.keys").tolist() == [-2.0, 4.0]


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        ("0.keys", [1], "0.keys: bfloat16 of the shape (2, 2, 3) is wanted, not list"),
        ("0.keys", torch.zeros(2, 2, 3), "0.keys: bfloat16 of the shape (2, 2, 3) is wanted, not float32 of the shape"),
        ("1.mean", torch.zeros(1, 2, dtype=torch.float16), "1.mean: float16 of the shape (0, 2) is wanted"),
        ("0.keys", torch.zeros(2, 2, 3, dtype=torch.bfloat16, device="meta"), "0.keys: is on meta, the cache is on"),
        ("0.keys", torch.zeros(2, 2, 3, dtype=torch.bfloat16).to_sparse(), "0.keys: a dense tensor is wanted"),
        ("7.keys", torch.zeros(1), "7.keys does not belong here"),
        ("1.mean", None, "1.mean is missing"),
    ],
)
def test_what_does_not_fit_is_named(path: str, value: object, reason: str) -> None:
    cache = Cache(ROWS)
    parts: dict[str, object] = dict(new(cache, 2)) | {path: value}
    if value is None:
        del parts[path]
    with pytest.raises(Misuse) as error:
        cache.append(2, parts)  # type: ignore[arg-type]
    assert reason in str(error.value)
    assert (cache.position, cache.nbytes) == (0, 0)


def test_other_misuse() -> None:
    cache, blocks = grown(3)
    for call, reason in (
        (lambda: Cache("toy"), "layout"),
        (lambda: cache.append(True, {}), "count: a whole number from 0 is wanted"),
        (lambda: cache.append(1, []), "append: tensors by path are wanted, not list"),
        (lambda: cache.trim(13), "position: 13 is behind the cache's end, 12"),
        (lambda: cache.ring("0.keys"), "0.keys: only a window has a ring"),
        (lambda: cache.read("keys"), "'keys': the cache has no such part"),
        (lambda: cache.block(3), "block 3: ends at 16, the cache is at 12"),
        (lambda: restore(LAYOUT, ["block"]), "a block is wanted"),
        (lambda: restore(LAYOUT, [Block(0, blocks[0].parts, 1)]), "stateful: True or False is wanted"),
        (lambda: restore(LAYOUT, [Block(2**63, {}, False)]), "index: 9223372036854775808 is too large"),
        (lambda: restore(ROWS, [Block(0, {}, False)]), "lacks states, and this layout has none"),
        (lambda: restore(ROWS, [blocks[0]]), "1.mean is missing"),
    ):
        with pytest.raises(Misuse, match=reason):
            call()  # type: ignore[no-untyped-call]
    with pytest.raises(Refused, match="member 1: rows before 6 have left the window"):
        cache.trim(11)
    largest = Block(2**63 - 1, blocks[2].parts, False)
    with pytest.raises(Misuse, match=f"block {2**63 - 1}: 1.keys does not belong here"):
        restore(LAYOUT, [largest])


class Calls(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators that are called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_work_does_not_follow_the_tokens() -> None:
    """As many operators for a thousand tokens as for ten, and for a block behind a thousand as behind ten."""

    def calls(blocks: int, count: int) -> tuple[int, int]:
        cache = Cache(LAYOUT)
        cache.append(blocks * SIZE, new(cache, blocks * SIZE))
        cache.append(SIZE, new(cache, SIZE))  # the rows get their second segment
        parts = new(cache, count)
        with Calls() as appending:
            cache.append(count, parts)
        with Calls() as cutting:
            cache.block(blocks)
        return appending.count, cutting.count

    assert calls(16, 8) == calls(1024, 8) >= calls(1024, 1000)


def test_integers_of_the_same_width() -> None:
    assert {name: bits(torch.empty(1, dtype=getattr(torch, name))).element_size() for name in WIDTHS} == WIDTHS


def test_when_memory_is_given_back() -> None:
    """To the row: what is trimmed away goes once there is more than four times what is left, down to twice of it."""
    rows, window = Plain((Part("keys", (), "int64"),)), Window((Part("keys", (), "int64"),), size=100)

    def grown(member: Plain | Window, *counts: int) -> Cache:
        cache = Cache(Layout("toy", 1, (member,)))
        for count in counts:
            append(cache, count)
        return cache

    def append(cache: Cache, count: int) -> None:
        cache.append(count, {"0.keys": torch.arange(cache.position, cache.position + count)})

    for cache, steps in (
        (grown(rows, 1, 59), ((15, 60), (14, 28))),
        (grown(rows, 4, 2), ((3, 8), (2, 4))),
        (grown(window, 40), ((10, 40), (9, 18))),
    ):
        for position, room in steps:
            cache.trim(position)
            assert cache.nbytes == room * 8
        append(cache, room - position)
        assert cache.nbytes == room * 8, "there is room for so many"
        assert cache.read("0.keys").tolist() == list(range(room))
