"""What a subject is: something that runs a whole program on a fresh pool and says what it did with each operation."""

from typing import Literal, Protocol

from kvspec.operations import Outcome

from kvspec_diff.program import Program

BASIC = frozenset({"start", "allocate", "write", "read", "free", "overwrite", "trim", "finish"})
"""The operations that every subject offers."""

CAPABILITIES: dict[str, frozenset[str]] = {
    "groups": frozenset({"begin", "end"}),
    "cache": frozenset({"publish", "share", "replace", "evict"}),
    "copies": frozenset({"copy"}),
    "pins": frozenset({"pin", "unpin"}),
    "radix": frozenset({"checkpoint"}),
    "checks": frozenset(),
}
"""What a subject may offer beyond the basic operations, and the operations that come with it. `checks`: it promises to
answer misuse with a misuse and to change nothing; programs for a subject that does not promise it contain none."""

EVERYTHING = frozenset(CAPABILITIES) - {"radix"}
"""What the reference and its fast twin offer."""


Show = Literal["blank", "whole", "end"]
"""What a subject in this process lets be observed: the blank pages after each operation; its whole state after each; or
its whole state after the last operation only, which is fastest."""


class WorkerFault(Exception):
    """A subject in another process died, hung or answered nonsense; one line says which and how."""


class Subject(Protocol):
    """Runs programs. `name` is what reports and traces call it."""

    @property
    def name(self) -> str:
        """The subject's name and version, for a person."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """Those of `CAPABILITIES` that it offers."""
        ...

    def run(self, program: Program) -> list[Outcome]:
        """Run the whole program on a fresh pool: one outcome an operation. May raise `WorkerFault`."""
        ...


def offered(capabilities: frozenset[str]) -> frozenset[str]:
    """The names of the operations that a subject with these capabilities takes."""
    return BASIC.union(*(CAPABILITIES[capability] for capability in capabilities))
