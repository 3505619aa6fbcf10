"""A case: one configuration and what is done with it; asked of a worker, judged, made small."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import msgspec
from kvspec_reference.reservation import Kind

from kvspec_diff.batched.bounds import Arguments, Step, check_steps
from kvspec_diff.batched.fault import Fault
from kvspec_diff.batched.seen import below
from kvspec_diff.capacity.configuration import Configuration, plain
from kvspec_diff.capacity.judge import Judge, lookahead, warmup
from kvspec_diff.lookahead import Row, method_of

ARGUMENTS: Arguments = {
    "admit": ("request", "prompt", "shared", "chunk"), "step": ("request", "tokens", "drafts"),
    "retire": ("request", "accepted"), "finish": ("request",),
}  # fmt: skip
"""See `kvspec_record.vllm_program`."""


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`steps` are those of a program, and empty otherwise; of a method only `method` and `drafts` matter."""

    KINDS: ClassVar[tuple[str, ...]] = ("program", "warmup", "lookahead")

    do: Literal["program", "warmup", "lookahead"]
    configuration: Configuration
    steps: tuple[Step, ...] = ()

    def __post_init__(self) -> None:
        check_steps(self.steps, ARGUMENTS)
        for number, step in enumerate(self.steps):
            if step[0] == "admit" and not int(step[3]) <= int(step[2]) <= self.configuration.length:
                raise ValueError(f"step {number}: a prompt of {step[2]} tokens, {step[3]} of them shared, cannot be")

    def check(self, table: Mapping[str, Row], release: str) -> None:
        """Raise `EngineError` for a method that the release has not got."""
        method_of(self.configuration.method, table, release)

    @property
    def question(self) -> dict[str, Any]:
        """As the worker takes it."""
        if self.do == "lookahead":
            return {"do": self.do, "method": self.configuration.method, "drafts": self.configuration.drafts}
        asked: dict[str, Any] = {"do": self.do, "configuration": plain(self.configuration)}
        return asked | ({"steps": self.steps} if self.do == "program" else {})

    @property
    def weight(self) -> tuple[int, int, int]:
        """What makes one case smaller than another: fewer groups, fewer steps, smaller numbers."""
        made = self.configuration
        numbers = [made.drafts, made.spares, made.length, made.encoded, *(n for g in made.groups for n in g[1:])]
        numbers += [number for step in self.steps for number in step if isinstance(number, int)]
        return len(made.groups), len(self.steps), sum(numbers)


def judged(case: Case, answer: Mapping[str, Any], rows: Mapping[str, Row]) -> list[Fault]:
    """What is wrong with the answer."""
    if "error" in answer:
        return [Fault("raised", case.do, "", f"raised {answer['error']}", (), ())]
    row = rows[case.configuration.method]
    if case.do == "warmup":
        return warmup(case.configuration, row, answer["rows"])
    if case.do == "lookahead":
        found = lookahead(row, case.configuration.drafts, dict(answer))
    else:
        found = Judge(case.configuration, row).judge(list(case.steps), answer["calls"])
    return [] if found is None else [found]


def _with(case: Case, **fields: Any) -> Case:
    changed = msgspec.structs.replace(case.configuration, **fields)
    return msgspec.structs.replace(case, configuration=changed)


def _groups(case: Case, rows: Mapping[str, Row]) -> Iterator[Case]:
    groups = case.configuration.groups
    if len(groups) > 1:
        yield from (_with(case, groups=groups[:i] + groups[i + 1 :]) for i in range(len(groups)))


def _kinds(case: Case, rows: Mapping[str, Row]) -> Iterator[Case]:
    simpler: dict[str, tuple[Kind, int]] = {"window": ("full", 0), "chunk": ("full", 0), "all": ("none", 0)}
    groups = case.configuration.groups
    for i, (kind, size, _) in enumerate(groups):
        if kind in simpler:
            other, span = simpler[kind]
            yield _with(case, groups=(*groups[:i], (other, size, span), *groups[i + 1 :]))


def _caching(case: Case, rows: Mapping[str, Row]) -> Iterator[Case]:
    if case.configuration.caching:
        yield _with(case, caching=False)


def _method(case: Case, rows: Mapping[str, Row]) -> Iterator[Case]:
    simpler = ("none", "ngram", "eagle")
    if case.do == "lookahead" or case.configuration.method in simpler:
        return
    yield from (_with(case, method=method, **({"drafts": 0, "spares": 0} if method == "none" else {}))
                for method in simpler if method in rows)  # fmt: skip


def _number(name: str, least: int) -> Callable[[Case, Mapping[str, Row]], Iterator[Case]]:
    def smaller(case: Case, rows: Mapping[str, Row]) -> Iterator[Case]:
        low = 1 if name == "drafts" and case.configuration.method != "none" else least
        if name == "encoded" and "cross" in case.configuration.kinds:
            low = 1
        yield from (_with(case, **{name: number}) for number in below(getattr(case.configuration, name), low))

    return smaller


def _blocks(case: Case, rows: Mapping[str, Row]) -> Iterator[Case]:
    groups = case.configuration.groups
    for size in below(groups[0][1], 1):
        yield _with(case, groups=tuple((kind, size, span) for kind, _, span in groups))


def _spans(case: Case, rows: Mapping[str, Row]) -> Iterator[Case]:
    groups = case.configuration.groups
    for i, (kind, size, span) in enumerate(groups):
        least = size if kind == "chunk" else 2
        for less in below(span, least) if kind == "window" else range(least, span, size):
            yield _with(case, groups=(*groups[:i], (kind, size, less), *groups[i + 1 :]))


def _fewer_steps(case: Case, rows: Mapping[str, Row]) -> Iterator[Case]:
    for i in range(len(case.steps)):
        yield msgspec.structs.replace(case, steps=case.steps[:i])
    for i in range(len(case.steps)):
        yield msgspec.structs.replace(case, steps=case.steps[:i] + case.steps[i + 1 :])


def _smaller_steps(case: Case, rows: Mapping[str, Row]) -> Iterator[Case]:
    for i, step in enumerate(case.steps):
        for j, value in enumerate(step[2:], 2):
            least = 1 if (step[0], j) in (("admit", 2), ("admit", 4), ("step", 2)) else 0
            for less in below(int(value), least):
                changed = (*step[:j], less, *step[j + 1 :])
                if changed[0] != "admit" or int(changed[3]) <= int(changed[2]):
                    yield msgspec.structs.replace(case, steps=(*case.steps[:i], changed, *case.steps[i + 1 :]))


def _longest(case: Case, rows: Mapping[str, Row]) -> Iterator[Case]:
    prompts = [int(step[2]) for step in case.steps if step[0] == "admit"]
    for length in below(case.configuration.length, max([3, *prompts])):
        yield _with(case, length=length)


SMALLER: tuple[Callable[[Case, Mapping[str, Row]], Iterator[Case]], ...] = (
    _groups, _kinds, _caching, _method, _number("drafts", 0), _number("spares", 0), _blocks, _spans, _fewer_steps,
    _smaller_steps, _longest, _number("encoded", 0), _number("pool", 1),
)  # fmt: skip
"""In this order: fewer and simpler groups, no caching, simpler methods, fewer drafts, smaller blocks, fewer steps."""
