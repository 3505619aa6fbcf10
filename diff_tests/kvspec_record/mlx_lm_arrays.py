"""What the toy model writes into mlx-lm's arrays, and what stands in them.

Keys have the shape [rows, 1, positions, width], values are half as wide again, so that one is not taken for the other;
with quantization keys are as wide as a group and values as two. A recurrent state has the shape [rows, 8].
"""

import functools
from array import array
from typing import Any

import mlx.core as mx

from kvspec_record import toy

PADDING = toy.content(7)
"""What a padding token's row holds: the content of no token that a step gives."""

DIGITS = 8
"""Digits of a recurrent state."""


def widths(group: int) -> tuple[int, int]:
    """The widths of a key and of a value; `group` is 0 without quantization."""
    return (group, 2 * group) if group else (toy.WIDTH, toy.WIDTH * 3 // 2)


def written(contents: list[list[int]], positions: list[int], dtype: mx.Dtype, group: int) -> tuple[mx.array, mx.array]:
    """Keys and values of a chunk; row r's first token stands at `positions[r]`."""
    of_key, of_value = widths(group)
    keys = [
        [toy.key(content, first + j, of_key) for j, content in enumerate(row)]
        for row, first in zip(contents, positions, strict=True)
    ]
    values = [[toy.value(content, of_value) for content in row] for row in contents]
    return mx.array(keys, dtype=dtype)[:, None], mx.array(values, dtype=dtype)[:, None]


def plain(part: Any, group: int, bits: int) -> mx.array:
    """Keys or values as numbers: of quantized ones, what they stand for."""
    if isinstance(part, mx.array):
        return part
    if not part[0].size:
        return mx.zeros((*part[1].shape[:3], group))
    return mx.dequantize(*part, group_size=group, bits=bits)


def of_rows(keys: mx.array, values: mx.array) -> list[list[tuple[int, int, int]]]:
    """Content, position and content of the value: one list a row, one triple a position."""
    return [
        [(*_key(key), _value(value)) for key, value in zip(some, others, strict=True)]
        for some, others in zip(_bytes(keys), _bytes(values), strict=True)
    ]


def state_of(numbers: list[int], dtype: mx.Dtype) -> mx.array:
    """A recurrent state for each row."""
    return mx.array([[number >> 4 * i & 15 for i in range(DIGITS)] for number in numbers], dtype=dtype)


def states_in(state: mx.array) -> list[int]:
    """The recurrent state of each row."""
    return [sum(round(digit) << 4 * i for i, digit in enumerate(row)) for row in state.tolist()]


def name_of(part: Any) -> str:
    """The name of the dtype that is stored; of quantized keys, that of their scales."""
    return str((part if isinstance(part, mx.array) else part[1]).dtype).rpartition(".")[2]


def _bytes(part: mx.array) -> list[list[bytes]]:
    """The numbers of each row and position, as float32."""
    rows, _, positions, width = part.shape
    numbers = mx.contiguous(part.astype(mx.float32))
    mx.eval(numbers)
    if not numbers.size:
        return [[] for _ in range(rows)]
    flat, size = bytes(memoryview(numbers)), 4 * width
    each = [flat[at : at + size] for at in range(0, len(flat), size)]
    return [each[r * positions : (r + 1) * positions] for r in range(rows)]


@functools.lru_cache(2**16)
def _key(row: bytes) -> tuple[int, int]:
    return toy.read_key(array("f", row))


@functools.lru_cache(2**16)
def _value(row: bytes) -> int:
    return toy.read_value(array("f", row))
