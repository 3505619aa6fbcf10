"""Mutants of the specification that nothing sees: each has a reason that a person wrote, in `survivors.txt`."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kvspec_proofs.judged import Judged
from kvspec_proofs.mutants import KINDS

LISTED = Path(__file__).with_name("survivors.txt")
"""A line that begins with # is the reason for the survivors below it, up to a blank line."""


@dataclass(frozen=True)
class Tally:
    """How many mutants of a kind a machine has, how many were refuted, met by search and in lockstep, and which none.

    The reference is asked only for those that no search has met.
    """

    machine: str
    kind: str
    mutants: int
    proof: int
    search: int
    lockstep: int
    survivors: tuple[str, ...]


def tally(machine: str, judged: Iterable[Judged]) -> list[Tally]:
    """The figures of a machine, kind by kind."""
    found = list(judged)
    return [
        Tally(
            machine,
            kind,
            len(own),
            sum(bool(each.proof) for each in own),
            sum(bool(each.search) for each in own),
            sum(bool(each.lockstep) for each in own),
            tuple(each.mutant.name for each in own if each.survives),
        )
        for kind in KINDS
        if (own := [each for each in found if each.mutant.kind == kind])
    ]


def named(tallies: Iterable[Tally]) -> list[str]:
    """The survivors as they are listed: `pages, pad never`."""
    return [f"{each.machine}, {name}" for each in tallies for name in each.survivors]


def reasons(path: Path = LISTED) -> dict[str, str]:
    """The survivors that are listed, each with its reason; a survivor without one, or listed twice, is an error."""
    found: dict[str, str] = {}
    reason, above = "", False
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            text = line.removeprefix("# ")
            reason, above = f"{reason} {text}" if above else text, True
            continue
        above = False
        if not line:
            reason = ""
        elif not reason:
            raise ValueError(f"{path.name}: no reason is given for {line!r}")
        elif line in found:
            raise ValueError(f"{path.name}: {line!r} is listed twice")
        else:
            found[line] = reason
    return found


def unexplained(survivors: Iterable[str], listed: Mapping[str, str]) -> list[str]:
    """Survivors without a reason."""
    return [name for name in survivors if name not in listed]


def stale(survivors: Iterable[str], listed: Mapping[str, str]) -> list[str]:
    """Reasons for what does not survive, or is not there any more."""
    there = set(survivors)
    return [name for name in listed if name not in there]
