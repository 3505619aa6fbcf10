"""`kvspec store`: looks after the folder of a store, without an engine: verify, upgrade, gc, stats, torture.

Each file tells what it is, so that no command has to be told a layout. `verify` and `stats` only read, beside a running
engine too; `gc` needs the folder for itself, and `upgrade` if there is something to do. All may be stopped at any
moment: an entry is there whole or not at all.
"""

import contextlib
import errno
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import App, Parameter, Token

from kvspec_cli import torture
from kvspec_cli.errors import BadInput
from kvspec_cli.screen import Screen
from kvspec_cli.shelves import Damaged, Shelf, harmed, shelves, unknown_layout

if TYPE_CHECKING:
    from kvspec_torch.disk.files import Folder

APP = App(name="store", help="Look after the folder of a store of blocks, and show what such a store survives.")
APP.command(torture.torture)

UNITS = {"": 1} | {
    f"{letter}{end}": base ** (power + 1)
    for power, letter in enumerate("kmgtp")
    for end, base in (("", 1000), ("b", 1000), ("ib", 1024))
} | {"b": 1}  # fmt: skip
ENDLESS = 2**62
"""Bytes that no folder has."""

REMEDIES = {
    errno.EACCES: "run it as the user whose folder it is, or change who may read and write it (chmod, chown)",
    errno.EPERM: "run it as the user whose folder it is, or change who may read and write it (chmod, chown)",
    errno.EROFS: "mount it so that it can be written; verify and stats only read",
    errno.ENOSPC: "make room on the disk, then try again",
}
"""What to do when the system refuses."""


def named(_: object, tokens: Sequence[Token]) -> Path:
    """The folder that is named; an empty name is not the current one."""
    text = tokens[0].value
    if not text.strip() or "\0" in text:
        raise BadInput(f"the folder is {text!r}; name the folder of a store")
    return Path(text)


Where = Annotated[Path, Parameter(help="The store's folder.", converter=named)]
AsJson = Annotated[bool, Parameter("--json", negative=(), help="Print one JSON document.")]


class Verified(msgspec.Struct, frozen=True):
    """What was read of a store. `ok`: no entry is damaged. `older` entries can be upgraded; `useless` ones are of a
    version without a signature, which nobody can read: they are the first to go.
    """

    folder: str
    ok: bool
    entries: int
    bytes: int
    whole: int
    older: int
    useless: int
    damaged: list[Damaged]
    temporary: int


class Upgraded(msgspec.Struct, frozen=True):
    """What was written anew. `ok`: every entry that can be read is of the newest version now."""

    folder: str
    ok: bool
    upgraded: int
    newest: int
    left: list[Damaged]


class Collected(msgspec.Struct, frozen=True):
    """What was deleted, by reason, and what is left."""

    folder: str
    budget: int
    deleted: dict[str, int]
    bytes: int
    entries_left: int
    bytes_left: int


class Stats(msgspec.Struct, frozen=True):
    """What is in a store, by its headers and names. `others` are files that are none of a store's."""

    folder: str
    entries: int
    bytes: int
    layouts: list[Shelf]
    useless: int
    damaged: list[Damaged]
    temporary: int
    temporary_bytes: int
    others: int


@APP.command
def verify(folder: Where, /, *, as_json: AsJson = False) -> int:
    """Read every entry, and check its header and its checksum. Status 1 if one is damaged."""
    from kvspec_torch.disk.layouts import known
    from kvspec_torch.disk.looking import names, useless, whole
    from kvspec_torch.entry_format import Format, Miss

    screen = Screen(as_json=as_json)
    damaged, count, total = list[Damaged](), Counter[str](), 0
    with opened(folder) as files, screen.progress("verifying") as tell:
        there = names(files)
        formats = {signature: Format(layout) for signature, layout in known(files).items()}
        for number, key in enumerate(there.keys):
            tell(number, len(there.keys), f"entries, {len(damaged):,} damaged")
            found = whole(files, key, formats)
            if found is None:
                continue  # evicted meanwhile
            total += found.size
            if not isinstance(found.said, Miss):
                count["whole" if found.said.version == "3" else "older"] += 1
            elif useless(found.said):
                count["useless"] += 1
            else:
                damaged.append(harmed(folder, key, found.said))
    entries = sum(count.values()) + len(damaged)
    result = Verified(
        str(folder), not damaged, entries, total, count["whole"], count["older"], count["useless"], damaged,
        len(there.temporary),
    )  # fmt: skip
    show_verified(screen, result)
    screen.document(result)
    return 0 if result.ok else 1


