"""The language that machines are written in: Z3Py terms inside a small `Machine` class."""

from z3 import And, If, Implies, Not, Or

from kvspec.language.machine import (
    Machine,
    SpecificationError,
    action,
    assumption,
    cardinal,
    claim,
    count,
    derived,
    invariant,
    lemma,
    rigid,
    state,
    step,
    total,
)  # fmt: skip
from kvspec.language.sorts import Bool, Index, Map, Nat, Relation, SetOf, Sort
from kvspec.language.terms import bit, exists, forall

__all__ = [
    "And", "Bool", "If", "Implies", "Index", "Machine", "Map", "Nat", "Not", "Or", "Relation", "SetOf", "Sort",
    "SpecificationError", "action", "assumption", "bit", "cardinal",
    "claim", "count", "derived", "exists", "forall", "invariant", "lemma",
    "rigid", "state", "step", "total",
]  # fmt: skip
