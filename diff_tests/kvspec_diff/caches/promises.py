"""What an engine promises for which class of caches: `promises/ENGINE.toml`, with a citation for each.

The file names the `engine`; the `releases` it is about; the `dtypes`; `rows`, how many a fresh object has at most: one
of several is merged of empty ones where there are classes for batches; the `operations` that there is a way to do. Then
a table `[[class]]` for each class: `name`; for one that a layer can begin as, its `kind` in programs, `parameters` as
`[least, most]` to draw from, or `choices`, `members`, and `groups`, those of one of which stand in one cache; `batch`,
the class that it becomes by merging, if that is another. `members` is a table from what is added to the layer's path to
`[family, number or parameter, ...]`.

Then a table `[[promise]]` for each: `classes` and `operations` ("*" is all); `verdict`; `source`, where that is said or
what else it was read from; `says`, in words; `releases`, if not all; `where`, if it is for some parameters only, as
`[least, most]`. Of those that fit, the first counts. The verdicts:

- `promised`: it is done, a refusal is a fault, and what is read later is judged;
- `optional`: it may be refused; when it is done, it is judged;
- `refused`: it is to be refused; when it is done, what is read later is judged;
- `misuse`: nothing is said; it is not drawn, and nothing that it touches is judged.

Beyond the steps of `kvspec_record.caches` there are `isolate_state`, `isolate_slice`, `isolate_read`: what is handed
out stays as it is; and `isolate_restore`: what was restored from a state, and what that was taken from, go on without
each other (the verdict on `isolate_state` counts if it has none). Where that is not promised, what was restored is
judged, and what its state was taken from is not any more.
"""

import functools
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Annotated, Literal

import msgspec

from kvspec_diff.caches.case import ARGUMENTS, Layer, Setup
from kvspec_diff.caches.kinds import NUMBERS, Member
from kvspec_diff.recipes import EngineError

Verdict = Literal["promised", "optional", "refused", "misuse"]
WORST: tuple[Verdict, ...] = ("promised", "optional", "refused", "misuse")
MEMORY = 4096
"""Answers about caches that are remembered."""

HANDED = ("state", "slice", "read")
"""Steps that hand something out that is kept."""

Range = tuple[int, int]
Text = Annotated[str, msgspec.Meta(min_length=1)]
LIST = "list"
"""The kind of a layer that is a list of layers."""


