"""Operands: for each kind of operation one function that picks sensible ones from three bytes; None if there are none.

The one vocabulary of both generators. Smaller bytes pick simpler operands, so that shrinking the bytes simplifies the
program.
"""

from collections.abc import Callable, Iterator

from kvspec.operations import (
    Allocate,
    AnyOperation,
    Begin,
    Checkpoint,
    Copy,
    End,
    Evict,
    Finish,
    Free,
    Overwrite,
    Pin,
    Publish,
    Read,
    Replace,
    Share,
    Start,
    Trim,
    Unpin,
    Write,
)

from kvspec_diff.caller import Row
from kvspec_diff.sketch import Sketch

ROWS = ("a", "b", "c", "d")
PINS = ("p", "q", "s")
PROMPTS = (0, 0, 1, 4)
"""The same twice, one that parts from it after a few tokens, and a stranger."""

Maker = Callable[[Sketch, int, int, int], AnyOperation | None]


def _rows(sketch: Sketch, a: int) -> Iterator[tuple[str, Row]]:
    """The live rows, beginning with the one that `a` picks."""
    names = list(sketch.rows)
    for i in range(len(names)):
        name = names[(a + i) % len(names)]
        yield name, sketch.rows[name]


def _live(row: Row) -> list[int]:
    return [entry for entry, page in enumerate(row.entries) if page is not None]


