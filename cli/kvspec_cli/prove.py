"""`kvspec prove`: every obligation of the machines, by two solvers."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from cyclopts import Parameter
from kvspec_diff.report.annotations import annotate

from kvspec_cli import github, places
from kvspec_cli.errors import BadInput
from kvspec_cli.screen import Screen, Told
from kvspec_cli.shown import Chosen, ShownRun, ShownStep, choose, print_run, print_step, purpose, show_run, show_step

if TYPE_CHECKING:
    from kvspec.language.machine import Machine
    from kvspec_proofs.finite import Counterexample
    from kvspec_proofs.obligations import Obligation
    from kvspec_proofs.prove import Proof
    from kvspec_proofs.search import Run

OF_NO_LAW = ("domain", "superposition")
"""Obligations of the language itself: values stay in their sorts, a refined action keeps what its parent does."""

BUDGETS = (2_000, 20_000)
"""In how many states a scope is searched for a run, at first and when no scope has shown one."""


SEEDS = 2**31
"""How many seeds the solvers take."""


class Unproved(msgspec.Struct, frozen=True):
    """An obligation that a solver did not prove."""

    obligation: str
    law: str
    says: str
    z3: str
    cvc5: str


class Proved(msgspec.Struct, frozen=True):
    """What came of a machine's obligations. `skipped` pairs of action and law cannot meet; `laws` counts by law."""

    subject: str
    variant: str
    obligations: int
    skipped: int
    unknown: int
    fragments: dict[str, int]
    laws: dict[str, int]
    unproved: list[Unproved]
    counterexample: ShownStep | None = None
    run: ShownRun | None = None


class Result(msgspec.Struct, frozen=True):
    """The whole result. `reproduce` is empty when everything is proved."""

    proved: bool
    machines: list[Proved]
    reproduce: str = ""


def prove(
    *subjects: Annotated[str, Parameter(help="Machines such as pages or fairness; all by default.")],
    variant: Annotated[str | None, Parameter(help="A known bug, such as sglang-34067, in place of a subject.")] = None,
    seed: Annotated[int, Parameter(help="The solvers' random seed.")] = 0,
    seeds: Annotated[int, Parameter(help="Prove with so many seeds, from --seed on; no verdict may change.")] = 1,
    smt: Annotated[Path | None, Parameter(help="A new folder for the obligations as SMT-LIB files.")] = None,
    proofs: Annotated[Path | None, Parameter(help="A new folder for cvc5's proofs, in its format CPC.")] = None,
    ledger: Annotated[bool, Parameter(negative=(), help="The ledger of all laws in place of the proofs.")] = False,
    write: Annotated[Path | None, Parameter(help="With --ledger: the file for its page.")] = None,
    as_json: Annotated[bool, Parameter("--json", negative=(), help="Print one JSON document.")] = False,
) -> int:
    """Prove the laws with two solvers; show what breaks where they do not hold."""
    screen = Screen(as_json=as_json)
    chosen = choose(subjects, variant)
    check_seed(seed)
    if ledger:
        if subjects or variant or smt or proofs or seeds != 1:
            raise BadInput("--ledger is of all laws: with it go --seed, --write and --json alone")
        return show_ledger(seed, write, screen)
    if write is not None:
        raise BadInput("--write goes with --ledger")
    if seeds < 1:
        raise BadInput(f"--seeds is {seeds}; give a number from 1 on")
    if seed + seeds > SEEDS:
        raise BadInput(f"--seeds is {seeds}; from --seed {seed} on there are {SEEDS - seed}")
    places.check_folder("--smt", smt)
    places.check_folder("--proofs", proofs)
    if smt is not None:
        with screen.progress(f"writing {smt}") as tell:
            write_obligations(smt, chosen, "smt2", lambda text: text, tell)
    if proofs is not None:
        from kvspec_proofs.solvers import cvc5_proof

        with screen.progress(f"writing {proofs}") as tell:
            write_obligations(proofs, chosen, "cpc", cvc5_proof, tell)
    result = compute(chosen, seed, screen)
    show(screen, result, chosen)
    for other in range(seed + 1, seed + seeds):
        again = compute(chosen, other, screen)
        if verdicts(again) != verdicts(result):
            screen.line(
                f"With --seed {other} another verdict: {sorted(verdicts(again) ^ verdicts(result))}", "bold red"
            )
            screen.line(f"Reproduce: kvspec prove {' '.join(each.name for each in chosen)} --seed {other}")
            return 1
    if seeds > 1:
        screen.line(f"No verdict changes with {seeds} seeds.")
    screen.document(result)
    annotate(github.of_prove(result))
    return 0 if result.proved else 1


def show_ledger(seed: int, write: Path | None, screen: Screen) -> int:
    """Make the ledger, print it, and write its page when that is asked for."""
    from kvspec_cli import ledger

    quiet_solvers()
    places.check_file("--write", write)
    made = ledger.compute(seed, screen)
    ledger.show(screen, made)
    if write is not None:
        ledger.write(write, made)
    screen.document(made)
    return 0 if made.complete else 1


def verdicts(result: Result) -> set[str]:
    """What is not proved, with each solver's answer."""
    return {f"{u.obligation}: {u.z3}, {u.cvc5}" for report in result.machines for u in report.unproved}


def check_seed(seed: int) -> None:
    """Refuse a seed that the solvers do not take."""
    if not 0 <= seed < SEEDS:
        raise BadInput(f"--seed is {seed}; give a number from 0 to {SEEDS - 1}")


