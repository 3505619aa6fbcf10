"""A case: a real cache, the size of a block, what is appended and saved, what is lost, and what is asked for then."""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from kvspec_record import toy

from kvspec_diff.batched.bounds import Arguments, Step, check_steps
from kvspec_diff.caches.case import CHUNK, TOKENS, Setup

BEFORE: Arguments = {"append": ("tokens",), "trim": ("tokens",), "save": ()}
"""What is done with the cache. `save` cuts what it hands out into blocks, and stores those that are not there yet."""

AFTER: Arguments = {"append": ("tokens",), "trim": ("tokens",)}
"""What is done with the cache that is restored."""

Size = Annotated[int, msgspec.Meta(ge=1, le=64)]
Small = Annotated[int, msgspec.Meta(ge=0, le=TOKENS)]


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`steps` on a cache of one row; the stored blocks of the numbers in `lost` go; then as much as is stored of its
    tokens, less the last `cut`, is restored, and `then` are steps on that."""

    KINDS: ClassVar[tuple[str, ...]] = ("persist",)

    do: Literal["persist"]
    setup: Setup
    block_size: Size
    steps: Annotated[tuple[Step, ...], msgspec.Meta(max_length=32)]
    lost: Annotated[tuple[Small, ...], msgspec.Meta(max_length=4)] = ()
    cut: Small = 0
    then: Annotated[tuple[Step, ...], msgspec.Meta(max_length=8)] = ()

    def __post_init__(self) -> None:
        check_steps(self.steps, BEFORE)
        check_steps(self.then, AFTER)
        if self.setup.rows != 1:
            raise ValueError(f"a cache that is stored has one row, not {self.setup.rows}")
        chunks = [int(step[1]) for step in (*self.steps, *self.then) if step[0] == "append"]
        if any(not 1 <= chunk <= CHUNK for chunk in chunks) or sum(chunks) > TOKENS:
            raise ValueError(f"a step appends 1 to {CHUNK} tokens, and all together {TOKENS} at most")

    def check(self, table: Any, release: str) -> None:
        """Raise `EngineError` for a cache that the release has not got; `table` is its promises."""
        table.check(self.setup, release)

    @property
    def question(self) -> dict[str, Any]:
        """What is asked first, as the worker takes it."""
        layers = [layer.question for layer in self.setup.layers]
        steps = [["export", 0] if name == "save" else [name, 0, *given] for name, *given in self.steps]
        return {"do": "caches", "layers": layers, "dtype": self.setup.dtype, "rows": 1, "steps": steps}

    def second(self, found: dict[str, Any]) -> dict[str, Any]:
        """What is asked then: the same, and the cache that is made of what was found."""
        first = self.question
        steps = [[name, 1, *given] for name, *given in self.then]
        return {**first, "steps": [*first["steps"], ["import", 0, 0], *steps], "given": [found]}

    @property
    def weight(self) -> tuple[int, int, int]:
        """What makes one case smaller than another: fewer layers, fewer operations, smaller numbers."""
        steps = (*self.steps, *self.then)
        numbers = [number for step in steps for number in step if isinstance(number, int)]
        numbers += [number for layer in self.setup.layers for number in layer.numbers]
        numbers += [self.block_size, self.cut, 9 * (self.setup.dtype != "float32")]
        return len(list(self.setup.every)), len(steps) + len(self.lost), sum(numbers)


def told(tokens: list[int], number: int, answer: dict[str, Any]) -> list[int]:
    """The tokens of a cache after the step that was answered so, as the `number`th, given those before it."""
    name = answer["op"][0]
    if answer["status"] != "done" or name not in ("append", "trim"):
        return tokens
    if name == "append":
        return [*tokens, *(toy.token(number, 0, place) for place in range(answer["lengths"][0]))]
    return tokens[: max(0, len(tokens) - answer["count"])]
