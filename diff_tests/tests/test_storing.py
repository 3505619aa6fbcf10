"""The reference store against the machine `store`, and under every legal loss of power (T1-T7)."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import kvspec_reference.store
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvspec.operations import Misuse, Refused
from kvspec_diff.beside import Broken, compiled
from kvspec_diff.profiles import register
from kvspec_diff.store_programs import (
    NAMES,
    PUT,
    SYNCS,
    Forgetful,
    faulty,
    one,
    random_program,
    random_scope,
    small,
    syncs,
)
from kvspec_diff.storing import Call, Scope, Tally, key, lockstep, power_loss
from kvspec_diff.subjects.stores import ReferenceStore
from kvspec_reference.files import Folder, Recording
from kvspec_reference.store import Report, Store

register()

SOURCE = Path(kvspec_reference.store.__file__).read_text()
ONE, SMALL = one(), small()

maybe = st.none() | st.integers(0, 999)
calls = st.builds(
    Call,
    name=st.sampled_from(NAMES),
    key=st.integers(0, 2),
    failing=st.just(frozenset()) | st.frozensets(st.integers(0, 10), max_size=3),
    killing=st.none() | st.integers(0, 8),
    loss=maybe,
    again=st.none() | st.integers(0, 4),
    twice=maybe,
)
scopes = st.builds(
    Scope,
    payloads=st.just((20, 20, 20)) | st.just((20, 40, 270)),
    budget=st.integers(2 * ONE, 4 * ONE),
    slots=st.integers(1, 3),
    memory=st.integers(0, 4 * ONE),
    evictions=st.integers(1, 2),
    piece=st.integers(100, 400),
)


@settings(settings.get_profile("pr"))
@given(st.lists(calls, max_size=30), scopes)
def test_programs(program: list[Call], scope: Scope) -> None:
    lockstep(program, scope)


@settings(settings.get_profile("pr"), max_examples=30)
@given(st.lists(calls, max_size=12), scopes)
def test_programs_lose_power_everywhere(program: list[Call], scope: Scope) -> None:
    power_loss(program, scope)


def test_bulk(record_property: Callable[[str, object], None]) -> None:
    seen: Counter[str] = Counter()
    for seed in range(400):
        of = random.Random(seed)
        scope = random_scope(of)
        seen.update(lockstep(random_program(of), scope).done)
    never = {"reclaim", "drop"}  # what a crash leaves fits; what leaves the memory is in a tier below
    statuses = {"idle", "acknowledged", "unsettled", "waiting", "failed"}
    wanted = (compiled("store").actions.keys() - never) | statuses
    wanted |= {"loss", "not opened", "Refused", "Misuse", "OSError", "Miss", "Entry"}
    assert {what: seen[what] for what in wanted if seen[what] < 20} == {}, "these are hardly tried"
    assert seen["reclaim"] == 0, "what a crash leaves is within the budget"
    record_property("say", f"store: 400 programs in lockstep, {seen['crash']} crashes, {seen['loss']} losses of power")


def test_every_loss_of_power(record_property: Callable[[str, object], None]) -> None:
    tally = Tally()
    for seed in range(200):
        of = random.Random(seed)
        scope = random_scope(of)
        power_loss(random_program(of), scope, tally=tally)
    assert tally.states > 20_000
    assert tally.during_recovery > 10_000
    text = f"200 programs, {tally.states} folders after a loss of power at {tally.points} points"
    text += f", {tally.during_recovery} more during recovery, {len(tally.different)} of all of them different"
    record_property("say", f"store: {text}: nothing lost, nothing misread")


def test_a_loss_at_every_byte() -> None:
    scope = Scope(piece=1000)
    tally = power_loss([Call("save"), Call("write"), Call("save"), Call("write")], scope, cuts=ONE)
    assert len({state for state, _, _ in tally.different}) > 3.9 * ONE, "each length of each version, as zeros too"


@pytest.mark.parametrize("seed", range(20))
def test_a_real_folder_does_the_same(seed: int, tmp_path: Path) -> None:
    """Reports, reads and bytes, call by call; what fails on purpose is left out."""
    of = random.Random(seed)
    scope = random_scope(of)
    recording, folder = Recording(), Folder(tmp_path)
    pair = [scope.open(recording), scope.open(folder)]
    for number, call in enumerate(random_program(of, 60)):
        answers: list[Any] = []
        for at, (store, files) in enumerate(zip(pair, (recording, folder), strict=True)):
            try:
                if call.name == "save":
                    answers.append(store.save(key(call.key), scope.payload(call.key, number), tokens=call.key))
                elif call.name == "write":
                    answers.append(store.write_next())
                elif call.name == "crash":
                    pair[at] = scope.open(files)
                else:
                    answers.append({"read": store.read, "evict": store.evict}[call.name](key(call.key)))
            except (Misuse, Refused) as error:
                answers.append(repr(error))
            answers.append((store.take_actions(), {name: files.read(name) for name in files.names()}))
        half = len(answers) // 2
        assert answers[:half] == answers[half:]
    folder.close()


# Every fsync is needed.


NEEDED = {
    "_write: sync": {"an entry is replaced": "T1"},
    "write_next: _settle": {
        "an entry is replaced": "T4", "an entry takes the room of another": "T2"
    },
    "_nothing_to_write: _settle": {
        "an entry takes the room of one that was evicted before": "T2", "an entry is acknowledged late": "T4"
    },
    "_open: sync_folder": {"the process dies before the folder is synced": "T4"},
}  # fmt: skip
"""What goes wrong without a sync: the program that shows it, and the law."""


@pytest.mark.parametrize("line", syncs(SOURCE), ids=lambda line: f"{syncs(SOURCE)[line]}, line {line}")
def test_without_any_one_sync_something_is_lost(line: int) -> None:
    broken = {}
    forgetful = ReferenceStore(lambda files, *given, **more: Store(Forgetful(files, line), *given, **more))
    for name, program in SYNCS.items():
        power_loss(program, SMALL)  # all is well with it
        try:
            power_loss(program, SMALL, forgetful)
        except Broken as error:
            broken[name] = error.law
    assert broken != {}
    wanted = NEEDED[syncs(SOURCE)[line]]
    assert any(broken.get(name) == law for name, law in wanted.items()), broken


def test_the_syncs_of_the_store() -> None:
    assert sorted(syncs(SOURCE).values()) == sorted([*NEEDED, "write_next: _settle"])


# Planted faults.

FAULTS = {
    "a copy in memory is kept when a newer one comes (T3)": (
        "self.queue[key] = self.hot[key] = data", "self.queue[key] = data; self.hot.setdefault(key, data)"
    ),
    "the older of two queued ones wins (T5)": (
        "self.queue[key] = self.hot[key] = data", "self.queue.setdefault(key, data); self.hot[key] = data"
    ),
    "the file is read before the queue (T3)": (
        "for tier in (self.hot, self.queue, self.writing):",
        "for tier in (() if key in self.index else (self.hot, self.queue, self.writing)):",
    ),
    "the queue has one slot more (T6)": ("len(self.queue) >= self.slots", "len(self.queue) > self.slots"),
    "memory is not bounded (T2)": ("> self.memory:", "> 2 * self.memory:"),
    "temporary files do not count (T2)": (" + sum(map(len, self.writing.values()))", ""),
    "too many are evicted in one call (T2)": ("== self.evictions", "== self.evictions + 1"),
    "there is less room than is wanted (T2)": ("while self.used + size > self.budget", "while self.used > self.budget"),
    "an evicted entry stays in the index (T7)": ("del self.index[key]", "pass"),
    "the index forgets before the file is gone (T7)": (
        "        with suppress(FileNotFoundError):  # somebody", "        del self.index[key]; self.index[key] = 0\n"
        "        with suppress(FileNotFoundError):  # somebody"
    ),
    "what fails is dropped with what is queued (T6)": (
        "        del self.writing[key]\n", "        del self.writing[key]; self.queue.pop(key, None)\n"
    ),
    "what fails leaves its file behind (T1)": ("in self.files.names():", "in ():"),
    "what fails stays in memory (T3)": (
        "        if key in self.hot and key not in self.queue:", "        if False:"
    ),
    "acknowledged before the folder is synced (T4)": (
        '        self._did("rename", key)\n', '        self._did("rename", key); self._acknowledge(key)\n'
    ),
    "acknowledged although the folder could not be synced (T4)": (
        'return (), f"the folder cannot be synced: {error}"', "pass"
    ),
    "renamed before it is synced (T1)": (
        "            self.files.sync(temporary)\n", "            self.files.rename(temporary, key + ENTRY)\n"
        "            self.files.rename(key + ENTRY, temporary)\n            self.files.sync(temporary)\n"
    ),
    "written in place (T1)": ('ENTRY, TEMPORARY = ".entry", ".temporary"', 'ENTRY, TEMPORARY = ".entry", ".entry"'),
    "opening leaves temporary files (T1)": ("if dot + kind == TEMPORARY:", "if False:"),
    "opening finds nothing (T4)": ("self.index = found", "self.index = OrderedDict(); found = {}"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_caught(fault: str) -> None:
    subject, law = ReferenceStore(faulty(SOURCE, *FAULTS[fault], Report)), fault[-3:-1]
    laws: Counter[str] = Counter()
    for seed in range(200):
        of = random.Random(seed)
        scope = random_scope(of)
        program = random_program(of)
        try:
            power_loss(program, scope, subject)
        except Broken as error:
            laws[error.law] += 1
            if error.law in (law, "state"):
                return
        except (KeyError, FileExistsError):  # the faulty store fell over
            return
    raise AssertionError(f"not caught as {law}: {laws}")


def test_what_a_process_that_dies_leaves_is_found() -> None:
    """Until power is lost: then it may be older."""
    program = [*PUT, Call("save"), Call("write", killing=4)]
    run = lockstep(program, SMALL)
    assert run.state.latest[0] == 2
    laws = [lockstep([*program[:-1], replace(program[-1], loss=n)], SMALL).state.latest[0] for n in range(4)]
    assert set(laws) == {1, 2}
