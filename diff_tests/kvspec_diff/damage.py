"""Damaged entries: each is to be a miss with a reason (E2, E5).

Every bit turned round, every length cut to, and headers of which something is wrong. The reader is a parameter: any
function from a file's bytes to what it found.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, get_args

from kvspec_reference.entry_format import FIXED, LARGEST, MAGIC, Miss, Reason, checksum

Reader = Callable[[bytes], Any]

ODD_VALUES: tuple[Any, ...] = (
    True, False, None, "", "0", -1, LARGEST + 1, 10**400, 1.0, 1e300, 0.5, [], {}, [0], {"a": 1}, "x" * 64, "A" * 64,
    "0" * 63, "0" * 65, "0" * 64 + "\n", "../" * 20, "/etc/passwd", "\x00", "\u0660" * 64, "é",
)  # fmt: skip
ODD_TEXTS = (
    b"NaN",
    b"Infinity",
    b"-0",
    b"1e3",
    b"4.0",
    b"00",
    b"0x4",
    b"+4",
    b'"\\ud800"',
    b"9" * 600,
    b"[" * 600,
    b"",
)


@dataclass
class Harm:
    """What became of damaged entries: how often each reason was given, and which were read or fell over.

    `miss` is the reader's class of misses.
    """

    miss: type[Any] = Miss
    tried: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    misread: list[tuple[str, bytes]] = field(default_factory=list)

    def try_one(self, how: str, data: bytes, read: Reader) -> None:
        """Read one damaged entry."""
        self.tried += 1
        try:
            found = read(data)
        except Exception as error:  # whatever it is, it should have been a miss
            self.misread.append((f"{how}: {error!r}", data))
            return
        if isinstance(found, self.miss) and found.reason in get_args(Reason) and found.text:
            self.reasons[found.reason] += 1
        else:
            self.misread.append((f"{how}: read as {found!r}", data))


def every_bit(entry: bytes) -> Iterator[tuple[str, bytes]]:
    """The entry with one bit turned round: each bit once."""
    for bit in range(8 * len(entry)):
        data = bytearray(entry)
        data[bit // 8] ^= 1 << bit % 8
        yield f"bit {bit}", bytes(data)


def every_length(entry: bytes) -> Iterator[tuple[str, bytes]]:
    """The entry cut to every length, and with something behind it."""
    for length in range(len(entry)):
        yield f"length {length}", entry[:length]
    for more in (b"\0", b"\0" * 512, entry[-1:], entry):
        yield f"{len(more)} bytes more", entry + more


def headers(entry: bytes, count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """So many entries of whose header something is wrong, none of them as the entry is."""
    of = random.Random(seed)
    made = 0
    while made < count:
        kind = of.choice(KINDS)
        data = kind(of, entry)
        if data != entry:
            made += 1
            yield kind.__name__.strip("_"), data


def torture(entry: bytes, read: Reader, mutated: int, seed: int = 0) -> Harm:
    """All of these."""
    harm = Harm()
    for source in (every_bit(entry), every_length(entry), headers(entry, mutated, seed)):
        for how, data in source:
            harm.try_one(how, data, read)
    return harm


# Kinds of headers.


def _parted(entry: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(entry[FIXED - 4 : FIXED], "big")
    return entry[FIXED : FIXED + length], entry[FIXED + length :]


def _version(entry: bytes) -> int:
    return int.from_bytes(entry[len(MAGIC) : len(MAGIC) + 4], "big")


def _joined(entry: bytes, text: bytes) -> bytes:
    return entry[: FIXED - 4] + len(text).to_bytes(4, "big") + text + _parted(entry)[1]


def _fields(entry: bytes) -> list[tuple[str, bytes]]:
    """The header's fields, each value as JSON text."""
    return [(name, json.dumps(value).encode()) for name, value in json.loads(_parted(entry)[0]).items()]


def _written(entry: bytes, fields: list[tuple[str, bytes]]) -> bytes:
    return _joined(entry, b"{" + b",".join(b'"%s":%s' % (name.encode(), value) for name, value in fields) + b"}")


