"""That nothing on the device path makes the host wait, and that its cost does not follow the pool."""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import kvspec_torch.device
import pytest
import torch
from kvspec.members import Layout, Part, Plain, Pooled, Recurrent, Window
from kvspec_torch import BlockTables, Cache, DeferredPagePool, Misuse, PagePool, blocks
from kvspec_torch.device import report
from kvspec_torch.paged import KVPages
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
SOURCES = sorted(Path(kvspec_torch.device.__file__).parent.glob("*.py"))
WAITS = {
    "item", "tolist", "cpu", "numpy", "nonzero", "argwhere", "unique", "unique_consecutive", "masked_select", "equal",
    "allclose", "synchronize", "repeat_interleave", "bincount",
}  # fmt: skip
READS = {"bool", "int", "float"}
"""Built-in functions that read a tensor."""
MAY = {("report.py", "check"), ("deferred_free.py", "restore")}
"""The one that reads the device, and one that reads a flag kept on the host."""


def waits(tree: ast.Module) -> list[tuple[str, str]]:
    """(function, name) wherever a function uses what makes the host wait."""
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and node.attr in WAITS:
                found.append((function.name, node.attr))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in READS:
                found.append((function.name, node.func.id))
    return found


def test_the_device_path_uses_nothing_that_waits() -> None:
    allowed = set()
    for source in SOURCES:
        for function, name in waits(ast.parse(source.read_text())):
            assert (source.name, function) in MAY, f"{source.name}: {function} uses {name}"
            allowed.add((source.name, function))
    assert allowed == MAY


def test_the_lint_sees_what_waits() -> None:
    code = "def f(x):\n    y = x.cpu()\n    if bool(x):\n        return x.nonzero()\n    return x.sum()\n"
    assert sorted(waits(ast.parse(code))) == [("f", "bool"), ("f", "cpu"), ("f", "nonzero")]


