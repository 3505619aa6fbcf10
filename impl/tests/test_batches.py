"""Batches of rows on both paths against the reference, which does the same operations one after the other."""

import copy
import random
from typing import Any

import pytest
import torch
from kvspec import operations as words
from kvspec.operations import prompt_token
from kvspec_reference import Cache as Reference
from kvspec_torch import Cache, Misuse, Refused

ROWS, ENTRIES, PINS = 6, 12, 6
STATUS = ("done", "refused", "misuse")
JUNK = -9


class Pair:
    """The same state twice: the reference, whose rows and pins are named by their torch ids, and a torch cache."""

    def __init__(self, seed: int, path: Any) -> None:
        self.random = random.Random(seed)
        self.pages, self.size = self.random.choice([(6, 1), (12, 1), (9, 2), (16, 2), (12, 3)])
        self.reference = Reference(self.pages, self.size)
        self.cache = Cache(self.pages, self.size, rows=ROWS, entries=ENTRIES, pins=PINS, path=path)

    def batch(self, operation: str, operands: dict[str, list[int]], extra: dict[str, Any]) -> bool:
        """Do it on both sides, compare everything, and say whether it was done."""
        outcomes, after = self.one_by_one(operation, operands, extra)
        before = self.cache.snapshot()
        status, result = self.at_once(operation, operands, extra)
        now = self.cache.snapshot()
        if status == "done":
            assert outcomes is not None, "done at once, but one by one it is not"
            assert now == after.snapshot()
            self.reference = after
            self.compare(operation, outcomes, result)
            return True
        assert now == before
        named = [operands[field] for field in ("row", "name") if field in operands]
        twice = any(len(set(ids)) < len(ids) for ids in named)
        unknown = not set().union(*named) <= set(range(ROWS))  # as many pins as rows
        longest = max((-(-row.length // self.size) for row in after.rows.values()), default=0)
        more = operation in ("share", "replace") or twice or unknown or longest > ENTRIES
        assert outcomes is None or more, f"{status} at once, done one by one"
        return False

    def one_by_one(
        self, operation: str, operands: dict[str, list[int]], extra: dict[str, Any]
    ) -> tuple[list[words.Outcome] | None, Reference]:
        after = copy.deepcopy(self.reference)
        outcomes: list[words.Outcome] = []
        for values in zip(*operands.values(), strict=True):
            fields = {
                field: f"r{value}" if field in ("row", "source", "name") else value
                for field, value in zip(operands, values, strict=True)
            }
            if operation == "start":
                fields["prompt"] = extra["prompts"][len(outcomes)]
            if "draft" in extra:
                fields["draft"] = extra["draft"]
            try:
                outcomes.append(getattr(after, operation)(**fields))
            except (words.Misuse, words.Refused):
                return None, after
        return outcomes, after

    def at_once(
        self, operation: str, operands: dict[str, list[int]], extra: dict[str, Any]
    ) -> tuple[str, list[torch.Tensor]]:
        passed = [torch.tensor(column, dtype=torch.int64) for column in operands.values()]
        keywords = {name: extra[name] for name in ("draft", "most") if name in extra}
        if operation == "start":
            tokens = [[prompt_token(prompt, at) for at in range(ENTRIES * self.size)] for prompt in extra["prompts"]]
            passed.append(torch.tensor(tokens, dtype=torch.int64).view(-1, ENTRIES * self.size))
        try:
            result = getattr(self.cache, operation)(*passed, **keywords)
            status = STATUS[int(self.cache.status)]
        except (Misuse, Refused) as error:
            return "misuse" if isinstance(error, Misuse) else "refused", []
        finally:
            for tensor in passed:
                tensor.fill_(JUNK)
        if status == "misuse":
            with pytest.raises(Misuse, match=rf"^{operation} \(call \d+ since"):
                self.cache.check()
        self.cache.check()
        if isinstance(result, torch.Tensor):
            return status, [result]
        return status, list(result or [])

    def compare(self, operation: str, outcomes: list[words.Outcome], result: list[torch.Tensor]) -> None:
        """Row by row, what the operation gave; the rest of a row of the result is null."""
        fields = {"allocate": ("pages", "slots"), "write": ("slots",), "read": ("slots", "tokens"), "copy": ("pages",)}
        for field, tensor in zip(fields.get(operation, ()), result, strict=operation in fields):
            by_row = tensor[:, None] if tensor.dim() == 1 else tensor
            for outcome, row in zip(outcomes, by_row.tolist(), strict=True):
                want = getattr(outcome, field)
                assert row[: len(want)] == list(want)
                assert not any(row[len(want) :])
        for tensor in result:
            tensor.fill_(JUNK)

    # Operands, each legal most of the time.

    def draw(self) -> tuple[str, dict[str, list[int]], dict[str, Any]]:
        kinds = {
            "start": 4, "allocate": 6, "write": 7, "read": 3, "free": 2, "overwrite": 1, "trim": 3, "finish": 1,
            "publish": 6, "share": 6, "replace": 4, "copy": 4, "pin": 3, "unpin": 3,
        }  # fmt: skip
        operation = self.random.choices(list(kinds), list(kinds.values()))[0]
        live = [int(name[1:]) for name in self.reference.rows]
        free = [row for row in range(ROWS) if row not in live]
        if operation == "unpin":
            names = [int(name[1:]) for name in self.reference.pins]
            return operation, {"name": self.some(names, PINS)}, {}
        if operation in ("share", "replace", "pin"):
            live = [row for row in live if self.legal(operation, row)] or live
        rows = self.some(free if operation == "start" else live, ROWS)
        if operation == "start":
            return operation, {"row": rows}, {"prompts": [self.random.choice([0, 0, 1]) for _ in rows]}
        operands: dict[str, list[int]] = {"row": rows}
        fields = {
            "allocate": "tokens", "trim": "tokens", "share": "source start stop", "replace": "entry source",
            "copy": "entry", "pin": "entry", "finish": "", "overwrite": "start stop source",
        }.get(operation, "start stop").split()  # fmt: skip
        values = [self.operands(operation, row, live, len(fields)) for row in rows]
        for i, field in enumerate(fields):
            operands[field] = [of_row[i] for of_row in values]
        if operation == "pin":
            free = [pin for pin in range(PINS) if f"r{pin}" not in self.reference.pins]
            operands = {"name": self.some(free, PINS), **operands}
            shortest = min(map(len, operands.values()))
            operands = {field: column[:shortest] for field, column in operands.items()}
        extra: dict[str, Any] = {"draft": True} if operation == "write" and self.random.random() < 0.1 else {}
        if "stop" in operands and self.random.random() < 0.5:
            sizes = [stop - start for start, stop in zip(operands["start"], operands["stop"], strict=True)]
            extra["most"] = max([0, *sizes]) + self.random.randrange(2)
        elif operation == "allocate" and self.random.random() < 0.5:
            extra["most"] = max([0, *operands["tokens"]]) + self.random.randrange(2)
        if extra.get("most", 0) > ENTRIES:
            del extra["most"]
        return operation, operands, extra

    def some(self, candidates: list[int], limit: int) -> list[int]:
        chosen = self.random.sample(candidates, self.random.randint(0, len(candidates)))
        if self.random.random() < 0.05:
            chosen.insert(self.random.randint(0, len(chosen)), self.random.randrange(-1, limit + 1))
        return chosen

    def legal(self, operation: str, row: int) -> list[tuple[int, ...]]:
        """What `share`, `replace` or `pin` may name for this row, by the state before the batch."""
        own, cached = self.reference.rows[f"r{row}"], self.reference.pool.cached
        if operation == "pin":
            pinned = [page for request, page in self.reference.pins.values() if request == own.request]
            return [(entry,) for entry, page in own.pages.items() if page not in pinned]
        found: list[tuple[int, ...]] = []
        for name, source in self.reference.rows.items():
            if operation == "share":
                at, more = divmod(own.length, self.size)
                if not more and source.pages.get(at) in cached and source.prompt == own.prompt:
                    found.append((int(name[1:]), at, at + 1))
                continue
            for entry, page in own.pages.items():
                whole = own.settled.issuperset(range(entry * self.size, (entry + 1) * self.size))
                if whole and page not in cached and source.pages.get(entry) in cached and source.prompt == own.prompt:
                    found.append((entry, int(name[1:])))
        return found

    def operands(self, operation: str, row: int, live: list[int], number: int) -> tuple[int, ...]:
        if f"r{row}" not in self.reference.rows or self.random.random() < 0.03:
            return tuple(self.random.randrange(-1, 4) for _ in range(number))
        own = self.reference.rows[f"r{row}"]
        start = self.random.choice([*sorted(own.pages), 0])
        stop = start
        while stop in own.pages and (stop == start or self.random.random() < 0.5):
            stop += 1
        if operation in ("share", "replace", "pin") and self.random.random() < 0.9:
            return self.random.choice(self.legal(operation, row) or [(0,) * number])
        source = self.random.choice(live)
        match operation:
            case "allocate":
                few = self.random.random() < 0.97
                return (self.random.choice([0, 1, self.size, -own.length % self.size]) if few else 2**62,)
            case "trim":
                return (self.random.randint(max(0, own.length - 2 * self.size), own.length),)
            case "write":
                first = next((at for at in range(own.length) if at not in own.settled), own.length)
                return first, self.random.randint(first, own.length)
            case "read":
                last = next((at for at in range(own.length) if at not in own.settled), own.length)
                return self.random.randint(0, last), last
            case "publish":
                whole = own.settled.issuperset(range(start * self.size, stop * self.size))
                return start, stop if whole else start
            case "share":
                return source, start, stop
            case "replace":
                return start, source
            case "overwrite":
                holes = [k for k in range(-(-own.length // self.size)) if k not in own.pages]
                at = self.random.choice([*holes, 0])
                return at, at + bool(holes), source
            case "copy" | "pin":
                return (start,)
            case "finish":
                return ()
        return start, stop


@pytest.mark.parametrize("seed", range(40))
def test_batches(seed: int, path: str) -> None:
    pair = Pair(seed, path)
    done = 0
    for step in range(80 if path == "host" else 40):
        if step % 9 == 8:
            name = "end" if pair.reference.groups.open else "begin"
            getattr(pair.reference, name)()
            getattr(pair.cache, name)()
        if step % 7 == 6:
            assert [p for p in pair.cache.evict(2).tolist() if p] == list(pair.reference.evict(2).pages)
        done += pair.batch(*pair.draw())
    assert done >= 10


@pytest.mark.parametrize("grouped", [False, True])
def test_rows_that_share_pages_in_one_batch(path: str, grouped: bool) -> None:
    pair = Pair(3, path)
    whole = [pair.size] * 4
    zero, one = [0] * 4, [1] * 4
    assert pair.batch("start", {"row": [0, 1, 2, 3]}, {"prompts": zero})
    assert pair.batch("allocate", {"row": [3, 0, 1, 2], "tokens": whole}, {"most": pair.size})
    assert pair.batch("write", {"row": [0, 1, 2, 3], "start": zero, "stop": whole}, {})
    assert pair.batch("publish", {"row": [2], "start": [0], "stop": [1]}, {})
    if grouped:
        pair.reference.begin()
        pair.cache.begin()
    assert pair.batch("pin", {"name": [4, 0], "row": [2, 3], "entry": [0, 0]}, {})
    assert pair.batch("replace", {"row": [3, 0, 1], "entry": zero[:3], "source": [2, 2, 2]}, {})
    assert pair.batch("start", {"row": [5, 4]}, {"prompts": zero[:2]})
    assert pair.batch("share", {"row": [4, 5], "source": [3, 2], "start": zero[:2], "stop": one[:2]}, {"most": 2})
    assert pair.batch("pin", {"name": [1, 2, 3], "row": [0, 4, 5], "entry": zero[:3]}, {})
    assert pair.batch("copy", {"row": [1, 0], "entry": [0, 0]}, {})
    assert pair.batch("finish", {"row": [2, 4, 5, 3]}, {})
    assert pair.batch("unpin", {"name": [3, 4, 0, 1, 2]}, {})
    published = pair.reference.snapshot()["cached"]
    assert len(published) == 1
    assert pair.cache.evict(1).tolist() == published
    pair.reference.evict(1)
    if grouped:
        pair.reference.end()
        pair.cache.end()
    assert pair.batch("finish", {"row": [1, 0]}, {"most": 1})
    assert pair.cache.snapshot()["refs"] == {}
