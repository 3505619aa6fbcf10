"""A worker of a few lines, in this process, in place of an engine's."""

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Self


class Client:
    """In place of `kvspec_diff.batched.client.Client`; a fault is planted by its name."""

    engine, version = "vllm", "0.33.0"
    offered: ClassVar[tuple[str, ...]] = ()
    capabilities: ClassVar[dict[str, tuple[str, ...]]] = {}

    def __init__(self, engine: str = "vllm", version: str = "0.33.0", plants: tuple[str, ...] = ()) -> None:
        self.fault = plants[0] if plants else ""
        self.name = f"{engine}=={version}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *given: object) -> None:
        pass

    def ask(self, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers."""
        return [self.answer(question) for question in questions]

    def answers(self, batches: Iterable[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
        """The answers to each batch."""
        return (self.ask(batch) for batch in batches)

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to one question."""
        raise NotImplementedError
