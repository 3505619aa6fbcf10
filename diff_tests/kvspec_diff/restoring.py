"""The machine `blocks` beside a subject: what is stored of one prefix, and the cache that is restored from it.

The prefix is that of the trunk: the tokens that most caches see. Parts are numbered by their bytes, so what is stored
and what is restored is observed from bytes. Lengths are in blocks: a restored cache is followed until it is appended
to, or trimmed inside a block. The machine has a window for a state, whatever its size; a cache may trim one that has
lost nothing yet, and is then not followed any further. Without any rows the last state alone would do for the machine,
where a cache of a prefix wants all its blocks: then restores are not followed.
"""

from collections.abc import Sequence
from typing import Any

from kvspec.members import Window

from kvspec_diff.beside import Beside, Broken
from kvspec_diff.toy_model import Model


class Follower:
    """The machine, and which of the subject's caches it follows. Raises `Broken` with the law."""

    def __init__(self, model: Model, trunk: Sequence[int], subject: Any) -> None:
        self.model, self.subject, self.size = model, subject, model.layout.block_size
        self.trunk = tuple(trunk)
        self.blocks = range(len(trunk) // self.size)
        self.members = list(model.layout.leaves.items())
        self.cache: Any = None
        self._numbers: dict[tuple[bytes, ...], int] = {}
        self._other: int | None = None  # the number of all parts that were never computed, once the others are known
        computed = [[self._number(self._computed(path, b)) for b in [*self.blocks, 0]] for path, _ in self.members]
        sizes = [sum(map(len, model.block(self.trunk, b, True).values())) for b in self.blocks]
        self.beside = Beside(
            "blocks",
            {"Member": len(self.members), "Block": len(self.blocks) + 1, "Part": len(self._numbers) + 1},
            {
                "sliced": [leaf.sliced for _, leaf in self.members],
                "computed": computed,
                "each": max(1, max(sizes) + subject.overhead),
            },
        )
        self._other = len(self._numbers)

    # What the subject did.

    def stored(self, until: tuple[int, ...], block: Any, size: int) -> None:
        """It stored the block that ends with these tokens, in so many bytes."""
        if (b := self._trunk_block(until)) is None:
            return
        self.beside.step("store" if block.stateful else "skim", b)
        for m, (path, leaf) in enumerate(self.members):
            names = [name for name in self._names(path) if name in block.parts]
            holds = len(names) == len(leaf.parts) and (leaf.sliced or block.stateful)
            self._compare(f"holds[{m}, {b}]", holds, self.beside.state.holds[m][b], "B10")
            if holds:
                part = self._number(tuple(self.subject.data(block.parts[name]) for name in names))
                self._compare(f"part[{m}, {b}]", part, self.beside.state.part[m][b], "B10")
        if size > self.beside.state.bytes[b]:
            raise Broken("B6", f"block {b} has {size} bytes, the specification {self.beside.state.bytes[b]}")
        self.beside.agrees()

    def lost(self, until: tuple[int, ...]) -> None:
        """The block that ends with these tokens is gone."""
        if (b := self._trunk_block(until)) is not None:
            self.beside.step("lose", b)
            self.beside.agrees()

    def restored(self, asked: Sequence[int], cache: Any) -> None:
        """It made a cache of what is stored of the asked tokens."""
        has_rows = any(leaf.sliced for _, leaf in self.members)
        if tuple(asked) != self.trunk[: len(asked)] or not has_rows:
            return
        self.cache = None
        if cache.position % self.size:
            raise Broken("B4", f"restored {cache.position} tokens, in blocks of {self.size}")
        self.beside.step("restore", cache.position // self.size, len(asked) // self.size)
        self.cache = cache
        self._compare_cache()

    def trimmed(self, cache: Any, to: int, answer: str) -> None:
        """It trimmed a cache, or refused to."""
        if cache is not self.cache:
            return
        n, rest = divmod(to, self.size)
        if answer != "done":
            if rest == 0 and 0 <= n <= len(self.blocks):
                self.beside.step("refuse", n)
                self.beside.agrees()
        elif rest or (self._has_states() and n != max(self.beside.state.length, default=0)):
            self.cache = None
        else:
            self.beside.step("trim", n)
            self._compare_cache()

    def appended(self, cache: Any) -> None:
        """A cache has more tokens now."""
        if cache is self.cache:
            self.cache = None

    # What the machine has.

    def _compare_cache(self) -> None:
        """Length and contents of the restored cache, member by member."""
        for m, (path, leaf) in enumerate(self.members):
            names, n = self._names(path), self.cache.position // self.size
            self._compare(f"length[{m}]", n, self.beside.state.length[m], "B5")
            for b in range(n) if leaf.sliced else range(n - 1, n) if n else ():
                found = []
                for name in names:
                    held = self.cache.ring(name)[0] if isinstance(leaf, Window) else self.cache.read(name)
                    data, each = self.subject.data(held), self.model.parts[name][1].bytes
                    start, end = leaf.rows(b * self.size) * each, leaf.rows((b + 1) * self.size) * each
                    found.append(data[start:end] if leaf.sliced else data)
                self._compare(f"cache[{m}, {b}]", self._number(tuple(found)), self.beside.state.cache[m][b], "B4")
        self.beside.agrees()

    @staticmethod
    def _compare(what: str, found: object, wanted: object, law: str) -> None:
        if found != wanted:
            raise Broken(law, f"{what} is {found}, the specification has {wanted}")

    # What several of these need.

    def _has_states(self) -> bool:
        return not all(leaf.sliced for _, leaf in self.members)

    def _names(self, path: str) -> list[str]:
        return [name for name in self.model.parts if name.rpartition(".")[0] == path]

    def _computed(self, path: str, b: int) -> tuple[bytes, ...]:
        parts = self.model.block(self.trunk, b, True)
        return tuple(parts[name] for name in self._names(path))

    def _number(self, parts: tuple[bytes, ...]) -> int:
        """The number of a part; of one that was never computed the last one."""
        if self._other is None:
            return self._numbers.setdefault(parts, len(self._numbers))
        return self._numbers.get(parts, self._other)

    def _trunk_block(self, until: tuple[int, ...]) -> int | None:
        """The number of the trunk's block that ends with these tokens."""
        return len(until) // self.size - 1 if until == self.trunk[: len(until)] else None
