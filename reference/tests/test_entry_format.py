"""An entry as bytes, and names of entries (E1, E2, E5, E6)."""

import hashlib
import json
import struct
import tracemalloc
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kvspec.members import Layout
from kvspec.operations import Misuse
from kvspec_reference.entry_format import (
    FIXED,
    LONGEST_HEADER,
    MAGIC,
    Entry,
    Miss,
    Reason,
    canonical,
    chain,
    checksum,
    claimed_signature,
    key_of,
    read_entry,
    upgrade,
    write_entry,
)

SIGNATURE = Layout("toy", 4, ()).signature
KEY = key_of(None, [1, 2, 3], SIGNATURE)
NEXT = key_of(KEY, [4], SIGNATURE)
ENTRY = Entry(NEXT, KEY, 4, b"payload")
DATA = write_entry(ENTRY, SIGNATURE)

digests = st.binary(max_size=4).map(lambda data: hashlib.sha256(data).hexdigest())
entries = st.builds(Entry, digests, st.none() | digests, st.integers(0, 2**63 - 1), st.binary())


@given(entries, digests)
def test_what_was_written_is_read(entry: Entry, signature: str) -> None:
    assert read_entry(write_entry(entry, signature), signature, entry.key) == entry


def test_names_and_bytes_are_the_same_everywhere() -> None:
    """Fixed here, so that no release changes them unnoticed: stored entries would not be found again (E6)."""
    assert KEY == "d3a05186b5c0bb5d3bf606d51d7f1d2f3e4378b4d91a6608b1c5f5e9a5703667"
    assert NEXT == "c350a0b8753dca30f86e0338ac86b79cd7c6767525381807485b1b220a86a1b0"
    assert hashlib.sha256(DATA).hexdigest() == "ae01ca5328617bfa366bfd45c82fdc0b14198684cd91c2c4704c792ea773af57"
    assert DATA.startswith(MAGIC + b'\0\0\0\3\0\0\1*{"checksum":"')
    assert DATA.endswith(b',"tokens":4}payload')


def test_a_name_depends_on_everything_that_it_names() -> None:
    """The parent, every token and where one entry ends and the next begins, the signature (E1, E6)."""
    other = Layout("toy", 5, ()).signature
    names = [
        KEY, NEXT, key_of(None, [1, 2], SIGNATURE), key_of(None, [1, 23], SIGNATURE), key_of(None, [12, 3], SIGNATURE),
        key_of(KEY, [], SIGNATURE), key_of(None, [], SIGNATURE), key_of(None, [1, 2, 3], other),
        key_of(key_of(None, [1], SIGNATURE), [2, 3], SIGNATURE),
    ]  # fmt: skip
    assert len(set(names)) == len(names)


def test_names_are_made_of_any_sequence() -> None:
    assert key_of(None, range(1, 4), SIGNATURE) == key_of(None, (1, 2, 3), SIGNATURE) == KEY
    assert key_of(None, [0], SIGNATURE) != key_of(None, [], SIGNATURE)


def test_a_key_is_made_as_is_told() -> None:
    """Whoever writes another implementation has this in two lines."""
    for parent, mark in ((None, b"\0"), (KEY, b"\1" + bytes.fromhex(KEY))):
        text = b"kvspec key\0" + bytes.fromhex(SIGNATURE) + mark + struct.pack(">3q", 0, 5, 2**63 - 1)
        assert key_of(parent, [0, 5, 2**63 - 1], SIGNATURE) == hashlib.sha256(text).hexdigest()


