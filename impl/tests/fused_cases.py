"""The fused step against the plain device path and the reference. `test_fused.py` runs this in Triton's interpreter."""

import importlib.util
import random
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from hypothesis import given, settings
from hypothesis import strategies as st
from kvspec_torch import BlockTables, DeferredPagePool, PagePool, reservation
from kvspec_torch.device import fused
from test_reservation import Pair, long, operations

MANY = settings(settings.get_profile("pr"))
blocks = st.sampled_from([(1024, 128), (2, 2), (4, 1)])
"""Rows and positions that a kernel looks at together: all at once, or so few that sums are carried on."""


def bits(tables: BlockTables) -> dict[str, torch.Tensor]:
    """All of the state, cells to spare and what is reported included; not the marks, which mean nothing afterwards."""
    own, pool = tables._path, tables.pool._path
    named = {name: getattr(own, name) for name in ("table", "length", "drafts", "entries")}
    return named | pool.backup() | {"status": pool.report.status, "first": pool.report.first}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[name]) for name, value in one.items())


class Twins:
    """The plain path and the fused one, each against the reference, and bit for bit against each other."""

    def __init__(self, *sizes: int) -> None:
        self.plain, self.fused = Pair("device", *sizes), Pair("device", *sizes, fused=True)

    def call(self, name: str, *lists: list[int]) -> str:
        kinds = {pair.call(name, *lists) for pair in (self.plain, self.fused)}
        assert same(bits(self.plain.tables), bits(self.fused.tables))
        assert self.plain.reported == self.fused.reported
        assert (self.fused.tables._path._last == -1).all()
        (kind,) = kinds
        return kind


