"""Headers of safetensors files of which something is wrong, beyond what is wrong with those of any format (E2, E5).

An entry is taken apart into names and JSON texts, some are changed, and it is put together again. Half of them get the
checksum that fits what was changed: then the reader has to see for itself what is wrong.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass

from kvspec_diff import damage
from kvspec_diff.framings import TensorFraming

FRAMING = TensorFraming()
METADATA = "__metadata__"
NAMES = ("../0.keys", "/etc/passwd", "..", "", "0", "0.keys\x00", "é", "\ud800", "a" * 5000, METADATA, "0.KEYS", "con")
"""What no tensor of an entry is called."""

Fields = dict[str, bytes]
"""By name, JSON texts."""


@dataclass
class Parted:
    """An entry taken apart: tensors as a list, since names may be there twice."""

    entry: bytes
    metadata: Fields
    tensors: list[tuple[str, Fields]]

    @classmethod
    def of(cls, entry: bytes) -> "Parted":
        """Of a whole entry."""
        header = json.loads(FRAMING.split(entry)[0])
        tensors = [(name, fields(value)) for name, value in header.items() if name != METADATA]
        return cls(entry, fields(header[METADATA]), tensors)

    @property
    def payload(self) -> int:
        """Bytes of it."""
        return len(FRAMING.split(self.entry)[1])

    def joined(self) -> bytes:
        """Put together again."""
        whole = [(METADATA, joined(list(self.metadata.items())))]
        whole += [(name, joined(list(each.items()))) for name, each in self.tensors]
        return FRAMING.join(self.entry, joined(whole))


def fields(value: dict[str, object]) -> Fields:
    """Names and JSON texts."""
    return {name: compact(each) for name, each in value.items()}


def compact(value: object) -> bytes:
    """The shortest JSON, as the writer has it."""
    return json.dumps(value, separators=(",", ":")).encode()


def joined(each: list[tuple[str, bytes]]) -> bytes:
    """A JSON object."""
    return b"{" + b",".join(compact(name) + b":" + text for name, text in each) + b"}"


def headers(entry: bytes, count: int, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """So many, half of them such as any format has, none of them as the entry is."""
    yield from damage.headers(entry, count // 2, seed, FRAMING)
    of, made = random.Random(seed), 0
    while made < count - count // 2:
        kind = of.choice(KINDS)
        data, fits = kind(of, Parted.of(entry)), of.random() < 0.5
        data = sealed(data) if fits else data
        if data != entry:
            made += 1
            yield kind.__name__.strip("_") + " (checksum fits)" * fits, data


def sealed(data: bytes) -> bytes:
    """An entry with the checksum that fits it, if there is a place for one."""
    from kvspec_torch.entry_format import CHECKSUM, checksum

    if len(data) <= CHECKSUM.stop:
        return data
    before, after = data[: CHECKSUM.start], data[CHECKSUM.stop :]
    return before + checksum([memoryview(before), memoryview(after)]) + after


def _other_version(of: random.Random, whole: Parted) -> bytes:
    """Another version or format, known ones too, with the fields of this one."""
    name = of.choice(("version", "version", "format"))
    values = ("0", "1", "2", "4", "03", "3 ", " 3", "3.0", "30", "three", "kvspec ", "KVSPEC", "pt", "", "\u0663", 3)
    whole.metadata[name] = compact(of.choice(values))
    return whole.joined()


def _other_offsets(of: random.Random, whole: Parted) -> bytes:
    """Tensors that overlap, leave holes, lie in another order, are outside of the file or huge."""
    _, each = of.choice(whole.tensors)
    start, stop = json.loads(each["data_offsets"])
    huge = of.randrange(2 ** of.randrange(1, 70))
    other = json.loads(of.choice(whole.tensors)[1]["data_offsets"])
    moved = of.choice((
        [start + 1, stop + 1], [start, stop + huge], [huge, huge + stop - start], [stop, start], [-1, stop], [start],
        [0, 0], [start, stop, stop], [0, whole.payload], [start, 2**64 - 1], [2**63, 2**63 + 8], [], [start - 8, stop],
        other,
    ))  # fmt: skip
    each["data_offsets"] = compact(moved)
    return whole.joined()


def _other_shape(of: random.Random, whole: Parted) -> bytes:
    """Another shape or dtype, up to huge ones."""
    _, each = of.choice(whole.tensors)
    shape: list[int] = json.loads(each["shape"])
    huge = of.randrange(2 ** of.randrange(1, 70))
    shapes: tuple[list[int], ...] = (
        [huge], [*shape, huge], [*shape, 1], [1, *shape], shape[1:], [], [0], [2**32, 2**32], [-1], shape[::-1]
    )  # fmt: skip
    kinds = ("F64", "F32", "F16", "BF16", "I8", "U8", "BOOL", "I64", "F4", "F8_E8M0", "C64", "f32", "", "X" * 999)
    if of.random() < 0.5:
        each["shape"] = compact(of.choice(shapes))
    else:
        each["dtype"] = compact(of.choice(kinds))
    return whole.joined()


def _other_tensors(of: random.Random, whole: Parted) -> bytes:
    """A tensor too few or too many, of another name, or two in each other's place."""
    at, other, how = of.randrange(len(whole.tensors)), of.randrange(len(whole.tensors)), of.randrange(5)
    if how == 0:
        del whole.tensors[at]
    elif how == 1:
        whole.tensors[at] = of.choice(NAMES), whole.tensors[at][1]
    elif how == 2:
        whole.tensors.insert(other, (of.choice(NAMES), whole.tensors[at][1]))
    elif how == 3:
        whole.tensors.insert(other, whole.tensors[at])
    else:
        whole.tensors[at], whole.tensors[other] = whole.tensors[other], whole.tensors[at]
    return whole.joined()


def _other_kind(of: random.Random, whole: Parted) -> bytes:
    """A header or metadata of another kind, or nested deeply."""
    text = FRAMING.split(whole.entry)[0]
    odd = of.choice((b"[]", b"null", b"0", b'""', b"{}", b'{"":{}}', b"[" * 3000, b'{"a":' * 3000, b"[%s]" % text))
    if of.random() < 0.5:
        return FRAMING.join(whole.entry, odd)
    tensors = [(name, joined(list(each.items()))) for name, each in whole.tensors]
    return FRAMING.join(whole.entry, joined([(METADATA, odd), *tensors]))


KINDS = (_other_version, _other_offsets, _other_shape, _other_tensors, _other_kind)
