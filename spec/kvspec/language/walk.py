"""One walk over terms. An interpretation is a subclass: one method a construct, and an error for what it lacks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import z3

from kvspec.language.machine import SpecificationError
from kvspec.language.terms import Term

T = TypeVar("T")

CONSTRUCTS = {
    z3.Z3_OP_TRUE: "true",
    z3.Z3_OP_FALSE: "false",
    z3.Z3_OP_ANUM: "number",
    z3.Z3_OP_UNINTERPRETED: "name",
    z3.Z3_OP_AND: "and_",
    z3.Z3_OP_OR: "or_",
    z3.Z3_OP_NOT: "not_",
    z3.Z3_OP_IMPLIES: "implies",
    z3.Z3_OP_ITE: "if_",
    z3.Z3_OP_EQ: "equal",
    z3.Z3_OP_DISTINCT: "distinct",
    z3.Z3_OP_LE: "at_most",
    z3.Z3_OP_GE: "at_least",
    z3.Z3_OP_LT: "less",
    z3.Z3_OP_GT: "more",
    z3.Z3_OP_ADD: "add",
    z3.Z3_OP_SUB: "subtract",
    z3.Z3_OP_UMINUS: "negate",
    z3.Z3_OP_MUL: "multiply",
    z3.Z3_OP_IDIV: "divide",
    z3.Z3_OP_MOD: "modulo",
    z3.Z3_OP_SELECT: "select",
}
"""The constructs of the language by solver kind; each is a method of an interpretation."""


class Walk(Generic[T]):
    """Interprets terms. `place` says where a term stands, for the error when a construct is missing."""

    title = "this interpretation"

    def __init__(self, place: str) -> None:
        self.place = place

    def __call__(self, term: Term) -> T:
        if z3.is_quantifier(term):
            if term.is_lambda():
                raise self.lacks("Lambda", term)
            method, args = self.method("forall" if term.is_forall() else "exists", term), opened(term)
            return method(*args)
        kind = term.decl().kind()
        construct = CONSTRUCTS.get(kind)
        if construct is None:
            raise self.lacks(term.decl().name(), term)
        method = self.method(construct, term)
        if construct in ("number", "name"):
            if construct == "name" and term.num_args():
                raise self.lacks(f"function {term.decl().name()}", term)
            return method(term)
        return method(*[self(child) for child in term.children()])

    def method(self, construct: str, term: Term) -> Callable[..., T]:
        method: Callable[..., T] | None = getattr(self, construct, None)
        if method is None:
            raise self.lacks(construct, term)
        return method

    def lacks(self, construct: str, term: Term) -> SpecificationError:
        return SpecificationError(f"{self.title} has no {construct!r}: {term} in {self.place}")


@dataclass(frozen=True)
class Bound:
    """A quantified variable, opened: a fresh constant and the name of the sort it ranges over.

    All indices are integers to the solvers; the sort's name travels in the variable's.
    """

    const: Term
    sort: str


def opened(quantifier: Term) -> tuple[list[Bound], Term]:
    """The variables of a quantifier as fresh constants, and its body over them."""
    bound = []
    for place in range(quantifier.num_vars()):
        name, _, sort = quantifier.var_name(place).partition("!")
        bound.append(Bound(z3.FreshConst(quantifier.var_sort(place), name), sort))
    return bound, z3.substitute_vars(quantifier.body(), *[b.const for b in reversed(bound)])


def mentions(term: Term) -> frozenset[str]:
    """The names of the constants that occur in a term."""
    found: set[str] = set()
    seen: set[int] = set()
    todo = [term]
    while todo:
        node = todo.pop()
        if node.get_id() in seen:
            continue
        seen.add(node.get_id())
        if z3.is_quantifier(node):
            todo.append(node.body())
        elif z3.is_app(node):
            if node.decl().kind() == z3.Z3_OP_UNINTERPRETED and not node.num_args():
                found.add(node.decl().name())
            todo.extend(node.children())
    return frozenset(found)
