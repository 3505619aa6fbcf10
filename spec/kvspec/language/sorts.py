"""What a state variable may hold: booleans, naturals, elements of a sort, and maps from sorts to these.

A `Sort` has elements that can only be compared (pages, requests); the solvers may take any number of them. An `Index`
is a natural number that orders or counts places in a row (entries, offsets). Compiled code numbers both from 0.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import z3


@dataclass(frozen=True)
class Sort:
    """A type of elements without structure."""

    name: str

    @cached_property
    def z3(self) -> Any:
        return z3.DeclareSort(self.name)

    def const(self, name: str) -> Any:
        """A solver constant of this sort."""
        return z3.Const(name, self.z3)

    def fresh(self, name: str) -> Any:
        """A constant that no term mentions yet: for a variable that is about to be bound."""
        return z3.FreshConst(self.z3, name)

    def domain(self, term: Any) -> Any | None:
        """The condition for `term` to be of this sort, or None when its solver sort says it all."""
        return None


@dataclass(frozen=True)
class Index(Sort):
    """A natural number. Negative ones are outside its domain: z3 and Python disagree on division and indexing there."""

    @cached_property
    def z3(self) -> Any:
        return z3.IntSort()

    def domain(self, term: Any) -> Any:
        return term >= 0


@dataclass(frozen=True)
class Truth(Sort):
    """True or false."""

    @cached_property
    def z3(self) -> Any:
        return z3.BoolSort()


@dataclass(frozen=True)
class Map:
    """A total map: `Map(Request, Entry, Page)` gives a page for each request and entry."""

    domains: tuple[Sort, ...]
    value: Sort

    def __init__(self, *sorts: Sort) -> None:
        if len(sorts) < 2:
            raise TypeError("Map takes at least one domain and a value sort")
        object.__setattr__(self, "domains", sorts[:-1])
        object.__setattr__(self, "value", sorts[-1])

    def const(self, name: str) -> Any:
        return z3.Const(name, self.inner(0))

    def inner(self, depth: int) -> Any:
        """The solver sort that is left after `depth` indices: arrays of arrays, which both solvers read."""
        sort = self.value.z3
        for domain in reversed(self.domains[depth:]):
            sort = z3.ArraySort(domain.z3, sort)
        return sort


Bool = Truth("Bool")
Nat = Index("Nat")
Type = Sort | Map


def SetOf(sort: Sort) -> Map:
    """A set, as a map to booleans."""
    return Map(sort, Bool)


def Relation(*sorts: Sort) -> Map:
    """A relation, as a map to booleans."""
    return Map(*sorts, Bool)


def domains(kind: Type) -> tuple[Sort, ...]:
    """The index sorts of a type: none for a plain value."""
    return kind.domains if isinstance(kind, Map) else ()


def value_sort(kind: Type) -> Sort:
    """What one cell of a type holds."""
    return kind.value if isinstance(kind, Map) else kind
