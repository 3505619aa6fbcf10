"""Prefixes in a store of files whose entries are lost, damaged, foreign or old (B4, E1-E5, T2).

Whatever stands in the folder: what is restored is the longest prefix of whole blocks that can be read, exactly as a
cold computation has it. The store is a parameter, any with these few methods; the caches are those of a subject of
`representing`.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from kvspec.members import Layout
from kvspec.operations import Refused
from kvspec_reference.entry_format import chain

from kvspec_diff.representing import Live, Run, Subject
from kvspec_diff.storing import Broken
from kvspec_diff.toy_model import random_layout


class Shelf(Protocol):
    """A store of prefixes of one layout, and its files: by key the bytes of an entry."""

    subject: Subject

    def save(self, tokens: Sequence[int], cache: Any) -> list[str]:
        """Save the whole blocks, and wait until all that can be written is; their keys.

        Raises `Refused` at a block that alone exceeds the budget; those before it are saved.
        """

    def restore(self, tokens: Sequence[int]) -> Any:
        """The cache of the longest prefix."""

    def reopen(self) -> None:
        """Close the store and open it again."""

    def upgrade(self) -> None:
        """Write every older entry in the newest version."""

    def entry(self, key: str) -> bytes | None:
        """The file of an entry, if there is one."""

    def put(self, key: str, data: bytes) -> None:
        """Replace the file of an entry behind the store's back."""

    def harmed(self, how: str, key: str, data: bytes) -> bytes:
        """An entry that is older (version 2), oldest (version 1), newer (4) or foreign (of another signature)."""

    def used(self) -> int:
        """Bytes of all files."""


Harm = Literal["older", "oldest", "newer", "foreign", "cut", "bit"]
Name = Literal["save", "restore", "harm", "reopen", "upgrade"]


@dataclass(frozen=True)
class Action:
    """What is done to the prefix of `length` tokens on one of two branches, or to the `length`-th entry."""

    name: Name
    branch: int = 0
    length: int = 0
    harm: Harm = "bit"


def random_actions(of: random.Random, size: int, count: int = 20) -> list[Action]:
    """Prefixes of up to four blocks."""
    lengths = [*(size * n for n in range(5)), *(size * n + 1 for n in range(4))]
    names: list[Name] = ["save", "save", "save", "restore", "restore", "harm", "harm", "reopen", "upgrade"]
    return [
        Action(of.choice(names), of.choice((0, 0, 1)), of.choice(lengths), of.choice(get_args(Harm)))
        for _ in range(count)
    ]


@dataclass
class Kept:
    """An entry as it was written, and what became of it."""

    data: bytes
    stateful: bool
    readable: bool = True


@dataclass
class Story:
    """A store that runs actions; raises `Broken` with the law. `most` is its budget."""

    layout: Layout
    shelf: Shelf
    most: int
    entries: dict[str, Kept] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)

    def step(self, action: Action) -> None:
        """One action, and what is to be found after it."""
        tokens = [4 * n + (action.branch if n >= 2 * self.layout.block_size else 0) for n in range(action.length)]
        getattr(self, f"_{action.name}")(tokens, action)
        if self.shelf.used() > self.most:
            raise Broken("T2", f"{self.shelf.used()} bytes, the budget is {self.most}")

    def _save(self, tokens: list[int], action: Action) -> None:
        run, size = Run(self.layout, self.shelf.subject), self.layout.block_size
        cache = self.shelf.subject.empty(self.layout)
        if tokens:
            cache.append(len(tokens), run.raw(run.model.new(tokens, 0, run.model.cold([])), 0, len(tokens)))
        keys, before = self._keys(tokens), {key: self.shelf.entry(key) for key in self.entries}
        try:
            refused = self.shelf.save(tokens, cache) != keys
        except Refused:
            refused = True
        for index, key in enumerate(keys):
            there, data, was = self.entries.get(key), self.shelf.entry(key), before.get(key)
            stateful = run.stateless or len(tokens) == (index + 1) * size
            needed = there is None or was is None or not there.readable or (stateful and not there.stateful)
            if data is None:
                continue  # there was no room, or it had to go for another
            if needed and data != was:
                self.entries[key] = Kept(data, stateful)
                self._count("save" if there is None else "save anew")
            elif needed and not refused:
                raise Broken("B4", f"block {index}: is not written, and it is not there whole")
            elif data != was:
                raise Broken("B10", f"block {index}: is written again, and there was no need")

    def _restore(self, tokens: list[int], action: Action) -> None:
        keys = self._keys(tokens)
        found = [self.entries.get(key) if self.shelf.entry(key) is not None else None for key in keys]
        whole = next((n for n, each in enumerate(found) if each is None or not each.readable), len(found))
        while whole and not found[whole - 1].stateful:  # type: ignore[union-attr]
            whole -= 1
        cache, end = self.shelf.restore(tokens), whole * self.layout.block_size
        if cache.position != end:
            raise Broken("B4", f"restored {cache.position} of {len(tokens)} tokens, {end} is right")
        Run(self.layout, self.shelf.subject).judge_cache(Live(cache, tokens[:end]), "E5")
        self._count("restore nothing" if not whole else "restore all" if whole == len(found) else "restore less")

    def _harm(self, tokens: list[int], action: Action) -> None:
        there = [key for key in sorted(self.entries) if self.entries[key].readable and self.shelf.entry(key)]
        if not there:
            return
        key = there[action.length % len(there)]
        data, of = self.entries[key].data, random.Random(action.length)
        if action.harm == "cut":
            data = data[: of.randrange(len(data))]
        elif action.harm == "bit":
            bit = of.randrange(8 * len(data))
            data = data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]
        else:
            data = self.shelf.harmed(action.harm, key, data)
        if self.shelf.used() + len(data) - len(self.entries[key].data) <= self.most:
            self.shelf.put(key, data)
            self.entries[key].readable = action.harm == "older"
            if self.most < UNBOUNDED or action.branch:  # a store need not see how large a file has become
                self.shelf.reopen()
            self._count(action.harm)

    def _reopen(self, tokens: list[int], action: Action) -> None:
        self.shelf.reopen()
        self._count("reopen")

    def _upgrade(self, tokens: list[int], action: Action) -> None:
        """Afterwards what can be read is as it was first written, and the rest is left alone (E3)."""
        before = {key: self.shelf.entry(key) for key in self.entries}
        for _ in range(2):
            self.shelf.upgrade()
            for key, kept in self.entries.items():
                now = self.shelf.entry(key)
                if now is not None and now != (kept.data if kept.readable else before[key]):
                    raise Broken("E3", f"entry {key}: {len(now)} bytes, which are not what was written first")
        self._count("upgrade")

    def _keys(self, tokens: Sequence[int]) -> list[str]:
        return chain(tokens, self.layout.block_size, self.layout.signature)

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1


UNBOUNDED = 10**9
"""Bytes of a budget that is never reached."""

Open = Callable[[Layout, int], Shelf]
"""Opens an empty store of a layout with a budget."""


def run(of: random.Random, opened: Open) -> Story:
    """A random layout, budget and story; raises `Broken` with the law."""
    layout = random_layout(of)
    most = of.choice((2_000, 20_000, UNBOUNDED))
    story = Story(layout, opened(layout, most), most)
    for action in random_actions(of, layout.block_size):
        story.step(action)
    return story