def compute(chosen: list[Chosen], seed: int, screen: Screen) -> Result:
    """Prove the machines one after the other."""
    found = []
    for each in chosen:
        with screen.progress(f"proving {each.name}") as tell:
            found.append(decide(each, seed, tell))
    failed = [each.subject for each in found if each.unproved]
    names = "--variant " * bool(chosen[0].variant) + " ".join(failed)
    seeded = f" --seed {seed}" if seed else ""
    return Result(not failed, found, f"kvspec prove {names}{seeded}" if failed else "")


def decide(chosen: Chosen, seed: int, tell: Told) -> Proved:
    """Prove one machine, and look for a counterexample and the shortest run where that fails."""
    from kvspec_proofs.prove import prove as prove_machine

    quiet_solvers()
    proof = prove_machine(chosen.machine, seed=seed, progress=lambda done, of, at: tell(done, of, at.title))
    report = summary(chosen, proof)
    if not proof.failed:
        return report
    tell(len(proof.verdicts), len(proof.verdicts), "looking for the shortest run")
    told = [each for each in proof.failed if each.obligation.law == chosen.machine.breaks] or proof.failed
    refuted = next((each.refuted for each in told if each.refuted), None)
    law = told[0].obligation.law
    run = shortest_run(chosen.machine, law, refuted)
    return msgspec.structs.replace(
        report,
        counterexample=show_step(chosen.machine, refuted) if refuted else None,
        run=show_run(chosen.machine, run, law) if run else None,
    )


def summary(chosen: Chosen, proof: "Proof") -> Proved:
    """The figures of a proof."""
    unproved = [
        Unproved(
            verdict.obligation.title, verdict.obligation.law, purpose(chosen.machine, verdict.obligation.name),
            verdict.z3, verdict.cvc5,
        )
        for verdict in proof.failed
    ]  # fmt: skip
    return Proved(
        chosen.name,
        chosen.variant,
        len(proof.verdicts),
        proof.skipped,
        sum("unknown" in (verdict.z3, verdict.cvc5) for verdict in proof.verdicts),
        dict(sorted(Counter(verdict.obligation.fragment for verdict in proof.verdicts).items())),
        {law: count for law, count in sorted(proof.laws.items(), key=law_order) if law not in OF_NO_LAW},
        unproved,
    )


def law_order(item: tuple[str, int]) -> tuple[str, int]:
    """O2 before O11."""
    letters = item[0].rstrip("0123456789")
    return letters, int(item[0][len(letters) :] or 0)


def shortest_run(machine: "type[Machine]", law: str, near: "Counterexample | None") -> "Run | None":
    """The shortest run from the initial state that breaks a law, if a search of a minute or two meets one."""
    from kvspec_proofs.prove import reach

    return None if law in OF_NO_LAW else reach(machine, law, BUDGETS, near).run


def quiet_solvers() -> None:
    """Leave Ctrl-C to Python: z3 would take it for an `unknown`."""
    import z3

    z3.set_param("ctrl_c", False)


def write_obligations(folder: Path, chosen: list[Chosen], suffix: str, told: Callable[[str], str], tell: Told) -> None:
    """Write what is told of every obligation's text as a file; the folder appears with all of them or not at all."""
    from kvspec_proofs.obligations import obligations
    from kvspec_proofs.solvers import smt_text

    with places.new_folder(folder) as part:
        for each in chosen:
            (part / each.name).mkdir()
            listed = obligations(each.machine).proofs
            for number, obligation in enumerate(listed, 1):
                tell(number, len(listed), obligation.title)
                path = part / each.name / f"{file_name(number, obligation)}.{suffix}"
                path.write_text(told(smt_text(obligation)))


def file_name(number: int, obligation: "Obligation") -> str:
    """`017-acquire-O1-somewhere`."""
    words = (obligation.action or "any", obligation.law, obligation.name.replace(" ", "_"))
    return f"{number:03}-{'-'.join(words)}"


def show(screen: Screen, result: Result, chosen: list[Chosen]) -> None:
    """Print the figures, what is not proved, and the way to see it again."""
    for report, each in zip(result.machines, chosen, strict=True):
        proved = report.obligations - len(report.unproved)
        fragments = ", ".join(f"{count} {name}" for name, count in report.fragments.items())
        screen.line(each.title, "bold")
        screen.line(
            f"  {proved} of {report.obligations} obligations proved by z3 and by cvc5, {report.unknown} unknown; "
            f"{report.skipped} skipped"
        )
        screen.line(f"  fragments: {fragments}")
        screen.line(f"  laws: {' '.join(report.laws)}")
        if report.unproved:
            show_failure(screen, report, each)
    if result.proved:
        screen.line("Everything is proved.", "green")
    else:
        screen.line()
        screen.line(f"Reproduce: {result.reproduce}")


def show_failure(screen: Screen, report: Proved, chosen: Chosen) -> None:
    """The obligations that fail, one counterexample, one run."""
    screen.line()
    if chosen.variant:
        screen.line(f"{chosen.story} It breaks {chosen.machine.breaks}.")
    rows = [(each.obligation, each.z3, each.cvc5, each.says) for each in report.unproved]
    screen.table(("not proved", "z3", "cvc5", "what it says"), rows)
    screen.line()
    if report.counterexample:
        screen.line(report.counterexample.obligation, "bold red")
        print_step(screen, report.counterexample)
    else:
        screen.line("No counterexample at the small scopes: the law may need another invariant.")
    screen.line()
    if report.run:
        print_run(screen, report.run)
    else:
        screen.line("No run from the initial state breaks it at the small scopes.")
