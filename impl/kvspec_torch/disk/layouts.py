"""The layouts of a folder's entries, each in a file that is named by its signature: for whoever looks after the folder.

No entry needs these files: a store is told its layout. A file counts only if its layout has the signature of its name.
"""

from contextlib import suppress

import msgspec
from kvspec.members import Layout

from kvspec_torch.disk.files import Files
from kvspec_torch.disk.frames import DIGEST

LAYOUT, TEMPORARY = ".layout", ".temporary"
LARGEST = 2**24
"""No layout takes more bytes."""


def keep(files: Files, layout: Layout) -> None:
    """See to it that the folder has this layout, if there is room for it; one that is damaged is written anew."""
    name, text = layout.signature, msgspec.json.encode(layout, order="sorted")
    try:
        there = files.size(name + LAYOUT) == len(text) and files.read(name + LAYOUT) == text
    except OSError:  # it is not there, or is something else that no store needs
        there = False
    if not there:
        with suppress(OSError):
            _write(files, name, memoryview(text))


def _write(files: Files, name: str, text: memoryview) -> None:
    files.create(name + TEMPORARY)
    try:
        files.write(name + TEMPORARY, text)
        files.sync(name + TEMPORARY)
        files.rename(name + TEMPORARY, name + LAYOUT)
        files.sync_folder()
    except OSError:
        files.unlink(name + TEMPORARY)
        raise


def known(files: Files) -> dict[str, Layout]:
    """The layouts by their signatures; what cannot be read, or is no layout, is left out."""
    found = {}
    for name in files.names():
        signature, dot, kind = name.partition(".")
        if not DIGEST.fullmatch(signature) or dot + kind != LAYOUT:
            continue
        with suppress(OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            layout = msgspec.json.decode(files.read(name) if files.size(name) <= LARGEST else b"", type=Layout)
            if layout.signature == signature:
                found[signature] = layout
    return found
