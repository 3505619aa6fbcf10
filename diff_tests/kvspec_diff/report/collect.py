"""Gathers what a report shows: the laws from the machines, the proofs, the counterexamples and the known findings."""

import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.resources import as_file, files
from pathlib import Path
from typing import NamedTuple

import msgspec
from kvspec.language.elaborate import elaborate
from kvspec.language.machine import Machine, count
from kvspec.registry import MACHINES, machine, variant, variant_names
from kvspec_proofs.obligations import Obligation
from kvspec_proofs.prove import Proof, prove, reach, refuted
from kvspec_proofs.tables import scope_of

from kvspec_diff import known, trace
from kvspec_diff.report import steps
from kvspec_diff.report.data import (
    Counterexample,
    Finding,
    Kind,
    LawProof,
    LawRow,
    MachineProof,
    ObligationRow,
    Statement,
)
from kvspec_diff.report.words import first_sentence, pool

OF_NO_LAW = ("domain", "superposition")
"""Obligations of the language itself."""

BUDGETS = (2_000, 20_000)
"""In how many states a scope is searched for a run, at first and when no scope has shown one."""

KINDS = {
    "invariant": "every state",
    "count": "every state",
    "step": "every step",
    "derived": "follows from others",
    "lemma": "arithmetic",
}
"""The kinds of statements, as a reader understands them."""

UPSTREAM = {
    "ATOM": "ROCm/ATOM", "LMCache": "LMCache/LMCache", "Mooncake": "kvcache-ai/Mooncake",
    "atlas": "Avarok-Cybersecurity/atlas", "llamacpp": "ggml-org/llama.cpp", "lucebox": "Luce-Org/lucebox",
    "mlx-lm": "ml-explore/mlx-lm", "omlx": "jundot/omlx", "rapid-mlx": "raullenchai/Rapid-MLX",
    "sglang": "sgl-project/sglang", "trtllm": "NVIDIA/TensorRT-LLM", "vllm": "vllm-project/vllm",
    "vllm-ascend": "vllm-project/vllm-ascend", "vllm-metal": "vllm-project/vllm-metal",
}  # fmt: skip
"""The repository that an issue such as `sglang#34067` belongs to."""


def law_key(law: str) -> tuple[str, int]:
    """O2 before O11."""
    letters = law.rstrip("0123456789")
    return letters, int(law[len(letters) :] or 0)


def law_rows(proofs: Sequence[Proof]) -> list[LawRow]:
    """Every law that the machines state, with what was proved of it."""
    stated: dict[str, dict[str, Statement]] = {}
    guards: dict[str, dict[str, None]] = {}
    for name in MACHINES:
        kind = machine(name)
        for statement, law in _statements(name, kind):
            stated.setdefault(law, {}).setdefault(statement.name, statement)
        for law, action in _guards(kind):
            guards.setdefault(law, {})[action] = None
    broken: dict[str, list[str]] = {}
    for bug in variant_names():
        broken.setdefault(variant(bug).breaks, []).append(bug)
    return [
        LawRow(law, list(stated.get(law, {}).values()), list(guards.get(law, {})), _proofs_of(law, proofs),
               broken.get(law, []))
        for law in sorted({*stated, *guards}, key=law_key)
    ]  # fmt: skip


def _statements(name: str, kind: type[Machine]) -> Iterator[tuple[Statement, str]]:
    for law in kind.laws.values():
        if law.kind in KINDS:
            yield Statement(law.name, KINDS[law.kind], name, " ".join(law.doc.split())), law.law
    for var in kind.variables.values():
        if isinstance(var, count):
            says = f"`{var.name}` is at all times the number of what it counts, whichever action is taken."
            yield Statement(f"{var.name}_counts", KINDS["count"], name, says), var.law


def _guards(kind: type[Machine]) -> Iterator[tuple[str, str]]:
    for action in kind.actions:
        for guard in elaborate(kind, action).guards:
            if guard.law:
                yield guard.law, action


def _proofs_of(law: str, proofs: Sequence[Proof]) -> list[LawProof]:
    found = []
    for proof in proofs:
        own = [verdict.proved for verdict in proof.verdicts if verdict.obligation.law == law]
        if own:
            found.append(LawProof(_named(proof.machine), len(own), sum(own)))
    return found


def _named(kind: type[Machine]) -> str:
    return kind.__module__.rsplit(".", 1)[-1]


def proved(
    names: Iterable[str], *, seed: int = 0, progress: Callable[[str, int, int], None] | None = None
) -> list[Proof]:
    """Every obligation of the machines, by both solvers; `progress` gets the machine, how many are done and in all."""

    def told(name: str) -> Callable[[int, int, Obligation], None] | None:
        return (lambda done, of, at: progress(name, done, of)) if progress else None

    return [prove(machine(name), seed=seed, progress=told(name)) for name in names]


