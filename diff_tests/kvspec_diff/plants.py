"""Planted faults: wrong copies of an implementation, generated from its code.

`plants` lists every fault that can be planted in a module, in the order of its text; `load` runs the package with one.
Five kinds, after the bugs that such code has: a number or a comparison off by one, an update that is missing, a copy
that is missing, two steps in the wrong order, a wrong operator (a condition turned round among them). What is raised is
left alone (the text of an error is never compared), as are signatures and the order of two checks, which only decides
what is told.
"""

import ast
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import msgspec

KINDS = ("off by one", "missing update", "missing copy", "swapped order", "wrong operator")

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt
}  # fmt: skip
OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.And: ast.Or, ast.Or: ast.And, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mod, ast.Mod: ast.FloorDiv,
}  # fmt: skip
CHECKS = ("_check", "_judge", "_explain")
"""Methods whose names begin so change nothing: they raise or do not."""

MODULES = {"np", "torch", "operator"}
LOOKING_METHODS = {
    "all", "any", "argmax", "astype", "clone", "copy", "cumsum", "item", "max", "min", "numel", "numpy", "reshape",
    "sum", "tobytes", "tolist", "view",
}  # fmt: skip
"""Calls of these, and of functions of these modules, do not change what they are called on."""

COPYING_METHODS = {"copy", "clone"}
COPYING_TYPES = {"list", "tuple", "dict", "set", "sorted"}
AROUND = 40
LEFT_ALONE = (ast.Raise, ast.Assert, ast.JoinedStr, ast.arguments)


class Plant(msgspec.Struct, frozen=True):
    """One fault: in which function of which module, what stood there and what does now; `source` is all the module."""

    module: str
    function: str
    kind: str
    before: str
    after: str
    source: str
    twin: int = 0
    """How many faults before it look the same."""

    def __str__(self) -> str:
        """One line; the same for the same fault, whatever else changes in the file."""
        again = f" ({self.twin + 1})" if self.twin else ""
        return f"{self.module}.{self.function}: {self.kind}: {self.before} -> {self.after}{again}"


def plants(module: str) -> list[Plant]:
    """Every fault that can be planted in the module's functions."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    with open(spec.origin, encoding="utf-8") as file:
        tree = ast.parse(file.read())
    found = []
    looks: Counter[str] = Counter()
    for name, function in _functions(tree, ""):
        for kind, view, plant, dig_out in _faults(function, str):
            before = view()
            plant()
            fault = Plant(module, name, kind, *_excerpts(before, view()), ast.unparse(tree))
            dig_out()
            found.append(msgspec.structs.replace(fault, twin=looks[str(fault)]))
            looks[str(fault)] += 1
    return found


def load(plant: Plant, entry: str) -> ModuleType:
    """The module `entry` of the plant's package: all of the package is loaded afresh, with the fault in it."""
    return load_all(plant, entry)[entry]


def load_all(plant: Plant, entry: str) -> dict[str, ModuleType]:
    """Every module of the plant's package that importing `entry` brings, by its name."""
    finder = _Finder(plant)
    with _set_aside(plant.module.split(".")[0]) as faulty:
        sys.meta_path.insert(0, finder)
        try:
            importlib.import_module(entry)
        finally:
            sys.meta_path.remove(finder)
    return faulty


@contextmanager
def imported_as(modules: dict[str, ModuleType]) -> Iterator[None]:
    """Whoever imports the package of these modules gets them meanwhile."""
    with _set_aside(next(iter(modules)).split(".")[0]):
        sys.modules.update(modules)
        yield