def _odd_value(of: random.Random, entry: bytes) -> bytes:
    """A value of another kind or out of bounds, sometimes with the checksum that goes with it."""
    text, payload = _parted(entry)
    header = json.loads(text)
    name = of.choice([*sorted(header), *["tokens"] * 4])
    value = of.choice(ODD_VALUES)
    header[name] = value
    whole = not isinstance(value, float) and not (name == "parent" and value is None)
    if name != "checksum" and whole and of.random() < 0.5:
        header["checksum"] = checksum(header, payload, _version(entry))
    return _joined(entry, json.dumps(header, sort_keys=True, separators=(",", ":")).encode())


def _odd_text(of: random.Random, entry: bytes) -> bytes:
    """A value that is no JSON, or one that is written in another way."""
    fields = _fields(entry)
    at = of.randrange(len(fields))
    fields[at] = (fields[at][0], of.choice(ODD_TEXTS))
    return _written(entry, fields)


def _other_number(of: random.Random, entry: bytes) -> bytes:
    """Another length or count, up to a huge one."""
    fields = dict(_fields(entry))
    fields[of.choice(("tokens", "payload"))] = b"%d" % of.randrange(2 ** of.randrange(1, 70))
    return _written(entry, list(fields.items()))


def _other_name(of: random.Random, entry: bytes) -> bytes:
    """Another key, parent, signature or checksum."""
    fields = dict(_fields(entry))
    name = of.choice(("key", "parent", "signature", "checksum"))
    fields[name] = b'"%0*x"' % (len(fields[name]) - 2, of.randrange(2**128))
    return _written(entry, list(fields.items()))


def _twice(of: random.Random, entry: bytes) -> bytes:
    """A field twice, with the same value or another one."""
    fields = _fields(entry)
    name, value = of.choice(fields)
    fields.insert(of.randrange(len(fields) + 1), (name, of.choice((value, b"0", b"null"))))
    return _written(entry, fields)


def _other_fields(of: random.Random, entry: bytes) -> bytes:
    """One field too few or too many, or in another order."""
    fields = _fields(entry)
    how = of.randrange(3)
    if how == 0:
        del fields[of.randrange(len(fields))]
    elif how == 1:
        fields.insert(of.randrange(len(fields) + 1), (of.choice(("", "path", "Tokens", "é", "zz")), b"0"))
    else:
        of.shuffle(fields)
    return _written(entry, fields)


def _other_spelling(of: random.Random, entry: bytes) -> bytes:
    """The same header, written in another way."""
    header = json.loads(_parted(entry)[0])
    ways: list[Callable[[], bytes]] = [
        lambda: json.dumps(header, sort_keys=True).encode(),
        lambda: json.dumps(header, sort_keys=True, indent=of.randrange(4)).encode(),
        lambda: _parted(entry)[0] + b" " * of.randrange(1, 20),
        lambda: _parted(entry)[0].replace(b'"key"', b'"\\u006bey"'),
        lambda: _parted(entry)[0].decode().encode(of.choice(("utf-16", "utf-16-le", "utf-8-sig", "utf-32"))),
    ]
    return _joined(entry, of.choice(ways)())


def _other_bytes(of: random.Random, entry: bytes) -> bytes:
    """Some bytes of the header replaced, taken out or put in: any bytes, no UTF-8 among them."""
    text = bytearray(_parted(entry)[0])
    for _ in range(of.randrange(1, 4)):
        at = of.randrange(len(text))
        text[at : at + of.randrange(3)] = of.randbytes(of.randrange(3))
    return _joined(entry, bytes(text))


def _other_frame(of: random.Random, entry: bytes) -> bytes:
    """Another magic, version or length of the header."""
    at, length = of.choice(((0, len(MAGIC)), (len(MAGIC), 4), (FIXED - 4, 4)))
    value = of.randrange(256 ** of.randrange(1, length + 1)).to_bytes(length, "big")
    return entry[:at] + value + entry[at + length :]


KINDS = (
    _odd_value, _odd_text, _other_number, _other_name, _twice, _other_fields, _other_spelling, _other_bytes,
    _other_frame,
)  # fmt: skip
