# ruff: noqa: RUF001 - signs of mathematics that look like letters are meant
"""Terms as mathematics in plain text, for the documentation: the interpretation that is read."""

import inspect
from collections.abc import Callable, Collection
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

import z3

from kvspec.language.machine import Machine
from kvspec.language.solver import NEXT
from kvspec.language.terms import Term, every
from kvspec.language.walk import Bound, Walk

M = TypeVar("M", bound=Machine)

WIDTH = 84
ATOM, PREFIX, TIMES, PLUS, COMPARED, CONNECTED, IMPLIED, LOOSE = range(8, 0, -1)
"""How strongly the outermost sign of a formula binds."""


class Formula(NamedTuple):
    """A formula on one line, and what `layout` needs to put it on several: its outermost sign, or head, and parts."""

    text: str
    binds: int = ATOM
    sign: str = ""
    parts: tuple["Formula", ...] = ()

    def inside(self, binds: int) -> str:
        """As a part of something that binds so strongly."""
        return self.text if self.binds > binds else f"({self.text})"


class Mathematics(Walk[Formula]):
    """Formulas in Unicode. A prime marks the value after a step; [c] is 1 where c holds and else 0.

    `taken` are names that a bound variable must not have.
    """

    title = "the documentation"

    def __init__(self, place: str, taken: Collection[str] = ()) -> None:
        super().__init__(place)
        self.names: dict[str, str] = {}
        self.taken = set(taken)

    def __call__(self, term: Term) -> Formula:
        if z3.is_app(term) and term.decl().kind() == z3.Z3_OP_UNINTERPRETED and term.num_args():
            return Formula(f"{shown(term.decl().name())}({', '.join(self(each).text for each in term.children())})")
        return super().__call__(term)

    def joined(self, sign: str, parts: tuple[Formula, ...], binds: int) -> Formula:
        if sign in "∧∨":
            parts = tuple(each for part in parts for each in (part.parts if part.sign == sign else (part,)))
        if len(parts) == 1:
            return parts[0]
        return Formula(f" {sign} ".join(part.inside(binds) for part in parts), binds, sign, parts)

    def true(self) -> Formula:
        return Formula("true")

    def false(self) -> Formula:
        return Formula("false")

    def number(self, term: Term) -> Formula:
        number = term.as_long()
        return Formula(str(number)) if number >= 0 else self.negate(Formula(str(-number)))

    def name(self, term: Term) -> Formula:
        name = term.decl().name()
        return Formula(self.names.get(name) or shown(name))

    def and_(self, *parts: Formula) -> Formula:
        return self.joined("∧", parts, CONNECTED) if parts else self.true()

    def or_(self, *parts: Formula) -> Formula:
        return self.joined("∨", parts, CONNECTED) if parts else self.false()

    def not_(self, part: Formula) -> Formula:
        return Formula(f"¬{part.inside(COMPARED)}", PREFIX)

    def implies(self, left: Formula, right: Formula) -> Formula:
        return self.joined("⇒", (left, right), IMPLIED)

    def if_(self, condition: Formula, then: Formula, other: Formula) -> Formula:
        if (then.text, other.text) == ("1", "0"):
            return Formula(f"[{condition.text}]")
        branches = f"if {condition.text} then {then.inside(LOOSE)} else {other.inside(LOOSE)}"
        return Formula(branches, LOOSE, "if", (condition, then, other))

    def equal(self, left: Formula, right: Formula) -> Formula:
        return self.joined("=", (left, right), COMPARED)

    def distinct(self, *parts: Formula) -> Formula:
        if len(parts) == 2:
            return self.joined("≠", parts, COMPARED)
        return Formula(f"distinct({', '.join(part.text for part in parts)})")

    def at_most(self, left: Formula, right: Formula) -> Formula:
        return self.joined("≤", (left, right), COMPARED)

    def at_least(self, left: Formula, right: Formula) -> Formula:
        return self.joined("≥", (left, right), COMPARED)

    def less(self, left: Formula, right: Formula) -> Formula:
        return self.joined("<", (left, right), COMPARED)

    def more(self, left: Formula, right: Formula) -> Formula:
        return self.joined(">", (left, right), COMPARED)

    def add(self, *parts: Formula) -> Formula:
        return Formula(" + ".join(part.inside(PLUS - 1) for part in parts), PLUS)

    def subtract(self, first: Formula, *parts: Formula) -> Formula:
        return Formula(" − ".join([first.inside(PLUS - 1), *(part.inside(PLUS) for part in parts)]), PLUS)

    def negate(self, part: Formula) -> Formula:
        return Formula(f"−{part.inside(PREFIX)}", PREFIX)

    def multiply(self, *parts: Formula) -> Formula:
        return Formula(" · ".join(part.inside(TIMES) for part in parts), TIMES)

    def divide(self, left: Formula, right: Formula) -> Formula:
        return Formula(f"{left.inside(TIMES)} div {right.inside(TIMES)}", TIMES)

    def modulo(self, left: Formula, right: Formula) -> Formula:
        return Formula(f"{left.inside(TIMES)} mod {right.inside(TIMES)}", TIMES)

    def select(self, array: Formula, index: Formula) -> Formula:
        before = f"{array.text[:-1]}, " if array.sign == "[]" else f"{array.text}["
        return Formula(f"{before}{index.text}]", ATOM, "[]")

    def forall(self, bound: list[Bound], body: Term) -> Formula:
        return self.quantified("∀", bound, body)

    def exists(self, bound: list[Bound], body: Term) -> Formula:
        return self.quantified("∃", bound, body)

    def quantified(self, sign: str, bound: list[Bound], body: Term) -> Formula:
        names = [self.bind(each.const) for each in bound]
        inner = self(without_domain(bound, body))
        self.taken -= {*names}
        sorts = dict.fromkeys(each.sort for each in bound)
        of = [", ".join(n for n, each in zip(names, bound, strict=True) if each.sort == sort) for sort in sorts]
        head = f"{sign} {', '.join(f'{each}: {sort}' for each, sort in zip(of, sorts, strict=True))}."
        return Formula(f"{head} {inner.text}", LOOSE, head, (inner,))

    def bind(self, const: Term) -> str:
        """A name for a variable that is bound, different from all others in use where it stands."""
        plain: str = const.decl().name().partition("!")[0].partition(".")[0]
        numbered = (plain + "₀₁₂₃₄₅₆₇₈₉"[number] for number in range(1, 10))
        name = next(each for each in (plain, *numbered) if each not in self.taken)
        self.names[const.decl().name()] = name
        self.taken.add(name)
        return name


