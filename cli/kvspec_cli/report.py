"""`kvspec report`: the laws, what is proved and compared, and each counterexample step by step, in one HTML file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter

from kvspec_cli import diff, places
from kvspec_cli.errors import BadInput, positive, unknown
from kvspec_cli.programs import traces_folder
from kvspec_cli.prove import check_seed, quiet_solvers
from kvspec_cli.screen import Screen
from kvspec_cli.subjects import OWN, Asked

if TYPE_CHECKING:
    from kvspec_diff.report.collect import Shown
    from kvspec_diff.report.data import Comparison, Finding, Report
    from kvspec_proofs.prove import Proof

SECONDS = 5.0
"""How long each of kvspec's own subjects is driven."""


class Reported(msgspec.Struct, frozen=True):
    """What the file holds. `holds`: nothing was found but what is known; `itf` are the runs' files."""

    holds: bool
    file: str
    bytes: int
    laws: int
    obligations: int
    proved: int
    programs: int
    findings: list[str]
    counterexamples: list[str]
    itf: list[str]
    missing: list[str]


def report(
    *,
    out: Annotated[Path, Parameter(help="The HTML file to write.")] = Path("kvspec-report.html"),
    variant: Annotated[
        list[str] | None,
        Parameter(help="Only this known bug's shortest run, such as sglang-34067; several if repeated."),
    ] = None,
    trace: Annotated[list[Path] | None, Parameter(help="A trace file to judge and show; several if repeated.")] = None,
    findings: Annotated[bool, Parameter(negative=(), help="The engines' known findings.")] = False,
    proofs: Annotated[bool, Parameter(help="Prove everything, or leave the proofs out.")] = True,
    compared: Annotated[
        list[Path] | None, Parameter(help="A result of `kvspec diff --json`, in place of new comparisons.")
    ] = None,
    seconds: Annotated[
        float, Parameter(help="How long to compare the reference, and then torch; 0 for not.")
    ] = SECONDS,
    itf: Annotated[Path | None, Parameter(help="A new folder for the runs in Apalache's trace format.")] = None,
    seed: Annotated[int, Parameter(help="What programs are drawn from, and the solvers' seed.")] = 0,
    as_json: Annotated[
        bool, Parameter("--json", negative=(), help="Print what the file holds as one JSON document.")
    ] = False,
) -> int:
    """Write one HTML file: laws, proofs, comparisons, findings, and counterexamples as page maps to step through.

    Without --variant, --trace and --findings it shows every known bug and every known finding.
    """
    from kvspec.registry import variant_names

    for name in variant or ():
        if name not in variant_names():
            raise unknown("variant", name, variant_names())
    positive("--seconds", seconds, or_zero=True)
    check_seed(seed)
    places.check_file("--out", out)
    places.check_folder("--itf", itf)
    screen = Screen(as_json=as_json)
    everything = not (variant or trace or findings)
    names = variant_names() if everything else list(dict.fromkeys(variant or ()))
    passed = [read_comparison(path) for path in compared or ()]
    shown, rows, missing = gather(names, trace or [], findings or everything, screen)
    proved = prove_all(seed, screen) if proofs else []
    made = passed or (compare(seconds, seed, screen) if seconds else [])
    result = assemble(proved, made, rows, shown, missing)
    files = write_itf(itf, shown) if itf else []
    told = summary(result, out, write(out, result), files)
    show(screen, told)
    screen.document(told)
    return 0 if result.holds else 1


def gather(
    variants: Sequence[str], traces: Sequence[Path], findings: bool, screen: Screen
) -> "tuple[list[Shown], list[Finding], list[str]]":
    """The counterexamples, the known findings' rows, and what could not be shown."""
    from kvspec_diff.report import collect

    judged = [collect.of_trace(path) for path in traces]
    found, missing = [], []
    with screen.progress("looking for the shortest runs") as tell:
        for number, name in enumerate(variants):
            tell(number, len(variants), name)
            run = collect.of_variant(name)
            if run is None:
                missing.append(f"No run of the known bug {name} was found at the small scopes.")
            else:
                found.append(run)
    known = collect.known_findings() if findings else []
    # unique() renames runs of one name, findings among them, so that rows must be taken from what it returns
    shown = collect.unique([*found, *(run for _, run in known), *judged])
    slugs = [run.counterexample.slug for run in shown[len(found) : len(found) + len(known)]]
    rows = [msgspec.structs.replace(row, shown=name) for (row, _), name in zip(known, slugs, strict=True)]
    return shown, rows, missing


