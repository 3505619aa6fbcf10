"""What a cache is made of: signatures, paths, and what is refused."""

import msgspec
import pytest
from kvspec.members import Absent, Group, Layout, Member, Part, Plain, Pooled, Quantized, Recurrent, Window, checked
from kvspec.operations import Misuse

KEYS = Part("keys", (2, 4), "float16")
ALL: tuple[Member, ...] = (
    Plain((KEYS,)),
    Quantized((KEYS, Part("scales", (2, 1), "float16")), bits=4, group=32),
    Group((Window((KEYS,), size=8), Recurrent((Part("state", (3,), "float32"),)), Absent())),
    Pooled((KEYS,), ratio=4),
)
LAYOUT = Layout("toy", 16, ALL)


def test_paths_name_the_members_that_have_parts() -> None:
    assert list(LAYOUT.leaves) == ["0", "1", "2.0", "2.1", "3"]
    assert [leaf.rows(21) for leaf in LAYOUT.leaves.values()] == [21, 21, 8, 1, 5]
    assert [leaf.sliced for leaf in LAYOUT.leaves.values()] == [True, True, False, False, True]
    assert KEYS.bytes == 16


@pytest.mark.parametrize(
    "other",
    [
        Layout("toy2", 16, ALL),
        Layout("toy", 32, ALL),
        Layout("toy", 16, ALL[:3]),
        Layout("toy", 16, (ALL[1], ALL[0], *ALL[2:])),
        Layout("toy", 16, (Recurrent((KEYS,)), *ALL[1:])),
        Layout("toy", 16, (Plain((Part("keys", (2, 4), "bfloat16"),)), *ALL[1:])),
        Layout("toy", 16, (Plain((Part("keys", (4, 2), "float16"),)), *ALL[1:])),
        Layout("toy", 16, (Plain((Part("values", (2, 4), "float16"),)), *ALL[1:])),
        Layout("toy", 16, (ALL[0], Quantized(ALL[1].parts, bits=8, group=32), *ALL[2:])),  # type: ignore[union-attr]
        Layout("toy", 16, (ALL[0], Quantized(ALL[1].parts, bits=4, group=64), *ALL[2:])),  # type: ignore[union-attr]
        Layout("toy", 16, (*ALL[:2], Group((Window((KEYS,), size=9), *ALL[2].members[1:])), ALL[3])),  # type: ignore[union-attr]
        Layout("toy", 16, (*ALL[:3], Pooled((KEYS,), ratio=2))),
        Layout("toy", 16, (*ALL, Absent())),
    ],
)
def test_whatever_changes_the_meaning_changes_the_signature(other: Layout) -> None:
    assert other.signature != LAYOUT.signature


def test_the_signature_is_that_of_the_contents() -> None:
    again = msgspec.json.decode(msgspec.json.encode(LAYOUT), type=Layout)
    assert again == LAYOUT
    assert again.signature == LAYOUT.signature == checked(LAYOUT).signature


@pytest.mark.parametrize(
    ("layout", "what"),
    [
        (Layout("toy", 0, ALL), ">= 1"),
        (Layout("toy", 16, (Plain((Part("keys", (-1,), "int8"),)),)), ">= 0"),
        (Layout("toy", 16, (Plain((Part("../keys", (1,), "int8"),)),)), "regex"),
        (Layout("toy", 16, (Window((KEYS,), size=0),)), ">= 1"),
        (Layout("toy", 16, ("plain",)), "object"),  # type: ignore[arg-type]
        (Layout("toy", 1.5, ALL), "int"),  # type: ignore[arg-type]
    ],
)
def test_a_layout_that_makes_no_sense_is_misuse(layout: Layout, what: str) -> None:
    with pytest.raises(Misuse, match=f"layout: .*{what}"):
        checked(layout)


def test_an_unknown_dtype_and_two_parts_of_one_name_are_told() -> None:
    with pytest.raises(ValueError, match="int9"):
        Part("keys", (1,), "int9")
    with pytest.raises(ValueError, match="one name"):
        Plain((KEYS, KEYS))
