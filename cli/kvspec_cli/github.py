"""Failures as GitHub annotations: each at the law, the known bug or the trace that it is about."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from kvspec_diff.report.annotations import Annotation, law_place

if TYPE_CHECKING:
    from kvspec.language.machine import Machine

    from kvspec_cli import check, diff, prove


def of_check(result: "check.Result") -> Iterator[Annotation]:
    """Every check that failed: proofs and known bugs at their module."""
    for each in result.checks:
        if not each.holds:
            file, line = _place(each.reproduce)
            yield Annotation(f"kvspec check: {each.what}", f"{each.figures}\nReproduce: {each.reproduce}", file, line)


def _place(reproduce: str) -> tuple[Path | None, int | None]:
    """The module of the machine that a `kvspec prove` command names, if it is one."""
    words = reproduce.replace("--variant ", "").split()
    return law_place(machine_of(words[2]), "") if words[1] == "prove" else (None, None)


def of_prove(result: "prove.Result") -> Iterator[Annotation]:
    """Every obligation that is not proved, at its law."""
    for machine in result.machines:
        for each in machine.unproved:
            file, line = law_place(machine_of(machine.subject), each.obligation.rpartition(" ")[2])
            answers = f"z3: {each.z3}, cvc5: {each.cvc5}"
            yield Annotation(f"not proved: {each.law}", f"{each.obligation} ({answers})\n{each.says}", file, line)


def of_diff(result: "diff.Compared") -> Iterator[Annotation]:
    """Every failure at its trace, every known finding that no longer stands at its file."""
    for found in result.found:
        text = f"{found.subject}, {found.runs} runs: {found.says}\nReproduce: {found.reproduce}"
        yield Annotation(f"kvspec diff: {found.law}", text, Path(found.trace), 1)
    engine, _, version = result.subject.partition("==")
    for known in result.known:
        if not known.stands:
            file = Path(str(files("kvspec_diff") / "findings" / engine / version / known.name))
            text = f"{known.name} no longer breaks {known.law}: {known.now}"
            yield Annotation(f"kvspec diff: known finding of {result.subject}", text, file, 1)


def machine_of(name: str) -> "type[Machine]":
    """A machine or a known bug, whichever has the name."""
    from kvspec.registry import machine, variant, variant_names

    return variant(name) if name in variant_names() else machine(name)