class Class(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A class of caches; one without a kind comes to be by merging only."""

    name: Text
    kind: str = ""
    parameters: dict[str, Range] = {}
    choices: dict[str, tuple[int, ...]] = {}
    members: dict[str, tuple[str | int, ...]] = {}
    groups: tuple[str, ...] = ("",)
    batch: str = ""

    def values(self, parameter: str) -> Range | tuple[int, ...]:
        """What it is drawn from."""
        return self.choices[parameter] if parameter in self.choices else self.parameters[parameter]


class Promise(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is said of operations on classes."""

    classes: tuple[Text, ...]
    operations: tuple[Text, ...]
    verdict: Verdict
    source: Text
    says: str = ""
    releases: tuple[str, ...] = ()
    where: dict[str, Range] = {}

    def fits(self, name: str, operation: str, release: str) -> bool:
        """Whether it is about this, for some parameters at least."""
        return (
            (name in self.classes or "*" in self.classes)
            and (operation in self.operations or ("*" in self.operations and operation != "isolate_restore"))
            and (not self.releases or release in self.releases)
        )


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file."""

    engine: str
    releases: tuple[str, ...]
    dtypes: tuple[str, ...]
    rows: Annotated[int, msgspec.Meta(ge=1, le=8)]
    operations: tuple[str, ...]
    classes: tuple[Class, ...] = msgspec.field(name="class")
    promises: tuple[Promise, ...] = msgspec.field(name="promise")


class Promises:
    """Those of one release."""

    def __init__(self, made: Table, release: str) -> None:
        self.table, self.engine, self.release = made, made.engine, release
        self.dtypes, self.rows, self.operations = made.dtypes, made.rows, made.operations
        self.classes: Mapping[str, Class] = {each.name: each for each in made.classes}
        self.kinds: Mapping[str, Class] = {each.kind: each for each in made.classes if each.kind}
        self._find = functools.cache(self._found)
        self.verdict = functools.lru_cache(MEMORY)(self._verdict)
        """The verdict on an operation on a whole cache (a setup, in a batch or not): the worst one on any layer."""
        self.members = functools.lru_cache(MEMORY)(self._memories)
        """The memories of a cache (a setup, in a batch or not), in order."""
        self.named = functools.lru_cache(MEMORY)(self._names)
        """The different classes in a cache (a setup, in a batch or not), lists among them."""

    @property
    def judged(self) -> tuple[str, ...]:
        """What there is a verdict about: the operations, and that what they hand out stays as it is."""
        return (*self.operations, *(f"isolate_{each}" for each in (*HANDED, "restore") if each in self.operations))

    def of(self, name: str, operation: str, parameters: Mapping[str, int] | None = None) -> Promise:
        """What is said of an operation on a class; with no parameters, in general."""
        return self._find(name, operation, None if parameters is None else tuple(sorted(parameters.items())))

    def batched(self, setup: Setup) -> bool:
        """Whether a fresh object is one of the classes for batches."""
        return setup.rows > 1 and any(made.batch for made in self.classes.values())

    def _verdict(self, setup: Setup, batch: bool, operation: str) -> Verdict:
        if operation not in self.judged:
            return "misuse"
        some = [self.of(name, operation, parameters).verdict for name, parameters in self._layers(setup.layers, batch)]
        return max(some, key=WORST.index)

    def _memories(self, setup: Setup, batch: bool = False) -> tuple[Member, ...]:
        every = enumerate(setup.layers)
        return tuple(member for i, layer in every for member in self._members(str(i), layer, batch))

    def _names(self, setup: Setup, batch: bool) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for name, _ in self._layers(setup.layers, batch)))

    def check(self, setup: Setup, release: str) -> None:
        """Raise `EngineError` for a cache that the engine does not have."""
        if setup.rows > self.rows or setup.dtype not in self.dtypes:
            raise EngineError(f"{release} has no caches of {setup.rows} rows of {setup.dtype} to begin with")
        for layer in setup.every:
            made = self.kinds.get(layer.kind)
            if made is None:
                raise EngineError(f"{release} has no cache of kind {layer.kind!r}: it has {', '.join(self.kinds)}")
            if layer.layers and layer.kind != LIST:
                raise EngineError(f"{release}: a cache of kind {layer.kind!r} has no layers in it")
            if {name for name, _ in layer.parameters} != {*made.parameters, *made.choices}:
                has = ", ".join({**made.parameters, **made.choices}) or "no parameters"
                raise EngineError(f"{release}: {layer.kind} has {has}")
            for name, value in layer.parameters:
                if name in made.choices and value not in made.choices[name]:
                    raise EngineError(f"{release}: {name} of {layer.kind} is one of {made.choices[name]}, not {value}")
        if self.batched(setup) and self.verdict(setup, False, "merge") != "promised":
            raise EngineError(f"{release} has no batch of such caches to begin with")
        for member in self.members(setup):
            if member.family in ("window", "chunk") and member.numbers[0] < 1 + (*member.numbers, 0)[1]:
                raise EngineError(f"{release}: no {member.of} has {member.family}{member.numbers}")

    def problems(self) -> Iterator[str]:
        """What is wrong with the table itself: something without a verdict, names that nothing has."""
        for name, made in self.classes.items():
            for operation in (*self.operations, *(f"isolate_{each}" for each in HANDED if each in self.operations)):
                if all(each.where or not each.fits(name, operation, self.release) for each in self.table.promises):
                    yield f"{self.release}: nothing is said of {operation} on {name}"
            for path, (family, *numbers) in made.members.items():
                if family not in NUMBERS or len(numbers) > NUMBERS[family]:
                    yield f"{name}: member {path!r} has no family {family}{tuple(numbers)}"
                for number in numbers:
                    if isinstance(number, str) and number not in {**made.parameters, **made.choices}:
                        yield f"{name}: member {path!r} names {number}, which is no parameter"
            if made.batch and made.batch not in self.classes:
                yield f"{name} becomes {made.batch}, which is no class here"
            if made.kind and not made.members and made.kind != LIST:
                yield f"{name} has no members"
        for operation in self.operations:
            if operation not in ARGUMENTS:
                yield f"there is no operation {operation}"
        for promise in self.table.promises:
            for unknown in {*promise.classes} - {*self.classes, "*"}:
                yield f"a promise is about {unknown}, which is no class here"
            for unknown in {*promise.operations} - {*self.judged, "*"}:
                yield f"a promise is about {unknown}, which is no operation here"

    def _layers(self, layers: tuple[Layer, ...], batch: bool) -> Iterator[tuple[str, dict[str, int]]]:
        for layer in layers:
            made = self.kinds[layer.kind]
            yield (made.batch if batch and made.batch else made.name), dict(layer.parameters)
            yield from self._layers(layer.layers, batch)

    def _members(self, path: str, layer: Layer, batch: bool) -> Iterator[Member]:
        made = self.kinds[layer.kind]
        parameters = dict(layer.parameters)
        name = made.batch if batch and made.batch else made.name
        for more, (family, *given) in made.members.items():
            numbers = tuple(parameters[each] if isinstance(each, str) else each for each in given)
            yield Member(path + more, name, family, numbers)  # type: ignore[arg-type]
        for i, inner in enumerate(layer.layers):
            yield from self._members(f"{path}.{i}", inner, batch)

    def _found(self, name: str, operation: str, parameters: tuple[tuple[str, int], ...] | None) -> Promise:
        for promise in self.table.promises:
            if promise.fits(name, operation, self.release):
                if not promise.where:
                    return promise
                given = dict(parameters or ())
                if all(each in given and low <= given[each] <= high for each, (low, high) in promise.where.items()):
                    return promise
        if operation == "isolate_restore":
            return self._found(name, "isolate_state", parameters)
        raise EngineError(f"{self.engine}=={self.release}: nothing is said of {operation} on {name}")


def load(engine: str, release: str) -> Promises:
    """The promises of a release; `EngineError` when there are none."""
    made = _files().get(engine)
    if made is None or release not in made.releases:
        told = ", ".join(f"{each.engine} {' and '.join(each.releases)}" for each in _files().values())
        raise EngineError(f"no table says what the caches of {engine} {release} promise; there are tables for {told}")
    return Promises(made, release)


def engines() -> dict[str, tuple[str, ...]]:
    """The engines that there are tables for, and the releases."""
    return {name: each.releases for name, each in _files().items()}


def parsed(text: str, release: str) -> Promises:
    """The promises of a release, of a table in TOML. Raises `ValueError`."""
    return Promises(msgspec.toml.decode(text, type=Table), release)


@functools.cache
def _files() -> dict[str, Table]:
    found = [each for each in (files("kvspec_diff") / "caches" / "promises").iterdir() if each.name.endswith(".toml")]
    made = [msgspec.toml.decode(each.read_text(), type=Table) for each in sorted(found, key=lambda each: each.name)]
    return {each.engine: each for each in made}
