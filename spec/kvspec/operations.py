"""The operations a program is made of: one vocabulary for every subject, generator, trace and engine.

A *row* is a request's page table. Rows are named (`a`, `b`), and every operand is symbolic: an operation names pages by
the row entry that holds them, never by number, so that one program runs on any allocator. Units: `entry`, `start` and
`stop` of `free`, `publish`, `share` and `overwrite` count row entries (pages); `tokens` and the `start` and `stop` of
`write` and `read` count token positions. Ranges are half open.

A subject answers each operation with one `Outcome`. This module imports neither z3 nor torch.
"""

from typing import Annotated, Any, Literal

import msgspec

NULL_PAGE = 0
"""The padding page: never handed out, freed, counted or published (R3)."""

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
Count = Annotated[int, msgspec.Meta(ge=-(2**31), lt=2**31)]
Index = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]

BRANCH_AT = 4
"""Prompts of one family agree on their first `BRANCH_AT` tokens."""


def prompt_token(prompt: int, position: int) -> int:
    """The token at `position` of `prompt`: prompt 4f + b is branch b of family f; branches part at `BRANCH_AT`.

    What a request must read at a settled position (R1), fixed by its prompt and not by whatever was written last.
    """
    family, branch = divmod(prompt, 4)
    return (family * 1009 + position) * 4 + (branch if position >= BRANCH_AT else 0)


class Misuse(ValueError):
    """The caller asked for what its contract forbids; nothing was changed."""


class Refused(Exception):
    """There is not enough to serve the call (O5); nothing was changed."""


class Operation(msgspec.Struct, tag_field="op", tag=str.lower, frozen=True, forbid_unknown_fields=True):
    """One step of a program."""


class Start(Operation, frozen=True):
    """Begin an empty row for a request whose tokens are those of `prompt`."""

    row: Name
    prompt: Index


class Allocate(Operation, frozen=True):
    """Reserve `tokens` more positions at the end of the row, taking blank pages as needed: all of them or none."""

    row: Name
    tokens: Count


class Write(Operation, frozen=True):
    """Write the prompt's tokens at positions [start, stop) and settle them; a draft writes junk and settles nothing."""

    row: Name
    start: Index
    stop: Index
    draft: bool = False


class Read(Operation, frozen=True):
    """Read the settled positions [start, stop)."""

    row: Name
    start: Index
    stop: Index


class Free(Operation, frozen=True):
    """Give up the pages of entries [start, stop): at once, or at the end of the group when one is open."""

    row: Name
    start: Index
    stop: Index


class Overwrite(Operation, frozen=True):
    """The caller overwrites its buffer at given-up entries [start, stop) with the page ids of `source`'s row (D5)."""

    row: Name
    start: Index
    stop: Index
    source: Name


class Trim(Operation, frozen=True):
    """Keep the first `tokens` positions and give up the pages that hold none of them."""

    row: Name
    tokens: Index


class Finish(Operation, frozen=True):
    """Give up the whole row; its name may be started again."""

    row: Name


class Publish(Operation, frozen=True):
    """Put the pages of entries [start, stop), every position of them settled, into the prefix cache."""

    row: Name
    start: Index
    stop: Index


class Share(Operation, frozen=True):
    """Append the published pages of `source`'s entries [start, stop) to the row, which reads the same tokens there."""

    row: Name
    source: Name
    start: Index
    stop: Index


class Replace(Operation, frozen=True):
    """Swap the row's duplicate page at `entry` for the published one at the same entry of `source`; give up its own."""

    row: Name
    entry: Index
    source: Name


class Copy(Operation, frozen=True):
    """Copy on write: give the row a page of its own at `entry` when the page there is shared, published or pinned."""

    row: Name
    entry: Index


class Evict(Operation, frozen=True):
    """Take up to `count` published pages that nobody holds out of the cache, the longest published first."""

    count: Count


class Pin(Operation, frozen=True):
    """Begin a read of the page at `entry`; the page stays until the pin called `name` is taken back."""

    name: Name
    row: Name
    entry: Index


class Unpin(Operation, frozen=True):
    """End the read called `name`."""

    name: Name


class Begin(Operation, frozen=True):
    """Open a group of deferred frees."""


class End(Operation, frozen=True):
    """Close the group: everything named in it is freed, once."""


class Checkpoint(Operation, frozen=True):
    """Publish the row's settled whole pages and swap its duplicates for what the cache already has (a radix cache)."""

    row: Name


AnyOperation = (
    Start | Allocate | Write | Read | Free | Overwrite | Trim | Finish | Publish | Share | Replace
    | Copy | Evict | Pin | Unpin | Begin | End | Checkpoint
)  # fmt: skip


class Configuration(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How large the pool is: pages 1..`pages`, each of `page_size` slots; slot = page * page_size + offset."""

    pages: Annotated[int, msgspec.Meta(ge=1, lt=2**31)]
    page_size: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 1


class Outcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a subject did with one operation.

    `pages` are those handed out (`Allocate`, `Copy`), taken out (`Evict`) or standing in the whole row afterwards
    (`Checkpoint`), in order. `slots` are the addresses of the positions named by `Allocate` (the new ones), `Write` and
    `Read`; `tokens` what was read. `blank` lists the blank pages afterwards, in the order they will be handed out.
    `state` has whatever else the subject lets be observed. `error`: the subject raised, `reason` says what, and the
    program stopped there.
    """

    status: Literal["done", "refused", "misuse", "error"]
    pages: tuple[int, ...] = ()
    slots: tuple[int, ...] = ()
    tokens: tuple[int, ...] = ()
    blank: tuple[int, ...] | None = None
    available: int | None = None
    reason: str = ""
    state: dict[str, Any] = msgspec.field(default_factory=dict)
