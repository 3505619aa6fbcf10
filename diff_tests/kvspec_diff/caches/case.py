"""A case: a cache, and a program over it and over what comes of it."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from kvspec_diff.batched.bounds import Arguments, Step, check_steps

TOKENS = 512
"""Tokens that a program gives a row, all steps together."""

CHUNK = 64
"""Tokens of one step."""

STEPS = 64

ARGUMENTS: Arguments = {
    "append": ("object", "tokens"), "padded": ("object", "tokens", "shift"), "trim": ("object", "tokens"),
    "reset": ("object",), "copy": ("object",), "state": ("object",), "restore": ("state",), "file": ("object",),
    "slice": ("object", "start", "length"), "read": ("object",), "reblock": ("object", "size"),
    "merge": ("object", "other"), "extract": ("object", "row"), "filter": ("object", "mask"),
    "extend": ("object", "other"), "repeat": ("object", "times"), "reorder": ("object", "order"),
}  # fmt: skip
"""See `kvspec_record.caches`."""

LEAST = {"tokens": 1, "length": 1, "size": 1, "times": 1}
MOST = {"tokens": CHUNK, "shift": 99, "start": TOKENS, "length": TOKENS, "size": TOKENS, "times": 4}
"""Of what the numbers are; else 0 to 999."""

Number = Annotated[int, msgspec.Meta(ge=0, le=512)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=40)]


class Layer(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A layer: its kind, its parameters, and the layers in it if it is a list."""

    kind: Name
    parameters: Annotated[tuple[tuple[Name, Number], ...], msgspec.Meta(max_length=8)] = ()
    layers: "Annotated[tuple[Layer, ...], msgspec.Meta(max_length=4)]" = ()

    @property
    def question(self) -> list[Any]:
        """As the worker takes it."""
        inner = [[layer.question for layer in self.layers]] if self.layers else []
        return [self.kind, dict(self.parameters), *inner]

    @property
    def numbers(self) -> list[int]:
        """Its parameters, and those of what is in it."""
        return [*(value for _, value in self.parameters), *(n for layer in self.layers for n in layer.numbers)]


class Setup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cache: its layers, what its numbers are, and its rows when it is made."""

    layers: Annotated[tuple[Layer, ...], msgspec.Meta(min_length=1, max_length=6)]
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    rows: Annotated[int, msgspec.Meta(ge=1, le=8)] = 1

    def __post_init__(self) -> None:
        if any(inner.layers for layer in self.layers for inner in layer.layers):
            raise ValueError("a list of layers has no list in it")

    @property
    def every(self) -> Iterator[Layer]:
        """All layers, those in lists too."""
        for layer in self.layers:
            yield layer
            yield from layer.layers


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cache and a program."""

    KINDS: ClassVar[tuple[str, ...]] = ("caches",)

    do: Literal["caches"]
    setup: Setup
    steps: Annotated[tuple[Step, ...], msgspec.Meta(max_length=STEPS)]

    def __post_init__(self) -> None:
        check_steps(self.steps, ARGUMENTS)
        for number, (name, *given) in enumerate(self.steps):
            for argument, value in zip(ARGUMENTS[str(name)], given, strict=True):
                least, most = LEAST.get(argument, 0), MOST.get(argument, 999)
                if not least <= int(value) <= most and not (name == "trim" and value == 0):
                    raise ValueError(f"step {number}: {argument} of {name} is {value}; it is {least} to {most}")
        if len(self.steps) > STEPS:
            raise ValueError(f"a program has {STEPS} steps at most")
        if self.tokens > TOKENS:
            raise ValueError(f"a program gives a row {TOKENS} tokens at most, not {self.tokens}")

    @property
    def tokens(self) -> int:
        """Tokens that all steps together give a row, at most."""
        return sum(int(step[2]) for step in self.steps if step[0] in ("append", "padded"))

    def check(self, table: Any, release: str) -> None:
        """Raise `EngineError` for a cache that the release has not got; `table` is its promises."""
        table.check(self.setup, release)

    @property
    def question(self) -> dict[str, Any]:
        """As the worker takes it."""
        layers = [layer.question for layer in self.setup.layers]
        made = {"layers": layers, "dtype": self.setup.dtype, "rows": self.setup.rows}
        return {"do": self.do, **made, "steps": self.steps}

    @property
    def weight(self) -> tuple[int, int, int]:
        """What makes one case smaller than another: fewer layers, fewer operations, smaller numbers."""
        setup = self.setup
        numbers = [number for step in self.steps for number in step if isinstance(number, int)]
        numbers += [number for layer in setup.layers for number in layer.numbers]
        return len(list(setup.every)), len(self.steps), sum(numbers) + 9 * (setup.dtype != "float32") + 9 * setup.rows
