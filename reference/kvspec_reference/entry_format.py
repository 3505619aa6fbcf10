"""One entry of a store as bytes, and the names of entries (E1-E3, E5, E6).

    magic (8 bytes), version (4), length of the header (4), header, payload

Numbers are big-endian. The header is canonical JSON: keys sorted, no spaces, ASCII. It names the signature, the entry's
key and its parent's, how many tokens the entry covers, the payload's length, and a checksum over all of these and the
payload. There is one way to write an entry; whatever differs from it is a miss with a reason, and nothing is guessed.

The version is 3. In version 2 the checksum is longer, and not over the version; it is read, and `upgrade` writes such
an entry anew. Version 1 had no signature: what its bytes mean nobody can tell, so it is a miss, like any other.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from kvspec.operations import Misuse

MAGIC = b"\x89kvspec\n"
"""No text file and no tensor file begins like this."""

VERSION, OLDER = 3, 2
"""The version that is written, and the only other one that is read."""

LONGEST_HEADER = 2048
LARGEST = 2**63 - 1
"""No length and no count in a header is larger."""

FIXED = len(MAGIC) + 8
DIGEST = re.compile(r"[0-9a-f]{64}")
CHECKSUMS = {OLDER: DIGEST, VERSION: re.compile(r"[0-9a-f]{32}")}
FIELDS = ("checksum", "key", "parent", "payload", "signature", "tokens")

Reason = Literal[
    "absent", "unreadable", "short", "foreign", "version", "header", "signature", "key", "length", "damaged"
]
"""Why there is nothing: it is not in the store; it cannot be read; it is too short; it is no entry; its version is
unknown (E2); its header is not as it should be; it has another signature (E1); it is another entry (E5); its lengths do
not fit the file; its checksum does not (E5)."""


@dataclass(frozen=True)
class Entry:
    """What was stored: `payload` covers `tokens` tokens after those of `parent`."""

    key: str
    parent: str | None
    tokens: int
    payload: bytes


@dataclass(frozen=True)
class Miss:
    """Nothing, and why."""

    reason: Reason
    text: str


class _Unfit(Exception):
    """Carries a miss out of the checks."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.miss = Miss(reason, text)


# Names: what a key is made of.


def key_of(parent: str | None, tokens: Sequence[int], signature: str) -> str:
    """The name of the entry that covers `tokens` after `parent`: a SHA-256, the same everywhere (E6).

    It is over "kvspec key" and a zero byte, the signature, a zero byte or, where there is a parent, a byte of 1 and the
    parent, then eight bytes, big-endian, for each token. Raises `Misuse` for a token that is no integer of 0 or more,
    or has more than 63 bits.
    """
    named = hashlib.sha256(b"kvspec key\0" + bytes.fromhex(digest("signature", signature)))
    named.update(b"\0" if parent is None else b"\1" + bytes.fromhex(digest("parent", parent)))
    for token in tokens:
        if type(token) is not int or not 0 <= token <= LARGEST:
            raise Misuse(f"{token!r} is no token")
        named.update(token.to_bytes(8, "big"))
    return named.hexdigest()


def chain(tokens: Sequence[int], block_size: int, signature: str) -> list[str]:
    """The keys of the whole blocks of these tokens, each the parent of the next; what is left over has none."""
    if type(block_size) is not int or block_size < 1:
        raise Misuse(f"block_size: {block_size!r}, at least 1 is wanted")
    keys: list[str] = []
    for start in range(0, len(tokens) - block_size + 1, block_size):
        keys.append(key_of(keys[-1] if keys else None, tokens[start : start + block_size], signature))
    return keys


def digest(what: str, value: Any) -> str:
    """The value, if it is a SHA-256 in lower case. Raises `Misuse` otherwise."""
    if type(value) is not str or not DIGEST.fullmatch(value):
        raise Misuse(f"{what}: {value!r} is no SHA-256 in lower case")
    return value


# Bytes: writing an entry, and reading it.


def checksum(header: Mapping[str, Any], payload: bytes, version: int = VERSION) -> str:
    """Over the version, the header but for the checksum itself, and the payload (E5)."""
    rest = canonical({name: value for name, value in header.items() if name != "checksum"})
    if version == OLDER:
        return hashlib.sha256(rest + payload).hexdigest()
    return hashlib.blake2b(VERSION.to_bytes(4, "big") + rest + payload, digest_size=16).hexdigest()


