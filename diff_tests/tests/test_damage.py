"""Every damaged entry is a miss with a reason, and the tests notice if one is not (E2, E5)."""

import re
from collections.abc import Callable
from itertools import product
from typing import Any

import kvspec_reference.entry_format as entry_format
import pytest
from kvspec.members import Layout
from kvspec_diff.damage import KINDS, Harm, every_bit, every_length, headers, torture
from kvspec_reference.entry_format import Entry, key_of, read_entry, upgrade, write_entry
from kvspec_reference.files import Recording
from kvspec_reference.store import ENTRY, Store

SIGNATURE = Layout("toy", 4, ()).signature
PARENT = key_of(None, [1, 2, 3, 4], SIGNATURE)
KEY = key_of(PARENT, [5, 6, 7], SIGNATURE)
WHOLE = Entry(KEY, PARENT, 3, b"eleven bytes")
DATA = write_entry(WHOLE, SIGNATURE)
MUTATED = 2_000


def read(data: bytes) -> Any:
    return read_entry(data, SIGNATURE, KEY)


@pytest.mark.parametrize("version", [2, 3])
def test_every_damage_is_a_miss_with_a_reason(version: int, record_property: Callable[[str, object], None]) -> None:
    data = write_entry(WHOLE, SIGNATURE, version)
    assert read(data) == WHOLE
    harm = torture(data, read, MUTATED)
    assert harm.misread == []
    assert harm.tried == 8 * len(data) + len(data) + 4 + MUTATED
    assert set(harm.reasons) == {"short", "foreign", "version", "header", "signature", "key", "length", "damaged"}
    assert min(harm.reasons.values()) >= 15, harm.reasons
    text = f"{8 * len(data)} bits, {len(data) + 4} lengths and {MUTATED} headers of an entry damaged: all are misses"
    record_property("say", f"entries, version {version}: {text}")


@pytest.mark.parametrize("version", [2, 3])
def test_nothing_damaged_is_upgraded(version: int) -> None:
    """What is upgraded has the key and the meaning that it had; anything else is a miss (E3)."""
    data = write_entry(WHOLE, SIGNATURE, version)
    harm = torture(data, upgrade, MUTATED)
    assert harm.misread == []


def test_a_damaged_file_is_a_miss_of_the_store() -> None:
    """The same through a store, whose folder and index stay as they are (T6)."""
    files = Recording()
    store = Store(files, SIGNATURE, budget=4096)
    store.save(KEY, WHOLE.payload, parent=PARENT, tokens=3)
    store.write_next()
    harm, log = Harm(), list(files.log)

    def through(data: bytes) -> Any:
        files.folder[KEY + ENTRY].firm = data
        return store.read(KEY)

    for how, data in [*every_length(DATA), *headers(DATA, 500, seed=1)]:
        harm.try_one(how, data, through)
    assert harm.misread == []
    assert (harm.tried, list(store.index), files.log) == (len(DATA) + 504, [KEY], log)
    assert through(DATA) == WHOLE


def test_headers_are_of_every_kind_and_always_the_same() -> None:
    made = list(headers(DATA, 300, seed=2))
    assert {how for how, _ in made} == {kind.__name__.strip("_") for kind in KINDS}
    assert made == list(headers(DATA, 300, seed=2))
    assert made != list(headers(DATA, 300, seed=3))
    assert all(data != DATA for _, data in made)


class Alike:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def test_a_checksum_that_is_not_compared_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_format, "checksum", lambda *given: Alike())
    monkeypatch.setattr(entry_format, "write_entry", lambda *given: DATA)  # of what is upgraded, whatever it is
    for source, reader in product((list(every_bit(DATA)), list(headers(DATA, MUTATED))), (read, upgrade)):
        harm = Harm()
        for how, data in source:
            harm.try_one(how, data, reader)
        assert len(harm.misread) >= 50, "changed payloads, parents and counts are read"


@pytest.mark.parametrize("fault", ["length", "canonical", "digest", "once"])
def test_a_check_that_is_left_out_is_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checksum alone is not enough: it does not see how a header is written, nor what kind a value is of."""
    if fault == "canonical":
        monkeypatch.setattr(entry_format, "_is_canonical", lambda text, header: True)
    elif fault == "digest":
        anything = re.compile(r".*")
        monkeypatch.setattr(entry_format, "DIGEST", anything)
        monkeypatch.setattr(entry_format, "CHECKSUMS", {2: anything, 3: anything})
    elif fault == "once":
        monkeypatch.setattr(entry_format, "_once", dict)
        monkeypatch.setattr(entry_format, "_is_canonical", lambda text, header: True)
    else:
        monkeypatch.setattr(entry_format, "LARGEST", 10**500)
    harm = Harm()
    for how, data in headers(DATA, MUTATED):
        harm.try_one(how, data, read)
    assert harm.misread != []


def test_a_reader_that_falls_over_is_noticed() -> None:
    harm = Harm()
    harm.try_one("on purpose", b"", lambda data: data[0])
    assert len(harm.misread) == 1
    assert "IndexError" in harm.misread[0][0]
