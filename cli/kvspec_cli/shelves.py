"""What is in a store's folder, sorted: by layout, by prefix, and what is damaged with what to do about it."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from kvspec_torch.disk.looking import File
    from kvspec_torch.entry_format import Miss


class Damaged(msgspec.Struct, frozen=True):
    """An entry that cannot be read: why, and what to do. The prefixes that need it are computed anew."""

    file: str
    reason: str
    text: str
    advice: str


class Shelf(msgspec.Struct, frozen=True):
    """The entries of one layout. `model` is empty where the folder does not say what the layout is.

    `chains` are prefixes that nothing goes on from; the longest has so many blocks and tokens. Entries `without_parent`
    are part of no prefix from its start.
    """

    signature: str
    model: str
    entries: int
    bytes: int
    versions: dict[str, int]
    chains: int
    longest_blocks: int
    longest_tokens: int
    without_parent: int


def harmed(folder: Path, key: str, miss: "Miss") -> Damaged:
    """An entry that is damaged."""
    from kvspec_torch.store import ENTRY

    path = folder / (key + ENTRY)
    advice = f"rm {shlex.quote(str(path))}"
    if miss.reason == "unreadable":
        advice = f"see to it that it can be read, or {advice}"
    return Damaged(path.name, miss.reason, miss.text, advice)


def unknown_layout(key: str, signature: str) -> Damaged:
    """An entry of an older version whose layout is not in the folder."""
    from kvspec_torch.store import ENTRY

    text = f"its layout, {signature[:16]}..., is not known in this folder"
    return Damaged(key + ENTRY, "signature", text, "open the store once with its layout, then upgrade again")


def shelves(files: "Iterable[File]", models: Mapping[str, str]) -> list[Shelf]:
    """By signature, the largest first."""
    from kvspec_torch.disk.looking import Said

    sorted_: dict[str, dict[str, File]] = {}
    for file in files:
        if isinstance(file.said, Said):
            sorted_.setdefault(file.said.signature, {})[file.key] = file
    found = [shelf(signature, models.get(signature, ""), entries) for signature, entries in sorted_.items()]
    return sorted(found, key=lambda each: (-each.bytes, each.signature))


def shelf(signature: str, model: str, files: "dict[str, File]") -> Shelf:
    """One of them."""
    from kvspec_torch.disk.collecting import depths, told

    said = told(files.values())
    reached = depths(said)
    followed = {said[key].parent for key in reached}
    blocks, tokens = max(reached.values(), default=(0, 0))
    return Shelf(
        signature, model, len(files), sum(file.size for file in files.values()),
        dict(sorted(Counter(each.version for each in said.values()).items())),
        len(reached.keys() - followed), blocks, tokens, len(files) - len(reached),
    )  # fmt: skip
