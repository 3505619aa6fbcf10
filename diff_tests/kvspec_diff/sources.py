"""Where targets come from: one of kvspec's own subjects, or an engine's release with its options."""

from abc import ABC, abstractmethod
from itertools import product
from types import TracebackType
from typing import Any, NamedTuple, Self

from kvspec_diff.program import nearest
from kvspec_diff.recipes import EngineError
from kvspec_diff.targets import EngineTarget, ReferenceTarget, Target, TorchTarget
from kvspec_diff.worker import EngineSubject, Misused

OPTIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "sglang": {
        "subject": ("pool", "radix"),
        "allocator": ("token", "paged"),
        "sort": (False, True),
        "segments": (False, True),
        "hostile": (True, False),
    },
    "example": {"hostile": (True, False)},
}
"""What of an engine can be chosen, and all there is to choose from; see `kvspec_record.sglang`."""


class Source(ABC):
    """Has targets, in a `with`."""

    @property
    def parts(self) -> frozenset[str]:
        """The kinds of subject that it offers, such as `pool` and `radix`."""
        return frozenset({"pool"})

    @abstractmethod
    def targets(self, chosen: dict[str, Any]) -> list[Target]:
        """A target for each choice of the options that `chosen` leaves open; `EngineError` for an unknown option."""

    def misuse(self) -> dict[str, list[Misused]]:
        """What it does with input outside its contract, unless it checks; nothing of that is a finding."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """End whatever was started."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Own(Source):
    """`reference` or `torch`."""

    def __init__(self, subject: str) -> None:
        self.subject = subject

    def targets(self, chosen: dict[str, Any]) -> list[Target]:
        """Torch has two paths; there are no options."""
        check(self.subject, chosen)
        return [ReferenceTarget()] if self.subject == "reference" else [TorchTarget("host"), TorchTarget("device")]

    def close(self) -> None:
        """Nothing was started."""


class Release(Source):
    """An installed engine release, in a `with`: its targets and its known findings' runs share one worker."""

    def __init__(self, engine: str, version: str, plants: tuple[str, ...] = ()) -> None:
        self.engine, self.version, self.plants = engine, version, plants
        self._first = EngineSubject(engine, version, {}, plants)

    @property
    def parts(self) -> frozenset[str]:
        """Those that the worker names."""
        return frozenset(self._first.worker.hello.capabilities)

    def target(self, options: dict[str, Any]) -> EngineTarget:
        """The target with these options; `EngineError` for one that there is not."""
        check(self.engine, options)
        subject = EngineSubject(self.engine, self.version, options, self.plants)
        subject.worker = self._first.worker
        return EngineTarget(subject)

    def targets(self, chosen: dict[str, Any]) -> list[Target]:
        """A target for each choice of the options that `chosen` leaves open."""
        check(self.engine, chosen)
        known = dict(OPTIONS[self.engine])
        if "subject" in known:
            known["subject"] = tuple(name for name in known["subject"] if name in self.parts)
        choices = product(*((chosen[name],) if name in chosen else values for name, values in known.items()))
        return [self.target(dict(zip(known, values, strict=True))) for values in choices]

    def misuse(self) -> dict[str, list[Misused]]:
        """Asked of each allocator; the name is empty where there is no choice."""
        found = {}
        for allocator in OPTIONS[self.engine].get("allocator", ("",)):
            options = {"allocator": allocator} if allocator else {}
            subject = EngineSubject(self.engine, self.version, options, self.plants)
            subject.worker = self._first.worker
            found[allocator] = subject.misuse()
        return found

    def close(self) -> None:
        """End the worker."""
        self._first.close()


def check(engine: str, options: dict[str, Any]) -> None:
    """Raise `EngineError` for an option or a value that the engine does not have."""
    known = OPTIONS.get(engine, {})
    for name, value in options.items():
        if name not in known:
            raise EngineError(f"{engine} has no option {name!r}{nearest(name, known)}; there are {', '.join(known)}")
        if value not in known[name]:
            values = ", ".join(str(each).lower() for each in known[name])
            raise EngineError(f"{engine}: {name} is {value!r}; it must be one of {values}")


class Described(NamedTuple):
    """A subject's name in parts: the engine's release, the options, the planted faults."""

    engine: str
    version: str
    options: dict[str, Any]
    plants: tuple[str, ...]


def described(name: str) -> Described | None:
    """The parts of a name such as `sglang==0.5.17 allocator=paged sort=true`; None if it is no engine's."""
    first, *words = name.split(" ")
    engine, separator, version = first.partition("==")
    if not separator:
        return None
    options: dict[str, Any] = {}
    plants: list[str] = []
    values = {"true": True, "false": False}
    while words:
        word = words.pop(0)
        if word == "plant" and words:
            plants.append(words.pop(0))
        else:
            option, _, value = word.partition("=")
            options[option] = values.get(value, value)
    return Described(engine, version, options, tuple(plants))