def proof_rows(proofs: Sequence[Proof]) -> list[MachineProof]:
    """The proofs as rows."""
    return [
        MachineProof(
            _named(proof.machine), first_sentence(sys.modules[proof.machine.__module__].__doc__ or ""), proof.skipped,
            dict(sorted(Counter(verdict.obligation.fragment for verdict in proof.verdicts).items())),
            dict(sorted(Counter(verdict.z3 for verdict in proof.verdicts).items())),
            dict(sorted(Counter(verdict.cvc5 for verdict in proof.verdicts).items())),
            [ObligationRow(each.obligation.title, each.obligation.fragment, each.z3, each.cvc5)
             for each in proof.verdicts],
        )
        for proof in proofs
    ]  # fmt: skip


class Shown(NamedTuple):
    """A counterexample as the report shows it, and the run that it is made of."""

    counterexample: Counterexample
    walk: steps.Walk


def of_variant(name: str) -> Shown | None:
    """The shortest run from the initial state that breaks a known bug's law; None if the search meets none."""
    kind = variant(name)
    verdict = refuted(kind, kind.breaks) if kind.of_kind("assumption") else None
    run = reach(kind, kind.breaks, BUDGETS, verdict.refuted if verdict else None).run
    if run is None:
        return None
    walk = steps.of_run(kind, run)
    shown = Counterexample(
        slug=slug(name),
        title=f"{name} ({kind.variant})",
        kind="variant",
        law=kind.breaks,
        law_says=law_says(kind, kind.breaks),
        story=first_sentence(sys.modules[kind.__module__].__doc__ or ""),
        links=upstream(kind.variant),
        scope=scope_of(run.start),
        reproduce=f"kvspec prove --variant {name}",
        map=steps.page_map(walk),
    )
    return Shown(shown, walk)


def law_says(kind: type[Machine], law: str) -> str:
    """The sentences with which a machine states a law."""
    return " ".join(dict.fromkeys(each.says for each, of in _statements("", kind) if of == law))


def upstream(issue: str) -> list[str]:
    """The address of an issue such as `sglang#34067`, where its project is known."""
    project, _, number = issue.partition("#")
    return [f"https://github.com/{UPSTREAM[project]}/issues/{number}"] if project in UPSTREAM and number else []


def of_trace(path: Path) -> Shown:
    """A trace file's recorded outcomes, judged; `TraceError` for one that cannot be read or has none."""
    return _judged(path, trace.read(path), "trace", path.name, f"kvspec replay {shlex.quote(str(path))}")


def _judged(path: Path, read: trace.Trace, kind: Kind, title: str, reproduce: str) -> Shown:
    walk = steps.of_trace(str(path), read)
    found = walk.finding
    story = read.header.note or (str(found) if found else "No law is broken.")
    shown = Counterexample(
        slug=slug(title.removesuffix(".jsonl")),
        title=title,
        kind=kind,
        law=found.law if found else "",
        law_says=law_says(walk.machine, found.law) if found else "",
        story=story,
        links=links(story),
        scope=f"{pool(read.header.configuration)}; {read.header.subject or 'as recorded'}",
        reproduce=reproduce,
        map=steps.page_map(walk),
    )
    return Shown(shown, walk)


def known_findings(folder: Path | None = None) -> list[tuple[Finding, Shown]]:
    """The committed findings of all engines and releases, judged by what was recorded."""
    found = []
    with as_file(files("kvspec_diff") / "findings") as own:
        base = folder or own
        for release in sorted(path for path in base.glob("*/*") if path.is_dir()):
            engine, version = release.parts[-2:]
            for each in known.load(engine, version, base):
                name, header = each.name.removesuffix(".jsonl"), each.trace.header
                again = f"kvspec diff --engine {engine}=={version}"
                shown = _judged(release / each.name, each.trace, "finding", f"{engine} {version} {name}", again)
                law, told = header.law, shown.counterexample
                row = Finding(engine, version, name, law, header.note, links(header.note), told.law == law, told.slug)
                found.append((row, shown))
    return found


def links(text: str) -> list[str]:
    """The web addresses in a text; no other kind of address."""
    return [address.rstrip(".,;:)") for address in re.findall(r"https?://[^\s\"'<>]+", text)]


def slug(name: str) -> str:
    """A name as the id of an element."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "run"


def unique(found: Iterable[Shown]) -> list[Shown]:
    """The counterexamples with different slugs."""
    used: dict[str, int] = {}
    result = []
    for each in found:
        name = each.counterexample.slug
        used[name] = used.get(name, 0) + 1
        if used[name] > 1:
            again = msgspec.structs.replace(each.counterexample, slug=f"{name}--{used[name]}")
            each = each._replace(counterexample=again)
        result.append(each)
    return result