def test_a_chain_has_the_whole_blocks() -> None:
    first = key_of(None, [1, 2], SIGNATURE)
    assert chain([1, 2, 3, 4, 5], 2, SIGNATURE) == [first, key_of(first, [3, 4], SIGNATURE)]
    assert chain([1, 2, 9, 4], 2, SIGNATURE)[0] == first
    assert chain([], 2, SIGNATURE) == chain([1], 2, SIGNATURE) == []
    assert chain(range(1, 4), 3, SIGNATURE) == [KEY]
    for wrong in (0, -1, True, 2.0):
        with pytest.raises(Misuse, match="block_size"):
            chain([1, 2], wrong, SIGNATURE)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "call",
    [
        lambda: key_of("x", [], SIGNATURE),
        lambda: key_of(KEY.upper(), [], SIGNATURE),
        lambda: key_of(None, [], "s"),
        lambda: key_of(None, [-1], SIGNATURE),
        lambda: key_of(None, [2**63], SIGNATURE),
        lambda: key_of(None, [True], SIGNATURE),
        lambda: key_of(None, [1.0], SIGNATURE),  # type: ignore[list-item]
        lambda: write_entry(Entry("k", None, 0, b""), SIGNATURE),
        lambda: write_entry(Entry(KEY, "p", 0, b""), SIGNATURE),
        lambda: write_entry(Entry(KEY, None, -1, b""), SIGNATURE),
        lambda: write_entry(Entry(KEY, None, 2**63, b""), SIGNATURE),
        lambda: write_entry(Entry(KEY, None, True, b""), SIGNATURE),
        lambda: write_entry(Entry(KEY, None, 0, bytearray()), SIGNATURE),  # type: ignore[arg-type]
        lambda: write_entry(ENTRY, SIGNATURE + "\n"),
        lambda: write_entry(ENTRY, SIGNATURE, 1),
    ],
)
def test_bad_calls(call: Any) -> None:
    with pytest.raises(Misuse):
        call()


def header(data: bytes = DATA) -> dict[str, Any]:
    length = int.from_bytes(data[FIXED - 4 : FIXED], "big")
    found: dict[str, Any] = json.loads(data[FIXED : FIXED + length])
    return found


def file(text: bytes, payload: bytes = ENTRY.payload, version: int = 3) -> bytes:
    return MAGIC + version.to_bytes(4, "big") + len(text).to_bytes(4, "big") + text + payload


def changed(payload: bytes = ENTRY.payload, **fields: Any) -> bytes:
    """A file with other fields, and the checksum that goes with them."""
    made = header() | fields
    made["checksum"] = checksum(made, payload)
    return file(canonical(made), payload)


TEXT = canonical(header())
MISSES: list[tuple[Reason, bytes, str]] = [
    ("short", b"", "0 bytes"),
    ("short", DATA[: FIXED - 1], "15 bytes"),
    ("foreign", b"GIF89a.." + DATA[8:], "does not begin like an entry"),
    ("version", file(TEXT, version=0), "version 0, only 2 and 3 are known"),
    ("version", file(TEXT, version=1), "version 1, only 2 and 3 are known"),
    ("version", file(TEXT, version=4), "version 4, only 2 and 3 are known"),
    ("header", file(TEXT, version=2), "checksum is '"),
    ("length", DATA[:FIXED], "a header of 298 bytes in 16"),
    ("length", DATA[: FIXED + 290], "a header of 298 bytes in 306"),
    ("length", DATA[: FIXED + 8], "a header of 298 bytes in 24"),
    ("length", file(b""), "a header of 0 bytes"),
    ("length", MAGIC + b"\0\0\0\3\xff\xff\xff\xff" + b"x" * 5000, "a header of 4294967295 bytes in 5016"),
    ("length", file(TEXT.ljust(LONGEST_HEADER + 1)), "where at most 2048 are read"),
    ("length", DATA + b"!", "a payload of 7 bytes is told of, 8 are there"),
    ("length", DATA[:-1], "a payload of 7 bytes is told of, 6 are there"),
    ("length", changed(payload=b"", **{"tokens": 4}), "a payload of 7 bytes is told of, 0 are there"),
    ("header", file(b"\xff" + TEXT), "cannot be read: 'utf-8'"),
    ("header", file(b"\xef\xbb\xbf" + TEXT), "cannot be read: Unexpected UTF-8 BOM"),
    ("header", file(b"{"), "cannot be read"),
    ("header", file(b"[" * 2000), "cannot be read"),
    ("header", file(b"[]"), "has not exactly the fields"),
    ("header", file(TEXT.replace(b'"tokens":4', b'"tokens":4,"tokens":4')), "a field is there twice"),
    ("header", file(TEXT.replace(b'"tokens":4', b'"other":4')), "has not exactly the fields"),
    ("header", file(TEXT.replace(b'"tokens":4', b'"tokens":4.0')), "4.0 is no integer"),
    ("header", file(TEXT.replace(b'"tokens":4', b'"tokens":NaN')), "NaN is no integer"),
    ("header", file(TEXT.replace(b'"tokens":4', b'"tokens":-0')), "is not written in the one way"),
    ("header", file(TEXT.replace(b'"tokens":4', b'"tokens": 4')), "is not written in the one way"),
    ("header", changed(tokens=True), "tokens is True"),
    ("header", changed(tokens=-1), "tokens is -1"),
    ("header", changed(tokens=2**63), "tokens is 9223372036854775808"),
    ("header", changed(tokens="4"), "tokens is '4'"),
    ("header", changed(payload=b"x", **{"key": NEXT.upper()}), "key is "),
    ("header", changed(parent=False), "parent is False"),
    ("header", changed(signature=None), "signature is None"),
    ("signature", changed(signature="0" * 64), "is wanted"),
    ("key", changed(key=KEY), "is wanted"),
    ("damaged", file(TEXT, b"Payload"), "checksum"),
    ("damaged", file(TEXT.replace(b'"tokens":4', b'"tokens":5')), "checksum"),
    ("damaged", file(TEXT.replace(KEY.encode(), b"0" * 64)), "checksum"),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "data", "text"), MISSES)
