"""The store on tensors against the machine `store`, and under every legal loss of power (T1-T7)."""

import hashlib
import random
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kvspec_torch.store
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvspec_diff.beside import Broken, compiled
from kvspec_diff.profiles import register
from kvspec_diff.store_programs import NAMES, SYNCS, Forgetful, faulty, one, random_program, random_scope, small, syncs
from kvspec_diff.storing import Call, Scope, Tally, key, lockstep, power_loss
from kvspec_diff.subjects.stores import Buffers, TorchStore
from kvspec_torch.disk.files import Folder
from kvspec_torch.disk.frames import Header
from kvspec_torch.disk.reports import Report
from kvspec_torch.errors import Misuse, Refused
from kvspec_torch.store import Store

register()

SUBJECT = TorchStore()
SOURCE = Path(kvspec_torch.store.__file__).read_text()
ONE, SMALL = one(SUBJECT), small(SUBJECT)

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
    lockstep(program, scope, SUBJECT)


@settings(settings.get_profile("pr"), max_examples=20)
@given(st.lists(calls, max_size=12), scopes)
def test_programs_lose_power_everywhere(program: list[Call], scope: Scope) -> None:
    power_loss(program, scope, SUBJECT)


def test_bulk(record_property: Callable[[str, object], None]) -> None:
    seen: Counter[str] = Counter()
    for seed in range(400):
        of = random.Random(seed)
        seen.update(lockstep(random_program(of), random_scope(of, SUBJECT), SUBJECT).done)
    never = {"reclaim", "drop"}
    statuses = {"idle", "acknowledged", "unsettled", "waiting", "failed"}
    wanted = (compiled("store").actions.keys() - never) | statuses
    wanted |= {"loss", "not opened", "Refused", "Misuse", "OSError", "Miss", "Entry"}
    assert {what: seen[what] for what in wanted if seen[what] < 20} == {}, "these are hardly tried"
    assert seen["reclaim"] == 0, "what a crash leaves is within the budget"
    text = f"400 programs in lockstep, {seen['crash']} crashes, {seen['loss']} losses of power"
    record_property("say", f"store on tensors: {text}")


def test_every_loss_of_power(record_property: Callable[[str, object], None]) -> None:
    tally = Tally()
    for seed in range(60):
        of = random.Random(seed)
        scope = random_scope(of, SUBJECT)
        power_loss(random_program(of), scope, SUBJECT, tally)
    assert tally.states > 5_000
    assert tally.during_recovery > 2_000
    text = f"60 programs, {tally.states} folders after a loss of power, {tally.during_recovery} more during recovery"
    record_property("say", f"store on tensors: {text}: nothing lost, nothing misread")


def test_a_loss_at_every_byte() -> None:
    program = [Call("save"), Call("write"), Call("save"), Call("write")]
    tally = power_loss(program, Scope(budget=3 * ONE, piece=1000), SUBJECT, cuts=ONE)
    assert len({state for state, _, _ in tally.different}) > 3.9 * ONE, "each length of each version, as zeros too"


@pytest.mark.parametrize("seed", range(10))
def test_a_real_folder_does_the_same(seed: int, tmp_path: Path) -> None:
    """Reports, reads and bytes, call by call; what fails on purpose is left out."""
    of = random.Random(seed)
    scope = random_scope(of, SUBJECT)
    recording, folder = Buffers(), Folder(tmp_path)
    pair = [scope.open(recording, SUBJECT), scope.open(folder, SUBJECT)]
    for number, call in enumerate(random_program(of, 60)):
        answers: list[object] = []
        for at, (store, files) in enumerate(zip(pair, (recording, folder), strict=True)):
            try:
                if call.name == "save":
                    answers.append(SUBJECT.save(store, key(call.key), scope.payload(call.key, number)))
                elif call.name == "write":
                    answers.append(store.write_next())
                elif call.name == "crash":
                    pair[at] = scope.open(files, SUBJECT)
                else:
                    answers.append({"read": store.read, "evict": store.evict}[call.name](key(call.key)))
            except (Misuse, Refused) as error:
                answers.append(repr(error))
            answers.append((store.take_actions(), {name: files.read(name) for name in files.names()}))
        half = len(answers) // 2
        assert answers[:half] == answers[half:]
    folder.close()


NEEDED = {
    "_write: sync": {"an entry is replaced": "T4"},
    "_write_next: _settle": {"an entry is replaced": "T4", "an entry takes the room of another": "T2"},
    "_nothing_to_write: _settle": {
        "an entry takes the room of one that was evicted before": "T2", "an entry is acknowledged late": "T4"
    },
    "_open: sync_folder": {"the process dies before the folder is synced": "T4"},
}  # fmt: skip
"""What goes wrong without a sync: the program that shows it, and the law.

What is half written has no whole header here, and is no entry: so it is the old version that is missing.
"""


@pytest.mark.parametrize("line", syncs(SOURCE), ids=lambda line: f"{syncs(SOURCE)[line]}, line {line}")
def test_without_any_one_sync_something_is_lost(line: int) -> None:
    broken = {}
    forgetful = TorchStore(lambda files, *given, **more: Store(Forgetful(files, line), *given, **more))
    for name, program in SYNCS.items():
        power_loss(program, SMALL, SUBJECT)  # all is well with it
        try:
            power_loss(program, SMALL, forgetful)
        except Broken as error:
            broken[name] = error.law
    assert broken != {}
    wanted = NEEDED[syncs(SOURCE)[line]]
    assert any(broken.get(name) == law for name, law in wanted.items()), broken


