"""Programs from bytes: four an operation, decoded against a sketch of the pool so that most of them mean something.

One decoder serves Hypothesis, which shrinks the bytes (`programs`), the bulk run, which draws them from a seed
(`Generator.bulk`), and the state machine (`kvspec_diff.stateful`), which uses the same operands one at a time.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from random import Random

from hypothesis import strategies as st
from kvspec.operations import AnyOperation, Configuration

from kvspec_diff.makers import MAKERS, wild
from kvspec_diff.program import Program
from kvspec_diff.sketch import Sketch
from kvspec_diff.subject import offered

GENE = 4
"""Bytes an operation: its kind, then three for the operands."""

CONFIGURATIONS = tuple(
    Configuration(pages, size) for pages, size in ((4, 1), (5, 1), (8, 1), (4, 2), (5, 2), (8, 2), (5, 3), (4, 4))
)
"""Pools small enough to run out, and to hand out again soon what was freed."""

WILD = 16
LENGTHS = (20, 52)
"""Genes in a program of the bulk run, at least and at most; a few of them find nothing to do."""

SITUATIONS = ("empty", "full", "closed", "open", "deferred", "scribbled", "flushed")
"""What the sketch says: no row; no blank page; no group open; one open; one in which entries were given up; one in
which their buffer was overwritten since; freed pages are not handed out again yet."""

WEIGHTS: dict[str, tuple[int, ...]] = {
    "start":      (1, 4, 24, 4, 1, 0, 8),
    "allocate":   (0, 1, 16, 3, 2, 2, 24),
    "write":      (0, 4, 12, 3, 2, 0, 4),
    "read":       (0, 1, 1, 1, 1, 0, 1),
    "free":       (0, 4, 1, 24, 4, 4, 1),
    "overwrite":  (0, 1, 1, 1, 40, 4, 0),
    "trim":       (0, 1, 1, 2, 1, 1, 0),
    "finish":     (0, 3, 2, 2, 1, 1, 0),
    "publish":    (0, 4, 10, 3, 1, 0, 1),
    "share":      (0, 6, 16, 6, 1, 0, 2),
    "replace":    (0, 12, 40, 40, 6, 6, 4),
    "copy":       (0, 1, 4, 2, 0, 0, 3),
    "evict":      (0, 10, 6, 3, 0, 0, 2),
    "pin":        (0, 1, 2, 1, 0, 0, 0),
    "unpin":      (0, 3, 2, 4, 3, 3, 0),
    "begin":      (0, 8, 10, 0, 0, 0, 2),
    "end":        (0, 0, 0, 2, 4, 14, 0),
    "checkpoint": (0, 4, 8, 8, 4, 2, 2),
}  # fmt: skip
"""How often each kind of operation is tried in each situation."""

TRIES = 3
"""How many kinds are tried for one gene until one finds something to do."""


class Generator:
    """Makes programs for pools of `configurations` from the operations that come with `capabilities`.

    Of 256 operations `wild` have any operands at all if the subject promises to check them (`checks`), else none.
    """

    def __init__(
        self,
        capabilities: frozenset[str],
        configurations: Sequence[Configuration] = CONFIGURATIONS,
        wild: int = WILD,
    ) -> None:
        self.configurations = tuple(configurations)
        self.kinds = [kind for kind in MAKERS if kind in offered(capabilities)]
        self.extra = ["wild"] if "checks" in capabilities else []
        self._wild = wild * len(self.extra)
        self._tables = {name: self._table(column) for column, name in enumerate(SITUATIONS)}

    def _table(self, column: int) -> list[str]:
        """A kind for each value of a byte, as often as its weight says, in the order of `WEIGHTS`."""
        sums = list(accumulate(WEIGHTS[kind][column] for kind in self.kinds))
        places = 256 - self._wild
        table = [self.kinds[sum(total * places <= i * sums[-1] for total in sums)] for i in range(places)]
        return table + self.extra * self._wild

    def operation(self, sketch: Sketch, gene: bytes) -> AnyOperation | None:
        """The operation that a gene stands for here, applied to the sketch; None when there is nothing for it to do."""
        table = self._tables[_situation(sketch)]
        for attempt in range(TRIES):
            kind = table[(gene[0] + attempt * 89) % 256]
            operation = self.made(sketch, kind, gene[1], gene[2], gene[3])
            if operation is not None:
                return operation
        return None

    def made(self, sketch: Sketch, kind: str, a: int, b: int, c: int) -> AnyOperation | None:
        """An operation of a kind (`wild`: of any) with operands from three bytes, applied to the sketch, or None."""
        operation = wild(sketch, a, b, c, self.kinds) if kind == "wild" else MAKERS[kind](sketch, a, b, c)
        if operation is None:
            return None
        return operation if sketch.apply(operation) or self.extra else None

    def decode(self, data: bytes) -> Program:
        """The program that `data` stands for: a byte for the pool, then four an operation. Any bytes are a program."""
        configuration = self.configurations[data[0] % len(self.configurations) if data else 0]
        sketch = Sketch(configuration)
        made = (self.operation(sketch, data[i : i + GENE]) for i in range(1, len(data) - GENE + 1, GENE))
        return Program(configuration, tuple(operation for operation in made if operation is not None))

    def bulk(self, seed: int, lengths: tuple[int, int] = LENGTHS) -> Iterator[Program]:
        """Programs without end, the same ones for the same seed, each of at most so many operations."""
        random = Random(seed)
        while True:
            yield self.decode(random.randbytes(1 + GENE * random.randint(*lengths)))


def _situation(sketch: Sketch) -> str:
    if not sketch.rows:
        return "empty"
    if sketch.open:
        if sketch.scribbled:
            return "scribbled"
        return "deferred" if sketch.given_up else "open"
    if sketch.blank == 0:
        return "full"
    return "flushed" if sketch.until_reuse is not None else "closed"


@st.composite
def programs(draw: st.DrawFn, generator: Generator, most: int = 40) -> Program:
    """Hypothesis: whole programs of up to `most` operations, which shrink by losing operations and lowering bytes.

    Not `lists`: those of Hypothesis have five elements on average, whatever their bounds.
    """
    data = bytes([draw(st.integers(0, len(generator.configurations) - 1))])
    for _ in range(most):
        if draw(st.integers(0, most)) == 0:
            break
        data += draw(st.binary(min_size=GENE, max_size=GENE))
    return generator.decode(data)