def prove_all(seed: int, screen: Screen) -> "list[Proof]":
    """Every obligation of every machine."""
    from kvspec.registry import ALGORITHMS, MACHINES
    from kvspec_diff.report.collect import proved

    quiet_solvers()
    with screen.progress("proving") as tell:
        return proved((*MACHINES, *ALGORITHMS), seed=seed, progress=lambda name, done, of: tell(done, of, name))


def compare(seconds: float, seed: int, screen: Screen) -> "list[Comparison]":
    """The reference and torch, each for so many seconds."""
    folder = traces_folder(None)
    return [
        comparison(diff.compute(Asked(subject, "", "", {}, ()), seconds, None, seed, True, folder, screen)[0])
        for subject in OWN
    ]


def read_comparison(path: Path) -> "Comparison":
    """A document that `kvspec diff --json` printed."""
    try:
        return comparison(msgspec.json.decode(path.read_bytes(), type=diff.Compared))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not a result of `kvspec diff --json` ({error})") from None


def comparison(result: diff.Compared) -> "Comparison":
    """A comparison as the report shows it."""
    from kvspec_diff.report.data import Comparison, Found

    known = [
        f"{each.name} {f'still breaks {each.law}' if each.stands else f'now: {each.now}'}" for each in result.known
    ]
    found = [Found(each.law, each.subject, each.says, each.runs, each.reproduce) for each in result.found]
    return Comparison(
        result.subject, result.seed, result.clean, result.figures, result.quality, known, found, result.reproduce
    )


def assemble(
    proofs: "Sequence[Proof]",
    comparisons: "list[Comparison]",
    rows: "list[Finding]",
    shown: "Sequence[Shown]",
    missing: list[str],
) -> "Report":
    """The whole report, and whether anything was found that is not known."""
    from importlib import metadata

    from kvspec_diff.report.collect import law_rows, proof_rows
    from kvspec_diff.report.data import Report

    runs = [each.counterexample for each in shown]
    holds = (
        all(not proof.failed for proof in proofs)
        and all(each.clean for each in comparisons)
        and all(row.stands for row in rows)
        and not missing
        and not any(run.law for run in runs if run.kind == "trace")
    )
    return Report(
        version=metadata.version("kvspec"),
        holds=holds,
        laws=law_rows(proofs),
        proofs=proof_rows(proofs),
        comparisons=comparisons,
        findings=rows,
        counterexamples=runs,
        missing=missing,
    )


def write(out: Path, result: "Report") -> int:
    """Write the file, which appears whole or not at all; its size in bytes."""
    from kvspec_diff.report.html import render

    text = render(result).encode("utf-8", "backslashreplace")
    places.write_file(out, text)
    return len(text)


def write_itf(folder: Path, shown: "Sequence[Shown]") -> list[str]:
    """Write each run as a file; the folder appears with all of them or not at all."""
    from kvspec_diff.report.itf import document

    names = [f"{run.counterexample.slug}.itf.json" for run in shown]
    with places.new_folder(folder) as part:
        for name, run in zip(names, shown, strict=True):
            (part / name).write_bytes(msgspec.json.encode(document(run.walk, run.counterexample.title)))
    return [str(folder / name) for name in names]


def summary(result: "Report", out: Path, size: int, itf: list[str]) -> Reported:
    """What is told of the file."""
    return Reported(
        holds=result.holds,
        file=str(out),
        bytes=size,
        laws=len(result.laws),
        obligations=sum(len(proof.obligations) for proof in result.proofs),
        proved=sum(proof.proved for proof in result.proofs),
        programs=int(sum(each.figures.get("runs", 0) for each in result.comparisons)),
        findings=[f"{row.engine} {row.release} {row.name}" for row in result.findings],
        counterexamples=[run.title for run in result.counterexamples],
        itf=itf,
        missing=result.missing,
    )


def show(screen: Screen, told: Reported) -> None:
    """Print where the file is and what is in it."""
    proved = f"{told.proved:,} of {told.obligations:,} obligations proved" if told.obligations else "no proofs"
    compared = f"{told.programs:,} programs compared" if told.programs else "no comparisons"
    screen.line(f"{told.laws} laws, {proved}, {compared}, {len(told.findings)} known findings")
    screen.line(f"{len(told.counterexamples)} runs to step through: {', '.join(told.counterexamples)}")
    for text in told.missing:
        screen.line(text, "bold red")
    if told.itf:
        screen.line(f"{len(told.itf)} ITF traces in {Path(told.itf[0]).parent}")
    screen.line(f"{told.file}: {told.bytes:,} bytes, to be opened in a browser")
    if not told.holds:
        screen.line("Something was found; see the file.", "bold red")
    else:
        whole = told.obligations and told.programs
        screen.line("Everything holds." if whole else "Nothing was found in what was run.", "green")
