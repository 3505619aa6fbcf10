"""The law pages: all laws by id, the known bugs, and a page for each machine (`machine_pages`), as Markdown."""

import inspect
import sys
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from kvspec.laws import LAWS, STANDS_IN
from kvspec.registry import machine, variant, variant_names
from kvspec_diff.report.collect import law_key, upstream
from machine_pages import SUBJECTS, Stated, bugs_by_law, elaborated, laws_of, module, page, paragraphs, proved


def pages() -> Iterator[tuple[str, str]]:
    """Every page: its path under `docs`, and its text."""
    yield "laws/index.md", index()
    for subject in SUBJECTS:
        yield f"laws/{subject}.md", page(subject)
    yield "laws/known_bugs.md", known_bugs()


def index() -> str:
    """All laws by id."""
    rows = []
    found: dict[str, list[tuple[str, Stated]]] = defaultdict(list)
    for subject in SUBJECTS:
        for each in laws_of(subject)[0]:
            if each.law:
                found[each.law].append((subject, each))
    bugs = bugs_by_law()
    for law in sorted({*found, *bugs, *guard_laws(), *LAWS}, key=law_key):
        says = "<br>".join(f"[`{each.name}`]({subject}.md#{each.name}) {each.says}" for subject, each in found[law])
        if law in STANDS_IN:
            says += f"No proof; a test stands in: `{STANDS_IN[law]}`."
        kept = ", ".join(f"`{name}`" for name in guard_laws().get(law, ()))
        broken_by = ", ".join(f"[`{name}`](known_bugs.md#{name})" for name in bugs.get(law, ()))
        sentence = f"**{LAWS[law]}**<br>" if law in LAWS else ""
        rows.append(f"| {law} | {sentence}{says} | {kept} | {number_proved(law)} | {broken_by} |")
    return "\n".join([
        "# Laws",
        "",
        "Each law has an id, by which code, proofs, tests and known bugs refer to it. A law may be stated by several "
        "formulas and kept by guards of actions: where such a guard fails in a run, the law is broken.",
        "",
        f"Subjects: {', '.join(f'[`{subject}`]({subject}.md)' for subject in SUBJECTS)}.",
        "",
        "| id | what states it | actions that are guarded by it | obligations | known bugs that break it |",
        "|---|---|---|---|---|",
        *rows,
        "",
        "The [ledger](../ledger.md) tells, for each law, what breaks an obligation of its own (a known bug or a "
        "mutant) and a run in which its case occurs. The number of obligations here is over all machines: a machine "
        "that extends another proves the inherited laws again for its own actions. `kvspec prove` asks both solvers "
        "for each of them.",
        "",
    ])  # fmt: skip


def known_bugs() -> str:
    """The variants: bugs of released engines as machines."""
    return "\n".join([
        "# Known bugs",
        "",
        "Bugs that engines had, each as a machine that differs from the specification by what the bug did. A bug "
        "counts only if the law that it names is refuted for it, in a state that a run from the start reaches; "
        "`proofs/tests/test_variants.py` sees to that. `kvspec prove --variant NAME` shows the state, the step and "
        "the shortest run, `kvspec report` the run as a page map.",
        "",
        *[line for name in variant_names() for line in known_bug(name)],
    ])  # fmt: skip


def known_bug(name: str) -> Iterator[str]:
    kind = variant(name)
    (parent,) = kind.__bases__
    links = " ".join(f"([{kind.variant}]({link}))" for link in upstream(kind.variant)) or f"({kind.variant})"
    links = "(made up)" if kind.variant == name else links
    stating = [f"[`{each.name}`]({subject}.md#{each.name})" for subject in SUBJECTS for each in laws_of(subject)[0]
               if each.law == kind.breaks]  # fmt: skip
    yield f"## `{name}`"
    yield ""
    yield f"{paragraphs(sys.modules[kind.__module__].__doc__ or '')} {links}"
    yield ""
    of = f"[`{module(parent)}`]({module(parent)}.md)"
    yield f"It breaks {kind.breaks} ({', '.join(stating)}). What it does in place of {of}:"
    yield ""
    yield from ["```python", *inspect.getsource(kind).rstrip().splitlines(), "```", ""]


@cache
def guard_laws() -> dict[str, list[str]]:
    """For each law the actions with a guard of it."""
    found: dict[str, list[str]] = defaultdict(list)
    for subject in SUBJECTS:
        for name in machine(subject).actions:
            for guard in elaborated(machine(subject), name)[0].guards:
                if guard.law and name not in found[guard.law]:
                    found[guard.law].append(name)
    return found


def number_proved(law: str) -> int:
    return sum(each.law == law for subject in SUBJECTS for each in proved(subject).proofs)