def test_a_miss_has_a_reason(reason: Reason, data: bytes, text: str) -> None:
    found = read_entry(data, SIGNATURE, NEXT)
    assert isinstance(found, Miss)
    assert found.reason == reason
    assert text in found.text


@given(entries, digests)
def test_an_older_entry_means_what_it_meant(entry: Entry, signature: str) -> None:
    old, new = write_entry(entry, signature, 2), write_entry(entry, signature)
    assert read_entry(old, signature, entry.key) == entry
    assert upgrade(old) == upgrade(new) == new != old


@pytest.mark.parametrize("version", [2, 3])
def test_what_is_damaged_is_not_upgraded(version: int) -> None:
    data = write_entry(ENTRY, SIGNATURE, version)
    found = upgrade(data[:-1] + b"!")
    assert isinstance(found, Miss)
    assert found.reason == "damaged"
    assert claimed_signature(data[:-1] + b"!") == SIGNATURE


def test_an_entry_of_version_1_has_no_signature() -> None:
    """Nobody can tell what it means, so it is a miss, and no guess (E2)."""
    data = write_entry(ENTRY, SIGNATURE, 2)
    old = data[:8] + b"\0\0\0\1" + data[12:]
    for found in (read_entry(old, SIGNATURE, NEXT), upgrade(old)):
        assert isinstance(found, Miss)
        assert found.reason == "version"
    assert claimed_signature(old) is None


def test_the_bytes_of_version_2_stay() -> None:
    """Written here once and for all: these files are out there."""
    found = hashlib.sha256(write_entry(ENTRY, SIGNATURE, 2)).hexdigest()
    assert found == "502289d8e2babfd26fbc7a0a4d66116778eeb1f1e843dc415240bb31b30dd888"


def test_there_is_an_example_of_each_reason() -> None:
    of_the_store = {"absent", "unreadable"}
    assert {reason for reason, _, _ in MISSES} == set(get_args(Reason)) - of_the_store


def test_a_bool_is_no_length() -> None:
    made = header() | {"payload": True}
    made["checksum"] = checksum(made, b"x")
    found = read_entry(file(canonical(made), b"x"), SIGNATURE, NEXT)
    assert found == Miss("header", "payload is True")


@pytest.mark.parametrize("told", [2**31, 2**62, 2**63 - 1, 10**400])
def test_a_header_does_not_make_the_reader_allocate(told: int) -> None:
    data = file(TEXT.replace(b'"payload":7', b'"payload":%d' % told)) + b"x" * 100_000
    tracemalloc.start()
    found = read_entry(data, SIGNATURE, NEXT)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(found, Miss)
    assert peak < 2 * len(data)
