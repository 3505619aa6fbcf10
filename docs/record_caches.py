"""Runs programs on the cache classes of the installed releases and records in `docs/caches.json` what came of each
operation on each class; the page of compatibility is generated from that.

Run it by hand after `kvspec engine install NAME==VERSION` for each release: `.venv/bin/python docs/record_caches.py
[PROGRAMS]`.
"""

import platform
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from kvspec_diff import engines
from kvspec_diff.batched.client import Client
from kvspec_diff.batched.finding import known
from kvspec_diff.caches import promises
from kvspec_diff.caches.case import Case
from kvspec_diff.caches.compare import BATCH, Comparison, laid_to
from kvspec_diff.caches.judge import judge
from kvspec_diff.caches.programs import draw
from kvspec_diff.caches.promises import Promises
from kvspec_diff.persisting.compare import LAWS
from kvspec_diff.persisting.compare import Comparison as Persisting

SEEN = Path(__file__).with_name("caches.json")
PROGRAMS = 2000
STORED = 5
"""Programs on caches that are stored, for every two others."""

TRIED = 400
"""Programs with misuse."""

OUTCOMES = {"held": "read rightly", "raised": "raises", "refused": "refuses", "nothing": "means nothing",
            "misuse": "not passed on"}  # fmt: skip

Cells = dict[str, dict[str, dict[str, Any]]]


def main() -> None:
    """Every installed release that there is a table of promises for."""
    programs = int(sys.argv[1]) if len(sys.argv) > 1 else PROGRAMS
    there = [each for each in engines.installed() if each.version in promises.engines().get(each.engine, ())]
    found = [seen(each.engine, each.version, programs) for each in there]
    whole = {"python": platform.python_version(), "programs": programs, "releases": found}
    SEEN.write_bytes(msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n")


def seen(engine: str, version: str, programs: int) -> dict[str, Any]:
    """What came of each operation on each class."""
    table = promises.load(engine, version)
    with Client(engine, version) as client:
        made = Comparison(client)
        made.run(programs=programs)
        filed = known(engine, version, Case)
        broken = broken_of(made, filed)
        done = tried(client, table)
        persisted = stored(client, programs * STORED // 2)
    cells: Cells = {}
    for name in table.classes:
        for operation in table.judged:
            promise = table.of(name, operation)
            cells.setdefault(name, {})[operation] = {
                "verdict": promise.verdict,
                "held": made.tally.marks[name, operation, "held"],
                "refused": made.tally.marks[name, operation, "refused"],
                "laws": sorted(broken.get((name, operation), ())),
                "happened": done.get((name, operation), ""),
            }
    whole = {"engine": engine, "release": version, "figures": made.tally.figures, "classes": cells}
    return {**whole, "stored": persisted}


def stored(client: Client, programs: int) -> dict[str, Any] | None:
    """What came of caches that were stored and restored; None where the worker has no way to hand them out."""
    if not client.capabilities.get("stores"):
        return None
    made = Persisting(client)
    made.run(programs=programs)
    return {"figures": dict(made.counts), "laws": LAWS, "broken": sorted({law for law, _, _ in made.seen})}


def broken_of(made: Comparison, filed: list[Any]) -> dict[tuple[str, str], set[str]]:
    """By class and operation the laws that are broken: those of faults that were seen, and of the known findings."""
    found: dict[tuple[str, str], set[str]] = {}
    for law, where, family in {*made.seen, *(each.fault.key for _, each in filed)}:
        operations = laid_to((law, where, family)) or {"append"}
        if family and len(operations) == 1:
            (operation,) = operations
            first, _, rest = operation.partition(" ")
            name = f"isolate_{first}" if rest == "kept" else first
            found.setdefault((family, name), set()).add(law)
    return found


def tried(client: Client, table: Promises) -> dict[tuple[str, str], str]:
    """What comes of operations of which nothing is promised, in programs that are drawn as if something were."""
    rng, judged = random.Random(0), Everything(table)
    cases = [draw(judged, rng) for _ in range(TRIED)]
    marks: Counter[tuple[str, str, str]] = Counter()
    laws: dict[tuple[str, str], set[str]] = {}
    for start in range(0, TRIED, BATCH):
        some = cases[start : start + BATCH]
        for case, answer in zip(some, client.ask([each.question for each in some]), strict=True):
            found = judge(case, answer.get("calls", ()), judged)
            marks.update(found.marks)
            for fault in found.faults:
                for operation in laid_to(fault.key):
                    laws.setdefault((fault.family, operation), set()).add(fault.law)
    told = {}
    for name in table.classes:
        for operation in table.operations:
            if table.of(name, operation).verdict == "misuse":
                parts = [says for outcome, says in OUTCOMES.items() if marks[name, operation, outcome]]
                parts += [f"breaks {law}" for law in sorted(laws.get((name, operation), ()))]
                told[name, operation] = ", ".join(parts)
    return told


class Everything(Promises):
    """The promises of a release, as if what is misuse were taken, or refused."""

    def __init__(self, table: Promises) -> None:
        changed = tuple(
            msgspec.structs.replace(each, verdict="optional") if each.verdict == "misuse" else each
            for each in table.table.promises
        )
        super().__init__(msgspec.structs.replace(table.table, promises=changed), table.release)


if __name__ == "__main__":
    main()
