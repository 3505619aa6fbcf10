"""A toy model: prompts, and a next token that is a function of the whole prefix, so that any difference in it shows."""

from array import array
from zlib import crc32

VOCABULARY = 30000


def prompt(request: int, length: int, shared: int) -> list[int]:
    """The tokens of a prompt: the first `shared` are the same for every request, the others are its own."""
    return [*range(1, 1 + shared), *(1000 + 100 * request + position for position in range(shared, length))]


def next_token(tokens: list[int]) -> int:
    """What comes after these tokens."""
    return crc32(array("q", tokens)) % VOCABULARY


def wrong(token: int) -> int:
    """Another token than this one."""
    return (token + 1) % VOCABULARY