def write_entry(entry: Entry, signature: str, version: int = VERSION) -> bytes:
    """The bytes of an entry. Raises `Misuse` for what could not be read back."""
    if version not in (OLDER, VERSION):
        raise Misuse(f"version {version!r} is not written")
    digest("key", entry.key)
    digest("signature", signature)
    if entry.parent is not None:
        digest("parent", entry.parent)
    if type(entry.tokens) is not int or not 0 <= entry.tokens <= LARGEST:
        raise Misuse(f"{entry.tokens!r} tokens cannot be stored")
    if type(entry.payload) is not bytes:
        raise Misuse(f"a payload is bytes, not {type(entry.payload).__name__}")
    header: dict[str, Any] = {"key": entry.key, "parent": entry.parent, "tokens": entry.tokens}
    header |= {"payload": len(entry.payload), "signature": signature}
    header["checksum"] = checksum(header, entry.payload, version)
    text = canonical(header)
    return b"".join((MAGIC, version.to_bytes(4, "big"), len(text).to_bytes(4, "big"), text, entry.payload))


def canonical(header: Mapping[str, Any]) -> bytes:
    """The one way to write a header."""
    return json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()


def read_entry(data: bytes, signature: str, key: str) -> Entry | Miss:
    """The entry of this key in `data`, with everything checked, or why there is none.

    Never raises for what `data` holds. What it allocates is bounded by the length of `data`, whatever a header says.
    """
    try:
        version, header, payload = _split(data)
        if header["signature"] != signature:
            raise _Unfit("signature", f"signature {header['signature']}, {signature} is wanted")
        if header["key"] != key:
            raise _Unfit("key", f"key {header['key']}, {key} is wanted")
        _compare_checksum(version, header, payload)
    except _Unfit as unfit:
        return unfit.miss
    return Entry(key, header["parent"], header["tokens"], payload)


def upgrade(data: bytes) -> bytes | Miss:
    """An entry of version 2 in version 3, with the meaning that it has; one of version 3 as it is; or why not (E3)."""
    try:
        version, header, payload = _split(data)
        _compare_checksum(version, header, payload)
    except _Unfit as unfit:
        return unfit.miss
    if version == VERSION:
        return data
    return write_entry(Entry(header["key"], header["parent"], header["tokens"], payload), header["signature"])


def claimed_signature(data: bytes) -> str | None:
    """The signature that an entry says it has, whether it is damaged or not; None where there is none to be read."""
    try:
        signature: str = _split(data)[1]["signature"]
    except _Unfit:
        return None
    return signature


def _compare_checksum(version: int, header: Mapping[str, Any], payload: bytes) -> None:
    found = checksum(header, payload, version)
    if found != header["checksum"]:
        raise _Unfit("damaged", f"checksum {found}, the header says {header['checksum']}")


def _split(data: bytes) -> tuple[int, dict[str, Any], bytes]:
    """Version, header and payload, as far as they can be judged without knowing what is wanted."""
    if len(data) < FIXED:
        raise _Unfit("short", f"{len(data)} bytes, the shortest entry has more than {FIXED}")
    if data[: len(MAGIC)] != MAGIC:
        raise _Unfit("foreign", "does not begin like an entry")
    version = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 4], "big")
    if version not in (OLDER, VERSION):
        raise _Unfit("version", f"version {version}, only {OLDER} and {VERSION} are known")
    length = int.from_bytes(data[FIXED - 4 : FIXED], "big")
    if not 0 < length <= min(LONGEST_HEADER, len(data) - FIXED):
        raise _Unfit("length", f"a header of {length} bytes in {len(data)}, where at most {LONGEST_HEADER} are read")
    header = _header(data[FIXED : FIXED + length], version)
    payload = data[FIXED + length :]
    if header["payload"] != len(payload):
        raise _Unfit("length", f"a payload of {header['payload']} bytes is told of, {len(payload)} are there")
    return version, header, payload


def _header(text: bytes, version: int) -> dict[str, Any]:
    """The header, if each field is there once, of its kind, and it is written in the one way."""
    try:
        header = json.loads(text.decode(), object_pairs_hook=_once, parse_float=_no, parse_constant=_no)
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, a field twice, a number that is no integer
        raise _Unfit("header", f"cannot be read: {error}") from None
    if not isinstance(header, dict) or sorted(header) != list(FIELDS):
        raise _Unfit("header", f"has not exactly the fields {', '.join(FIELDS)}")
    patterns = {"signature": DIGEST, "key": DIGEST, "parent": DIGEST, "checksum": CHECKSUMS[version]}
    for name, pattern in patterns.items():
        value = header[name]
        if not (name == "parent" and value is None) and not (type(value) is str and pattern.fullmatch(value)):
            raise _Unfit("header", f"{name} is {value!r}")
    for name in ("tokens", "payload"):
        if type(header[name]) is not int or not 0 <= header[name] <= LARGEST:
            raise _Unfit("header", f"{name} is {header[name]!r}")
    if not _is_canonical(text, header):
        raise _Unfit("header", "is not written in the one way")
    return header


def _is_canonical(text: bytes, header: Mapping[str, Any]) -> bool:
    return text == canonical(header)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) != len(pairs):
        raise ValueError("a field is there twice")
    return found


def _no(text: str) -> Any:
    raise ValueError(f"{text} is no integer")
