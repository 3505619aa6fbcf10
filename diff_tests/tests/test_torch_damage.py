"""Every damaged safetensors file is a miss with a reason, of the newest version and of an older one (E2, E3, E5)."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import kvspec_torch.disk.older as older
import kvspec_torch.entry_format as entry_format
import pytest
import torch
from kvspec.members import Group, Layout, Part, Plain, Pooled, Recurrent, Window
from kvspec_diff.damage import Harm, every_bit, every_length, headers, torture
from kvspec_diff.framings import TensorFraming
from kvspec_diff.older_entries import version_2
from kvspec_diff.subjects.stores import Buffers
from kvspec_torch.blocks import Block
from kvspec_torch.entry_format import Entry, Format, Miss, chain
from kvspec_torch.store import ENTRY, Store

ROW = Plain((Part("k", (2,), "float16"), Part("none", (0,), "int8")))
MORE = Group((Window((Part("k", (1,), "bfloat16"),), size=3), Recurrent((Part("state", (3,), "float64"),))))
LAYOUT = Layout("toy", 2, (ROW, MORE, Pooled((Part("p", (), "bool"),), ratio=3)))
FORMAT = Format(LAYOUT)
PARENT, KEY = chain([1, 2, 3, 4], 2, LAYOUT.signature)


def block(index: int) -> Block:
    wanted = FORMAT.block(index, True)
    parts = {
        path: torch.arange(torch.Size(shape).numel()).reshape(shape).to(getattr(torch, part.dtype))
        for path, (part, shape) in wanted.items()
    }
    return Block(index, parts, True)


BLOCK = block(1)
DATA = bytes(FORMAT.write(KEY, PARENT, BLOCK))
OLDER = version_2(LAYOUT, KEY, PARENT, BLOCK)
FIRST = bytes(FORMAT.write(PARENT, None, block(0)))
MUTATED = 2_000
REASONS = {"short", "foreign", "version", "header", "signature", "key", "length", "damaged"}


def read(data: bytes) -> Any:
    return FORMAT.read(memoryview(bytearray(data)), KEY)


def through(data: bytes) -> Any:
    """The same, through a store that opens a folder with the parent in it."""
    files = Buffers.of({PARENT + ENTRY: FIRST, KEY + ENTRY: data})
    store = Store(files, FORMAT, budget=10**6)
    found = store.peek(KEY)
    assert isinstance(store.peek(PARENT), Entry)
    assert sorted(files.folder) == sorted([PARENT + ENTRY, KEY + ENTRY])
    assert store.used == len(FIRST) + len(data)
    return found


def test_every_damage_is_a_miss_with_a_reason(record_property: Callable[[str, object], None]) -> None:
    assert read(DATA).block == BLOCK
    harm = torture(DATA, read, MUTATED, framing=TensorFraming())
    assert harm.misread == []
    assert harm.tried == 8 * len(DATA) + len(DATA) + 4 + MUTATED
    assert set(harm.reasons) == REASONS
    assert min(harm.reasons.values()) >= 8, harm.reasons
    record_property("say", f"safetensors entries: {harm.tried} damaged ones are misses: {dict(harm.reasons)}")


def test_every_damage_is_a_miss_of_a_store_that_opens() -> None:
    """Nothing is deleted, and what is there counts, whatever its header says."""
    assert through(DATA).block == BLOCK
    harm = Harm()
    for how, data in [*every_length(DATA), *headers(DATA, MUTATED, 3, TensorFraming())]:
        harm.try_one(how, data, through)
    assert harm.misread == []
    assert {"signature", "key", "header", "length", "foreign", "short"} <= set(harm.reasons)


def test_every_damage_of_an_older_entry_is_a_miss(record_property: Callable[[str, object], None]) -> None:
    assert through(OLDER).block == BLOCK
    harm = torture(OLDER, through, MUTATED, framing=TensorFraming(older=True))
    assert harm.misread == []
    assert set(harm.reasons) == REASONS
    record_property("say", f"safetensors entries of version 2: {harm.tried} damaged ones are misses")


def test_a_header_allocates_no_more_than_the_file() -> None:
    huge = [DATA[:8] + b"[" * 4000, b"\xff" * 7 + b"\x7f{" + DATA[9:], (2**40).to_bytes(8, "little") + DATA[8:]]
    huge += [data for _, data in headers(DATA, 300, 5, TensorFraming())]
    FORMAT.read(memoryview(bytearray(DATA)), KEY)
    for data in huge:
        tracemalloc.start()
        read(data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 60_000 + 20 * len(data)


class Alike:
    """Equal to everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]

    def decode(self) -> str:
        return ""


def test_a_checksum_that_is_not_compared_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_format, "checksum", lambda pieces: Alike())
    harm = Harm()
    for how, data in [*every_bit(DATA), *headers(DATA, MUTATED, 0, TensorFraming())]:
        harm.try_one(how, data, read)
    assert len(harm.misread) >= 50


class Lenient(Format):
    """One that does not look how a header is written, or how long the file is."""

    def judge(self, head: bytes, size: int) -> Any:
        found = super().judge(head, size)
        said = entry_format.METADATA.match(head, 8)
        if not isinstance(found, Miss) or found.reason not in ("header", "length") or said is None:
            return found
        start = 8 + int.from_bytes(head[:8], "little")
        return entry_format.Header(KEY, PARENT, size, start, 1, True)


def test_a_header_that_is_not_written_again_is_noticed() -> None:
    lenient, harm = Lenient(LAYOUT), Harm()
    for how, data in headers(DATA, MUTATED, 0, TensorFraming()):
        harm.try_one(how, data, lambda data: lenient.read(memoryview(bytearray(data)), KEY))
    assert harm.misread != []


def test_a_check_of_older_entries_that_is_left_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(older, "_starts", lambda frame, told: [0] * len(frame.tensors))
    monkeypatch.setattr(older, "in_version_2", lambda header: b"")
    harm = Harm()
    for how, data in headers(OLDER, MUTATED, 0, TensorFraming(older=True)):
        harm.try_one(how, data, through)
    assert harm.misread != []


@pytest.mark.parametrize("spelling", [b'"format": "kvspec"', b'"format":"kvspec","format":"kvspec"'])
def test_an_older_header_in_another_spelling_is_a_miss(spelling: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    framing = TensorFraming(older=True)
    text = framing.split(OLDER)[0].rstrip().replace(b'"format":"kvspec"', spelling)
    data = bytearray(framing.join(OLDER, text))
    data[37:101] = older.checksum_of_version_2(memoryview(data)).encode()
    harm = Harm()
    harm.try_one("respelled", bytes(data), through)
    assert (harm.misread, harm.reasons) == ([], {"header": 1})
    monkeypatch.setattr(older, "_once", dict)
    monkeypatch.setattr(older, "in_version_2", lambda header: b"")
    harm.try_one("respelled", bytes(data), through)
    assert len(harm.misread) == 1
