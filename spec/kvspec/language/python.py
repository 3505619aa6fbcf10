"""Terms as Python source: what the compiled machine evaluates."""

from collections.abc import Mapping

from kvspec.language.terms import Term
from kvspec.language.walk import Bound, Walk


class PythonText(Walk[str]):
    """Python expressions over lists; `names` says how each constant of the machine is called in the source."""

    title = "compiled Python"

    def __init__(self, place: str, names: Mapping[str, str]) -> None:
        super().__init__(place)
        self.names = dict(names)
        self.fresh = 0

    def bind(self, const: Term) -> str:
        """A new Python name for a bound variable."""
        self.fresh += 1
        self.names[const.decl().name()] = f"b{self.fresh}"
        return f"b{self.fresh}"

    def true(self) -> str:
        return "True"

    def false(self) -> str:
        return "False"

    def number(self, term: Term) -> str:
        return f"({term.as_long()})"

    def name(self, term: Term) -> str:
        name = term.decl().name()
        if name not in self.names:
            raise self.lacks(f"constant {name}", term)
        return self.names[name]

    def and_(self, *args: str) -> str:
        return f"({' and '.join(args)})" if args else "True"

    def or_(self, *args: str) -> str:
        return f"({' or '.join(args)})" if args else "False"

    def not_(self, arg: str) -> str:
        return f"(not {arg})"

    def implies(self, left: str, right: str) -> str:
        return f"(not {left} or {right})"

    def if_(self, condition: str, then: str, other: str) -> str:
        return f"({then} if {condition} else {other})"

    def equal(self, left: str, right: str) -> str:
        return f"({left} == {right})"

    def distinct(self, *args: str) -> str:
        if len(args) == 2:
            return f"({args[0]} != {args[1]})"
        return f"(len({{{', '.join(args)}}}) == {len(args)})"

    def at_most(self, left: str, right: str) -> str:
        return f"({left} <= {right})"

    def at_least(self, left: str, right: str) -> str:
        return f"({left} >= {right})"

    def less(self, left: str, right: str) -> str:
        return f"({left} < {right})"

    def more(self, left: str, right: str) -> str:
        return f"({left} > {right})"

    def add(self, *args: str) -> str:
        return f"({' + '.join(args)})"

    def subtract(self, *args: str) -> str:
        return f"({' - '.join(args)})"

    def negate(self, arg: str) -> str:
        return f"(-{arg})"

    def multiply(self, *args: str) -> str:
        return f"({' * '.join(args)})"

    def divide(self, left: str, right: str) -> str:
        return f"divide({left}, {right})"

    def modulo(self, left: str, right: str) -> str:
        return f"modulo({left}, {right})"

    def select(self, array: str, index: str) -> str:
        return f"{array}[{self.natural(index)}]"

    def natural(self, index: str) -> str:
        """An index as it is where it is a name or a cell; one that was computed is checked when it is used."""
        return f"natural({index})" if index.startswith(("(", "divide(")) else index

    def forall(self, bound: list[Bound], body: Term) -> str:
        return f"all({self.over(bound, body)})"

    def exists(self, bound: list[Bound], body: Term) -> str:
        return f"any({self.over(bound, body)})"

    def over(self, bound: list[Bound], body: Term) -> str:
        loops = " ".join(f"for {self.bind(each.const)} in range(S.n_{each.sort})" for each in bound)
        return f"{self(body)} {loops}"


def natural(index: int) -> int:
    """An index, which is no position from the end when it is negative."""
    if index < 0:
        raise IndexError(f"a specification indexes at {index}")
    return index


def divide(left: int, right: int) -> int:
    """The solvers' integer division: the remainder is never negative. By zero they may answer anything; we refuse."""
    if right == 0:
        raise ZeroDivisionError("a specification divides by zero")
    return left // right if right > 0 else -(left // -right)


def modulo(left: int, right: int) -> int:
    """The solvers' remainder."""
    return left - right * divide(left, right)
