"""The engine's caller: it keeps the rows, knows what it may ask for, and reports what the engine did.

A row is a buffer of slots. Whatever the engine is handed is a *view* of that buffer, as in a real engine, and whatever
it hands out is copied into the buffer and then overwritten. An allocator has no content, so the caller keeps a ghost of
it: the token last written to each slot. Written and read through the row's slots, it shows who shares a slot with whom.

The caller never passes on what its contract forbids (a misuse): what an engine makes of that is asked by the probes.
"""

import traceback
from array import array
from typing import Any, Protocol

BRANCH_AT = 4
NEVER_WRITTEN = -(2**31)
"""What a read reports for a slot that nothing was written to."""

LARGEST_ROW = 2**22
"""The most positions that a row may have."""

Operation = dict[str, Any]
Outcome = dict[str, Any]

FIELDS: dict[str, dict[str, type]] = {
    "start": {"row": str, "prompt": int},
    "allocate": {"row": str, "tokens": int},
    "write": {"row": str, "start": int, "stop": int, "draft": bool},
    "read": {"row": str, "start": int, "stop": int},
    "free": {"row": str, "start": int, "stop": int},
    "overwrite": {"row": str, "start": int, "stop": int, "source": str},
    "trim": {"row": str, "tokens": int},
    "finish": {"row": str},
    "begin": {},
    "end": {},
    "checkpoint": {"row": str},
}
"""The operations that a caller can do, and their operands."""


def prompt_token(prompt: int, position: int) -> int:
    """The token at `position` of `prompt`; the same function as `kvspec.operations.prompt_token`."""
    family, branch = divmod(prompt, 4)
    return (family * 1009 + position) * 4 + (branch if position >= BRANCH_AT else 0)


class RequestError(ValueError):
    """A request that cannot be served; one line says why."""


class Misuse(Exception):
    """The operation is not the caller's to ask for; nothing was changed."""


class EngineFault(Exception):
    """The engine answered what is no answer at all."""


class Pool(Protocol):
    """What an adapter makes of an engine's allocator, with pages 1..n blank. A slot is page * page size + offset."""

    def buffer(self, row: str, capacity: int) -> tuple[Any, memoryview]:
        """A buffer for `capacity` slots and the caller's own access to its memory; a slice of the buffer is a view."""
        ...

    def allocate(self, row: "Row", tokens: int) -> list[int] | None:
        """The slots of `tokens` more positions at the row's end, or None when there are too few pages."""
        ...

    def free(self, view: Any, start: int) -> None:
        """Give up the slots in `view`, which stand from position `start` of their row on."""
        ...

    def begin(self) -> None:
        """Open a group of deferred frees."""
        ...

    def end(self) -> None:
        """Close the group."""
        ...

    def blank(self) -> list[int]:
        """The pages in the free lists, in the order they will be handed out as far as that is defined."""
        ...

    def available(self) -> int:
        """How many pages the engine says it can hand out."""
        ...


class Row:
    """A request's row: `slots` is the memory of `buffer`, of which the first `length` positions count.

    `live[e]` tells whether entry e still names a page, `settled[i]` whether position i was written. `mine` is what the
    caller last wrote into the buffer; `kept` counts the leading entries that a cache holds for the row.
    """

    def __init__(self, name: str, prompt: int, buffer: Any, slots: memoryview) -> None:
        self.name = name
        self.prompt = prompt
        self.buffer = buffer
        self.slots = slots
        self.mine = bytearray(slots.cast("B"))
        self.length = 0
        self.live: list[bool] = []
        self.settled: list[bool] = []
        self.kept = 0

    def put(self, position: int, slots: list[int]) -> None:
        """Write slots into the buffer from `position` on."""
        self.slots[position : position + len(slots)] = array(self.slots.format, slots)
        self.accept()

    def accept(self) -> None:
        """Take what stands in the buffer for the caller's own."""
        self.mine[:] = self.slots.cast("B")

    def changed(self) -> bool:
        """Whether the buffer holds something that the caller did not write."""
        return self.slots.cast("B") != self.mine


