"""The page of compatibility: what came of each operation on each class, by release, from `docs/caches.json`."""

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from kvspec_diff.batched.finding import Finding, known
from kvspec_diff.caches import promises
from kvspec_diff.caches.case import Case

SEEN = Path(__file__).with_name("caches.json")
STEPS = {"append", "padded"}
"""Steps of a model."""

HEAD = (
    "# Compatibility of cache classes", "",
    "What releases do with their cache classes, operation by operation. Each cell comes from running the release: "
    "[how it is judged](caches.md).", "",
    "- `holds (n)`: it was done, and what was read later was right, n times;",
    "- `finding` with its laws, or `raises`: something is wrong, the findings below say what; it was right n times;",
    "- `refuses`: the class says that it does not do this;",
    "- `misuse`: nothing is promised, so nothing is judged; in brackets what happened when it was done all the same;",
    "- `-`: the operation did not come up.", "",
    "`isolate_x` stands for: what the operation x handed out stays as it is.", "",
)  # fmt: skip


def page() -> str:
    """The page."""
    return "\n".join(lines())


def lines() -> Iterator[str]:
    """A line at a time."""
    seen = json.loads(SEEN.read_text())
    yield from HEAD
    yield (
        f"Recorded by `docs/record_caches.py` on Python {seen['python']}, without a GPU: {seen['programs']:,} programs "
        "on each release."
    )
    yield ""
    for engine in dict.fromkeys(each["engine"] for each in seen["releases"]):
        releases = [each for each in seen["releases"] if each["engine"] == engine]
        yield from (f"## {engine}", "")
        for name in dict.fromkeys(name for each in releases for name in each["classes"]):
            yield from table(name, releases)
        yield from through_a_store([each for each in releases if each["stored"]])
        for each in releases:
            yield from findings(engine, each["release"])


def table(name: str, releases: list[dict[str, Any]]) -> Iterator[str]:
    """The operations of a class."""
    yield from (f"### {name}", "")
    yield f"| operation | {' | '.join(each['release'] for each in releases)} | said in |"
    yield f"|---{'|---' * len(releases)}|---|"
    columns = [each["classes"].get(name, {}) for each in releases]
    raises = [raising(each["engine"], each["release"]) for each in releases]
    for operation in dict.fromkeys(operation for column in columns for operation in column):
        cells = [
            cell(column[operation], (name, operation) in those) if operation in column else ""
            for column, those in zip(columns, raises, strict=True)
        ]
        last = releases[-1]
        source = promises.load(last["engine"], last["release"]).of(name, operation).source
        yield f"| {operation} | {' | '.join(cells)} | {escaped(source)} |"
    yield ""


def through_a_store(releases: list[dict[str, Any]]) -> Iterator[str]:
    """What came of storing caches, a line for each release."""
    if releases:
        yield from ("### Through a `BlockStore`", "")
        yield "Blocks of 1 to 64 tokens, restored after the store was opened anew: [how](caches.md#through-a-store)."
        yield from ("", "| release | done | laws | |", "|---|---|---|---|")
    for each in releases:
        done = ", ".join(f"{count:,} {name}" for name, count in each["stored"]["figures"].items())
        broken = each["stored"]["broken"]
        verdict = f"finding: {', '.join(broken)}" if broken else "holds"
        yield f"| {each['release']} | {done} | {', '.join(each['stored']['laws'])} | {verdict} |"
    yield ""


@cache
def raising(engine: str, release: str) -> set[tuple[str, str]]:
    """Classes and operations of the known findings that raise: what is raised in a step is laid to what led to it."""
    table = promises.load(engine, release)
    filed: list[tuple[str, Finding[Case]]] = known(engine, release, Case)
    found = set()
    for each in (each for _, each in filed if each.fault.law == "raised"):
        setup, done = each.case.setup, {str(step[0]) for step in each.case.steps}
        operation = each.fault.where.partition(":")[0]
        led = done - STEPS if operation in STEPS else set()
        names = table.named(setup, table.batched(setup) or "merge" in done)
        found |= {(name, one) for name in names for one in led or {operation}}
    return found


def cell(told: dict[str, Any], raises: bool = False) -> str:
    """What came of an operation."""
    if told["verdict"] == "misuse":
        return f"misuse ({told['happened']})" if told["happened"] else "misuse"
    laws = [*told["laws"], *["raises"] * raises]
    if laws:
        return f"finding: {', '.join(laws)} ({told['held']:,})"
    if told["held"]:
        return f"holds ({told['held']:,})" + (", or refuses" if told["refused"] else "")
    return "refuses" if told["refused"] else "-"


def findings(engine: str, release: str) -> Iterator[str]:
    """The known findings of a release."""
    filed: list[tuple[str, Finding[Case]]] = known(engine, release, Case)
    if not filed:
        return
    yield from (f"### Findings in {engine} {release}", "", "| law | class | after | the program shows | why |")
    yield "|---|---|---|---|---|"
    for name, each in filed:
        fault, why = each.fault, escaped(each.explanation)
        path = f"diff_tests/kvspec_diff/findings/{engine}/{release}/{name}.json"
        report = f" [{each.upstream.rsplit('/', 1)[-1]}]({each.upstream})" if each.upstream.startswith("http") else ""
        shown = f"{escaped(fault.says)} (`{path}`)"
        yield f"| {fault.law} | {fault.family} | {escaped(fault.where)} | {shown} | {why}{report} |"
    yield ""


def escaped(text: str) -> str:
    """As it may stand in a cell."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
