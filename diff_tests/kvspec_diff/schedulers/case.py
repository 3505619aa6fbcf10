"""A case: one scheduler and a program for it."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from kvspec_reference.demand import Demand, Pool
from kvspec_reference.reservation import Group, Limits

from kvspec_diff.batched.bounds import Arguments, Count, Groups, Positive, Step, check_groups, check_steps
from kvspec_diff.lookahead import Row, method_of, written

Policy = Literal["fcfs", "priority"]
ARGUMENTS: Arguments = {
    "add": ("request", "prompt", "shared", "tokens", "priority"), "schedule": (), "retire": ("right", "drafts"),
    "abort": ("request",), "reset": (),
}  # fmt: skip
"""See `kvspec_record.vllm_scheduler`."""


class Setup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A scheduler. `length` is in tokens, `pool` in blocks, `budget` in tokens a step, of which a request's
    prompt gets `chunk` at most, if that is not 0, while there are others; `seats` requests run at a time.

    `depth` steps are on their way at a time; `watermark` is a part of the pool; with `whole` a request is admitted only
    when all of its prompt fits.
    """

    policy: Policy
    groups: Groups
    method: str
    drafts: Annotated[int, msgspec.Meta(ge=0, le=99)]
    length: Positive
    pool: Positive
    caching: bool
    budget: Positive
    chunk: Count
    seats: Positive
    depth: Literal[1, 2]
    watermark: Annotated[float, msgspec.Meta(ge=0, le=1)]
    whole: bool

    def __post_init__(self) -> None:
        check_groups(self.described)

    @property
    def described(self) -> tuple[Group, ...]:
        """The groups as the formulas take them."""
        return tuple(Group(*group) for group in self.groups)

    def demand(self, row: Row) -> Demand:
        """What a request needs of the pool."""
        limits = Limits(self.length, written(row, self.drafts), 0, 0)
        return Demand([Pool(self.pool, self.described)], limits, self.budget * self.depth)

    def most(self, row: Row, positions: int) -> int:
        """Blocks that a request of so many positions holds at most, refused drafts at its end among them."""
        return self.demand(row).most(min(positions + self.drafts, self.length))[0]


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A scheduler and a program for it."""

    KINDS: ClassVar[tuple[str, ...]] = ("schedule",)

    do: Literal["schedule"]
    setup: Setup
    steps: tuple[Step, ...]

    def __post_init__(self) -> None:
        check_steps(self.steps, ARGUMENTS)
        for number, step in enumerate(self.steps):
            if step[0] == "add":
                _, prompt, shared, tokens, _ = map(int, step[1:])
                if prompt < 1 or tokens < 1 or shared > prompt or prompt + tokens > self.setup.length:
                    text = f"{prompt} tokens, {shared} of them shared, and {tokens} to come, of {self.setup.length}"
                    raise ValueError(f"step {number}: a request cannot have {text}")

    def check(self, table: Mapping[str, Row], release: str) -> None:
        """Raise `EngineError` for a method that the release has not got."""
        method_of(self.setup.method, table, release)

    @property
    def question(self) -> dict[str, Any]:
        """As the worker takes it."""
        return {"do": self.do, "setup": msgspec.to_builtins(self.setup), "steps": self.steps}

    @property
    def weight(self) -> tuple[int, int, int]:
        """What makes one case smaller than another: fewer groups, fewer operations, smaller numbers."""
        made = self.setup
        numbers = [made.drafts, made.length, made.pool, made.budget, made.chunk, made.seats, made.depth]
        numbers += [made.caching, made.whole]
        numbers += [n for group in made.groups for n in group[1:]]
        numbers += [number for step in self.steps for number in step if isinstance(number, int)]
        return len(made.groups), len(self.steps), sum(numbers)
