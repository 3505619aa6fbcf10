"""Actions and operations as English sentences, and elements by the names that a reader knows them by."""

from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

import msgspec
from kvspec.language.machine import Machine
from kvspec.language.sorts import Sort
from kvspec.operations import AnyOperation, Configuration, Outcome

from kvspec_diff.program import operation_name

ACTIONS = {
    "acquire": "Page {p} is handed to {r}, as its entry {k}.",
    "refuse": "The pool declines to hand out {n} pages.",
    "share": "{r} gets the cached page {p} too, as its entry {k}.",
    "begin_read": "{r} begins a read of page {p}.",
    "end_read": "{r} ends its read of page {p}.",
    "release": "{r} gives up its positions from entry {k}, offset {o} on, before entry {stop}.",
    "publish": "Page {p} goes into the prefix cache.",
    "evict": "Page {p} is taken out of the cache.",
    "reclaim": "The released page {p} becomes blank.",
    "write": "{r} writes token {t} at entry {k}, offset {o}.",
    "pad": "Padding {t} is written to the null page at offset {o}.",
    "settle": "{r} may read entry {k}, offset {o} from here on.",
    "replace": "{r} swaps its duplicate at entry {k} for the cached page {p}.",
    "copy": "Entry {k} of {r} gets the blank page {q}, with the contents of the shared one.",
    "begin": "A group of deferred frees is opened.",
    "end": "The group ends: what waits in it is freed.",
    "overwrite": "The caller of {r} writes page number {p} into its own buffer, at entry {k} that it gave up.",
}
"""By action and parameter; an action that is not here, or has other parameters, is told by its own first sentence."""

OPERATIONS = {
    "start": "Row {row} begins, with the tokens of prompt {prompt}.",
    "allocate": "Row {row} asks for {tokens} more positions.",
    "write": "Row {row} writes positions {start} to {stop}.",
    "read": "Row {row} reads positions {start} to {stop}.",
    "free": "Row {row} gives up the pages of entries {start} to {stop}.",
    "overwrite": "The caller of row {row} puts row {source}'s pages into its buffer, at entries {start} to {stop}.",
    "trim": "Row {row} keeps its first {tokens} positions and gives up the rest.",
    "finish": "Row {row} ends and gives up everything.",
    "publish": "Row {row} puts the pages of entries {start} to {stop} into the prefix cache.",
    "share": "Row {row} gets row {source}'s published pages of entries {start} to {stop}.",
    "replace": "Row {row} swaps its duplicate at entry {entry} for row {source}'s published page.",
    "copy": "Row {row} asks for a page of its own at entry {entry}.",
    "evict": "Up to {count} cached pages that nobody holds are to be taken out.",
    "pin": "A read called {name} begins, of row {row}'s page at entry {entry}.",
    "unpin": "The read called {name} ends.",
    "begin": "A group of deferred frees is opened.",
    "end": "The group ends: what waits in it is to be freed.",
    "checkpoint": "Row {row}'s settled whole pages are published, its duplicates swapped for what the cache has.",
}
"""By operation and field; ranges are half open, as in the operations themselves."""


class Names:
    """What elements are called: requests are rows where they have names."""

    def __init__(self, rows: Sequence[str] = ()) -> None:
        self.rows = rows

    def element(self, sort: Sort, number: Any) -> str:
        """`page 2`, `row a`; plain numbers for naturals, `yes` and `no` for truths."""
        if sort.name == "Bool":
            return "yes" if number else "no"
        if sort.name == "Nat":
            return str(number)
        return self.request(number) if sort.name == "Request" else f"{sort.name.lower()} {number}"

    def request(self, number: int) -> str:
        """`request 0`, or `row a`."""
        return f"row {self.rows[number]}" if number < len(self.rows) else f"request {number}"

    def short(self, number: int) -> str:
        """`r0`, or `a`: what fits into a cell."""
        return self.rows[number] if number < len(self.rows) else f"r{number}"


def first_sentence(text: str) -> str:
    """The first paragraph's first line."""
    return text.strip().split("\n")[0]


def fields_of(template: str) -> set[str]:
    """The names in a template's braces."""
    return {name for _, name, _, _ in Formatter().parse(template) if name}


def action_sentence(machine: type[Machine], action: str, args: Sequence[Any], names: Names) -> str:
    """What a step does, in one sentence."""
    params = machine.actions[action].params
    said = {
        name: names.element(sort, value) if sort.name == "Request" else str(value)
        for (name, sort), value in zip(params.items(), args, strict=True)
    }
    template = ACTIONS.get(action, "")
    if template and fields_of(template) <= said.keys():
        return capital(template.format_map(said))
    return first_sentence(machine.actions[action].doc) or f"{action}."


def operation_sentence(operation: AnyOperation) -> str:
    """What an operation asks for, in one sentence."""
    fields: Mapping[str, Any] = msgspec.structs.asdict(operation)
    sentence = OPERATIONS[operation_name(operation)].format_map(fields)
    return f"{sentence[:-1]}, as a draft." if fields.get("draft") else sentence


def outcome_sentence(outcome: Outcome) -> str:
    """What came of it, in one sentence; empty when nothing came but that it was done."""
    if outcome.status != "done":
        reason = f": {outcome.reason}" if outcome.reason else ""
        words = {"refused": "It is refused", "misuse": "It is called a misuse", "error": "The engine raises"}
        return f"{words[outcome.status]}{reason}."
    told = []
    for what in ("pages", "slots", "tokens"):
        numbers = getattr(outcome, what)
        if numbers:
            told.append(f"{what if len(numbers) > 1 else what[:-1]} {listed(numbers)}")
    return capital(f"{'; '.join(told)}.") if told else ""


def operation_call(operation: AnyOperation) -> str:
    """`allocate(row=a, tokens=3)`."""
    given = {name: value for name, value in msgspec.structs.asdict(operation).items() if value is not False}
    return f"{operation_name(operation)}({', '.join(f'{name}={value}' for name, value in given.items())})"


def operation_label(operation: AnyOperation) -> str:
    """`allocate a`: what heads a column."""
    who = getattr(operation, "row", None) or getattr(operation, "name", None)
    return f"{operation_name(operation)} {who}" if who else operation_name(operation)


def pool(configuration: Configuration) -> str:
    """`4 pages of 1 slot`, the null page besides."""
    pages, size = configuration.pages, configuration.page_size
    return f"{pages} page{'s' * (pages != 1)} of {size} slot{'s' * (size != 1)}, and the null page"


def listed(numbers: Sequence[int], most: int = 24) -> str:
    """`1 2 3`, cut where it is long."""
    more = f" and {len(numbers) - most:,} more" if len(numbers) > most else ""
    return " ".join(map(str, numbers[:most])) + more


def capital(text: str) -> str:
    """The text with a capital letter first."""
    return text[:1].upper() + text[1:]
