"""Machines, counterexamples and runs as plain data, and how they are printed."""

import sys
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from kvspec_cli.errors import BadInput, unknown
from kvspec_cli.screen import Screen

if TYPE_CHECKING:
    from kvspec.language.machine import Machine
    from kvspec_proofs.finite import Counterexample
    from kvspec_proofs.search import Run


NOTHING = "-"
"""How an empty set or map is shown."""


class Change(msgspec.Struct, frozen=True):
    """A variable before a step and after it; `after` is empty where nothing changed."""

    variable: str
    before: str
    after: str


class Moved(msgspec.Struct, frozen=True):
    """One step of a run, and the variables that it changed."""

    step: int
    action: str
    changes: list[str]


class ShownStep(msgspec.Struct, frozen=True):
    """A step that breaks an obligation, from a state in which every invariant holds."""

    obligation: str
    action: str
    scope: str
    state: list[Change]


class ShownRun(msgspec.Struct, frozen=True):
    """A run from an initial state, and the laws that its last step breaks, as `D1 frees_what_was_named`."""

    scope: str
    steps: list[Moved]
    broken: list[str]


class Chosen(NamedTuple):
    """A machine by the name it was asked for; `variant` is empty for a subject's own."""

    name: str
    variant: str
    machine: "type[Machine]"

    @property
    def title(self) -> str:
        """`sglang-34067 (sglang#34067)`, or the name alone: of a subject, of a bug that nobody has reported."""
        return f"{self.name} ({self.variant})" if self.variant not in ("", self.name) else self.name

    @property
    def story(self) -> str:
        """What its module says of it, in one sentence."""
        return (sys.modules[self.machine.__module__].__doc__ or "").split("\n")[0]


def choose(subjects: tuple[str, ...], variant: str | None) -> list[Chosen]:
    """The machines that the arguments name: those of the subjects, of the variant, or all subjects'."""
    from kvspec.registry import ALGORITHMS, MACHINES, machine, variant_names
    from kvspec.registry import variant as variant_of

    known = (*MACHINES, *ALGORITHMS)
    if variant is None:
        for name in subjects:
            if name not in known:
                raise unknown("subject", name, known)
        return [Chosen(name, "", machine(name)) for name in dict.fromkeys(subjects or known)]
    if subjects:
        raise BadInput(f"--variant {variant} is a machine by itself: leave out {' '.join(subjects)}")
    if variant not in variant_names():
        raise unknown("variant", variant, variant_names())
    kind = variant_of(variant)
    return [Chosen(variant, kind.variant, kind)]


def purpose(machine: "type[Machine]", law: str) -> str:
    """The sentence that stands with a law of this name, if it has one."""
    declared = machine.laws.get(law)
    return (declared.body.__doc__ or "").strip().split("\n")[0] if declared else ""


def show_step(machine: "type[Machine]", found: "Counterexample") -> ShownStep:
    """A counterexample as data."""
    from kvspec_proofs.tables import call, counterexample_rows, scope_of

    rows = [Change(*row) for row in counterexample_rows(machine, found)]
    action = call(machine, found.obligation.action, found.args)
    return ShownStep(found.obligation.title, action, scope_of(found.before), rows)


def show_run(machine: "type[Machine]", run: "Run", law: str = "") -> ShownRun:
    """A run as data; of the laws that it breaks, `law` comes first."""
    from kvspec_proofs.tables import run_rows, scope_of

    steps = [Moved(*row) for row in run_rows(machine, run)]
    broken = sorted(run.broken, key=lambda each: each[0] != law)
    return ShownRun(scope_of(run.start), steps, [" ".join(each) for each in broken])


def print_step(screen: Screen, shown: ShownStep) -> None:
    """The state as a table, with what the step makes of it."""
    screen.line(f"Every invariant holds before {shown.action}, and this law is broken by it; at")
    screen.line(f"{shown.scope}:")
    rows = [(row.variable, row.before, row.after) for row in shown.state if row.after or row.before != NOTHING]
    screen.table(("variable", "before", "after"), rows)


def print_run(screen: Screen, shown: ShownRun) -> None:
    """The steps as a table."""
    screen.line("The shortest run from the initial state, at")
    screen.line(f"{shown.scope}:")
    rows = [(f"{step.step}  {step.action}", "\n".join(step.changes)) for step in shown.steps]
    screen.table(("step", "what it changes"), rows)
    screen.line(f"The last step breaks {', '.join(shown.broken)}.")