def test_the_syncs_of_the_store() -> None:
    assert sorted(syncs(SOURCE).values()) == sorted([*NEEDED, "_write_next: _settle"])


FAULTS = {
    "the older of two queued ones wins (T5)": (
        "self.queue[key] = self.hot[key] = data", "self.queue.setdefault(key, data); self.hot[key] = data"
    ),
    "the file is read before the queue (T3)": (
        "for tier in (self.hot, self.queue, self.writing) if key in tier), None)",
        "for tier in (self.hot, self.queue, self.writing) if key in tier and key not in self.shelf), None)",
    ),
    "the queue has one slot more (T6)": ("len(self.queue) >= self.slots", "len(self.queue) > self.slots"),
    "memory is not bounded (T2)": ("> self.memory:", "> 2 * self.memory:"),
    "temporary files do not count (T2)": ("_bytes + self._writing_bytes", "_bytes"),
    "what is written still counts as temporary (T2)": (
        "            self._writing_bytes -= len(data)\n            self.shelf", "            self.shelf"
    ),
    "too many are evicted in one call (T2)": ("== self.evictions", "== self.evictions + 1"),
    "there is less room than is wanted (T2)": ("while self.used + size > self.budget", "while self.used > self.budget"),
    "an evicted entry stays in the index (T7)": ("                return self.shelf.take(key)\n\n", "\n"),
    "what fails is dropped with what is queued (T6)": (
        "            data = self.writing.pop(key)\n", "            data = self.writing.pop(key)\n"
        "            self.queue.pop(key, None)\n"
    ),
    "what fails leaves its file behind (T1)": (
        "                self.files.unlink(key + TEMPORARY)\n", "                ...\n"
    ),
    "acknowledged before the folder is synced (T4)": (
        '            self._did("rename", key)\n', '            self._did("rename", key); self._acknowledge(key)\n'
    ),
    "acknowledged although the folder could not be synced (T4)": ("return (), error", "..."),
    "written in place (T1)": ('".safetensors", ".temporary"', '".safetensors", ".safetensors"'),
    "opening leaves temporary files (T1)": ("if dot + kind == TEMPORARY and", "if False and"),
    "opening finds nothing (T4)": ("self.shelf.put(key, found, size)", "..."),
    "the first byte alone is written (T1)": ("data[start : start + self.piece]", "data[start : start + 1]"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_caught(fault: str) -> None:
    subject, law = TorchStore(faulty(SOURCE, *FAULTS[fault], Report)), fault[-3:-1]
    laws: Counter[str] = Counter()
    for seed in range(600):
        of = random.Random(seed)
        scope = random_scope(of, SUBJECT)
        program = random_program(of)
        try:
            lockstep(program, scope, subject)
            if seed < 50:
                power_loss(program, scope, subject)
        except Broken as error:
            laws[error.law] += 1
            if error.law in (law, "state"):
                return
        except (KeyError, FileExistsError):  # the faulty store fell over
            return
    raise AssertionError(f"not caught as {law}: {laws}")


class Counted(Store):
    """Its counters are what they count."""

    def take_actions(self) -> list[tuple[str, str, str]]:
        for tier, counted in ((self.hot, self.hot_bytes), (self.writing, self._writing_bytes)):
            assert counted == sum(map(len, tier.values()))
        assert self.shelf.entry_bytes == sum(header.size for header in self.shelf.entries.values())
        assert self.shelf.foreign_bytes == sum(size for size, _ in self.shelf.foreign.values())
        return super().take_actions()


def test_counters() -> None:
    for seed in range(100):
        of = random.Random(seed)
        lockstep(random_program(of), random_scope(of, SUBJECT), TorchStore(Counted))


class Looked(OrderedDict[str, Header]):
    """Counts how many entries are looked at by going through them."""

    looked = 0

    def __iter__(self) -> Iterator[str]:
        for each in super().__iter__():
            Looked.looked += 1
            yield each

    def values(self) -> Any:
        Looked.looked += len(self)
        return super().values()


@pytest.mark.parametrize("fault", [False, True])
def test_no_call_goes_through_all_entries(fault: bool) -> None:
    """Saving, evicting to make room, reading and asking for what is used; a store that adds up sizes is noticed."""

    class Adding(Store):
        @property
        def used(self) -> int:
            return sum(header.size for header in self.shelf.entries.values()) + self._writing_bytes

    names = sorted(hashlib.sha256(b"%d" % n).hexdigest() for n in range(1001))
    lengths = dict.fromkeys(names, 20)
    data = {name: SUBJECT.data(name, b"x" * 20) for name in names}
    files = SUBJECT.recording({name + SUBJECT.entry: data[name] for name in names[1:]})
    subject = TorchStore(Adding) if fault else SUBJECT
    store = subject.open(files, lengths, budget=1000 * len(data[names[1]]), slots=2)
    store.shelf.entries = Looked(store.shelf.entries)
    Looked.looked, before = 0, len(files.log)
    subject.save(store, names[0], b"x" * 20)
    report = store.write_next()
    store.read(names[0])
    assert (report.status, report.evicted) == ("acknowledged", (names[1],))
    assert store.used == 1000 * len(data[names[1]])
    assert len(files.log) - before == 7, "unlink, sync; create, write, sync, rename, sync"
    assert (Looked.looked > 1000) == fault
    assert fault or Looked.looked <= 4
