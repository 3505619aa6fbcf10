"""A process that saves entries is killed at a random moment, a thousand times over (T1, T4).

This process has imported everything, and forks a child that opens the store, saves blocks in ever new versions, evicts
some, and tells through a pipe what was acknowledged. After a random time it is sent SIGKILL. Then the store is opened
here: what was acknowledged is found, that version or a later one, with its exact bytes; whatever is shown was saved
like that; nothing temporary is left. Before, every other child's folder is recovered by the next child, which may be
killed at that.
"""

import contextlib
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import torch
from kvspec_torch.block_store import BlockStore
from kvspec_torch.blocks import Block
from kvspec_torch.store import ENTRY, TEMPORARY

from kvspec_diff.torture import toys
from kvspec_diff.torture.figures import Part, Tally, Tell

WHAT = "SIGKILL at random moments of a process that saves"
LAYOUT = toys.LARGE
KEYS = 12
OPENING, LONGEST = 0.03, 0.1
"""Seconds that a child has at most once it began to open the store, or has opened it."""
BUDGET = 2**30

Floors = dict[str, int]
"""By key the version that was acknowledged last."""


@dataclass
class Chain:
    """Keys of one prefix, and which number each has."""

    keys: list[str] = field(default_factory=list)

    def tokens(self, number: int) -> list[int]:
        """Of the block of this number."""
        return [number] * toys.TOKENS

    def parent(self, number: int) -> str | None:
        """The key before."""
        return self.keys[number - 1] if number else None


def made(number: int, version: int) -> Block:
    """A version of a block; its first bytes tell the version."""
    block = toys.block(LAYOUT, number, version * KEYS + number)
    block.parts["0.keys"].view(-1)[:4].copy_(torch.tensor(list(version.to_bytes(4, "big")), dtype=torch.uint8))
    return block


def version_of(number: int, found: Block) -> int | None:
    """Which version this is; None for what was never saved like this."""
    version = int.from_bytes(bytes(found.parts["0.keys"].view(-1)[:4].tolist()), "big")
    return version if toys.same(found, made(number, version)) else None


def kills(count: int, tell: Tell, seed: int = 0) -> Part:
    """Kill so many children; the folder and what is in it stay for the next one."""
    torch.set_num_threads(1)
    tally, of = Tally("kills", WHAT, tell), random.Random(seed)
    chain, floors = names(), Floors()
    with tempfile.TemporaryDirectory(prefix="kvspec-torture-") as name:
        folder = Path(name)
        for number in range(count):
            tell(number, count, "processes killed")
            said, began = one(folder, chain, number, of.randrange(2**32), of)
            follow(said, floors, tally)
            tally.count("processes killed")
            tally.count("while opening the store", int(not began))
            left = [each for each in os.listdir(folder) if each.endswith(TEMPORARY)]
            tally.count("that left a temporary file", int(bool(left)))
            if number % 2 or number == count - 1:
                look(folder, chain, floors, number, tally)
    tally.least("entries acknowledged", tally.figures.get("entries acknowledged", 0), count)
    if count >= 100:
        tally.least("while opening the store", tally.figures["while opening the store"], count // 50)
        tally.least("that left a temporary file", tally.figures["that left a temporary file"], count // 20)
    return tally.part()


def names() -> Chain:
    """The keys that are used: worked out once, by a store that is thrown away."""
    from kvspec_torch.entry_format import chain

    tokens = [token for number in range(KEYS) for token in [number] * toys.TOKENS]
    return Chain(chain(tokens, toys.TOKENS, LAYOUT.signature))


def one(folder: Path, chain: Chain, number: int, seed: int, of: random.Random) -> tuple[list[list[str]], bool]:
    """Fork a child, kill it; what it said, and whether it had opened the store."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        _child(folder, chain, number, seed, writing)
    os.close(writing)
    with open(reading, "rb", buffering=0) as pipe:
        text = pipe.read(6)  # that it is there
        if of.random() < 0.2:
            time.sleep(of.random() * OPENING)
        else:
            text += pipe.read(7)  # that it has opened the store
            time.sleep(of.random() * LONGEST)
        os.kill(child, signal.SIGKILL)
        ended(child)
        lines = (text + pipe.readall()).decode().split("\n")
    said = [line.split(" ") for line in lines[:-1]]  # a line that was not finished was not said
    return said, ["opened"] in said


def ended(child: int) -> None:
    """Wait until a child is gone."""
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        raise AssertionError(f"the child that was to be killed ended by itself: {status}")


def follow(said: list[list[str]], floors: Floors, tally: Tally) -> None:
    """What a child said is from now on demanded."""
    for what, *rest in said:
        if what == "acknowledged":
            floors[rest[0]] = int(rest[1])
            tally.count("entries acknowledged")
        elif what == "evicting":
            floors.pop(rest[0], None)
        elif what == "wrong":
            tally.fault("failed", " ".join(rest))


def look(folder: Path, chain: Chain, floors: Floors, number: int, tally: Tally) -> None:
    """Open what was left, and see that everything is there."""
    try:
        store = BlockStore(folder, LAYOUT, budget=BUDGET, writer=False)
    except Exception as error:  # whatever it is, it should have opened
        tally.fault("failed", f"after kill {number}: the store does not open: {error!r}")
        return
    with store:
        left = [each for each in os.listdir(folder) if each.endswith(TEMPORARY)]
        if left:
            tally.fault("failed", f"after kill {number}: {left} are left")
        shown = {each.removesuffix(ENTRY) for each in os.listdir(folder) if each.endswith(ENTRY)}
        for place, key in enumerate(chain.keys):
            found, least = store.load(key), floors.get(key, 0)
            tally.count("entries read back", int(isinstance(found, Block)))
            if not isinstance(found, Block):
                if key in shown:
                    tally.fault("misread", f"after kill {number}: something half written is shown: {found}")
                if least:
                    tally.fault("lost", f"after kill {number}: key {place} version {least} is not found: {found}")
                continue
            version = version_of(place, found)
            if version is None:
                tally.fault("misread", f"after kill {number}: key {place} was never saved like this")
            elif version < least:
                tally.fault("lost", f"after kill {number}: key {place} is version {version}, {least} was acknowledged")


def _child(folder: Path, chain: Chain, number: int, seed: int, pipe: int) -> NoReturn:
    """Save, until killed. What is said is written at once: the pipe keeps it."""

    def say(*words: object) -> None:
        os.write(pipe, (" ".join(map(str, words)) + "\n").encode())

    with contextlib.suppress(BaseException):
        say("begun")
        try:
            work(folder, chain, number, random.Random(seed), say)
        except BaseException as error:
            say("wrong", repr(error))
        signal.pause()
    os._exit(1)


def work(folder: Path, chain: Chain, number: int, of: random.Random, say: Callable[..., None]) -> None:
    """Versions of this child are later than those of all before."""
    version = number * 1000
    store = BlockStore(folder, LAYOUT, budget=BUDGET, slots=KEYS)
    say("opened")
    while True:
        queued = {}
        for place in of.sample(range(KEYS), of.randint(1, 3)):
            version += 1
            key = store.save(chain.parent(place), chain.tokens(place), made(place, version))
            queued[key] = version
        for report in store.flush():
            for key in report.acknowledged:
                if key in queued:
                    say("acknowledged", key, queued[key])
        if of.random() < 0.2:
            key = of.choice(list(queued))
            say("evicting", key)
            store.evict(key)
