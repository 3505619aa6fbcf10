"""What is wrong with an engine's answer."""

import msgspec

Key = tuple[str, str, str]
"""Faults with one key are taken for one."""


class Fault(msgspec.Struct, frozen=True):
    """What is wrong: the law, where in the engine, of which family there, in words.

    `rows` are the lines of a table, with `head` above: the numbers that do not agree.
    """

    law: str
    where: str
    family: str
    says: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()

    @property
    def key(self) -> Key:
        """What makes one fault the same as another."""
        return self.law, self.where, self.family


def declines(raised: str) -> bool:
    """Whether what the engine raised says that it does not take such a configuration."""
    return raised.startswith(("AssertionError", "NotImplementedError", "ValueError")) and "not supported" in raised
