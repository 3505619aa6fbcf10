"""Caches that are right, of lists in this process, and their faults: `FAULTS` names each with the law that it breaks.

They are a `Driver` behind `kvspec_record.caches`, as an engine's are.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from kvspec_record import caches, toy

from kvspec_diff.batched import example
from kvspec_diff.caches.promises import Promises, parsed

FAULTS = {
    "forgets_the_first": "R1", "window_is_short": "B7", "window_wraps_positions": "B7", "kept_prefix_rots": "B7",
    "chunk_leaks": "B7", "state_stands_still": "S1", "state_begins_anew": "S2", "padding_is_seen": "B9",
    "trims_one_layer": "B8", "trims_one_less": "B8", "trim_is_refused": "B8", "trims_and_says_nothing": "B8",
    "copy_shares": "S4", "state_is_live": "S4", "read_is_live": "S4", "file_loses_the_offset": "B5",
    "file_widens": "B1", "restores_one_less": "B2", "blocks_lose_the_rest": "B3", "blocks_count_short": "B4",
    "state_comes_late": "S3", "slice_is_shifted": "B3",
    "merge_swaps_rows": "B9", "extracts_the_neighbour": "B9", "filters_the_others": "B9", "extends_short": "B9",
    "reset_raises": "raised",
}  # fmt: skip

TABLE = """
engine = "example"
releases = ["1"]
dtypes = ["float32", "float16"]
rows = 1
operations = ["append", "padded", "trim", "reset", "copy", "state", "restore", "file", "slice", "read", "reblock",
              "merge", "extract", "filter", "extend"]

[[class]]
name = "Full"
kind = "full"
members = { "" = ["full"] }
batch = "Rows"

[[class]]
name = "Window"
kind = "window"
parameters = { size = [2, 6], keep = [0, 2] }
members = { "" = ["window", "size", "keep"] }
batch = "Rows"

[[class]]
name = "Chunk"
kind = "chunk"
parameters = { size = [2, 5] }
members = { "" = ["chunk", "size"] }
batch = "Rows"

[[class]]
name = "State"
kind = "state"
parameters = { count = [1, 2] }
members = { "" = ["state", "count"] }
batch = "Rows"

[[class]]
name = "List"
kind = "list"

[[class]]
name = "Rows"

[[promise]]
classes = ["State"]
operations = ["trim"]
verdict = "refused"
source = "example.py: Driver.trim"

[[promise]]
classes = ["Window", "Chunk"]
operations = ["trim"]
verdict = "optional"
source = "example.py: Driver.trim"
says = "while nothing has left it"

[[promise]]
classes = ["Full", "Window", "Chunk", "State"]
operations = ["extract", "filter", "extend", "padded"]
verdict = "misuse"
source = "example.py: it has one row"

[[promise]]
classes = ["Rows"]
operations = ["merge", "trim"]
verdict = "misuse"
source = "example.py: it was merged"

