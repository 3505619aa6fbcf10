"""What a report shows, as plain data. All texts are unescaped; whoever writes a format escapes for it."""

from typing import Literal

import msgspec

Kind = Literal["variant", "finding", "trace"]
"""Where a counterexample comes from: a known bug's machine, a committed finding, a trace file."""


class Statement(msgspec.Struct, frozen=True):
    """One sentence of a law: `name` and `machine` say where it is declared, `kind` what sort of statement it is."""

    name: str
    kind: str
    machine: str
    says: str


class LawProof(msgspec.Struct, frozen=True):
    """How many obligations a law has of its own in one machine, and how many both solvers proved."""

    machine: str
    obligations: int
    proved: int


class LawRow(msgspec.Struct, frozen=True):
    """A law: what states it, which actions are expected to keep it by a guard, what was proved of it."""

    law: str
    statements: list[Statement]
    guards: list[str]
    proofs: list[LawProof]
    broken_by: list[str]


class ObligationRow(msgspec.Struct, frozen=True):
    """An obligation and both solvers' answers; `unsat` proves it."""

    title: str
    fragment: str
    z3: str
    cvc5: str

    @property
    def proved(self) -> bool:
        """Both solvers refute its negation."""
        return self.z3 == self.cvc5 == "unsat"


class MachineProof(msgspec.Struct, frozen=True):
    """All obligations of a machine; `skipped` pairs of action and law cannot meet."""

    machine: str
    says: str
    skipped: int
    fragments: dict[str, int]
    z3: dict[str, int]
    cvc5: dict[str, int]
    obligations: list[ObligationRow]

    @property
    def proved(self) -> int:
        """How many both solvers proved."""
        return sum(row.proved for row in self.obligations)


class Found(msgspec.Struct, frozen=True):
    """A failure that a comparison met: in how many runs, and what it says."""

    law: str
    subject: str
    says: str
    runs: int
    reproduce: str


class Comparison(msgspec.Struct, frozen=True):
    """Generated programs on a subject. `clean`: nothing but known findings. `quality` is one line of figures."""

    subject: str
    seed: int
    clean: bool
    figures: dict[str, float]
    quality: str
    known: list[str]
    found: list[Found]
    reproduce: str


class Finding(msgspec.Struct, frozen=True):
    """A committed finding: `stands` if its recorded outcomes still break the law; `shown` is its counterexample."""

    engine: str
    release: str
    name: str
    law: str
    note: str
    links: list[str]
    stands: bool
    shown: str


class Cell(msgspec.Struct, frozen=True):
    """A page after a step: `owner` is its colour, `mark` a short text, `says` a sentence; `wrong`: not as it must."""

    owner: str
    mark: str
    says: str
    wrong: bool = False


class Change(msgspec.Struct, frozen=True):
    """A variable and what a step did to it, cell by cell."""

    variable: str
    cells: list[str]


class Value(msgspec.Struct, frozen=True):
    """A variable's value in words; `changed` by the step that led here."""

    variable: str
    text: str
    changed: bool


class Step(msgspec.Struct, frozen=True):
    """A column of a page map, with one of `cells` a page; `broken` are the laws that this step breaks, `wrong` how."""

    number: int
    label: str
    call: str
    says: str
    came: str
    cells: list[Cell]
    changes: list[Change]
    state: list[Value]
    broken: list[str]
    wrong: list[str]


class PageMap(msgspec.Struct, frozen=True):
    """One row a page, one column a step. `legend` maps the owners that occur to their names.

    `left_out` says what is not shown of a large run.
    """

    pages: list[int]
    steps: list[Step]
    legend: dict[str, str]
    left_out: str = ""


class Counterexample(msgspec.Struct, frozen=True):
    """A run and what it breaks. `slug` is unique in a report; `law` is empty where nothing is broken."""

    slug: str
    title: str
    kind: Kind
    law: str
    law_says: str
    story: str
    links: list[str]
    scope: str
    reproduce: str
    map: PageMap


class Report(msgspec.Struct, frozen=True):
    """Everything that one HTML file shows. `holds`: nothing was found but what is known."""

    version: str
    holds: bool
    laws: list[LawRow]
    proofs: list[MachineProof]
    comparisons: list[Comparison]
    findings: list[Finding]
    counterexamples: list[Counterexample]
    missing: list[str]
