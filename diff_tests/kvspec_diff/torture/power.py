"""Power is lost at every point of recorded programs, and again during recovery (T1, T2, T4).

The same programs run on the reference and on the store on tensors. Then every fsync of either's source is left out,
one at a time: each time some program has to lose something, or what was shown above shows nothing.
"""

import inspect
import random
from collections.abc import Callable
from typing import Any

from kvspec_diff.beside import Broken
from kvspec_diff.store_programs import SYNCS, Forgetful, random_program, random_scope, small, syncs
from kvspec_diff.storing import Tally as Replayed
from kvspec_diff.storing import power_loss
from kvspec_diff.subjects.stores import ReferenceStore, StoreSubject, TorchStore
from kvspec_diff.torture.figures import Part, Tally, Tell

WHAT = "loss of power at every point, during recovery too; each fsync left out"
KINDS: dict[str, Any] = {"reference": ReferenceStore, "torch": TorchStore}
Wrap = Callable[[Any], Any]


def as_it_is(files: Any) -> Any:
    """The folder."""
    return files


NOWHERE = 0
"""No line of a source."""

wrap: Wrap = as_it_is
"""What becomes of a folder before a store has it: a planted fault puts something in its way."""


def power(programs: int, tell: Tell, seed: int = 0) -> Part:
    """So many programs on either store, then those without an fsync."""
    tally = Tally("power", WHAT, tell)
    for name, kind in KINDS.items():
        usual = inspect.signature(kind).parameters["make"].default
        subject = kind(lambda files, *given, make=usual, **more: make(wrap(files), *given, **more))
        replayed = Replayed()
        for number in range(programs):
            tell(number, programs, f"programs, {replayed.states + replayed.during_recovery:,} losses of power, {name}")
            one(subject, name, seed * 1_000_003 + number, replayed, tally)
        tally.least(f"{name}: programs", programs, 1)
        tally.least(f"{name}: points", replayed.points, programs * 5)
        tally.least(f"{name}: folders after a loss of power", replayed.states, programs * 20)
        tally.least(f"{name}: folders after one during recovery", replayed.during_recovery, programs * 5)
        without_each(kind, usual, name, tally)
    return tally.part()


def one(subject: StoreSubject, name: str, seed: int, replayed: Replayed, tally: Tally) -> None:
    """One program loses power everywhere."""
    of = random.Random(seed)
    scope = random_scope(of, subject)
    program = random_program(of)
    try:
        power_loss(program, scope, subject, replayed)
    except Broken as broken:
        kind = {"T4": "lost", "T1": "misread", "T3": "misread"}.get(broken.law, "failed")
        tally.fault(kind, f"{name}, program {seed}: {broken}")


def without_each(kind: Any, usual: Any, name: str, tally: Tally) -> None:
    """Each fsync of a store's source left out is noticed by one of the programs; with all of them nothing is."""
    source = inspect.getsource(inspect.getmodule(usual) or usual)
    for line, where in {NOWHERE: "nothing", **syncs(source)}.items():
        tally.tell(0, None, f"{name} without {where}")
        forgetful = kind(lambda files, *given, line=line, **more: usual(Forgetful(files, line), *given, **more))
        noticed = set()
        for program in SYNCS.values():
            try:
                power_loss(program, small(forgetful), forgetful)
            except Broken as broken:
                noticed.add(broken.law)
        if line == NOWHERE:
            if noticed:
                tally.fault("failed", f"{name}: {sorted(noticed)} are broken with every fsync in its place")
            continue
        tally.count(f"{name}: fsyncs left out")
        tally.count(f"{name}: of these noticed", int(bool(noticed)))
        if not noticed:
            tally.fault("failed", f"{name}: nobody notices that {where}, line {line}, is left out")