@APP.command
def upgrade(folder: Where, /, *, as_json: AsJson = False) -> int:
    """Write the entries of older versions anew. Status 1 if one cannot be read."""
    from kvspec_torch.block_store import BlockStore
    from kvspec_torch.disk.layouts import known

    screen, count, left = Screen(as_json=as_json), Counter[str](), []
    with opened(folder) as files, screen.progress("upgrading") as tell:
        layouts, (olds, count["newest"]) = known(files), older(files)
        of = sum(map(len, olds.values()))
        for signature, keys in olds.items():
            if signature not in layouts:
                left += [unknown_layout(key, signature) for key in keys]
                continue
            with refused(folder), BlockStore(folder, layouts[signature], budget=ENDLESS, writer=False) as store:
                for each in store.upgrade():
                    count[each.outcome] += 1
                    tell(count["upgraded"] + len(left), of, "entries")
                    if each.miss is not None:
                        left.append(harmed(folder, each.key, each.miss))
    result = Upgraded(str(folder), not left, count["upgraded"], count["newest"], left)
    show_upgraded(screen, result)
    screen.document(result)
    return 0 if result.ok else 1


@APP.command
def gc(
    folder: Where,
    /,
    *,
    budget: Annotated[str, Parameter(help="What may be left, such as 500MB, 2GiB, or a number of bytes.")],
    as_json: AsJson = False,
) -> int:
    """Delete entries until those left fit a budget: first what is of no use, then the ends of old prefixes."""
    from kvspec_torch.disk.collecting import collect
    from kvspec_torch.disk.lock import Lock

    size, screen = parsed("--budget", budget), Screen(as_json=as_json)
    with opened(folder) as files, refused(folder):
        lock = Lock(files.descriptor, str(folder))
        try:
            with screen.progress("deleting") as tell:
                done = collect(files, size, tell)
        finally:
            lock.release()
    result = Collected(
        str(folder),
        size,
        {why: number for why, number in done.gone.items()},
        done.bytes,
        done.entries_left,
        done.bytes_left,
    )
    for why, number in done.gone.items():
        screen.line(f"{number:,} deleted: {why}")
    screen.line(f"{amount(result.bytes)} freed, {many(result.entries_left)} left: "
                f"{amount(result.bytes_left)} of {amount(size)}.")  # fmt: skip
    screen.document(result)
    return 0


@APP.command
def stats(folder: Where, /, *, as_json: AsJson = False) -> int:
    """Count what there is, by the headers alone: entries, prefixes, versions, what is temporary or damaged."""
    from kvspec_torch.disk.layouts import known
    from kvspec_torch.disk.looking import look, names, useless
    from kvspec_torch.entry_format import Miss

    screen, found = Screen(as_json=as_json), []
    with opened(folder) as files, screen.progress("looking") as tell:
        there = names(files)
        for number, file in enumerate(look(files, there.keys)):
            tell(number, len(there.keys), "entries")
            found.append(file)
        models = {signature: layout.model for signature, layout in known(files).items()}
        temporary = sum(size_of(files, name) for name in there.temporary)
    odd = [file for file in found if isinstance(file.said, Miss)]
    damaged = [harmed(folder, file.key, file.said) for file in odd
               if isinstance(file.said, Miss) and not useless(file.said)]  # fmt: skip
    result = Stats(
        str(folder), len(found), sum(file.size for file in found), shelves(found, models), len(odd) - len(damaged),
        damaged, len(there.temporary), temporary, there.others,
    )  # fmt: skip
    show_stats(screen, result)
    screen.document(result)
    return 0


# Folders and sizes.


@contextlib.contextmanager
def opened(path: Path) -> "Iterator[Folder]":
    """In a `with`: a store's folder, held open. Bad input is said in a line."""
    from kvspec_torch.disk.files import Folder
    from kvspec_torch.disk.looking import is_store

    try:
        if not path.exists():
            raise BadInput(f"{path}: there is no such folder")
        if not path.is_dir():
            raise BadInput(f"{path}: is not a folder; name the folder of a store")
        files = Folder(path)
        try:
            if not is_store(files):
                raise BadInput(f"{path}: is not a store: it has neither entries nor a lock; name the folder of a store")
            yield files
        finally:
            files.close()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BadInput(hindered(path, error)) from None


@contextlib.contextmanager
def refused(folder: Path) -> Iterator[None]:
    """In a `with`: a store that is in use, or cannot be written, is bad input."""
    from kvspec_torch.errors import Refused

    try:
        yield
    except Refused as error:
        text = str(error)
        if isinstance(error.__cause__, OSError) and "in use by" not in text:
            raise BadInput(hindered(folder, error.__cause__)) from None
        raise BadInput(f"{text}; end it first" if "in use by" in text else text) from None


def hindered(folder: Path, error: OSError) -> str:
    """What the system did not let be done in a folder, and what to do about it."""
    name = error.filename if isinstance(error.filename, str) and error.filename != str(folder) else ""
    remedy = REMEDIES.get(error.errno or 0, "see to that, then try again")
    return f"{folder}: {name}{': ' if name else ''}{error.strerror or error}; {remedy}"