def start(sketch: Sketch, a: int, b: int, c: int) -> Start | None:
    """An unused name, the first one most of the time; seldom a third row."""
    free = [name for name in ROWS if name not in sketch.rows]
    if not free or (len(sketch.rows) >= 2 and c < 224):
        return None
    return Start(free[(a // 64) % len(free)], PROMPTS[b % 4])


def allocate(sketch: Sketch, a: int, b: int, c: int) -> Allocate | None:
    """A page or two, for the shortest row as often as for any; now and then nothing, or more than there is.

    After a flush, enough to reach what it freed.
    """
    rows = sorted(_rows(sketch, a), key=lambda named: len(named[1].entries)) if c < 128 else _rows(sketch, a)
    for name, row in rows:
        size = sketch.page_size
        room = -row.length % size
        if room and row.entries[-1] is None:
            continue
        if sketch.until_reuse is not None and not sketch.open and c < 200 and sketch.until_reuse < sketch.blank:
            pages = min(sketch.blank, sketch.until_reuse + 1 + b % 2)
            return Allocate(name, room + pages * size - b % size)
        if c >= 248:
            return Allocate(name, 0 if b < 64 else room + (sketch.blank + b % 3) * size + 1)
        return Allocate(name, 1 + b % (2 * size + 1))
    return None


def write(sketch: Sketch, a: int, b: int, c: int) -> Write | None:
    """The first unsettled positions that the row may write, or the last ones again; now and then a draft."""
    for name, row in _rows(sketch, a):
        size, settled = sketch.page_size, row.settled
        begin = (settled & -settled).bit_length() - 1 if settled else 0
        while settled >> begin & 1:
            begin += 1
        again = begin >= row.length
        if again:
            begin = max(0, row.length - 1 - b % size)
        while begin < row.length and not sketch.writable(row, begin // size):
            begin += size - begin % size
        stop = begin
        while stop < row.length and sketch.writable(row, stop // size):
            stop += min(size - stop % size, row.length - stop)
        if begin < stop:
            stop = max(begin + 1, stop - (c % size if c < 128 else 0))
            return Write(name, begin, stop, not again and c >= 230)
    return None


def read(sketch: Sketch, a: int, b: int, c: int) -> Read | None:
    """The first run of settled positions, or the end of it."""
    for name, row in _rows(sketch, a):
        settled = row.settled
        if settled:
            begin = (settled & -settled).bit_length() - 1
            stop = begin
            while settled >> stop & 1:
                stop += 1
            return Read(name, begin + b % (stop - begin), stop)
    return None


def free(sketch: Sketch, a: int, b: int, c: int) -> Free | None:
    """A live entry, or two that follow each other; seldom the last ones."""
    if c < 192 and sum(1 for row in sketch.rows.values() if any(row.entries)) < 2:
        return None
    for name, row in _rows(sketch, a):
        live = _live(row)
        if live:
            begin = live[b % len(live)]
            return Free(name, begin, begin + 1 + (c % 2 and begin + 1 in live))
    return None


def overwrite(sketch: Sketch, a: int, b: int, c: int) -> Overwrite | None:
    """Entries given up in the open group if there are any still there, or others given up before."""
    for source, other in _rows(sketch, b):
        if not any(other.entries):
            continue
        for name, entry, _ in sketch.given_up[::-1] if c < 200 else ():
            row = sketch.rows.get(name)
            if row is not None and row is not other and entry < len(row.entries) and row.entries[entry] is None:
                return Overwrite(name, entry, entry + 1, source)
        for name, row in _rows(sketch, a):
            holes = [entry for entry, page in enumerate(row.entries) if page is None]
            if holes and row is not other:
                return Overwrite(name, holes[c % len(holes)], holes[c % len(holes)] + 1, source)
    return None


def trim(sketch: Sketch, a: int, b: int, c: int) -> Trim | None:
    """A few positions less, or none less."""
    for name, row in _rows(sketch, a):
        if row.length:
            return Trim(name, max(0, row.length - b % (2 * sketch.page_size + 1)))
    return None


def finish(sketch: Sketch, a: int, b: int, c: int) -> Finish | None:
    """Any live row; seldom one of the last two."""
    if len(sketch.rows) <= 2 and c < 160:
        return None
    return next((Finish(name) for name, _ in _rows(sketch, a)), None)


def publish(sketch: Sketch, a: int, b: int, c: int) -> Publish | None:
    """The first whole entries that are not published, seldom a duplicate of what is; now and then any whole one."""
    for name, row in _rows(sketch, a):
        whole = [entry for entry in _live(row) if sketch.whole(row, entry)]
        begin = next((entry for entry in whole if c >= 240 or _unpublished(sketch, row, entry, c >= 192)), None)
        if begin is not None:
            stop = begin + 1
            while stop in whole and b % 2 == 0:
                stop += 1
            return Publish(name, begin, stop)
    return None


def _unpublished(sketch: Sketch, row: Row, entry: int, duplicates: bool) -> bool:
    """Whether the page is not published yet, nor, unless `duplicates`, another one that reads the same."""
    page = row.entries[entry]
    if page is None or page.cached:
        return False
    return duplicates or not any(sketch.shareable(row, other, entry) for other in sketch.rows.values())


def share(sketch: Sketch, a: int, b: int, c: int) -> Share | None:
    """What another row has published where this one ends; now and then though it reads otherwise."""
    for name, row in _rows(sketch, a):
        begin = len(row.entries)
        if row.length % sketch.page_size == 0:
            for source, other in _rows(sketch, b):
                stop = begin
                while stop < len(other.entries) and (
                    sketch.shareable(row, other, stop) or (c >= 240 and _elsewhere(row, other, stop))
                ):
                    stop += 1
                if stop > begin:
                    return Share(name, source, begin, stop - (c % 2 and stop - begin > 1))
    return None


def _elsewhere(row: Row, source: Row, entry: int) -> bool:
    """Whether `source` has at `entry` a published page that `row` has not, whatever it reads."""
    page = source.entries[entry] if entry < len(source.entries) else None
    return page is not None and page.cached and page not in row.entries


def replace(sketch: Sketch, a: int, b: int, c: int) -> Replace | None:
    """A duplicate of what another row has published; now and then of a page that is not written to its end yet, or
    that reads otherwise."""
    for name, row in _rows(sketch, a):
        for source, other in _rows(sketch, b):
            for entry, page in enumerate(row.entries):
                if (
                    page is not None
                    and not page.cached
                    and (c >= 224 or sketch.whole(row, entry))
                    and (sketch.shareable(row, other, entry) or (c >= 240 and _elsewhere(row, other, entry)))
                ):
                    return Replace(name, entry, source)
    return None


def copy(sketch: Sketch, a: int, b: int, c: int) -> Copy | None:
    """An entry whose page is not the row's alone; now and then any entry."""
    for name, row in _rows(sketch, a):
        live = _live(row)
        common = [entry for entry in live if not sketch.writable(row, entry)] if c < 220 else live
        if common:
            return Copy(name, common[b % len(common)])
    return None


def evict(sketch: Sketch, a: int, b: int, c: int) -> Evict | None:
    """One or two pages, if any can be taken; now and then none."""
    if c < 230 and all(page.holders for page in sketch.cache.values()):
        return None
    return Evict(1 + b % 2 if c < 230 else 0)


def pin(sketch: Sketch, a: int, b: int, c: int) -> Pin | None:
    """A live page that the row has not pinned."""
    free = [name for name in PINS if name not in sketch.pins]
    if free:
        for row_name, row in _rows(sketch, a):
            live = [entry for entry in _live(row) if (row, row.entries[entry]) not in sketch.pins.values()]
            if live:
                return Pin(free[0], row_name, live[b % len(live)])
    return None


def unpin(sketch: Sketch, a: int, b: int, c: int) -> Unpin | None:
    """Any pin."""
    names = list(sketch.pins)
    return Unpin(names[a % len(names)]) if names else None


def begin(sketch: Sketch, a: int, b: int, c: int) -> Begin | None:
    """When no group is open and, most of the time, some rows hold pages."""
    if sketch.open or (c < 224 and sum(1 for row in sketch.rows.values() if any(row.entries)) < 2):
        return None
    return Begin()


def end(sketch: Sketch, a: int, b: int, c: int) -> End | None:
    """When a group is open."""
    return End() if sketch.open else None


def checkpoint(sketch: Sketch, a: int, b: int, c: int) -> Checkpoint | None:
    """A row that has a whole settled page."""
    for name, row in _rows(sketch, a):
        if any(sketch.whole(row, entry) for entry in _live(row)):
            return Checkpoint(name)
    return None


MAKERS: dict[str, Maker] = {
    "start": start,
    "allocate": allocate,
    "write": write,
    "read": read,
    "free": free,
    "overwrite": overwrite,
    "trim": trim,
    "finish": finish,
    "publish": publish,
    "share": share,
    "replace": replace,
    "copy": copy,
    "evict": evict,
    "pin": pin,
    "unpin": unpin,
    "begin": begin,
    "end": end,
    "checkpoint": checkpoint,
}


def wild(sketch: Sketch, a: int, b: int, c: int, kinds: list[str]) -> AnyOperation | None:
    """Any operands, about as large as the row, of rows and pins that were made at some time: mostly a misuse."""
    if not sketch.started:
        return None
    names, pins = list(sketch.started), list(sketch.pinned)
    row, source = names[a % len(names)], names[a // 16 % len(names)]
    live = sketch.rows.get(row)
    entries, positions = (len(live.entries) + 2, live.length + 2) if live is not None else (2, 2)
    low, high = c % 16 % entries, c // 16 % entries
    begin, stop = c % 16 % positions, c // 16 % positions
    made: dict[str, AnyOperation] = {
        "start": Start(row, 0),
        "allocate": Allocate(row, c % 8 - 4),
        "write": Write(row, begin, stop, a >= 128),
        "read": Read(row, begin, stop),
        "free": Free(row, low, high),
        "overwrite": Overwrite(row, low, high, source),
        "trim": Trim(row, stop),
        "finish": Finish(row),
        "publish": Publish(row, low, high),
        "share": Share(row, source, low, high),
        "replace": Replace(row, low, source),
        "copy": Copy(row, low),
        "evict": Evict(c % 4 - 2),
        "pin": Pin(PINS[c // 16 % len(PINS)], row, low),
        "begin": Begin(),
        "end": End(),
    }
    if pins:
        made["unpin"] = Unpin(pins[c % len(pins)])
    return made.get(kinds[b % len(kinds)])