class Unguarded(TorchFunctionMode):
    """Indexing and copying by the operators behind them.

    A build without CUDA has no device guard, which Python's `x[i]`, `~x` and `copy_` ask for before they come to the
    operator, even when the tensor is fake. An index of no dimensions is read by `x[i]`, so it is refused here.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.Tensor.__getitem__:
            return self.get(*args)
        if func is torch.Tensor.__setitem__:
            tensor, index, value = args
            if isinstance(index, tuple | torch.Tensor):
                indices = list(index) if isinstance(index, tuple) else [index]
                assert all(isinstance(i, torch.Tensor) and i.dim() for i in indices)
                value = value if isinstance(value, torch.Tensor) else tensor.new_full((), value)
                return aten.index_put_.default(tensor, indices, value)
            part = self.get(tensor, index)
            return aten.copy_.default(part, value) if isinstance(value, torch.Tensor) else part.fill_(value)
        if func is torch.Tensor.copy_:
            return aten.copy_.default(*args)
        if func is torch.Tensor.__invert__:
            return aten.bitwise_not.default(*args)
        return func(*args, **(kwargs or {}))

    def get(self, tensor: torch.Tensor, index: Any) -> torch.Tensor:
        parts = index if isinstance(index, tuple) else (index,)
        if all(isinstance(part, torch.Tensor) for part in parts):
            assert all(part.dim() for part in parts), "an index of no dimensions is read by the host"
            picked: torch.Tensor = aten.index.Tensor(tensor, list(parts))
            return picked
        at = 0
        for part in parts:
            if isinstance(part, int):
                tensor = tensor.select(at, part)
            elif part is None:
                tensor, at = tensor.unsqueeze(at), at + 1
            else:
                assert isinstance(part, slice)
                tensor, at = aten.slice.Tensor(tensor, at, part.start, part.stop, part.step or 1), at + 1
        return tensor


@contextmanager
def no_values(device: str) -> Iterator[None]:
    """Tensors made on this device have no values: whatever needs one raises."""
    if device == "meta":
        yield
        return
    with FakeTensorMode(), Unguarded():
        yield


@pytest.mark.parametrize("device", ["cuda", "meta"])
def test_every_operation_runs_where_reading_is_impossible(device: str) -> None:
    def column(*values: int) -> torch.Tensor:
        return torch.tensor(values, device=device)

    with no_values(device):
        cache = Cache(100, 2, rows=4, entries=5, pins=3, device=device)
        assert cache.pool.path == "device"
        rows, zero, one, two = column(0, 1), column(0, 0), column(1, 1), column(2, 2)
        cache.start(rows, torch.zeros(2, 10, dtype=torch.int64, device=device))
        for most in None, 4:
            pages, slots = cache.allocate(rows, two, most)
            assert (pages.device.type, pages.shape) == (device, (2, 5 if most is None else 2))
            assert slots.shape == (2, most or 10)
            assert cache.write(rows, zero, two, most=most).shape == (2, most or 10)
            cache.write(rows, zero, two, draft=True, most=most)
            assert [tensor.shape for tensor in cache.read(rows, zero, two, most)] == [(2, most or 10)] * 2
            cache.publish(rows, zero, one, most)
            cache.begin()
            cache.free(rows, zero, one, most)
            assert cache.overwrite(rows, zero, one, column(2, 3), most).shape == (2, most or 5)
            cache.trim(rows, one, most)
            cache.end()
            cache.share(rows, column(2, 3), zero, one, most)
        cache.replace(rows, zero, column(2, 3))
        assert cache.copy(rows, zero).shape == (2,)
        cache.pin(rows, rows, zero)
        cache.unpin(rows)
        assert cache.evict(7).shape == (7,)
        cache.finish(rows)
        assert cache.status.device.type == device
        cache.backup()

        pool = cache.groups
        pages = pool.allocate(3)
        pool.share(pages)
        pool.publish(pages)
        pool.release(pages)
        for _ in range(3):
            pool.publish(torch.zeros(100, dtype=torch.int64, device=device))  # the cells of the published run out
        assert isinstance(pool.available, torch.Tensor)


@pytest.mark.parametrize("device", ["cuda", "meta"])
def test_tables_are_reserved_where_reading_is_impossible(device: str) -> None:
    with no_values(device):
        tables = BlockTables(PagePool(100, device=device), 4, requests=3, limit=50, lookahead=3)
        rows, one, two = (torch.tensor([n, n + 1], device=device) for n in range(3))
        slots = tables.reserve(rows, one, two, total=8)
        assert (slots.device.type, slots.shape) == (device, (8,))
        tables.advance(rows, one)
        tables.trim(rows)
        tables.finish(rows)
        assert tables.backup()["table"].shape == (3, 13)
        with pytest.raises(Misuse, match="total: the sum of tokens and drafts is wanted"):
            tables.reserve(rows, one, two)


@pytest.mark.parametrize("device", ["cuda", "meta"])
def test_blocks_move_where_reading_is_impossible(device: str) -> None:
    part = Part("keys", (3,), "bfloat16")
    layout = Layout("toy", 8, (Plain((part,)), Window((part,), size=6), Recurrent((part,)), Pooled((part,), ratio=2)))
    with no_values(device):
        cache = blocks.Cache(layout, device)
        for count in (8, 8, 1, 7):
            shapes = {"0.keys": count, "1.keys": count, "2.keys": None, "3.keys": (cache.position % 2 + count) // 2}
            new = {
                at: torch.empty(*([rows] if rows is not None else []), 3, dtype=torch.bfloat16, device=device)
                for at, rows in shapes.items()
            }
            cache.append(count, new)
        taken = [cache.block(index) for index in range(3)]
        again = blocks.restore(layout, taken, device)
        assert (again.read("0.keys").shape, again.ring("1.keys")[0].device.type) == ((24, 3), device)

        rows = {"0.keys": (11 * 8, 3), "3.keys": (11, 4, 3)}
        tensors = {at: torch.empty(shape, dtype=torch.bfloat16, device=device) for at, shape in rows.items()}
        pages = KVPages(layout, tensors, 10, 8)
        assert pages.path == "device"
        slots = pages.slots(torch.tensor([3, 4], device=device), 8, 16)
        pages.put(slots, taken[1])
        states = {at: taken[2].parts[at] for at in ("1.keys", "2.keys")}
        assert pages.block(1, slots, states).parts["0.keys"].shape == (8, 3)
        assert pages.status.device.type == device


def test_reading_is_impossible_there() -> None:
    with FakeTensorMode(), Unguarded():
        pool = PagePool(4, device="cuda")
        with pytest.raises(DataDependentOutputException):
            pool.check()
        with pytest.raises(AssertionError, match="read by the host"):
            pool._path.ring[pool._path.head]


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the largest tensor that an operator makes, other than a view or an operand."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        result = func(*args, **(kwargs or {}))
        inputs = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        for made in result if isinstance(result, tuple | list) else [result]:
            if isinstance(made, torch.Tensor) and made.untyped_storage().data_ptr() not in inputs:
                self.elements = max(self.elements, made.numel())
        return result


def test_the_cost_follows_the_batch() -> None:
    """No operation makes a tensor as large as the pool, except once in as many publications as the pool has pages."""
    pages = 100_000
    pool = DeferredPagePool(pages, path="device")
    with Largest() as largest:
        for _ in range(40):
            taken = pool.allocate(10)
            pool.publish(taken)
            pool.share(taken)
            pool.begin()
            pool.release(taken)
            pool.release(taken)
            pool.end()
            pool.evict(10)
    assert 0 < largest.elements <= 10 * 64
    pool.check()
    assert pool.snapshot()["refs"] == {}


def test_cells_of_the_published_are_reused() -> None:
    """More publications than there are cells: order and counts survive the renumbering, many times."""
    pool = PagePool(70, path="device")
    kept = pool.allocate(3)
    pool.publish(kept)
    expected: list[int] = []
    for turn in range(100):
        pages = pool.allocate(5)
        pool.publish(pages.flip(0))
        pool.release(pages)
        expected += pages.flip(0).tolist()
        count = 2 if turn % 11 else 35
        assert [page for page in pool.evict(count).tolist() if page] == expected[:count]
        del expected[:count]
        assert pool.snapshot()["cached"] == kept.tolist() + expected
    pool.check()


def test_every_reason_is_given_somewhere() -> None:
    text = "".join(source.read_text() for source in SOURCES if source.name != "report.py")
    for reason in report.REASONS[1:]:
        assert f'"{reason}"' in text
