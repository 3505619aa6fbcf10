"""A toy model: prompts, and a next token that is a function of the whole prefix, so that any difference in it shows.

For caches it has tokens that are all different, and what it writes for one: its `content`, 32 bits, which tells the
token again, in `digits` that every dtype and a quantization of 4 or 8 bits in one group keep as they are. A token is
given at one place of one history, so its content at a position tells the whole prefix.
"""

from array import array
from collections.abc import Sequence
from zlib import crc32

VOCABULARY = 30000

WIDTH = 16
"""Numbers that a key or value has at least; with quantization it has as many as a group."""

LARGEST = 15
"""The largest digit; each row holds it, and 0."""

_MIX, _BACK, _ALL = 2654435761, pow(2654435761, -1, 2**32), 2**32 - 1


def prompt(request: int, length: int, shared: int) -> list[int]:
    """The tokens of a prompt: the first `shared` are the same for every request, the others are its own."""
    return [*range(1, 1 + shared), *(1000 + 100 * request + position for position in range(shared, length))]


def next_token(tokens: list[int]) -> int:
    """What comes after these tokens."""
    return crc32(array("q", tokens)) % VOCABULARY


def wrong(token: int) -> int:
    """Another token than this one."""
    return (token + 1) % VOCABULARY


def token(step: int, row: int, place: int) -> int:
    """The token that step `step` (from 0, up to 4094) gives row `row` (below 64) at `place` (below 16384) of its chunk.

    No two are the same, and none is 0.
    """
    return (step + 1) << 20 | row << 14 | place


def content(token: int) -> int:
    """What the model writes for a token: 32 bits, another number for another token; 0 is never written."""
    return token * _MIX & _ALL


def told(content: int) -> tuple[int, int, int]:
    """The step, the row and the place whose token has this content; step -1 for what no token has."""
    given = content * _BACK & _ALL
    return (given >> 20) - 1, given >> 14 & 63, given & 16383


def fold(state: int, token: int, entry: int = 0) -> int:
    """A recurrent state after one token more, 32 bits; states begin as 0, those of different entries differ then."""
    return crc32(array("q", [state, token, entry]))


def key(content: int, position: int, width: int = WIDTH) -> list[int]:
    """`width` digits: 0, the largest, the content from its highest digit, the position (-32768 to 32767), zeros."""
    digits = [0, LARGEST, *_digits(content, 8), *_digits(position % 65536, 4)]
    return digits + [0] * (width - len(digits))


def value(content: int, width: int = WIDTH) -> list[int]:
    """`width` digits: the content from its lowest digit, the largest, zeros."""
    digits = [*reversed(_digits(content, 8)), LARGEST]
    return digits + [0] * (width - len(digits))


def read_key(numbers: Sequence[float]) -> tuple[int, int]:
    """Content and position of a key; both are 0 where nothing was written."""
    position = _number(numbers[10:14])
    return _number(numbers[2:10]), position - 65536 * (position > 32767)


def read_value(numbers: Sequence[float]) -> int:
    """The content of a value; 0 where nothing was written."""
    return _number(numbers[7::-1])


def _digits(number: int, count: int) -> list[int]:
    return [number >> 4 * (count - 1 - i) & 15 for i in range(count)]


def _number(digits: Sequence[float]) -> int:
    number = 0
    for digit in digits:
        number = number << 4 | round(digit) & 15
    return number