def parsed(option: str, text: str) -> int:
    """Bytes: `1048576`, `500MB`, `2GiB`, `1.5 GiB`. Raises `BadInput`."""
    found = re.fullmatch(r"([0-9]{1,99}(?:\.[0-9]{1,99})?) *([A-Za-z]{0,3})", text.strip())
    unit = UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None or ("." in found[1] and unit == 1):
        raise BadInput(f"{option} is {shown(text)}; give a size, such as 500MB, 2GiB, or a number of bytes")
    size = int(Fraction(found[1]) * unit)
    if size > ENDLESS:
        raise BadInput(f"{option} is {shown(text)}, more than any disk has; give a size, such as 500MB or 2GiB")
    return size


def shown(text: str) -> str:
    """What was given, quoted, in few characters."""
    return repr(text) if len(text) <= 40 else f"{text[:40]!r}..."


def amount(size: int) -> str:
    """`512 bytes`, `1.5 MB`."""
    value, unit = float(size), "bytes"
    for unit in ("bytes", "kB", "MB", "GB", "TB", "PB"):
        if value < 999.95 or unit == "PB":
            break
        value /= 1000
    return counted(size, "byte") if unit == "bytes" else f"{value:.1f} {unit}"


def many(count: int) -> str:
    """`1 entry`, `2 entries`."""
    return counted(count, "entry", "entries")


def counted(count: int, one: str, more: str = "") -> str:
    """`1 block`, `2 blocks`."""
    return f"{count:,} {one if count == 1 else more or f'{one}s'}"


# What was found.


def size_of(files: "Folder", name: str) -> int:
    """Bytes of a file, 0 if it is gone meanwhile."""
    try:
        return files.size(name)
    except OSError:
        return 0


def older(files: "Folder") -> tuple[dict[str, list[str]], int]:
    """By signature the keys of entries of older versions, and how many entries are of the newest one."""
    from kvspec_torch.disk.looking import Said, look, names

    found: dict[str, list[str]] = {}
    newest = 0
    for file in look(files, names(files).keys):
        if isinstance(file.said, Said) and file.said.version == "3":
            newest += 1
        elif isinstance(file.said, Said):
            found.setdefault(file.said.signature, []).append(file.key)
    return found, newest


# What is shown.


def show_verified(screen: Screen, result: Verified) -> None:
    """What is damaged, each with what to do; the rest in numbers."""
    show_damaged(screen, result.damaged)
    screen.line(f"{many(result.entries)}, {amount(result.bytes)}: {result.whole:,} whole, {result.older:,} older, "
                f"{result.useless:,} of no use, {len(result.damaged):,} damaged.")  # fmt: skip
    if result.older:
        screen.line(f"Older ones can be read, and written anew: kvspec store upgrade {shlex.quote(result.folder)}")
    if result.temporary:
        screen.line(f"{result.temporary:,} temporary: a writer is at work, or was killed; the next one deletes them.")
    if result.ok:
        screen.line("Every entry that can be read is whole.", "green")


def show_damaged(screen: Screen, damaged: list[Damaged]) -> None:
    """A line each."""
    for each in damaged:
        screen.line(f"{each.file}: {each.reason}: {each.text}; {each.advice}", "bold red")


def show_upgraded(screen: Screen, result: Upgraded) -> None:
    """How many, and what could not be."""
    show_damaged(screen, result.left)
    stay = counted(len(result.left), "stays", "stay")
    screen.line(f"{many(result.upgraded)} upgraded; {result.newest:,} had the newest version, "
                f"{stay} as {'it is' if len(result.left) == 1 else 'they are'}.")  # fmt: skip


def longest(each: Shelf) -> str:
    """`1 block, 16 tokens`; there is none if no prefix is there from its start."""
    if not each.longest_blocks:
        return "none"
    return f"{counted(each.longest_blocks, 'block')}, {counted(each.longest_tokens, 'token')}"


def show_stats(screen: Screen, result: Stats) -> None:
    """A line a layout, and what is none of theirs."""
    screen.line(f"{many(result.entries)}, {amount(result.bytes)}")
    if result.layouts:
        screen.line()
        head = ("layout", "model", "entries", "size", "versions", "chains", "longest", "no parent")
        rows = [(
            f"{each.signature[:16]}...", each.model[:60] or "unknown", f"{each.entries:,}", amount(each.bytes),
            ", ".join(f"{count:,} of {version}" for version, count in each.versions.items()), f"{each.chains:,}",
            longest(each), f"{each.without_parent:,}",
        ) for each in result.layouts]  # fmt: skip
        screen.table(head, rows)
        screen.line()
    show_damaged(screen, result.damaged)
    screen.line(f"{result.useless:,} of no use, {len(result.damaged):,} damaged by their headers, {result.temporary:,} "
                f"temporary ({amount(result.temporary_bytes)}), "
                f"{counted(result.others, 'other file')}")  # fmt: skip