@contextmanager
def _set_aside(package: str) -> Iterator[dict[str, ModuleType]]:
    """Nothing of the package is imported yet; what is, meanwhile, is found in the result afterwards."""

    def taken() -> dict[str, ModuleType]:
        return {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == package}

    kept: dict[str, ModuleType] = taken()
    meanwhile: dict[str, ModuleType] = {}
    try:
        yield meanwhile
    finally:
        meanwhile.update(taken())
        sys.modules.update(kept)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds the plant's module, in its changed text, and no other."""

    def __init__(self, plant: Plant) -> None:
        self._plant = plant

    def find_spec(
        self, fullname: str, path: object, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """How to load the changed module."""
        return importlib.util.spec_from_loader(fullname, self) if fullname == self._plant.module else None

    def get_source(self, fullname: str) -> str:
        """The changed text."""
        return self._plant.source


View = Callable[[], str]
Change = Callable[[], None]
Fault = tuple[str, View, Change, Change]
"""Kind, the text of the code around it as it is now, what plants it in the tree and what digs it out again."""


def _functions(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            yield f"{name}{child.name}", child
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{name}{child.name}.")


def _faults(node: ast.AST, view: View) -> Iterator[Fault]:
    """The faults below a node; `view` shows the statement that it belongs to, or the head of a compound one."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        items = value if isinstance(value, list) else None
        for i, child in enumerate([value] if items is None else items):
            if not isinstance(child, ast.AST) or isinstance(child, LEFT_ALONE):
                continue
            put = _field_setter(node, field) if items is None else _item_setter(items, i)
            near = view
            if isinstance(child, ast.stmt) and items is not None:
                near = _viewer(items, i, 1)
            elif hasattr(node, "body") and items is None:
                near = _field_viewer(node, field)
            for kind, wrong in _wrong(child):
                yield kind, near, _call(put, wrong), _call(put, child)
            if items is not None and isinstance(child, ast.stmt) and i + 1 < len(items) and _steps(child, items[i + 1]):
                swap = _swapper(items, i)
                yield "swapped order", _viewer(items, i, 2), swap, swap
            yield from _faults(child, near)


def _wrong(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """What may wrongly stand in the place of a node."""
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            yield "off by one", ast.Constant(number + 1)
        case ast.Compare(left=left, ops=[operator], comparators=right) if type(operator) in COMPARISONS:
            yield "off by one", ast.Compare(left, [COMPARISONS[type(operator)]()], right)
        case ast.Call(func=ast.Attribute(value=original, attr=name), args=[]) if name in COPYING_METHODS:
            yield "missing copy", original
        case ast.Call(func=ast.Name(id=name), args=[ast.Name() | ast.Attribute() | ast.Call() as original]) if (
            name in COPYING_TYPES
        ):
            yield "missing copy", original
        case ast.stmt() if _is_update(node):
            yield "missing update", ast.Pass()
            if isinstance(node, ast.AugAssign) and type(node.op) in OPERATORS:
                yield "wrong operator", ast.AugAssign(node.target, _other(node.op), node.value)
        case ast.Compare(left=left, ops=[operator], comparators=right) if type(operator) in OPERATORS:
            yield "wrong operator", ast.Compare(left, [_other(operator)], right)
        case ast.BoolOp(op=operator, values=values) if type(operator) in OPERATORS:
            yield "wrong operator", ast.BoolOp(_other(operator), values)
        case ast.BinOp(left=left, op=operator, right=second) if type(operator) in OPERATORS:
            yield "wrong operator", ast.BinOp(left, _other(operator), second)
        case ast.AugAssign(target=target, op=operator, value=value) if type(operator) in OPERATORS:
            yield "wrong operator", ast.AugAssign(target, _other(operator), value)
        case ast.UnaryOp(op=ast.Not() | ast.Invert(), operand=operand):
            yield "wrong operator", operand
        case ast.IfExp(test=test, body=body, orelse=orelse) if not _turned_elsewhere(test):
            yield "wrong operator", ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse)
        case ast.If(test=test, body=body, orelse=orelse) if not _turned_elsewhere(test):
            yield "wrong operator", ast.If(ast.UnaryOp(ast.Not(), test), body, orelse)


def _other(operator: ast.AST) -> Any:
    return OPERATORS[type(operator)]()


def _turned_elsewhere(test: ast.AST) -> bool:
    """Whether another fault turns the condition round: that of its own operator."""
    match test:
        case ast.Compare(ops=[operator]):
            return type(operator) in OPERATORS
    return isinstance(test, ast.UnaryOp)


def _is_update(statement: ast.stmt) -> bool:
    """Whether a statement is there for what it changes, and that is more than a local name."""
    match statement:
        case ast.Assign(targets=targets):
            return any(isinstance(node, ast.Attribute | ast.Subscript) for each in targets for node in ast.walk(each))
        case ast.AugAssign(target=target):
            return not isinstance(target, ast.Name)
    return isinstance(statement, ast.Delete) or (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    )


def _steps(first: ast.stmt, second: ast.stmt) -> bool:
    """Whether one statement is an update, neither leaves, and one may change what the other uses."""
    compound = ast.If | ast.For | ast.While | ast.With | ast.Try | ast.Return | ast.Raise | ast.Pass
    docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    if docstring or isinstance(first, compound) or isinstance(second, compound):
        return False
    if not any(_is_update(each) and not _is_check(each) for each in (first, second)):
        return False
    changed, also = _changes(first), _changes(second)
    return _meet(changed, also) or _meet(changed, set(_names(second))) or _meet(also, set(_names(first)))


def _is_check(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr=name))):
            return name.startswith(CHECKS)
    return False


def _names(node: ast.AST) -> Iterator[str]:
    """The dotted names in a piece of code, the longest ones: `self.pool.refs`."""
    name = _dotted(node)
    if name:
        yield name
    else:
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and field != "annotation":
                    yield from _names(child)


def _dotted(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            owner = _dotted(value)
            return f"{owner}.{name}" if owner else ""
    return ""


def _changes(statement: ast.stmt) -> set[str]:
    """The dotted names of what a statement may change: its targets, and what it calls methods of."""
    found = set()
    for node in ast.walk(statement):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=name)):
                if name not in LOOKING_METHODS and _dotted(owner) not in MODULES:
                    found.add(_dotted(owner) or "self")
            case ast.Name(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                found.add(_dotted(node) or "self")
            case ast.Subscript(value=owner, ctx=ast.Store() | ast.Del()):
                found.add(_dotted(owner) or "self")
    return found


def _meet(some: set[str], others: set[str]) -> bool:
    """Whether a name of one set is, or is part of, one of the other."""
    pairs = ((f"{one}.", f"{other}.") for one in some for other in others)
    return any(one.startswith(other) or other.startswith(one) for one, other in pairs)


def _viewer(items: list[ast.AST], index: int, count: int) -> View:
    return lambda: "; ".join(_text(item) for item in items[index : index + count])


def _field_viewer(owner: ast.AST, field: str) -> View:
    return lambda: _text(getattr(owner, field))


def _item_setter(items: list[ast.AST], index: int) -> Callable[[ast.AST], None]:
    return lambda node: items.__setitem__(index, node)


def _field_setter(owner: ast.AST, field: str) -> Callable[[ast.AST], None]:
    return lambda node: setattr(owner, field, node)


def _call(put: Callable[[ast.AST], None], node: ast.AST) -> Change:
    return lambda: put(node)


def _swapper(items: list[ast.AST], index: int) -> Change:
    def swap() -> None:
        items[index], items[index + 1] = items[index + 1], items[index]

    return swap


def _excerpts(before: str, after: str) -> tuple[str, str]:
    """Where two texts differ, with a little around it."""
    start = next((i for i, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), 0)
    end = next((i for i, pair in enumerate(zip(before[::-1], after[::-1], strict=False)) if pair[0] != pair[1]), 0)
    start, end = max(0, start - AROUND), max(0, end - AROUND)
    return before[start : len(before) - end], after[start : len(after) - end]


def _text(node: ast.AST) -> str:
    return " ".join(ast.unparse(ast.fix_missing_locations(node)).split())
