"""Entries that are safetensors files, with a header of which something is wrong (E2, E5).

A kind of harm takes an entry apart into pairs of names and JSON texts, changes some, and puts it together again. Often
the checksum is made to fit what was changed: then the reader has to see for itself what is wrong.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kvspec_diff.damage import ODD_TEXTS, ODD_VALUES

Pairs = list[tuple[str, bytes]]
Seal = Callable[[bytes], bytes]
"""Puts the right checksum into an entry, if its header still has a place for one."""

METADATA = "__metadata__"
NAMES = ("../0.keys", "/etc/passwd", "..", "", "0", "0.keys\x00", "é", "\ud800", "a" * 5000, METADATA, "0.KEYS", "con")
"""What no tensor of an entry is called."""


@dataclass
class Parted:
    """An entry taken apart."""

    metadata: Pairs
    tensors: list[tuple[str, Pairs]]
    payload: bytes

    @classmethod
    def of(cls, entry: bytes) -> "Parted":
        """Of a whole entry."""
        text, payload = parted(entry)
        header = json.loads(text)
        tensors = [(name, pairs(value)) for name, value in header.items() if name != METADATA]
        return cls(pairs(header[METADATA]), tensors, payload)

    def joined(self) -> bytes:
        """Put together again, spaces up to a multiple of eight as the writer has them."""
        whole = [(METADATA, joined(self.metadata)), *((name, joined(each)) for name, each in self.tensors)]
        return framed(joined(whole), self.payload)


def pairs(value: dict[str, object]) -> Pairs:
    """Names and JSON texts."""
    return [(name, compact(each)) for name, each in value.items()]


def compact(value: object) -> bytes:
    """The shortest JSON, as the writer has it."""
    return json.dumps(value, separators=(",", ":")).encode()


def joined(each: Pairs) -> bytes:
    """A JSON object."""
    return b"{" + b",".join(compact(name) + b":" + text for name, text in each) + b"}"


def parted(entry: bytes) -> tuple[bytes, bytes]:
    """The header's text without the spaces at its end, and the payload."""
    length = int.from_bytes(entry[:8], "little")
    return entry[8 : 8 + length].rstrip(b" "), entry[8 + length :]


