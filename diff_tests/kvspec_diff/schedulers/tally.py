"""How much of what a scheduler does was seen in the programs that it was given."""

from collections import Counter
from typing import Any


class Tally:
    """Counts; `figures` are what is told of them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def add(self, answers: list[dict[str, Any]]) -> None:
        """A program was run."""
        counts = self.counts
        counts["programs"] += 1
        gone: set[int] = set()  # requests that were preempted and wait
        for answer in answers:
            counts["steps"] += bool(answer.get("parts"))
            given: set[int] = set()  # requests that this step has given their blocks
            for event in answer.get("events", ()):
                name, r = event[:2]
                counts["prefixes found"] += name == "hit" and event[2] > 0
                counts["refused"] += name == "allocate" and not event[3]
                counts["preempted"] += name == "preempt"
                counts["preempted out of a step"] += name == "preempt" and r in given
                if name == "allocate" and event[3]:
                    given.add(r)
                    counts["resumed"] += r in gone
                    gone.discard(r)
                if name == "preempt":
                    gone.add(r)
            for part in answer.get("parts", ()):
                counts["drafts"] += len(part[3])
            counts["tokens"] += sum(len(tokens) for _, tokens in answer.get("emitted", ()))
            counts["aborted"] += answer["op"][0] == "abort" and answer["done"]
            counts["emptied"] += answer["op"][0] == "reset" and answer["done"]
            gone.difference_update(answer.get("ended", ()))

    @property
    def figures(self) -> dict[str, int]:
        """By name."""
        return {name: self.counts[name] for name in FIGURES}


FIGURES = ("programs", "steps", "tokens", "drafts", "prefixes found", "refused", "preempted",
           "preempted out of a step", "resumed", "aborted", "emptied")  # fmt: skip
