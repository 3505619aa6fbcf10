"""Two solvers on one SMT-LIB text. Limits are resource counts: a verdict does not depend on the machine's load."""

import cvc5
import z3

from kvspec_proofs.obligations import Obligation

QUICK = 1_500_000
"""Resource units of z3 after which a counterexample is looked for before it goes on; proofs here take a tenth of it."""
Z3_LIMIT = 40_000_000
ARITHMETIC = (2, 6)
CVC5_LIMIT = 4_000_000


def smt_text(obligation: Obligation) -> str:
    """The obligation as SMT-LIB 2.6: unsatisfiable when it holds."""
    solver = z3.Solver()
    solver.add(*obligation.facts, z3.Not(obligation.goal))
    return "(set-logic ALL)\n" + str(solver.to_smt2())


def ask_z3(text: str, seed: int = 0, limit: int = Z3_LIMIT) -> str:
    """`unsat`, `sat` or `unknown`; in a context of its own, so that no earlier question changes the answer.

    Its older arithmetic decides what has many quantifiers, its newer one what has products: where one gives up, the
    other is asked.
    """
    answer = ""
    for arithmetic in ARITHMETIC:
        solver = z3.Solver(ctx=z3.Context())
        solver.set("rlimit", limit)
        solver.set("random_seed", seed)
        solver.set("smt.arith.solver", arithmetic)
        solver.from_string(text)
        answer = str(solver.check())
        if answer != "unknown":
            break
    return answer


def ask_cvc5(text: str, seed: int = 0) -> str:
    """`unsat`, `sat` or `unknown`."""
    manager = cvc5.TermManager()
    solver = cvc5.Solver(manager)
    solver.setOption("rlimit-per", str(CVC5_LIMIT))
    solver.setOption("seed", str(seed))
    solver.setOption("enum-inst", "true")
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "obligation")
    answer = ""
    while not (command := parser.nextCommand()).isNull():
        answer += command.invoke(solver, parser.getSymbolManager())
    return str(answer).strip().split()[0]


def cvc5_proof(text: str) -> str:
    """cvc5's proof of an unsatisfiable obligation, in its format CPC; a step that it only trusts is an error."""
    manager = cvc5.TermManager()
    solver = cvc5.Solver(manager)
    solver.setOption("produce-proofs", "true")
    solver.setOption("proof-granularity", "dsl-rewrite")
    solver.setOption("rlimit-per", str(CVC5_LIMIT))
    solver.setOption("enum-inst", "true")
    parser = cvc5.InputParser(solver)
    parser.setStringInput(cvc5.InputLanguage.SMT_LIB_2_6, text, "obligation")
    while not (command := parser.nextCommand()).isNull():
        command.invoke(solver, parser.getSymbolManager())
    proof = solver.proofToString(solver.getProof()[0], cvc5.ProofFormat.CPC)
    written = str(proof.decode() if isinstance(proof, bytes) else proof)
    if ":rule trust" in written:
        raise AssertionError("cvc5's proof has a step that it only trusts")
    return written
