"""Damaged entries: each is to be a miss with a reason (E2, E5).

Every bit turned round, every length cut to, and headers of which something is wrong. The reader is a parameter: any
function from a file's bytes to what it found. So is the format of the entries.
"""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, get_args

import kvspec_torch.entry_format
from kvspec_reference.entry_format import LARGEST, Miss, Reason

from kvspec_diff.framings import Framing, Level, ReferenceFraming

REFERENCE = ReferenceFraming()
MISSES = (Miss, kvspec_torch.entry_format.Miss)

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
    """What became of damaged entries: how often each reason was given, and which were read or fell over."""

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
        if isinstance(found, MISSES) and found.reason in get_args(Reason) and found.text:
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


def headers(entry: bytes, count: int, seed: int = 0, framing: Framing = REFERENCE) -> Iterator[tuple[str, bytes]]:
    """So many entries of whose header something is wrong, none of them as the entry is."""
    of = random.Random(seed)
    made = 0
    while made < count:
        kind = of.choice(KINDS)
        data = kind(Draw(of, entry, framing))
        if data != entry:
            made += 1
            yield kind.__name__.strip("_"), data


def torture(entry: bytes, read: Reader, mutated: int, seed: int = 0, framing: Framing = REFERENCE) -> Harm:
    """All of these."""
    harm = Harm()
    for source in (every_bit(entry), every_length(entry), headers(entry, mutated, seed, framing)):
        for how, data in source:
            harm.try_one(how, data, read)
    return harm


@dataclass
class Draw:
    """An entry, and one of its header's objects, drawn by chance: that which has the digests as often as all others."""

    of: random.Random
    entry: bytes
    framing: Framing
    header: dict[str, Any] = field(init=False)
    levels: list[Level] = field(init=False)
    level: Level = field(init=False)

    def __post_init__(self) -> None:
        self.header = json.loads(self.text)
        self.levels = list(self.framing.levels(self.header))
        self.level = self.of.choice(self.levels) if self.of.random() < 0.5 else self.levels[0]

    @property
    def text(self) -> bytes:
        """The header."""
        return self.framing.split(self.entry)[0]

    @property
    def object(self) -> dict[str, Any]:
        """What was drawn."""
        found = self.header
        for name in self.level:
            found = found[name]
        return found

    def fields(self) -> list[tuple[str, bytes]]:
        """The fields of the object, each value as JSON text."""
        return [(name, _json(value)) for name, value in self.object.items()]

    def written(self, fields: list[tuple[str, bytes]]) -> bytes:
        """The entry with these fields in the object."""
        text = b"{" + b",".join(_json(name) + b":" + value for name, value in fields) + b"}"
        for depth in range(len(self.level) - 1, -1, -1):
            outer = self.header
            for name in self.level[:depth]:
                outer = outer[name]
            inner = self.level[depth]
            each = (_json(name) + b":" + (text if name == inner else _json(value)) for name, value in outer.items())
            text = b"{" + b",".join(each) + b"}"
        return self.framing.join(self.entry, text)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


# Kinds of headers.


def _odd_value(draw: Draw) -> bytes:
    """A value of another kind or out of bounds, sometimes with the checksum that goes with it."""
    numbers = [name for name in draw.framing.numbers if name in draw.object]
    name = draw.of.choice([*sorted(draw.object), *numbers * 2])
    value = draw.of.choice(ODD_VALUES)
    draw.object[name] = value
    absent = value in (None, "") and name == "parent"
    if name != "checksum" and not isinstance(value, float) and not absent and draw.of.random() < 0.5:
        with suppress(TypeError, KeyError):  # there is no place for it
            draw.framing.summed(draw.entry, draw.header)
    return draw.framing.join(draw.entry, _json(draw.header))


def _odd_text(draw: Draw) -> bytes:
    """A value that is no JSON, or one that is written in another way."""
    fields = draw.fields()
    at = draw.of.randrange(len(fields))
    fields[at] = (fields[at][0], draw.of.choice(ODD_TEXTS))
    return draw.written(fields)


def _other_number(draw: Draw) -> bytes:
    """Another length or count, up to a huge one."""
    number = draw.of.randrange(2 ** draw.of.randrange(1, 70))
    lists = [name for name, value in draw.object.items() if isinstance(value, list) and value]
    if lists:
        values = draw.object[draw.of.choice(lists)]
        values[draw.of.randrange(len(values))] = number
        return draw.framing.join(draw.entry, _json(draw.header))
    draw.level = draw.levels[0]
    fields = dict(draw.fields())
    fields[draw.of.choice(draw.framing.numbers)] = draw.framing.number(number)
    return draw.written(list(fields.items()))


def _other_name(draw: Draw) -> bytes:
    """Another key, parent, signature or checksum."""
    draw.level = draw.levels[0]
    fields = dict(draw.fields())
    name = draw.of.choice(draw.framing.digests)
    fields[name] = b'"%0*x"' % (len(fields[name]) - 2, draw.of.randrange(2**128))
    return draw.written(list(fields.items()))


def _twice(draw: Draw) -> bytes:
    """A field twice, with the same value or another one."""
    fields = draw.fields()
    name, value = draw.of.choice(fields)
    fields.insert(draw.of.randrange(len(fields) + 1), (name, draw.of.choice((value, b"0", b"null"))))
    return draw.written(fields)


def _other_fields(draw: Draw) -> bytes:
    """One field too few or too many, or in another order."""
    fields = draw.fields()
    how = draw.of.randrange(3)
    if how == 0:
        del fields[draw.of.randrange(len(fields))]
    elif how == 1:
        name = draw.of.choice(("", "path", "Tokens", "é", "zz"))
        fields.insert(draw.of.randrange(len(fields) + 1), (name, b"0"))
    else:
        draw.of.shuffle(fields)
    return draw.written(fields)


def _other_spelling(draw: Draw) -> bytes:
    """The same header, written in another way."""
    text = draw.text
    ways: list[Callable[[], bytes]] = [
        lambda: json.dumps(draw.header).encode(),
        lambda: json.dumps(draw.header, indent=draw.of.randrange(4)).encode(),
        lambda: text + b" " * 8 * draw.of.randrange(1, 20),
        lambda: text.replace(b'"key"', b'"\\u006bey"'),
        lambda: text.decode().encode(draw.of.choice(("utf-16", "utf-16-le", "utf-8-sig", "utf-32"))),
    ]
    return draw.framing.join(draw.entry, draw.of.choice(ways)())


def _other_bytes(draw: Draw) -> bytes:
    """Some bytes of the header replaced, taken out or put in: any bytes, no UTF-8 among them."""
    text = bytearray(draw.text)
    for _ in range(draw.of.randrange(1, 4)):
        at = draw.of.randrange(len(text))
        text[at : at + draw.of.randrange(3)] = draw.of.randbytes(draw.of.randrange(3))
    return draw.framing.join(draw.entry, bytes(text))


def _other_frame(draw: Draw) -> bytes:
    """Another magic, version or length of the header."""
    at, length = draw.of.choice(draw.framing.frame)
    value = draw.of.randrange(256 ** draw.of.randrange(1, length + 1)).to_bytes(length, "big")
    return draw.entry[:at] + value + draw.entry[at + length :]


KINDS = (
    _odd_value, _odd_text, _other_number, _other_name, _twice, _other_fields, _other_spelling, _other_bytes,
    _other_frame,
)  # fmt: skip
