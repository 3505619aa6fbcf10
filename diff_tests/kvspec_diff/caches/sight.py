"""What queries saw, and what is held, against the history of their row."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kvspec_record import toy

from kvspec_diff.caches.kinds import Member, sight

SHOWN = 12
"""Rows of a table that are told."""

Row = tuple[int, int, int]
"""Content of the key, position, content of the value."""


class Wrong(NamedTuple):
    """What is wrong with a read: in words, as a table, and whether it is the positions alone.

    `contents` are those that were seen and should not have been; `moved`: the query's own token has another position.
    """

    says: str
    rows: tuple[tuple[str, ...], ...] = ()
    position: bool = False
    contents: tuple[int, ...] = ()
    moved: bool = False


HEAD = ("position", "what a cold prefill has there", "what is seen")


def rows_of(flat: Sequence[int]) -> list[Row]:
    """The rows of a flat list."""
    return [(flat[i], flat[i + 1], flat[i + 2]) for i in range(0, len(flat) - 2, 3)]


def name(content: int) -> str:
    """A content in words: of which token it is."""
    step, row, place = toy.told(content)
    return "nothing written" if content == 0 else f"token {place} of row {row} of step {step}"


def seen(member: Member, history: Sequence[int], position: int, alone: bool, flat: Sequence[int]) -> Wrong | None:
    """What is wrong with what the query at a position saw; `history` are the row's tokens up to it, at least."""
    must, may = sight(member, position, alone)
    wrong = compare(history, must, may, rows_of(flat))
    own = toy.content(history[position])
    moved = any(content == own and there != position for content, there, _ in rows_of(flat))
    return wrong and wrong._replace(says=f"the query at position {position} {wrong.says}", moved=moved)


def held(member: Member, history: Sequence[int], flat: Sequence[int]) -> Wrong | None:
    """What is wrong with what is held: all that the next query sees, and of what else there is no wrong row."""
    must, _ = sight(member, len(history), True)
    everything = frozenset(range(len(history)))
    return compare(history, must & everything, everything, rows_of(flat))


def cut(member: Member, history: Sequence[int], start: int, stop: int, flat: Sequence[int]) -> Wrong | None:
    """What is wrong with a slice: of a full memory its positions, of others no wrong row; in order."""
    inside = frozenset(range(start, min(stop, len(history))))
    rows = rows_of(flat)
    wrong = compare(history, inside if member.family == "full" else frozenset(), inside, rows)
    if wrong is None and [position for _, position, _ in rows] != sorted(position for _, position, _ in rows):
        return Wrong("is out of order")
    return wrong


def compare(history: Sequence[int], must: frozenset[int], may: frozenset[int], rows: list[Row]) -> Wrong | None:
    """What is wrong with these rows, which are to be of the positions `must`, and of others of `may` at most."""
    right = {toy.content(history[position]): position for position in may}
    told = [right.get(key) if key == value else None for key, _, value in rows]
    places = [position for position in told if position is not None]
    at_home = all(position == home for (_, position, _), home in zip(rows, told, strict=True))
    whole = len(places) == len(rows) == len(set(places)) and must <= set(places)
    if whole and at_home:
        return None
    strange = tuple(key for (key, _, _), home in zip(rows, told, strict=True) if home is None)
    table = tuple(_table(history, must, rows, told))
    return Wrong(_say(rows, told, must, whole), table[:SHOWN], whole, strange)


def _say(rows: list[Row], told: list[int | None], must: frozenset[int], whole: bool) -> str:
    if whole:
        return "finds rows that were written for other positions"
    count = Counter(position for position in told if position is not None)
    missing = len(must - count.keys())
    parts = [
        (missing, f"does not see {missing} of {len(must)} positions"),
        (told.count(None), f"sees {told.count(None)} rows that are not of what it may see"),
        (any(times > 1 for times in count.values()), "sees a position twice"),
    ]
    return " and ".join(text for there, text in parts if there)


def _table(
    history: Sequence[int], must: frozenset[int], rows: list[Row], told: list[int | None]
) -> Iterator[tuple[str, ...]]:
    told_of: Callable[[int], str] = lambda position: name(toy.content(history[position]))  # noqa: E731
    there = Counter(position for position in told if position is not None)
    for position in sorted(must - there.keys()):
        yield str(position), told_of(position), "-"
    for (key, position, value), home in zip(rows, told, strict=True):
        value_says = "" if key == value else f", its value {name(value)}"
        if home is None:
            cold = told_of(position) if position in must else "-"
            yield str(position), cold, name(key) + value_says
        elif home != position:
            yield str(home), told_of(home), f"{name(key)}, written for position {position}"
        elif there[home] > 1:
            yield str(home), told_of(home), f"{name(key)}, {there[home]} times"