class Caller:
    """Runs one program on one pool. `hostile`: a view is overwritten as soon as the call it was passed to returns."""

    operations: tuple[str, ...] = tuple(name for name in FIELDS if name != "checkpoint")

    def __init__(self, pool: Pool, pages: int, page_size: int, hostile: bool = False) -> None:
        self.pool = pool
        self.pages = pages
        self.page_size = page_size
        self.hostile = hostile
        self.rows: dict[str, Row] = {}
        self.buffers: list[Row] = []
        self.content: dict[int, int] = {}
        self.capacity: dict[str, int] = {}
        self.grouped = False

    def run(self, operations: list[Operation]) -> list[Outcome]:
        """One outcome an operation; after one whose status is `error` the program stops.

        Raises `RequestError` before anything runs when an operation is unknown or has a wrong operand.
        """
        for index, operation in enumerate(operations):
            self._check(index, operation)
        self.prepare()
        outcomes = []
        for operation in operations:
            operands = {name: value for name, value in operation.items() if name != "op"}
            try:
                outcome = getattr(self, operation["op"])(**operands)
            except Misuse as misuse:
                outcome = {"status": "misuse", "reason": str(misuse)}
            except Exception as error:
                # Whatever the engine raises is what it did: the harness judges it.
                outcomes.append({"status": "error", "reason": one_line(error), "state": self._state({})})
                break
            outcome["blank"] = self.pool.blank()
            outcome["available"] = self.pool.available()
            outcome["state"] = self._state(outcome.get("state", {}))
            outcomes.append(outcome)
        return outcomes

    def prepare(self) -> None:
        """Called before the first operation, when `capacity` says how many slots each name's row may come to need."""

    def start(self, row: str, prompt: int) -> Outcome:
        """A new row, with room for all that the program ever allocates under its name."""
        if row in self.rows:
            raise Misuse(f"row {row} lives already")
        buffer, slots = self.pool.buffer(row, self.capacity.get(row, 0))
        self.rows[row] = Row(row, prompt, buffer, slots)
        self.buffers.append(self.rows[row])
        return {"status": "done"}

    def allocate(self, row: str, tokens: int) -> Outcome:
        """Ask for `tokens` more positions and copy the slots that came into the row."""
        r = self._row(row)
        size = self.page_size
        if tokens < 0:
            raise Misuse("a negative number of tokens")
        if tokens == 0:
            return {"status": "done"}
        if r.length % size and not r.live[-1]:
            raise Misuse(f"new positions fall on entry {len(r.live) - 1}, which was given up")
        if tokens > self._most():
            return {"status": "refused", "reason": "the engine was not asked: more than twice the pool"}
        slots = self.pool.allocate(r, tokens)
        if slots is None:
            return {"status": "refused"}
        if len(slots) != tokens:
            raise EngineFault(f"asked for {tokens} slots, the engine gave {len(slots)}")
        known = len(r.live)
        r.put(r.length, slots)
        r.settled += [False] * tokens
        r.length += tokens
        r.live += [True] * (-(-r.length // size) - known)
        pages = [r.slots[entry * size] // size for entry in range(known, len(r.live))]
        return {"status": "done", "pages": pages, "slots": slots}

    def write(self, row: str, start: int, stop: int, draft: bool = False) -> Outcome:
        """Write the prompt's tokens, or a draft's junk, to the slots of positions [start, stop)."""
        r = self._positions(row, start, stop)
        if start < stop and start // self.page_size < r.kept:
            raise Misuse("a cached page is not the row's to write")
        if draft and any(r.settled[start:stop]):
            raise Misuse("a draft over settled positions")
        slots = r.slots[start:stop].tolist()
        for position, slot in enumerate(slots, start):
            self.content[slot] = -1 - position if draft else prompt_token(r.prompt, position)
        if not draft:
            r.settled[start:stop] = [True] * (stop - start)
        return {"status": "done", "slots": slots}

    def read(self, row: str, start: int, stop: int) -> Outcome:
        """Read what the slots of the settled positions [start, stop) hold."""
        r = self._positions(row, start, stop)
        if not all(r.settled[start:stop]):
            raise Misuse("a position that is not settled")
        slots = r.slots[start:stop].tolist()
        return {"status": "done", "slots": slots, "tokens": [self.content.get(slot, NEVER_WRITTEN) for slot in slots]}

    def free(self, row: str, start: int, stop: int) -> Outcome:
        """Give up the pages of entries [start, stop): one call with one view of the row."""
        r = self._row(row)
        if not (start <= stop <= len(r.live) and all(r.live[start:stop])):
            raise Misuse(f"entries {start} to {stop} are not all live")
        self._give_up(r, start, stop)
        return {"status": "done"}

    def overwrite(self, row: str, start: int, stop: int, source: str) -> Outcome:
        """Scribble the slots of `source`'s pages over the row's given-up entries [start, stop)."""
        r, other = self._row(row), self._row(source)
        if not (start <= stop <= len(r.live)) or any(r.live[start:stop]):
            raise Misuse(f"entries {start} to {stop} are not all given up")
        if other is r or not any(other.live):
            raise Misuse(f"row {source} has no page to write over them")
        self._scribble(r, start, stop, other)
        return {"status": "done"}

    def trim(self, row: str, tokens: int) -> Outcome:
        """Keep the first `tokens` positions: one free for each run of live entries after them."""
        r = self._row(row)
        if tokens > r.length:
            raise Misuse(f"the row has {r.length} positions")
        keep = -(-tokens // self.page_size)
        entry = keep
        while entry < len(r.live):
            run = entry
            while run < len(r.live) and r.live[run]:
                run += 1
            self._give_up(r, entry, run)
            entry = run + 1
        del r.live[keep:], r.settled[tokens:]
        r.length = tokens
        return {"status": "done"}

    def finish(self, row: str) -> Outcome:
        """Give up the whole row and its name."""
        self.trim(row, 0)
        del self.rows[row]
        return {"status": "done"}

    def begin(self) -> Outcome:
        """Open a group."""
        if self.grouped:
            raise Misuse("a group is open")
        self.pool.begin()
        self.grouped = True
        return {"status": "done"}

    def end(self) -> Outcome:
        """Close the group."""
        if not self.grouped:
            raise Misuse("no group is open")
        self.grouped = False
        self.pool.end()
        return {"status": "done"}

    def _give_up(self, r: Row, start: int, stop: int) -> None:
        if start == stop:
            return
        first, last = start * self.page_size, min(stop * self.page_size, r.length)
        r.live[start:stop] = [False] * (stop - start)
        r.settled[first:last] = [False] * (last - first)
        self.pool.free(r.buffer[first:last], first)
        if self.hostile:
            self._scribble(r, start, stop, self._other(r))

    def _other(self, r: Row) -> Row | None:
        """Another live row that has a page."""
        return next((other for other in self.rows.values() if other is not r and any(other.live)), None)

    def _scribble(self, r: Row, start: int, stop: int, source: Row | None) -> None:
        """Write another row's slots (the null page's, without one) over entries [start, stop), offset for offset."""
        size = self.page_size
        live = [] if source is None else [entry for entry, alive in enumerate(source.live) if alive]
        pages = [source.slots[entry * size] // size for entry in live] if source is not None else [0]
        first, last = start * size, min(stop * size, r.length)
        r.put(first, [pages[(i // size - start) % len(pages)] * size + i % size for i in range(first, last)])

    def _most(self) -> int:
        """The most tokens that an engine is asked for at once: more than it has, but not enough to exhaust memory."""
        return 2 * (self.pages + 1) * self.page_size

    def _row(self, name: str) -> Row:
        row = self.rows.get(name)
        if row is None:
            raise Misuse(f"row {name} does not live")
        return row

    def _positions(self, name: str, start: int, stop: int) -> Row:
        r = self._row(name)
        if not start <= stop <= r.length:
            raise Misuse(f"the row has {r.length} positions")
        if start < stop and not all(r.live[start // self.page_size : -(-stop // self.page_size)]):
            raise Misuse(f"positions {start} to {stop} lie on an entry that was given up")
        return r

    def _state(self, state: dict[str, Any]) -> dict[str, Any]:
        changed = [row for row in self.buffers if row.changed()]
        for row in changed:
            row.accept()
        return {**state, "changed": [row.name for row in changed]} if changed else state

    def _check(self, index: int, operation: Operation) -> None:
        """Refuse what is no operation of this caller, and count the slots that each row may come to need."""
        if not isinstance(operation, dict) or operation.get("op") not in self.operations:
            raise RequestError(f"operation {index}: unknown to this subject, which takes {', '.join(self.operations)}")
        fields = FIELDS[operation["op"]]
        for name, value in operation.items():
            if name != "op" and type(value) is not fields.get(name):
                raise RequestError(f"operation {index} ({operation['op']}): operand {name!r} is unknown or ill typed")
            if type(value) is int and not (0 <= value < 2**31 or name == "tokens"):
                raise RequestError(f"operation {index} ({operation['op']}): {name} is {value}")
        for name in fields:
            if name not in operation and name != "draft":
                raise RequestError(f"operation {index} ({operation['op']}): operand {name!r} is missing")
        if operation["op"] == "start":
            self.capacity.setdefault(operation["row"], 0)
        if operation["op"] == "allocate" and operation["tokens"] > 0:
            needed = min(operation["tokens"], self._most()) + self.capacity.get(operation["row"], 0)
            if needed > LARGEST_ROW:
                raise RequestError(f"operation {index} (allocate): row {operation['row']} grows past {LARGEST_ROW}")
            self.capacity[operation["row"]] = needed


def one_line(error: BaseException) -> str:
    """The exception's class and message on one line of at most 300 characters."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= 300 else text[:299] + "…"


def raised(error: Exception) -> str:
    """What was raised, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{one_line(error)} at `{last.line}` in {last.name}"
