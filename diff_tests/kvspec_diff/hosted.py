"""An allocator in this process, driven by a hostile caller.

The caller keeps the rows, knows what it may ask for, and keeps a ghost of the contents. Every buffer that it passes is
its own and is overwritten as soon as the call has returned; every buffer that comes back is copied, then overwritten;
one that changes by itself afterwards is reported (D5).
"""

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kvspec.operations import (
    Allocate,
    AnyOperation,
    Begin,
    Configuration,
    Copy,
    End,
    Evict,
    Free,
    Outcome,
    Pin,
    Read,
    Refused,
    Replace,
    Share,
    Unpin,
    Write,
    prompt_token,
)
from kvspec_record.caller import NEVER_WRITTEN, one_line

from kvspec_diff.caller import Caller, Page, Row
from kvspec_diff.program import Program, operation_name

SCRIBBLE = -7
"""What the caller leaves in its buffers; no pool has such a page."""

PASSED, RETURNED = "passed", "returned"
HOSTILE = frozenset({PASSED, RETURNED})
"""Which buffers are overwritten: those passed to the allocator, those that it returned."""

HOOKS: dict[str, tuple[str, ...]] = {
    "groups": ("begin", "end"),
    "cache": ("publish", "share", "evict"),
    "copies": ("copy",),
    "pins": ("pin", "unpin"),
    "checks": (),
}
"""The methods that come with each capability of an allocator."""


class Allocator(ABC):
    """Pages 1..`pages`, all blank at first; page 0 is padding. A page id is an int; a list of them may be a tensor.

    The constructor takes `pages`, and `page_size` if it has such a parameter. Beyond the methods here there are, for an
    allocator that declares the capability:

    - `groups`: `begin()` and `end()`: between them a page that is given up does not become blank; at the end it does.
    - `cache`: `publish(pages)`: they stay when their last holder leaves; `share(pages)`: one more holder for each, who
      leaves by `release`; `evict(n)`: up to n published pages that nobody holds become blank; returns them.
    - `copies`: `copy(page)`: take a blank page in the place of one that is held by others or published, and take this
      holder from that one; returns the new page, or None when there is none.
    - `pins`: `pin(page)`, one more holder, and `unpin(page)`, one less.
    - `checks`: what a caller may not ask for raises, and changes nothing.
    """

    @abstractmethod
    def allocate(self, n: int) -> Any:
        """Hand out `n` blank pages (n > 0), each with one holder; None, and no change, when there are too few."""

    @abstractmethod
    def release(self, pages: Any) -> Any:
        """Take one holder from each of `pages`; one without any that is not published becomes blank."""

    def blank(self) -> Iterable[int] | None:
        """The blank pages, in any order; None if they cannot be listed. It is asked after every operation."""
        return None

    def available(self) -> int | None:
        """How many pages `allocate` can hand out; None if that is not known."""
        return None


class Call:
    """One call of the allocator: in which operation, with what, and what came back (page ids, None, or `...`)."""

    def __init__(self, index: int, method: str, given: int | tuple[int, ...] | None) -> None:
        self.index, self.method, self.given = index, method, given
        self.answer: Any = ...
        self.raised = False
        self.form: type = list
        """What the page ids came back in."""


class Raised(Exception):
    """The allocator raised, or answered what is no answer; one line says what."""


class Changed(Exception):
    """A buffer of the caller's was changed: which one."""


