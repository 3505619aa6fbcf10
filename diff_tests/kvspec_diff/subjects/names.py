"""What is named in programs on entries, and by which keys: computed here by themselves, as they are described (E6)."""

from collections.abc import Sequence
from hashlib import sha256

from kvspec.members import Layout, Part, Recurrent

LENGTH, TOKENS = 6, 4
"""Bytes of an entry's payload, and how many tokens it covers."""

LAYOUTS = [
    Layout(model, TOKENS, (Recurrent((Part("state", (LENGTH,), "uint8"),)),)) for model in ("toy", "another toy")
]
SIGNATURES = [layout.signature for layout in LAYOUTS]
"""The reader's own, and another one."""

Text = tuple[str | None, tuple[int, ...], str]
"""Parent, tokens, signature: what a key names."""


def by_hand(parent: str | None, tokens: Sequence[int], signature: str) -> str:
    """The key of an entry, as it is described."""
    before = b"\0" if parent is None else b"\1" + bytes.fromhex(parent)
    after = b"".join(token.to_bytes(8, "big") for token in tokens)
    return sha256(b"kvspec key\0" + bytes.fromhex(signature) + before + after).hexdigest()


FIRST: Text = (None, (1, 2, 3, 4), SIGNATURES[0])
TEXTS: Sequence[Text] = [
    FIRST,
    (by_hand(*FIRST), (5, 6, 7, 2**40), SIGNATURES[0]),
    (None, (5, 6, 7, 2**40), SIGNATURES[0]),
    (None, FIRST[1], SIGNATURES[1]),
]
KEYS = [by_hand(*text) for text in TEXTS]
PLACES = {None: 0, KEYS[0]: 1}
"""By its parent, which block of a prefix an entry is."""