def shown(name: str) -> str:
    """A constant's name for a reader: without what makes it unique, with a prime where it is of the state after."""
    plain = name.partition("!")[0]
    return f"{plain.removesuffix(NEXT)}′" if plain.endswith(NEXT) else plain


def without_domain(bound: list[Bound], body: Term) -> Term:
    """A quantifier's body without the conditions that its indices are natural: their sorts say so to a reader."""
    limits = [each.const >= 0 for each in bound if z3.is_int(each.const)]
    if limits and body.num_args() == 2 and body.arg(0).eq(every(limits)):
        return body.arg(1)
    return body


def layout(formula: Formula, indent: str = "") -> list[str]:
    """The formula on lines of at most `WIDTH`, broken at its outermost signs."""
    if len(indent) + len(formula.text) <= WIDTH or not formula.parts:
        return [indent + formula.text]
    if len(formula.parts) == 1:
        return [indent + formula.sign, *layout(formula.parts[0], indent + "  ")]
    lines: list[str] = []
    if formula.sign == "if":
        for word, part in zip(("if   ", "then ", "else "), formula.parts, strict=True):
            own = layout(part, indent + "     ")
            lines += [indent + word + own[0][len(indent + word) :], *own[1:]]
        return lines
    for number, part in enumerate(formula.parts):
        loose = part.binds <= formula.binds
        own = layout(part, indent + " " * (len(formula.sign) + 1 + loose))
        if loose:
            own[-1] += ")"
        lead = (formula.sign if number else " " * len(formula.sign)) + " " + "(" * loose
        lines += [indent + lead + own[0][len(indent + lead) :], *own[1:]]
    return lines


class Definition(NamedTuple):
    """A helper of a machine: the function that stands for it, its parameters, and what it says of them."""

    function: Any
    params: tuple[Term, ...]
    body: Term


def fold(moment: M, suffix: str = "") -> tuple[M, dict[str, Definition]]:
    """The same moment, on which helpers give their name instead of their body; the definitions of those that are used.

    For reading only: what is proved has the bodies. `suffix` marks the helpers of another moment.
    """
    found: dict[str, Definition] = {}

    def stand_in(name: str, body: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            value = body(moment, *args)
            if not all(z3.is_expr(each) for each in (*args, value)):
                return value
            function = z3.Function(name + suffix, *[each.sort() for each in args], value.sort())
            if name not in found:
                names = list(inspect.signature(body).parameters)[1:]
                params = tuple(z3.Const(each, arg.sort()) for each, arg in zip(names, args, strict=True))
                found[name] = Definition(function, params, body(moment, *params))
            return function(*args)

        return call

    for name in dir(type(moment)):
        body = inspect.getattr_static(type(moment), name)
        if isinstance(body, FunctionType) and not hasattr(Machine, name):
            setattr(moment, name, stand_in(name, body))
    return moment, found
