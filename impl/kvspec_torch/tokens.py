"""What tokens may be given as, and which they are: the same in every call, whatever was given before (E6)."""

from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kvspec_torch.disk.frames import LARGEST
from kvspec_torch.errors import Misuse

Tokens = Sequence[int] | np.ndarray[Any, np.dtype[np.integer[Any]]] | torch.Tensor
"""A list, a tuple or a range of ints, or integers in one row: an array, a memoryview, of numpy, or a tensor."""

CODES = "bBhHiIlLqQnN"
"""What `array` and `memoryview` call integers."""


def tokens_of(tokens: Any) -> list[int]:
    """The tokens in a list of its own, all of them checked; an equal one is equal in its types, too.

    Raises `Misuse` for anything else than `Tokens`: a number that only equals an int, such as True or 1.0, is none.
    """
    found = _listed(tokens)
    if found and (set(map(type, found)) != {int} or min(found) < 0 or max(found) > LARGEST):
        at, wrong = next((at, each) for at, each in enumerate(found) if type(each) is not int or not _fits(each))
        if type(wrong) is int:
            large = f"a number of {wrong.bit_length()} bits"
            said = f"{wrong if wrong.bit_length() <= 64 else large} is no token: they are from 0 to 2**63 - 1"
        else:
            shown = f"{wrong} " if type(wrong) in (bool, float) else ""
            said = f"{shown}is no token, but a {type(wrong).__name__}: give a list of ints"
        raise Misuse(f"tokens: at {at}, {said}")
    return found


def _listed(tokens: Any) -> list[Any]:
    if isinstance(tokens, list | tuple | range):
        return list(tokens)
    if isinstance(tokens, np.ndarray):
        fits, what = tokens.ndim == 1 and tokens.dtype.kind in "iu", f"{tokens.dtype} of {tokens.ndim} axes"
    elif isinstance(tokens, torch.Tensor):
        whole = not (tokens.dtype.is_floating_point or tokens.dtype.is_complex or tokens.dtype is torch.bool)
        fits = tokens.ndim == 1 and whole and tokens.layout is torch.strided and tokens.device.type != "meta"
        what = f"{tokens.dtype} of {tokens.ndim} axes on {tokens.device}"
    elif isinstance(tokens, array):
        fits, what = tokens.typecode in CODES, f"array of {tokens.typecode!r}"
    elif isinstance(tokens, memoryview):
        fits, what = tokens.ndim == 1 and tokens.format in CODES, f"memoryview of {tokens.format!r}"
    else:
        fits, what = False, type(tokens).__name__
    if not fits:
        raise Misuse(f"tokens: {what}: give a list of ints, or integers in one row")
    return list(tokens.tolist())


def _fits(token: int) -> bool:
    return 0 <= token <= LARGEST