[[promise]]
classes = ["*"]
operations = ["*"]
verdict = "promised"
source = "example.py"
"""


def promises() -> Promises:
    """What the example promises."""
    return parsed(TABLE, "1")


@dataclass
class Memory:
    """A layer: of each row what it holds, in order, as content, position and content; how long it is; its states."""

    kind: str
    numbers: dict[str, int]
    rows: list[list[list[int]]] = field(default_factory=lambda: [[]])
    lengths: list[int] = field(default_factory=lambda: [0])
    states: list[list[int]] = field(default_factory=list)

    def cut(self, count: int) -> None:
        """The last tokens go."""
        self.lengths = [max(length - count, 0) for length in self.lengths]
        self.rows = [[row for row in rows if row[1] < length]
                     for rows, length in zip(self.rows, self.lengths, strict=True)]  # fmt: skip

    def take(self, rows: list[int]) -> None:
        """These rows stay."""
        for name in ("rows", "lengths", "states"):
            held = getattr(self, name)
            setattr(self, name, [held[r] for r in rows] if held else [])


@dataclass
class Cache:
    """The layers by path."""

    layers: dict[str, Memory]
    dtype: str
    batch: bool = False


class Driver(caches.Driver):
    """The caches, with a fault or without."""

    operations = promises().operations

    def __init__(self, fault: str = "") -> None:
        self.fault = fault

    def fresh(self, layers: caches.Layers, rows: int, dtype: str) -> Cache:
        """An empty cache."""
        return Cache(dict(_memories(layers)), dtype)

    def rows(self, made: Cache) -> int:
        """How many rows it has."""
        return len(next(iter(made.layers.values())).lengths)

    def append(self, made: Cache, tokens: list[list[int]]) -> caches.Answer:
        """A forward step."""
        answer: caches.Answer = {"reads": {}, "states": {}, "dtypes": {}}
        longest = max(map(len, tokens))
        for path, memory in made.layers.items():
            answer["dtypes"][path] = made.dtype
            if memory.kind == "state":
                answer["states"][path] = [self._fold(memory, r, some) for r, some in enumerate(tokens)]
            else:
                told = [self._write(memory, r, some, longest) for r, some in enumerate(tokens)]
                answer["reads"][path] = told
        return answer

    def _fold(self, memory: Memory, r: int, tokens: list[int]) -> list[int]:
        states = memory.states[r]
        if self.fault == "state_begins_anew":
            states = [0] * len(states)
        if not (self.fault == "state_stands_still" and len(tokens) == 1):
            for token in tokens:
                states = [toy.fold(state, token, entry) for entry, state in enumerate(states)]
        memory.states[r] = states
        memory.lengths[r] += len(tokens)
        return list(states)

    def _write(self, memory: Memory, r: int, tokens: list[int], longest: int) -> list[list[int]]:
        held, told = memory.rows[r], []
        size, keep = memory.numbers.get("size", 0), memory.numbers.get("keep", 0)
        for token in tokens:
            position, content = memory.lengths[r], toy.content(token)
            memory.lengths[r] += 1
            wraps = self.fault == "window_wraps_positions" and memory.kind == "window"
            held.append([content, position % size if wraps else position, content])
            if self.fault == "forgets_the_first" and memory.kind == "full" and position == 5:
                del held[0]
            if memory.kind == "window":
                if len(held) > size - (self.fault == "window_is_short"):
                    del held[0 if self.fault == "kept_prefix_rots" else keep]
                seen = held
            elif memory.kind == "chunk" and self.fault != "chunk_leaks":
                seen = [row for row in held if row[1] >= position - position % size]
            else:
                seen = held
            told.append([number for row in seen for number in row])
        if self.fault == "padding_is_seen" and longest > len(tokens):
            told[-1] += [toy.content(tokens[0]), -1, toy.content(tokens[0])]
        return told

    def trim(self, made: Cache, count: int) -> caches.Answer:
        """Of all layers, if none has lost what it would need."""
        layers = made.layers
        whole = all(len(rows) == length for memory in layers.values() if memory.kind != "state"
                    for rows, length in zip(memory.rows, memory.lengths, strict=True))  # fmt: skip
        if self.fault == "trim_is_refused" or not whole or any(each.kind == "state" for each in layers.values()):
            raise caches.Refused("the tokens cannot be taken off")
        count = min(count, *(length for memory in layers.values() for length in memory.lengths))
        one = self.fault == "trims_one_layer"
        less = self.fault in ("trims_one_less", "trims_and_says_nothing")
        told: dict[str, int] = {}
        for path, memory in layers.items():
            told[path] = count if not told or not one else 0
            memory.cut(told[path] - (less and told[path] > 0))
        if self.fault == "trims_one_less":
            told = dict.fromkeys(told, max(count - 1, 0))
            return {"count": max(count - 1, 0), "trimmed": told}
        return {"count": count, "trimmed": told}

    def reset(self, made: Cache) -> None:
        """Empty it."""
        if self.fault == "reset_raises":
            raise KeyError("reset")
        for memory in made.layers.values():
            memory.cut(max(memory.lengths))
            memory.states = [[0] * len(states) for states in memory.states]

    def copy(self, made: Cache) -> Cache:
        """A copy of all of it."""
        return copy.copy(made) if self.fault == "copy_shares" else copy.deepcopy(made)

    def file(self, made: Cache) -> Cache:
        """As if saved and loaded."""
        made = copy.deepcopy(made)
        if self.fault == "file_widens":
            made.dtype = "float32"
        for memory in made.layers.values():
            if self.fault == "file_loses_the_offset" and memory.kind == "full":
                memory.lengths = [max(length - 1, 0) for length in memory.lengths]
        return made

    def state(self, made: Cache) -> Cache:
        """A copy of all of it."""
        kept = made if self.fault == "state_is_live" else copy.deepcopy(made)
        if self.fault == "state_comes_late":
            for memory in kept.layers.values():
                memory.states = [[0] * len(states) for states in memory.states]
        return kept

    def restore(self, state: Cache) -> Cache:
        """What the state is a copy of."""
        made = copy.deepcopy(state)
        if self.fault == "restores_one_less":
            for memory in made.layers.values():
                memory.rows = [rows[:-1] for rows in memory.rows]
        return made

    def read(self, made: Cache) -> Cache:
        """What is held now."""
        return made if self.fault == "read_is_live" else copy.deepcopy(made)

    def slice(self, made: Cache, start: int, stop: int) -> Cache:
        """Positions of each layer."""
        cut = copy.deepcopy(made)
        start += self.fault == "slice_is_shifted"
        for memory in cut.layers.values():
            memory.rows = [[row for row in rows if start <= row[1] < stop] for rows in memory.rows]
        return cut

    def held(self, handed: Cache) -> caches.Answer:
        """All of it."""
        held = {path: [[number for row in rows for number in row] for rows in memory.rows]
                for path, memory in handed.layers.items() if memory.kind != "state"}  # fmt: skip
        states = {path: copy.deepcopy(memory.states) for path, memory in handed.layers.items()}
        return {"held": held, "states": states}

    def reblock(self, made: Cache, size: int) -> Cache:
        """Cut and joined again."""
        made = copy.deepcopy(made)
        for memory in made.layers.values() if self.fault in ("blocks_lose_the_rest", "blocks_count_short") else ():
            memory.rows = [rows[: len(rows) - len(rows) % size] for rows in memory.rows]
            if self.fault == "blocks_count_short":
                memory.lengths = [length - length % size for length in memory.lengths]
        return made

    def merge(self, some: list[Cache]) -> Cache:
        """The rows of all."""
        made = copy.deepcopy(some[0])
        made.batch = True
        for path, memory in made.layers.items():
            for other in copy.deepcopy(some[1:]):
                _join(memory, other.layers[path])
            if self.fault == "merge_swaps_rows":
                memory.rows.reverse()
        return made

    def extract(self, made: Cache, row: int) -> Cache:
        """One row."""
        one = copy.deepcopy(made)
        one.batch = False
        if self.fault == "extracts_the_neighbour":
            row = (row + 1) % self.rows(made)
        for memory in one.layers.values():
            memory.take([row])
        return one

    def filter(self, made: Cache, rows: list[int]) -> None:
        """Keep rows."""
        if self.fault == "filters_the_others":
            rows = [r for r in range(self.rows(made)) if r not in rows] or rows
        for memory in made.layers.values():
            memory.take(rows)

    def extend(self, made: Cache, other: Cache) -> None:
        """More rows."""
        for path, memory in made.layers.items():
            more = copy.deepcopy(other.layers[path])
            if self.fault == "extends_short":
                more.rows = [rows[1:] for rows in more.rows]
            _join(memory, more)


def _memories(layers: caches.Layers, before: str = "") -> Iterator[tuple[str, Memory]]:
    for i, (kind, numbers, *inner) in enumerate(layers):
        if kind == "list":
            yield from _memories(inner[0], f"{before}{i}.")
        else:
            states = [[0] * numbers["count"]] if kind == "state" else []
            yield f"{before}{i}", Memory(kind, numbers, states=states)


def _join(memory: Memory, other: Memory) -> None:
    memory.rows += other.rows
    memory.lengths += other.lengths
    memory.states += other.states


class Client(example.Client):
    """Asked about caches."""

    offered = tuple(FAULTS)
    capabilities: ClassVar[dict[str, tuple[str, ...]]] = {"caches": Driver.operations}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to one question."""
        return {"calls": caches.run(Driver(self.fault), question)}
