"""How often each operation was done on each class of caches, and what came of it."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from kvspec_diff.caches.judge import Mark

FIGURES = ("programs", "operations", "tokens", "judged reads", "refused", "raised", "doubtful")


class Tally:
    """Counts; `figures` are what is told of them, `marks` what came of each operation on each class."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.marks: Counter[Mark] = Counter()

    def add(self, answers: list[dict[str, Any]], marks: Mapping[Mark, int]) -> None:
        """A program was run."""
        self.counts["programs"] += 1
        self.marks.update(marks)
        for answer in answers:
            status = answer["status"]
            self.counts["operations"] += status == "done"
            self.counts["refused"] += status == "refused"
            self.counts["raised"] += status == "raised"
            self.counts["tokens"] += sum(answer.get("lengths", ()))

    @property
    def figures(self) -> dict[str, int]:
        """By name."""
        reads = [(name, operation) for name, operation, _ in self.marks if operation in ("append", "padded")]
        made = {
            **self.counts,
            "judged reads": sum(self.marks[name, operation, "held"] for name, operation in dict.fromkeys(reads)),
            "doubtful": sum(count for (_, _, outcome), count in self.marks.items() if outcome == "doubtful"),
        }
        return {name: made.get(name, 0) for name in FIGURES}

    @property
    def held(self) -> dict[str, dict[str, int]]:
        """By class and operation: how often it was done and what was read later was right."""
        found: dict[str, dict[str, int]] = {}
        for (name, operation, outcome), count in sorted(self.marks.items()):
            if outcome == "held":
                found.setdefault(name, {})[operation] = count
        return found
