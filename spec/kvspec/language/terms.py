"""Terms that machines are written in, besides Z3Py's own: quantifiers over sorts, conditions as numbers."""

import inspect
from typing import Any

import z3

from kvspec.language.sorts import Sort

Term = Any


def bit(condition: Term) -> Term:
    """1 if the condition holds, else 0."""
    return z3.If(condition, z3.IntVal(1), z3.IntVal(0))


def every(terms: list[Term]) -> Term:
    """The conjunction of any number of terms; none is true."""
    return z3.And(*terms) if terms else z3.BoolVal(True)


def forall(*sorts_and_body: Any) -> Term:
    """`forall(Page, Offset, lambda p, o: ...)`: for every element of the sorts."""
    return _quantified(z3.ForAll, z3.Implies, sorts_and_body)


def exists(*sorts_and_body: Any) -> Term:
    """`exists(Page, lambda p: ...)`: for some element of the sorts."""
    return _quantified(z3.Exists, z3.And, sorts_and_body)


def _quantified(quantifier: Any, restrict: Any, sorts_and_body: tuple[Any, ...]) -> Term:
    *sorts, body = sorts_and_body
    names = list(inspect.signature(body).parameters)
    bound = [sort.fresh(name) for sort, name in zip(sorts, names, strict=True)]
    return quantify(quantifier, restrict, sorts, bound, body(*bound))


def quantify(
    quantifier: Any, restrict: Any, sorts: list[Sort], bound: list[Term], body: Term, terms: tuple[Term, ...] = ()
) -> Term:
    """The quantified body, restricted to the domains of index sorts; a bound variable's name carries its sort's.

    Nested variables never share a name: z3's printers, the one for SMT-LIB too, would let the inner one hide the outer.
    Where `terms` are given, it is used of elements of which such terms, all of them, occur.
    """
    if not bound:
        return body
    names = [term.decl().name().partition("!")[0] for term in bound]
    inner = f".{depth}" if (depth := nesting(body)) else ""
    named = [sort.const(f"{name}{inner}!{sort.name}") for sort, name in zip(sorts, names, strict=True)]
    body, *pattern = [z3.substitute(term, *zip(bound, named, strict=True)) for term in (body, *terms)]
    limits = [limit for sort, term in zip(sorts, named, strict=True) if (limit := sort.domain(term)) is not None]
    patterns = [z3.MultiPattern(*pattern)] if pattern else []
    return quantifier(named, restrict(every(limits), body) if limits else body, patterns=patterns)


def universal(sorts: list[Sort], bound: list[Term], body: Term, terms: tuple[Term, ...] = ()) -> Term:
    """For all values of `bound` the body holds; see `quantify` for `terms`."""
    return quantify(z3.ForAll, z3.Implies, sorts, bound, body, terms)


def nesting(term: Term) -> int:
    """How many quantifiers of a term stand inside one another."""
    depths: dict[int, int] = {}

    def depth(node: Term) -> int:
        if (known := depths.get(node.get_id())) is None:
            known = max((depth(child) for child in node.children()), default=0) + z3.is_quantifier(node)
            depths[node.get_id()] = known
        return known

    return depth(term)
