"""What a cache that was restored answered, held against a cold prefill of its tokens (B2, B5, B7)."""

from collections.abc import Iterable, Sequence
from typing import Any

from kvspec_record import toy

from kvspec_diff.beside import Broken
from kvspec_diff.caches.case import Setup
from kvspec_diff.caches.kinds import Member, sight
from kvspec_diff.caches.promises import Promises
from kvspec_diff.persisting.case import told

Answer = dict[str, Any]


def judge(table: Promises, setup: Setup, tokens: list[int], answers: Iterable[tuple[int, Answer]]) -> None:
    """Follow the answers, each with its number, to the steps on a restored cache of these tokens.

    Raises `Broken` with the law.
    """
    for number, answer in answers:
        name, before = answer["op"][0], tokens
        tokens = told(tokens, number, answer)
        if answer["status"] == "raised":
            raise Broken("B2", f"{name} on what was restored: {answer['raised']}")
        if name == "append" and answer["status"] != "done":
            raise Broken("B2", f"{name} on what was restored: {answer['status']}, {answer.get('why')}")
        if name == "trim":
            _trimmed(table.members(setup), before, answer)
        for member in table.members(setup) if name == "append" else ():
            if member.family == "state":
                _states(member, tokens, answer)
            else:
                _reads(member, tokens, len(tokens) - len(before), answer)


def _trimmed(members: Sequence[Member], tokens: Sequence[int], answer: Answer) -> None:
    """A trim is refused where what is needed has left a window, or a state would have to go back."""
    stuck = any(
        member.family == "state" or (member.family == "window" and len(tokens) >= member.numbers[0])
        for member in members
    )
    if answer["status"] != ("refused" if stuck else "done"):
        raise Broken("B2", f"a trim of what was restored, of {len(tokens)} tokens: {answer['status']}")


def _states(member: Member, tokens: Sequence[int], answer: Answer) -> None:
    states = answer["states"][member.path][0]
    if len(states) != member.numbers[0]:
        raise Broken("S2", f"{member.path}, {member.of}: {len(states)} of {member.numbers[0]} states are told")
    for entry, found in enumerate(states):
        wanted = 0
        for token in tokens:
            wanted = toy.fold(wanted, token, entry)
        if found != wanted:
            raise Broken("S2", f"{member.path}, {member.of}: entry {entry} is not that of {len(tokens)} tokens")


def _reads(member: Member, tokens: Sequence[int], count: int, answer: Answer) -> None:
    """What the last `count` tokens saw."""
    reads = answer["reads"][member.path][0]
    if len(reads) != count:
        raise Broken("B2", f"{member.path}, {member.of}: {len(reads)} of {count} queries are told")
    for place, flat in enumerate(reads):
        query = len(tokens) - count + place
        seen = [tuple(flat[i : i + 3]) for i in range(0, len(flat), 3)]
        wanted = sight(member, query, alone=count == 1)
        positions = [position for _, position, _ in seen]
        where = f"{member.path}, {member.of}: the query at {query}"
        if not wanted.must <= {*positions} <= wanted.may or len({*positions}) < len(positions):
            law = "B7" if member.family == "window" else "B5"
            raise Broken(law, f"{where} sees positions {sorted(positions)}, {sorted(wanted.must)} is right")
        for content, position, value in seen:
            right = toy.content(tokens[position])
            if (content, value) != (right, right):
                raise Broken("B2", f"{where} sees at position {position} what is not that token's")