def framed(text: bytes, payload: bytes) -> bytes:
    """A file with this header."""
    text = text.ljust(-len(text) // 8 * -8)
    return len(text).to_bytes(8, "little") + text + payload


def headers(entry: bytes, count: int, seal: Seal, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """So many entries of whose header something is wrong, none of them as the entry is."""
    if Parted.of(entry).joined() != entry:
        raise AssertionError("the entry is not put together again as it was")
    of = random.Random(seed)
    made = 0
    while made < count:
        kind = of.choice(KINDS)
        data = kind(of, entry)
        sealed = kind in SEALED and of.random() < 0.5
        data = seal(data) if sealed else data
        if data != entry:
            made += 1
            yield kind.__name__.strip("_") + " (checksum fits)" * sealed, data


def _odd_value(of: random.Random, entry: bytes) -> bytes:
    """A field of the metadata that is no string, or a string that it cannot be."""
    whole = Parted.of(entry)
    at = of.randrange(len(whole.metadata))
    name = whole.metadata[at][0]
    strings = ("x" * 64, "A" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n", "../" * 20, "-1", "1.0", "\u0660", "1e3", "")
    value = of.choice([*ODD_VALUES, *(each for each in strings if not (name == "parent" and each == ""))])
    if name == "parent" and value == "":
        value = None
    text = compact(value) if type(value) is not str or not value.isdigit() else compact(value + " ")
    whole.metadata[at] = (name, text)
    return whole.joined()


def _odd_text(of: random.Random, entry: bytes) -> bytes:
    """A value that is no JSON, or a number written in another way."""
    whole = Parted.of(entry)
    if of.random() < 0.5:
        at = of.randrange(len(whole.metadata))
        whole.metadata[at] = (whole.metadata[at][0], of.choice(ODD_TEXTS))
    else:
        fields = of.choice(whole.tensors)[1]
        at = of.randrange(len(fields))
        odd = of.choice(ODD_TEXTS)
        fields[at] = (fields[at][0], of.choice((odd, b"[%s]" % odd, b"[0,%s]" % odd)))
    return whole.joined()


def _other_field(of: random.Random, entry: bytes) -> bytes:
    """Another number, name or checksum in the metadata, of the right kind."""
    whole = Parted.of(entry)
    at = of.randrange(len(whole.metadata))
    name, text = whole.metadata[at]
    digits = len(text) - 2
    fits = {64: b'"%064x"', 32: b'"%032x"'}.get(digits, b'"%d"')
    bits = 4 * digits if digits >= 32 else of.randrange(1, 70)
    whole.metadata[at] = (name, fits % of.randrange(2**bits))
    return whole.joined()


def _other_version(of: random.Random, entry: bytes) -> bytes:
    """Another version or format, known ones too, with the fields of this one."""
    whole = Parted.of(entry)
    name = of.choice(("version", "version", "format"))
    values = ("0", "1", "2", "4", "03", "3 ", " 3", "3.0", "30", "three", "kvspec ", "KVSPEC", "pt", "", "\u0663", 3)
    whole.metadata = [(each, compact(of.choice(values)) if each == name else text) for each, text in whole.metadata]
    return whole.joined()


def _other_offsets(of: random.Random, entry: bytes) -> bytes:
    """Tensors that overlap, leave holes, lie in another order, are outside of the file or huge."""
    whole = Parted.of(entry)
    name, fields = of.choice(whole.tensors)
    start, stop = json.loads(dict(fields)["data_offsets"])
    huge = of.randrange(2 ** of.randrange(1, 70))
    moved = of.choice((
        [start + 1, stop + 1], [start, stop + huge], [huge, huge + stop - start], [stop, start], [-1, stop], [start],
        [0, 0], [start, stop, stop], [0, len(whole.payload)], [start, 2**64 - 1], [2**63, 2**63 + 8], [],
        [start - 8, stop],
    ))  # fmt: skip
    other = of.choice(whole.tensors)
    if of.random() < 0.2 and other[0] != name:
        moved = json.loads(dict(other[1])["data_offsets"])
    at = [each for each, _ in fields].index("data_offsets")
    fields[at] = ("data_offsets", compact(moved))
    return whole.joined()


def _other_shape(of: random.Random, entry: bytes) -> bytes:
    """Another shape or dtype, up to huge ones."""
    whole = Parted.of(entry)
    _, fields = of.choice(whole.tensors)
    shape = json.loads(dict(fields)["shape"])
    huge = of.randrange(2 ** of.randrange(1, 70))
    shapes = ([huge], [*shape, huge], [*shape, 1], [1, *shape], shape[1:], [], [0], [2**32, 2**32], [-1], shape[::-1])
    kinds = (
        "F64",
        "F32",
        "F16",
        "BF16",
        "I8",
        "U8",
        "BOOL",
        "I64",
        "F4",
        "F8_E8M0",
        "C64",
        "f32",
        "",
        "U64",
        "X" * 999,
    )
    name, value = of.choice((("shape", of.choice(shapes)), ("dtype", of.choice(kinds))))
    fields[:] = [(each, compact(value) if each == name else text) for each, text in fields]
    return whole.joined()


def _other_tensors(of: random.Random, entry: bytes) -> bytes:
    """A tensor too few or too many, of another name, or two in each other's place."""
    whole = Parted.of(entry)
    at, other, how = of.randrange(len(whole.tensors)), of.randrange(len(whole.tensors)), of.randrange(4)
    if how == 0:
        del whole.tensors[at]
    elif how == 1:
        name = of.choice(NAMES)
        whole.tensors[at] = (name, whole.tensors[at][1])
    elif how == 2:
        whole.tensors.insert(other, (of.choice(NAMES), whole.tensors[at][1]))
    else:
        whole.tensors[at], whole.tensors[other] = whole.tensors[other], whole.tensors[at]
    return whole.joined()


def _twice(of: random.Random, entry: bytes) -> bytes:
    """A field or a tensor twice, with the same value or another one."""
    whole = Parted.of(entry)
    if of.random() < 0.3:
        name, fields = of.choice(whole.tensors)
        whole.tensors.insert(of.randrange(len(whole.tensors) + 1), (name, fields))
        return whole.joined()
    fields = of.choice((whole.metadata, of.choice(whole.tensors)[1]))
    name, value = of.choice(fields)
    fields.insert(of.randrange(len(fields) + 1), (name, of.choice((value, b'"0"', b"null"))))
    return whole.joined()


def _other_fields(of: random.Random, entry: bytes) -> bytes:
    """One field too few or too many, or in another order."""
    whole = Parted.of(entry)
    fields = of.choice((whole.metadata, whole.metadata, of.choice(whole.tensors)[1]))
    how = of.randrange(3)
    if how == 0:
        del fields[of.randrange(len(fields))]
    elif how == 1:
        fields.insert(of.randrange(len(fields) + 1), (of.choice(("", "path", "Key", "é", "zz")), b'"0"'))
    else:
        of.shuffle(fields)
    return whole.joined()


def _other_spelling(of: random.Random, entry: bytes) -> bytes:
    """The same header, written in another way."""
    text, payload = parted(entry)
    header = json.loads(text)
    ways: list[Callable[[], bytes]] = [
        lambda: json.dumps(header).encode(),
        lambda: json.dumps(header, indent=of.randrange(4)).encode(),
        lambda: json.dumps(header, sort_keys=True, separators=(",", ":")).encode() + b" ",
        lambda: text + b" " * (8 * of.randrange(1, 20) + 1),
        lambda: b" " * of.randrange(1, 20) + text,
        lambda: text.replace(b'"key"', b'"\\u006bey"'),
        lambda: text.decode().encode(of.choice(("utf-16", "utf-16-le", "utf-8-sig", "utf-32"))),
        lambda: text + b"\0" * of.randrange(1, 9),
    ]
    return framed(of.choice(ways)(), payload)


def _other_kind(of: random.Random, entry: bytes) -> bytes:
    """A header or metadata of another kind."""
    text, payload = parted(entry)
    odd = of.choice((b"[]", b"null", b"0", b'""', b"{}", b'{"":{}}', b"[" * 3000, b'{"a":' * 3000, b"[%s]" % text))
    if of.random() < 0.5:
        return framed(odd, payload)
    whole = Parted.of(entry)
    return framed(joined([(METADATA, odd), *((name, joined(each)) for name, each in whole.tensors)]), payload)


def _other_bytes(of: random.Random, entry: bytes) -> bytes:
    """Some bytes of the header replaced, taken out or put in: any bytes, no UTF-8 among them."""
    given, payload = parted(entry)
    text = bytearray(given)
    for _ in range(of.randrange(1, 4)):
        at = of.randrange(len(text))
        text[at : at + of.randrange(3)] = of.randbytes(of.randrange(3))
    return framed(bytes(text), payload)


def _other_frame(of: random.Random, entry: bytes) -> bytes:
    """Another length of the header: one that is too long, too short, or huge."""
    length = int.from_bytes(entry[:8], "little")
    others = (length + of.randrange(1, 64), max(0, length - of.randrange(1, 64)), 0, len(entry), 2**63, 2**64 - 1,
              of.randrange(2 ** of.randrange(1, 65)))  # fmt: skip
    return of.choice(others).to_bytes(8, "little") + entry[8:]


KINDS = (
    _odd_value, _odd_text, _other_field, _other_version, _other_offsets, _other_shape, _other_tensors, _twice,
    _other_fields, _other_spelling, _other_kind, _other_bytes, _other_frame,
)  # fmt: skip
SEALED = (
    _odd_value, _odd_text, _other_version, _other_offsets, _other_shape, _other_tensors, _twice, _other_fields,
    _other_spelling, _other_kind, _other_frame,
)  # fmt: skip
"""Kinds that no checksum excuses: other kinds may come out as another entry, which is whole."""