@MANY
@given(
    blocks, st.integers(1, 30), st.integers(1, 5), st.integers(1, 30), st.integers(0, 6),
    st.lists(operations, max_size=15),
)  # fmt: skip
def test_programs(
    looked_at: tuple[int, int], pages: int, size: int, limit: int, lookahead: int, program: list[tuple[Any, ...]]
) -> None:
    twins = Twins(pages, size, 5, limit, lookahead)
    of = twins.fused.tables._path
    of.judged, of.written = looked_at
    for name, chosen, tokens, drafts, wild in program:
        n = len(chosen)
        outstanding = [twins.plain.plain.drafts.get(row, 0) for row in chosen]
        if name == "reserve":
            more = tokens[:n]
            if wild == 30 and n:
                more[n // 2] = [-1, -(2**63), 2**62, 2**63 - 1][drafts[0]]
            twins.call("reserve", chosen, more, drafts[:n])
        elif name == "settle":
            twins.call("advance", chosen, [a % (k + 1) for a, k in zip(tokens[:n], outstanding, strict=True)])
        elif name == "advance":
            twins.call("advance", chosen, drafts[:n])
        else:
            twins.call(name, chosen)


wild_numbers = st.sampled_from([0, 1, 1, 2, 3, 5, -1, 2**40, 2**40 + 1, 2**63 - 1, -(2**63)])
batch = st.integers(1, 7).flatmap(
    lambda n: st.tuples(
        st.lists(st.sampled_from([0, 1, 2, 3, 4, -1, 5, 2**62, -(2**63)]), min_size=n, max_size=n),
        st.lists(wild_numbers, min_size=n, max_size=n), st.lists(wild_numbers, min_size=n, max_size=n),
        st.integers(-1, 3),
    )
)  # fmt: skip


@MANY
@given(blocks, st.booleans(), st.lists(batch, min_size=1, max_size=5))
def test_what_is_wrong_is_reported_alike(
    looked_at: tuple[int, int], deferring: bool, batches: list[tuple[Any, ...]]
) -> None:
    """Several things wrong at once, other totals than announced, several misuses before anybody checks."""
    of = DeferredPagePool if deferring else PagePool
    both = [
        BlockTables(of(6, path="device"), 2, requests=5, limit=9, lookahead=1, fused=chosen) for chosen in (False, True)
    ]
    both[1]._path.judged, both[1]._path.written = looked_at
    for rows, tokens, drafts, off in batches:
        total = min(max(0, sum(n for n in tokens + drafts if 0 <= n < 9) + max(off, 0)), 9 * len(rows))
        made = [each.reserve(long(*rows), long(*tokens), long(*drafts), total) for each in both]
        assert torch.equal(*made)
        assert same(*map(bits, both))


def decode(twins: Twins, seed: int) -> set[str]:
    """Decode as an engine does, until the pool is full, over and over: how the calls came out."""
    of, kinds = random.Random(seed), set()
    for turn in range(14):
        chosen = of.sample(range(6), of.randint(1, 6))
        left = [twins.plain.tables.limit - twins.plain.plain.length.get(row, 0) for row in chosen]
        k = of.choice([0, 2])
        kinds.add(twins.call("reserve", chosen, [of.choice([1, 5, n - k * (n > k)]) for n in left], [k] * len(chosen)))
        twins.call("advance", chosen, [of.randint(0, twins.plain.plain.drafts.get(row, 0)) for row in chosen])
        if turn % 4 == 3:
            full = [row for row in range(6) if twins.plain.plain.table(row)]
            twins.call("finish", full)
    return kinds


RUNS = [(12, 3, 6, 14, 3), (40, 3, 6, 13, 3), (9, 4, 6, 25, 0)]
"""Pages, size, rows, limit and lookahead: too few pages, too low a limit."""


@pytest.mark.parametrize("sizes", RUNS)
def test_long_runs(sizes: tuple[int, ...]) -> None:
    kinds = set.union(*(decode(Twins(*sizes), seed) for seed in range(2)))
    assert kinds >= ({"done", "misuse"} if sizes[0] == 40 else {"done", "refused"})


def test_strided_operands_and_empty_batches() -> None:
    pair = Pair("device", 20, 4, 6, 20, 1, fused=True)
    matrix = torch.tensor([[4, 2, 1], [1, 3, 0], [5, 1, 1]])
    assert pair.tables.reserve(*matrix.unbind(1), 8).tolist() == pair.plain.reserve([4, 1, 5], [2, 3, 1], [1, 0, 1])
    assert pair.call("reserve", [], [], []) == "done"
    assert pair.snapshot() == pair.plain.snapshot()


FAULTS = {
    "a block too many": ("+ (size - 1)) // size", "+ size) // size"),
    "nothing ahead": ("tl.minimum(end + lookahead, limit)", "tl.minimum(end, limit)"),
    "behind the limit": ("tl.minimum(end + lookahead, limit)", "end + lookahead"),
    "the head runs on": ("tl.store(numbers, (head + taken) % pages)", "tl.store(numbers, head + taken)"),
    "refused too soon": ("refused = lacking > count", "refused = lacking >= count"),
    "taken though refused": ("tl.where(misuse | refused, 0, lacking)", "lacking"),
    "marks that stay": ("tl.store(mark + r, -1, mask=known)", "tl.store(mark + r, i, mask=known)"),
    "pages still blank": ("tl.store(state + page, 1, mask", "tl.store(state + page, -1, mask"),
    "the next page's slots": ("page * size + at % size", "page * size + (at + 1) % size"),
    "no drafts": ("tl.store(drafted + r, ahead)", "tl.store(drafted + r, 0)"),
}
"""What is planted in the kernels' source: by what is wrong then, the text and what stands there instead.

None reads or writes outside of a tensor: the interpreter would do so.
"""


@pytest.fixture
def planted(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(fused.__file__).read_text()
    right, wrong = request.param
    assert right in source
    file = tmp_path / "faulty_fused.py"
    file.write_text(source.replace(right, wrong))
    spec = importlib.util.spec_from_file_location("faulty_fused", file)
    assert spec
    assert spec.loader
    faulty = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(faulty)
    monkeypatch.setattr(reservation, "_fused", lambda: faulty.FusedTables)


@pytest.mark.parametrize("planted", FAULTS.values(), ids=FAULTS, indirect=True)
@pytest.mark.usefixtures("planted")
def test_a_planted_fault_is_caught() -> None:
    with pytest.raises(AssertionError):
        [decode(Twins(*sizes), 0) for sizes in RUNS]


def test_this_is_the_interpreter() -> None:
    assert triton.knobs.runtime.interpret
    assert type(fused.decide).__name__ == "InterpretedFunction"
