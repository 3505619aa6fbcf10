"""A KV-cache manager that is right, a few lines long, behind the answers that vLLM's worker would give; and its faults.

It counts blocks and knows no engine. `FAULTS` names what can be wrong with it.
"""

from typing import Any

import msgspec
from kvspec_reference.reservation import Group, Limits, blocks, null_entries

from kvspec_diff.batched import example
from kvspec_diff.capacity.configuration import Configuration
from kvspec_diff.capacity.programs import chunk
from kvspec_diff.lookahead import rows, written

ROWS = rows("vllm", "0.33.0")
FAULTS = ("no_lookahead", "no_spares", "one_too_many", "refusal_takes", "end_forgets", "window_too_short", "warm-up")


class Request:
    """A request of the fake."""

    def __init__(self, prompt: int, groups: int) -> None:
        self.prompt, self.ahead, self.settled = prompt, 0, 0
        self.steps: list[tuple[int, int]] = []
        self.tables = [[0, 0] for _ in range(groups)]


class Manager:
    """Block tables as counts."""

    def __init__(self, configuration: Configuration, fault: str) -> None:
        self.configuration, self.fault = configuration, fault
        self.free = configuration.pool
        self.lost = 0
        self.running: dict[int, Request] = {}

    def limits(self) -> Limits:
        made, row = self.configuration, ROWS[self.configuration.method]
        ahead = 0 if self.fault == "no_lookahead" else written(row, made.drafts)
        return Limits(made.length, ahead, 0 if self.fault == "no_spares" else made.spares, made.encoded)

    def needs(self, group: Group, end: int) -> int:
        """Entries of the table."""
        return blocks(group, end, self.limits()) + (self.fault == "one_too_many" and end == 5)

    def reserve(self, request: Request, tokens: int, first: bool) -> tuple[int, int, int]:
        """Whether it fits, blocks reckoned with, blocks that were free."""
        settled, taken = request.settled, []
        for table, group in zip(request.tables, self.configuration.described, strict=True):
            gone = min(null_entries(group, settled + (self.fault == "window_too_short")), table[0])
            self.free += max(gone - table[1], 0)
            table[1] = max(gone, table[1])
            wanted = max(self.needs(group, request.ahead + tokens), table[0])
            most = 1 + self.limits().spares if first else 1
            real = min(wanted - table[0], most) if group.kind == "align" else wanted - table[0]
            taken.append((wanted, wanted - table[0] - real, real))
        before, growth = self.free, sum(real for _, _, real in taken)
        if growth > before:
            self.free -= self.fault == "refusal_takes" and before > 0
            self.lost += self.free != before
            return 1, growth, before
        for table, (wanted, nulls, _) in zip(request.tables, taken, strict=True):
            table[0], table[1] = wanted, table[1] + nulls
        self.free -= growth
        return 0, growth, before

    def admit(self, r: int, prompt: int, shared: int, wanted: int) -> list[int]:
        if r in self.running:
            return [2, 0, 0, 0, 0, 0]
        request = Request(prompt, len(self.configuration.groups))
        tokens = chunk(self.configuration, 0, prompt, wanted)
        status, charged, before = self.reserve(request, tokens, first=True)
        if status == 0:
            self.running[r] = request
            request.steps.append((tokens, 0))
            request.ahead = tokens
        return [status, tokens, 0, 0, charged, before]

    def step(self, r: int, wanted: int, drafts: int) -> list[int]:
        request, length = self.running.get(r), self.configuration.length
        if request is None:
            return [2, 0, 0, 0, 0, 0]
        drafts = 0 if request.ahead < request.prompt else max(min(drafts, length - request.ahead - 1), 0)
        tokens = 1 + drafts
        if request.ahead < request.prompt:
            tokens = chunk(self.configuration, request.ahead, request.prompt, wanted)
        if request.ahead + tokens > length:
            return [2, 0, 0, 0, 0, 0]
        status, charged, before = self.reserve(request, tokens, first=False)
        if status == 0:
            request.steps.append((tokens, drafts))
            request.ahead += tokens
        return [status, tokens, 0, 0, charged, before]

    def retire(self, r: int, accepted: int) -> list[int]:
        request = self.running.get(r)
        if request is None or not request.steps:
            return [2, 0, 0, 0, 0, 0]
        tokens, drafts = request.steps.pop(0)
        refused = drafts - min(accepted, drafts)
        request.settled += tokens - refused
        request.ahead -= refused
        return [0, 0, 0, 0, 0, 0]

    def finish(self, r: int) -> list[int]:
        request = self.running.get(r)
        if request is None or request.steps:
            return [2, 0, 0, 0, 0, 0]
        self.free += sum(entries - nulls for entries, nulls in request.tables) - (self.fault == "end_forgets")
        del self.running[r]
        return [0, 0, 0, 0, 0, 0]

    def run(self, step: Any) -> list[Any]:
        """The answer to a step."""
        answer = getattr(self, step[0])(*step[1:])
        tables = [request.tables for request in self.running.values()]
        used = sum(entries - nulls for table in tables for entries, nulls in table)
        mine = [list(table) for table in self.running[step[1]].tables] if step[1] in self.running else []
        return [*answer, self.free, used, mine]


def warmup(configuration: Configuration, fault: str) -> list[list[Any]]:
    """One step of each warm-up function."""
    manager = Manager(configuration, "")
    told = Manager(configuration, "no_lookahead" if fault == "warm-up" else "")
    tables = [[each.needs(group, 3) for group in configuration.described] for each in (told, manager)]
    return [[name, 0, "w", 0, 3, *tables] for name in ("warmup_kernels", "run_mixed_prefill_decode_warmup")]


class Client(example.Client):
    """Asked about capacity."""

    offered = FAULTS

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to one question."""
        if question["do"] == "lookahead":
            count = written(ROWS[question["method"]], question["drafts"])
            return {"scheduler": count, "config": count}
        made = msgspec.convert(question["configuration"], Configuration)
        if question["do"] == "warmup":
            return {"rows": warmup(made, self.fault)}
        manager = Manager(made, self.fault)
        return {"calls": [manager.run(step) for step in question["steps"]]}
