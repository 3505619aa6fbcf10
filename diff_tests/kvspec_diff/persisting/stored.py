"""The first half of a case: blocks of what a cache handed out are saved, some are lost, and a prefix is restored."""

import base64
import binascii
from typing import Any

import msgspec
from kvspec.members import Layout

from kvspec_diff.beside import Broken
from kvspec_diff.persisting.case import Case, told
from kvspec_diff.persisting.disk import Disk, Parts

Answers = list[dict[str, Any]]


class Stored:
    """What a program's first half came to: how much was found, and all that is asked for then."""

    def __init__(self, case: Case, release: str, answers: Answers) -> None:
        """Save and restore. Raises `Broken`."""
        self.tokens: list[int] = []
        self.blocks, self.asked, self.found = 0, 0, 0
        self.parts: Parts = {}
        disk: Disk | None = None
        try:
            for number, answer in enumerate(answers[: len(case.steps)]):
                self.tokens = told(self.tokens, number, answer)
                if answer["status"] == "raised":
                    raise Broken("raised", f"{answer['op'][0]}: {answer['raised']}")
                if answer["op"][0] == "export" and self.tokens and "exported" not in answer:
                    raise Broken("E1", f"{len(self.tokens)} tokens are not handed out: {answer.get('why')}")
                if "exported" in answer and self.tokens:
                    layout = _layout(release, case.block_size, answer["exported"]["members"])
                    disk = disk or Disk(layout)
                    if disk.layout != layout:
                        raise Broken("E1", "what the cache is made of differs between two exports")
                    disk.save(self.tokens, {path: _bytes(data) for path, data in answer["exported"]["parts"].items()})
            if disk is not None:
                self._restore(case, disk)
        finally:
            if disk is not None:
                disk.close()

    def _restore(self, case: Case, disk: Disk) -> None:
        self.blocks = len(disk.blocks)
        for number in case.lost:
            disk.lose(number)
        asked = self.tokens[: max(0, len(self.tokens) - case.cut)]
        self.asked = len(asked) // case.block_size * case.block_size
        self.found, self.parts = disk.restore(asked)
        self.tokens = self.tokens[: self.found]

    @property
    def given(self) -> dict[str, Any]:
        """As the worker takes it."""
        parts = {path: base64.b64encode(data).decode() for path, data in self.parts.items()}
        return {"position": self.found, "parts": parts}


def _layout(release: str, block_size: int, members: Any) -> Layout:
    """Of what the worker says that its cache is made of."""
    try:
        return msgspec.convert({"model": release, "block_size": block_size, "members": members}, Layout)
    except msgspec.ValidationError as error:
        raise Broken("E1", f"the cache says that it is made of what nothing is made of: {error}") from None


def _bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, TypeError) as error:
        raise Broken("B1", f"a part is no base64: {error}") from None