class Run(Caller):
    """One program on one fresh allocator. `asked` are the calls that were made of it."""

    def __init__(
        self, pool: Any, configuration: Configuration, buffer: Callable[[list[int]], Any], *,
        checks: bool = False, hostile: frozenset[str] = HOSTILE,
    ) -> None:  # fmt: skip
        super().__init__(configuration)
        self.pool = pool
        self.asked: list[Call] = []
        self.changed: tuple[Call, str] | None = None
        """The call whose buffer was changed, and which of the two it is: `passed` or `returned`."""
        self._pages, self._buffer, self._checks, self._hostile = configuration.pages, buffer, checks, hostile
        self._buffers: list[tuple[Call, str, Any, int]] = []
        self._content: dict[int, int] = {}
        self._former: dict[tuple[str, int], int] = {}
        self._dropped: list[int] = []
        self._published: list[int] = []
        self._copied: Page | None = None
        self._index = 0

    def run(self, program: Program) -> list[Outcome]:
        """One outcome an operation; fewer when there is no going on after one."""
        outcomes: list[Outcome] = []
        for self._index, operation in enumerate(program.operations):
            outcome, last = self._perform(operation)
            outcomes.append(outcome)
            if last:
                break
        return outcomes

    def _perform(self, operation: AnyOperation) -> tuple[Outcome, bool]:
        """What came of the operation, and whether nothing can follow it."""
        self._dropped, self._published, self.handed = [], [], ()
        last = False
        try:
            if self.apply(operation):
                outcome = self._done(operation)
                self._pass_on(operation)
                last = isinstance(operation, Allocate) and len(outcome.slots) != max(operation.tokens, 0)
                last = last and outcome.status == "done"
            else:
                outcome = self._forbidden(operation)
                last = outcome.status != "misuse"
            self._look()
            return self._observed(outcome), last
        except Raised as error:
            return Outcome("error", reason=str(error)), True
        except Changed as changed:
            return Outcome("error", reason=f"a list of the caller's changed by itself: {changed}"), True
        finally:
            self.actions.clear()

    def _done(self, operation: AnyOperation) -> Outcome:
        """The outcome of what was done in the caller's own books."""
        if self.handed is None:
            return Outcome("refused")
        pages = tuple(self.handed) if isinstance(operation, Allocate | Copy | Evict) else ()
        if not isinstance(operation, Allocate | Write | Read):
            return Outcome("done", pages)
        row = self.rows[operation.row]
        begin, stop = (
            (row.length - operation.tokens, row.length)
            if isinstance(operation, Allocate)
            else (operation.start, operation.stop)
        )
        if -(-stop // self.page_size) > len(row.entries):
            return Outcome("done", pages)
        slots = [self._slot(row, position) for position in range(begin, stop)]
        if isinstance(operation, Write):
            for position, slot in zip(range(begin, stop), slots, strict=True):
                self._content[slot] = -1 - position if operation.draft else prompt_token(row.prompt, position)
        tokens = [self._content.get(slot, NEVER_WRITTEN) for slot in slots] if isinstance(operation, Read) else ()
        return Outcome("done", pages, tuple(slots), tuple(tokens))

    def _slot(self, row: Row, position: int) -> int:
        page = row.entries[position // self.page_size]
        assert page is not None, "the caller's model checked that the entry is live"
        return page.number * self.page_size + position % self.page_size

    def _pass_on(self, operation: AnyOperation) -> None:
        """Tell the allocator what it has to know of an operation that is entered in the caller's books."""
        if isinstance(operation, Begin | End):
            self._ask(operation_name(operation))
        elif isinstance(operation, Pin):
            self._ask("pin", self.pins[operation.name][1].number)
        elif isinstance(operation, Unpin):
            self._ask("unpin", self._dropped[0])
        elif isinstance(operation, Copy):
            self._copy_contents(self.rows[operation.row].entries[operation.entry])
        else:
            if isinstance(operation, Share) and operation.start < operation.stop:
                self._ask("share", [self._at(operation.row, i) for i in range(operation.start, operation.stop)])
            if isinstance(operation, Replace):
                self._ask("share", [self._at(operation.row, operation.entry)])
            if self._published:
                self._ask("publish", self._published)
            if self._dropped:
                self._ask("release", self._dropped)

    def _at(self, row: str, entry: int) -> int:
        page = self.rows[row].entries[entry]
        assert page is not None, "the operation put it there"
        return page.number

    def _copy_contents(self, new: Page | None) -> None:
        if self.handed and new is not None and self._dropped:
            size = self.page_size
            for offset in range(size):
                if (token := self._content.get(self._dropped[0] * size + offset)) is not None:
                    self._content[new.number * size + offset] = token

    def _forbidden(self, operation: AnyOperation) -> Outcome:
        """What the caller may not ask for is asked of an allocator that checks, if it can tell."""
        asked = self._misuse(operation) if self._checks else None
        if asked is None:
            return Outcome("misuse")
        try:
            answer = self._ask(*asked)
        except Raised as error:
            return Outcome("misuse", reason=str(error))
        except Refused:
            answer = None
        return Outcome("refused" if asked[0] == "allocate" and answer is None else "done")

    def _misuse(self, operation: AnyOperation) -> tuple[Any, ...] | None:
        """The call that an operation outside the contract comes down to, if the allocator can know that it is."""
        if isinstance(operation, Begin | End):
            return (operation_name(operation),)
        if isinstance(operation, Evict):
            return ("evict", operation.count)
        if isinstance(operation, Allocate) and operation.tokens < 0 and operation.row in self.rows:
            return ("allocate", operation.tokens)
        if isinstance(operation, Free) and operation.start < operation.stop and operation.row in self.rows:
            return ("release", named) if (named := self._named(operation)) else None
        return None

    def _named(self, operation: Free) -> list[int]:
        """The pages of a range that is not all live, some of which nobody holds; none if the allocator cannot tell.

        An entry that was given up stands for its page of then, one after the end for the null page and those to follow.
        """
        entries, numbers, wrong = self.rows[operation.row].entries, [], []
        for entry in range(operation.start, operation.stop):
            page = entries[entry] if entry < len(entries) else None
            beyond = 0 if entry == len(entries) else self._pages + entry - len(entries)
            number = page.number if page else self._former[operation.row, entry] if entry < len(entries) else beyond
            numbers.append(number)
            wrong += [] if page else [number]
        return [] if self._somewhere().intersection(wrong) else list(dict.fromkeys(numbers))

    def _somewhere(self) -> set[int]:
        """The pages that are not blank as far as the caller knows."""
        held = [page for row in self.rows.values() for page in row.entries if page is not None]
        pinned = [page for _, page in self.pins.values()]
        return {page.number for page in [*held, *pinned, *self.deferred, *self.cache.values()]}

    # What the caller's books ask for on the way.

    def _new_pages(self, n: int) -> list[Page] | None:
        if n:
            try:
                answer = self._ask("allocate", n) if self._copied is None else self._ask("copy", self._copied.number)
            except Refused:
                answer = None
            self.handed = answer
        return super()._new_pages(n)

    def copy(self, operation: Copy) -> bool:
        """As in the books; the allocator is asked for a copy of this page."""
        row = self.rows.get(operation.row)
        self._copied = row.entries[operation.entry] if row is not None and operation.entry < len(row.entries) else None
        try:
            return super().copy(operation)
        finally:
            self._copied = None

    def _evicted(self, count: int) -> Sequence[int]:
        if count:
            self.handed = self._ask("evict", count)
        return self.handed or ()

    def _publish(self, page: Page) -> None:
        if not page.cached:
            self._published.append(page.number)
        super()._publish(page)

    def _drop(self, page: Page) -> None:
        self._dropped.append(page.number)
        super()._drop(page)

    def _give_up(self, name: str, row: Row, entry: int, offset: int, stop: int) -> None:
        self._former |= {(name, i): page.number for i, page in enumerate(row.entries) if page is not None}
        super()._give_up(name, row, entry, offset, stop)

    # The allocator.

    def _ask(self, method: str, given: int | list[int] | None = None) -> tuple[int, ...] | None:
        """Call the allocator with a number or with a buffer of page ids; the page ids that came back, if it gives any.

        `Raised`, `Changed`; `Refused` is let through.
        """
        call = Call(self._index, method, tuple(given) if isinstance(given, list) else given)
        self.asked.append(call)
        buffer = self._buffer(list(given)) if isinstance(given, list) else given
        try:
            answer = getattr(self.pool, method)(*([] if given is None else [buffer]))
        except Refused:
            call.answer, call.raised = None, True
            raise
        except Exception as error:
            call.raised = True
            raise Raised(one_line(error)) from error
        if isinstance(given, list):
            if not _says(buffer, given):
                self.changed = (call, PASSED)
                raise Changed(f"the one passed to {method}, during the call")
            self._keep(call, PASSED, buffer)
        if method not in ("allocate", "copy", "evict"):
            return None
        return self._answer(call, answer)

    def _answer(self, call: Call, answer: Any) -> tuple[int, ...] | None:
        """The page ids in an answer; what held them is overwritten."""
        if answer is None and call.method != "evict":
            call.answer = None
            return None
        try:
            pages = (operator.index(answer),) if call.method == "copy" else tuple(map(operator.index, answer))
        except (TypeError, ValueError, RuntimeError):
            shown = " ".join(repr(answer).split())[:80]
            raise Raised(f"{call.method} answered {shown}, which is no {_WANTED[call.method]}") from None
        call.answer, call.form = pages, type(answer)
        if call.method != "copy":
            self._look()
            self._keep(call, RETURNED, answer)
        return pages

    def _keep(self, call: Call, which: str, buffer: Any) -> None:
        """Overwrite a buffer, and watch it from now on."""
        if which in self._hostile and hasattr(buffer, "__setitem__"):
            for i in range(len(buffer)):
                buffer[i] = SCRIBBLE
            self._buffers.append((call, which, buffer, len(buffer)))

    def _look(self) -> None:
        """Whether each buffer still says what the caller wrote there."""
        for call, which, buffer, length in self._buffers:
            if not _says(buffer, [SCRIBBLE] * length):
                self.changed = (call, which)
                raise Changed(f"the one {_WAY[which]} {call.method} at operation {call.index}")

    def _observed(self, outcome: Outcome) -> Outcome:
        blank = self._shown("blank", lambda pages: tuple(map(operator.index, pages)))
        available = self._shown("available", operator.index)
        return Outcome(outcome.status, outcome.pages, outcome.slots, outcome.tokens, blank, available, outcome.reason)

    def _shown(self, method: str, form: Callable[[Any], Any]) -> Any:
        """What the allocator shows of itself, if it does."""
        try:
            shown = getattr(self.pool, method, lambda: None)()
            return None if shown is None else form(shown)
        except Exception as error:
            raise Raised(f"{method}(): {one_line(error)}") from error


_WAY = {PASSED: "passed to", RETURNED: "that came from"}
_WANTED = {"allocate": "list of page ids, nor None", "copy": "page id, nor None", "evict": "list of page ids"}


def _says(buffer: Any, numbers: list[int]) -> bool:
    """Whether a buffer holds these numbers and nothing else."""
    return len(buffer) == len(numbers) and all(bool(one == other) for one, other in zip(buffer, numbers, strict=True))
