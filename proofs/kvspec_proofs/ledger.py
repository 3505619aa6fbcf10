"""The ledger: for each law what proves it, what breaks it, and a run in which its case occurs."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import z3
from kvspec.language.counts import counts
from kvspec.language.machine import Law, Machine, no_truth, parameters
from kvspec.language.run import compile_machine, condition
from kvspec.laws import LAWS, STANDS_IN
from kvspec.registry import MACHINES, complete, machine, variant, variant_names

from kvspec_proofs.mutants import STRENGTHENED, Mutant, conjuncts, mutants
from kvspec_proofs.obligations import Obligation, entailments, obligations
from kvspec_proofs.prove import Proof, decide, refuted
from kvspec_proofs.witnesses import Witness, sampled, witnesses


@dataclass(frozen=True)
class Row:
    """All that is known of a law. An empty cell is a failure; `stands_in` names the test of a law without a proof."""

    law: str
    says: str
    obligations: int
    machines: tuple[str, ...]
    fragments: tuple[str, ...]
    answers: str
    breakers: tuple[str, ...]
    witness: str
    scope: str
    stands_in: str

    @property
    def complete(self) -> bool:
        proved = bool(self.obligations and self.answers == "unsat, unsat" and self.breakers and self.witness)
        return proved or bool(self.stands_in)


def ledger(proofs: list[Proof], tell: Callable[[str], None] = lambda text: None) -> list[Row]:
    """A row for each law, from the proofs of the machines; breakers and witnesses are looked for here."""
    tell("looking for witnesses")
    seen: dict[str, Witness] = {}
    for last in map(machine, reversed(complete())):
        seen |= (sampled if last.of_kind("assumption") else witnesses)(last, stated(last))
    rows = []
    for law, says in LAWS.items():
        tell(f"looking for what breaks {law}")
        own = [v for proof in proofs for v in proof.verdicts if v.obligation.law == law]
        first = seen.get(law)
        rows.append(
            Row(
                law,
                says,
                len(own),
                tuple(dict.fromkeys(v.obligation.machine for v in own)),
                tuple(sorted({v.obligation.fragment for v in own})),
                ", ".join((*{v.z3 for v in own}, *{v.cvc5 for v in own})),
                tuple(breakers(law, {v.obligation.action for v in own})) if law not in STANDS_IN else (),
                f"{first.action}, {first.steps} step{'s' * (first.steps != 1)} from init" if first else arithmetic(law),
                first.scope if first else "any numbers" if arithmetic(law) else "",
                STANDS_IN.get(law, ""),
            )
        )
    return rows


def stated(of: type[Machine]) -> dict[str, str]:
    """The law of each statement of states or steps in a machine, by the statement's name, counters among them."""
    counted = {each.name: each.law for each, _ in compile_machine(of).state_laws}
    return counted | {each.name: each.law for each in of.of_kind("step")}


def arithmetic(law: str) -> str:
    """For laws of arithmetic alone: numbers that meet the condition exist."""
    for name in MACHINES:
        for lemma in machine(name).of_kind("lemma"):
            if lemma.law == law and satisfiable(lemma):
                return "its condition is satisfiable"
    return ""


def satisfiable(lemma: Law) -> bool:
    """Whether the condition of a lemma can be met."""
    consts = [sort.const(name) for name, sort in parameters(lemma.body, skip=0).items()]
    with no_truth():
        stated = condition(lemma(*consts))
    solver = z3.Solver()
    solver.add(stated, *[const >= 0 for const in consts])
    return bool(solver.check() == z3.sat)


def breakers(law: str, actions: set[str]) -> Iterator[str]:
    """The known bugs that break a law's own obligation; without one, the first mutant of these actions that does.

    A law without an obligation about an action is derived: then any action may break it.
    """
    known = [name for name in variant_names() if variant(name).breaks == law]
    broken = [name for name in known if refuted(variant(name), law)]
    yield from broken
    if not broken:
        for name in [name for name in MACHINES if states(machine(name), law)]:
            for mutant in mutants(machine(name)):
                meets = mutant.action in actions or not actions & machine(name).actions.keys()
                if meets and mutant.kind != STRENGTHENED and breaks(mutant, law):
                    yield f"{name}, {mutant.name}"
                    return
        yield from islice(premises(law), 1)


def premises(law: str) -> Iterator[str]:
    """What the lemmas of a law cannot do without: a part of a premise without which numbers break the lemma."""
    for name in MACHINES:
        for lemma in [each for each in machine(name).of_kind("lemma") if each.law == law]:
            consts = [sort.const(each) for each, sort in parameters(lemma.body, skip=0).items()]
            with no_truth():
                stated = lemma(*consts)
            parts = conjuncts(condition(stated))
            for number, part in enumerate(parts):
                solver = z3.Solver()
                solver.add(*[const >= 0 for const in consts], *parts[:number], *parts[number + 1 :])
                solver.add(z3.Not(stated.arg(1)) if z3.is_implies(stated) else z3.BoolVal(False))
                if solver.check() == z3.sat:
                    yield f"{name}, {lemma.name} without {' '.join(str(part).split())}"


def states(of: type[Machine], law: str) -> bool:
    """Whether the machine has the law: stated, or as the definition of a counter."""
    return law in {each.law for each in of.laws.values()} | {each.law for each in counts(of)}


def breaks(mutant: Mutant, law: str) -> bool:
    """Whether an obligation that a law has of its own is refuted for a mutant."""
    return any(decide(mutant.machine, obligation).refuted for obligation in own_obligations(mutant, law))


def own_obligations(mutant: Mutant, law: str) -> Iterator[Obligation]:
    """Of the mutated action only; derived laws are goals of it too."""
    mutant.machine.breaks = law
    listed = (*obligations(mutant.machine, mutant.action).proofs, *entailments(mutant.machine))
    yield from (each for each in listed if each.law == law and each.taken and each.action == mutant.action)
