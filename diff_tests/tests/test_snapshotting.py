"""The reference's snapshots in lockstep with the machine `snapshots` (S1, S3, S4)."""

import random
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvspec_diff.profiles import register
from kvspec_diff.snapshotting import PATH, Step, compiled, random_steps, run
from kvspec_diff.storing import Broken
from kvspec_reference.blocks import Cache, Parts
from kvspec_reference.snapshots import Snapshots

register()


@settings(settings.get_profile("pr"))
@given(st.randoms(use_true_random=False))
def test_programs(of: random.Random) -> None:
    run(random_steps(of))


def test_bulk(record_property: Callable[[str, object], None]) -> None:
    seen: Counter[str] = Counter()
    for seed in range(500):
        seen.update(run(random_steps(random.Random(seed))).done)
    assert {what: seen[what] for what in {*compiled().actions, "misuse"} if seen[what] < 50} == {}, "hardly tried"
    record_property("say", f"snapshots: 500 programs in lockstep, {seen['restore']} states restored")


# Planted faults.


class Anywhere(Snapshots):
    """Takes a state for whatever position it is told (S3)."""

    def record(self, prefix: str, position: int, cache: Cache) -> None:
        self._stored[prefix, position] = {PATH: cache.read(PATH)}


class Nearest(Snapshots):
    """Finds the last state before a position, and says that it is the one there (S1)."""

    def find(self, prefix: str, position: int) -> Parts | None:
        before = [place for place in self.positions(prefix) if place <= position]
        return super().find(prefix, before[-1]) if before else None


class Forgetful(Snapshots):
    """Forgets what it has of the empty prefix (S1)."""

    def find(self, prefix: str, position: int) -> Parts | None:
        return super().find(prefix, position) if position else None


class ByPosition(Snapshots):
    """Does not care whose prefix it is (S1)."""

    def record(self, prefix: str, position: int, cache: Cache) -> None:
        super().record("", position, cache)

    def find(self, prefix: str, position: int) -> Parts | None:
        return super().find("", position)


class Shared(Snapshots):
    """Keeps what the live cache has, not a copy of it (S4)."""

    def record(self, prefix: str, position: int, cache: Cache) -> None:
        super().record(prefix, position, cache)
        self._stored[prefix, position] = cache._held

    def find(self, prefix: str, position: int) -> Parts | None:
        return self._stored.get((prefix, position))


class First(Snapshots):
    """Of two states of a prefix it has the first at both positions (S4)."""

    def record(self, prefix: str, position: int, cache: Cache) -> None:
        super().record(prefix, position, cache)
        self._stored[prefix, position] = self._stored[prefix, self.positions(prefix)[0]]


FAULTS: list[tuple[type[Snapshots], str]] = [
    (Anywhere, "S3"), (Nearest, "S1"), (Forgetful, "S1"), (ByPosition, "S1"), (Shared, "S4"), (First, "S4"),
]  # fmt: skip


def finding(fault: type[Snapshots]) -> str:
    """The law that the first program breaks which finds it."""
    for seed in range(100):
        try:
            run(random_steps(random.Random(seed)), fault)
        except Broken as error:
            return error.law
    return "none"


@pytest.mark.parametrize(("fault", "law"), FAULTS)
def test_faults_are_found(fault: type[Snapshots], law: str) -> None:
    assert finding(fault) == law


def test_a_run_by_hand() -> None:
    """Request 1 parts from the others at 3: what was taken before fits it, what was taken later does not."""
    steps = [
        Step("begin", 0), Step("advance", 0, 2), Step("record", 0), Step("advance", 0, 5), Step("record", 0),
        Step("restore", 1, 2), Step("restore", 1, 5), Step("restore", 2, 5),
    ]  # fmt: skip
    of = run([*steps, Step("advance", 1, 5)])
    assert {r: live.position for r, live in of.live.items()} == {0: 5, 1: 5, 2: 5}
    assert of.live[0].read(PATH) == of.live[2].read(PATH) != of.live[1].read(PATH)
    assert (of.done["restore"], of.done["miss"]) == (2, 1)
