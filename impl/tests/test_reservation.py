"""Block tables against plain ones, of the reference's pool and formula: ids, slots, refusals, all of the state."""

import random
from dataclasses import dataclass, field
from typing import Any

import kvspec_reference
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kvspec.operations import Misuse as PlainMisuse
from kvspec.operations import Refused as PlainRefused
from kvspec_diff.profiles import register
from kvspec_reference.reservation import Group, Limits, blocks
from kvspec_torch import BlockTables, Misuse, PagePool, Refused

register()


@dataclass
class Plain:
    """One row after the other, entry by entry."""

    pool: kvspec_reference.PagePool
    size: int
    requests: int
    limits: Limits
    tables: dict[int, list[int]] = field(default_factory=dict)
    length: dict[int, int] = field(default_factory=dict)
    drafts: dict[int, int] = field(default_factory=dict)

    def table(self, row: int) -> list[int]:
        return self.tables.get(row, [])

    def need(self, end: int) -> int:
        return blocks(Group("full", self.size), end, self.limits)

    def known(self, rows: list[int]) -> None:
        for row in rows:
            if not 0 <= row < self.requests:
                raise PlainMisuse(f"row {row}: unknown, there are rows 0 to {self.requests - 1}")
        for at, row in enumerate(rows):
            if row in rows[:at]:
                raise PlainMisuse(f"row {row}: is named twice in one call")

    def reserve(self, rows: list[int], tokens: list[int], drafts: list[int]) -> list[int]:
        self.known(rows)
        ends = {}
        for row, n, k in zip(rows, tokens, drafts, strict=True):
            for number, what in ((n, "tokens"), (k, "drafts")):
                if number < 0:
                    raise PlainMisuse(f"row {row}: {number} {what} cannot be reserved")
            if self.drafts.get(row):
                raise PlainMisuse(f"row {row}: has {self.drafts[row]} drafts that are not settled, advance it first")
            begin = self.length.get(row, 0)
            ends[row] = begin + n + k
            if ends[row] > self.limits.length:
                asked = f"{begin} positions, {n} tokens and {k} drafts"
                raise PlainMisuse(f"row {row}: {asked} end at {ends[row]}, the limit is {self.limits.length}")
        lacking = {row: max(0, self.need(end) - len(self.table(row))) for row, end in ends.items()}
        pages = list(self.pool.allocate(sum(lacking.values())))
        slots = []
        for row, k in zip(rows, drafts, strict=True):
            table = self.tables.setdefault(row, [])
            table += [pages.pop(0) for _ in range(lacking[row])]
            for position in range(self.length.get(row, 0), ends[row]):
                slots.append(table[position // self.size] * self.size + position % self.size)
            self.length[row], self.drafts[row] = ends[row], k
        return slots

    def advance(self, rows: list[int], accepted: list[int]) -> None:
        self.known(rows)
        for row, a in zip(rows, accepted, strict=True):
            if not 0 <= a <= self.drafts.get(row, 0):
                raise PlainMisuse(f"row {row}: {a} of {self.drafts.get(row, 0)} drafts cannot be accepted")
        for row, a in zip(rows, accepted, strict=True):
            self.length[row] = self.length.get(row, 0) - self.drafts.get(row, 0) + a
            self.drafts[row] = 0

    def trim(self, rows: list[int]) -> None:
        self.known(rows)
        for row in rows:
            table, keep = self.table(row), self.need(self.length.get(row, 0))
            self.pool.release(table[keep:])
            del table[keep:]

    def finish(self, rows: list[int]) -> None:
        self.known(rows)
        for row in rows:
            if not self.table(row):
                raise PlainMisuse(f"row {row}: has no table to give back")
        for row in rows:
            if self.drafts.get(row):
                text = f"has {self.drafts[row]} drafts that may still be written, advance it first"
                raise PlainMisuse(f"row {row}: {text}")
        for row in rows:
            self.pool.release(self.tables.pop(row))
            self.length[row] = 0

    def snapshot(self) -> dict[str, Any]:
        each = range(self.requests)
        return {
            "tables": [self.table(row) for row in each],
            "length": [self.length.get(row, 0) for row in each],
            "drafts": [self.drafts.get(row, 0) for row in each],
            "blank": list(self.pool.blank),
        }


class Pair:
    """Both sides, and calls that are made on both."""

    def __init__(
        self, path: Any, pages: int, size: int, requests: int, limit: int, lookahead: int, fused: bool = False
    ) -> None:
        self.path = path
        self.plain = Plain(kvspec_reference.PagePool(pages), size, requests, Limits(limit, lookahead))
        self.pool = PagePool(pages, path=path)
        self.tables = BlockTables(self.pool, size, requests=requests, limit=limit, lookahead=lookahead, fused=fused)
        self.reported = ""  # by the last misuse on the device path

    def call(self, name: str, *lists: list[int]) -> str:
        """What the call came to; the two are to agree on it, and on the state, changed or not."""
        kind, said, wanted = "done", "", None
        try:
            wanted = getattr(self.plain, name)(*lists)
        except PlainMisuse as error:
            kind, said = "misuse", str(error)
        except PlainRefused as error:
            kind, said = "refused", str(error)
        operands = [torch.tensor(each, dtype=torch.int64) for each in lists]
        copies = [each.clone() for each in operands]
        more = (
            {"total": min(max(0, sum(lists[1] + lists[2])), len(lists[0]) * self.tables.limit)}
            if name == "reserve" and self.path == "device"
            else {}
        )
        made: Any = None
        if self.path == "host":
            done = ("done", "")
            try:
                made = getattr(self.tables, name)(*operands, **more)
            except Misuse as error:
                done = ("misuse", str(error))
            except Refused as error:
                done = ("refused", str(error))
            assert done == (kind, said)
        else:
            made = getattr(self.tables, name)(*operands, **more)
            assert ["done", "refused", "misuse"][int(self.pool.status)] == kind
            if kind == "misuse":
                with pytest.raises(Misuse) as misuse:
                    self.pool.check()
                self.reported = str(misuse.value)
        if kind == "done" and wanted is not None:
            assert made.tolist() == wanted
        assert all(map(torch.equal, operands, copies))
        for each in operands:
            each.fill_(-7)
        if isinstance(made, torch.Tensor):
            made.fill_(-7)
        assert self.snapshot() == self.plain.snapshot()
        return kind

    def snapshot(self) -> dict[str, Any]:
        saved = self.tables.backup()
        entries = saved["entries"].tolist()
        assert torch.equal(saved["table"], self.tables.tables)
        for row, number in zip(saved["table"], entries, strict=True):
            assert not row[number:].any(), "null behind the last entry"
        return {
            "tables": [row[:number].tolist() for row, number in zip(saved["table"], entries, strict=True)],
            "length": saved["length"].tolist(),
            "drafts": saved["drafts"].tolist(),
            "blank": self.pool.snapshot()["blank"],
        }


rows = st.lists(st.integers(0, 4), max_size=5, unique=True)
any_rows = st.one_of(rows, rows, rows, rows.map(sorted), st.lists(st.integers(-1, 5), max_size=5))
number = st.integers(-1, 9).map(lambda n: n if n > -1 else 0)
operations = st.tuples(
    st.sampled_from(["reserve", "reserve", "reserve", "settle", "advance", "trim", "finish"]),
    any_rows,
    st.lists(number, min_size=5, max_size=5),
    st.lists(st.integers(0, 3), min_size=5, max_size=5),
    st.integers(0, 30),
)


@settings(settings.get_profile("pr"))
@given(
    st.sampled_from(["host", "device"]), st.integers(1, 30), st.integers(1, 5), st.integers(1, 30), st.integers(0, 6),
    st.lists(operations, max_size=25),
)  # fmt: skip
def test_against_plain_tables(
    path: str, pages: int, size: int, limit: int, lookahead: int, program: list[tuple[Any, ...]]
) -> None:
    pair = Pair(path, pages, size, 5, limit, lookahead)
    for name, chosen, tokens, drafts, wild in program:
        n = len(chosen)
        if name == "reserve":
            same = wild % 2
            more = [tokens[0] % 3] * n if same else tokens[:n]
            ahead = [drafts[0]] * n if same else drafts[:n]
            if wild == 30 and n:
                more[n // 2] = [-1, -(2**63), 2**62, 2**63 - 1][drafts[0]]
            pair.call("reserve", chosen, more, ahead)
        elif name == "settle":
            outstanding = [pair.plain.drafts.get(row, 0) for row in chosen]
            pair.call("advance", chosen, [a % (k + 1) for a, k in zip(tokens[:n], outstanding, strict=True)])
        elif name == "advance":
            pair.call("advance", chosen, [a - (wild == 30) for a in drafts[:n]])
        else:
            pair.call(name, chosen)


@pytest.mark.parametrize("seed", range(12))
def test_long_runs(seed: int, path: str) -> None:
    """Decoding as an engine does it, until the pool is full, over and over."""
    of = random.Random(seed)
    size, lookahead = of.choice([1, 3, 4, 16]), of.choice([0, 3])
    pair = Pair(path, 40, size, 8, 12 * size, lookahead)
    kinds = []
    for _ in range(60 if path == "host" else 25):
        chosen = of.sample(range(8), of.randint(1, 8))
        if of.random() < 0.5:
            chosen.sort()
        k = of.choice([0, 0, 3])
        kinds.append(pair.call("reserve", chosen, [of.choice([1, 1, size])] * len(chosen), [k] * len(chosen)))
        ready = [row for row in chosen if pair.plain.drafts.get(row)]
        pair.call("advance", ready, [of.randint(0, pair.plain.drafts[row]) for row in ready])
        if of.random() < 0.2:
            pair.call("trim", chosen)
        if kinds[-1] != "done":
            full = [row for row in range(8) if pair.plain.table(row)]
            pair.call("finish", of.sample(full, len(full) // 2 + 1))
    assert set(kinds) >= {"done"}


def long(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"size": 0}, "size: 1 to"),
        ({"requests": 0}, "requests: 1 to"),
        ({"limit": 0}, "limit: 1 to"),
        ({"limit": 2**40}, "limit: 1 to"),
        ({"lookahead": -1}, "lookahead: 0 to"),
        ({"size": 1.5}, "size: a whole number is wanted, not float"),
    ],
)
def test_bad_sizes(arguments: dict[str, Any], reason: str) -> None:
    right: dict[str, Any] = {"size": 4, "requests": 2, "limit": 9, "lookahead": 0}
    with pytest.raises(Misuse, match=reason):
        BlockTables(PagePool(8), **(right | arguments))


@pytest.mark.parametrize(
    ("name", "operands", "reason"),
    [
        ("reserve", (long(0), long(1, 1), long(0)), "tokens: 1 numbers are wanted, one for each row, not 2"),
        ("reserve", (long(0), long(1).int(), long(0)), "tokens: int64 is wanted, not int32"),
        ("reserve", ([0], long(1), long(0)), "rows: an int64 tensor is wanted, not list"),
        ("reserve", (long(0)[None], long(1)[None], long(0)[None]), "rows: one dimension is wanted"),
        ("advance", (long(0), 1), "accepted: an int64 tensor is wanted, not int"),
        ("reserve", (long(0), long(1), long(0), 5), "total: 5 positions were announced, 1 are asked for"),
        ("finish", (long(1),), "row 1: has no table to give back"),
    ],
)
def test_bad_operands(name: str, operands: tuple[Any, ...], reason: str) -> None:
    tables = BlockTables(PagePool(8), 4, requests=2, limit=9)
    before = tables.backup()
    with pytest.raises(Misuse, match=reason):
        getattr(tables, name)(*operands)
    assert all(map(torch.equal, before.values(), tables.backup().values()))


def test_operands_that_are_views() -> None:
    """Strided rows, tokens and drafts: a column of the caller's matrix."""
    pair = Pair("host", 20, 4, 6, 20, 1)
    matrix = torch.tensor([[4, 2, 1], [1, 3, 0], [5, 1, 1]])
    slots = pair.tables.reserve(matrix[:, 0], matrix[:, 1], matrix[:, 2])
    assert slots.tolist() == pair.plain.reserve([4, 1, 5], [2, 3, 1], [1, 0, 1])
    assert pair.snapshot() == pair.plain.snapshot()
