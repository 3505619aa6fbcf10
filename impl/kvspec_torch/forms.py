"""The form of arguments: dtype, dimensions, device. What is wrong is said in one line."""

import operator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kvspec_torch.errors import Misuse


def whole(name: str, value: Any) -> int:
    """`value` as an int."""
    try:
        return operator.index(value)
    except TypeError:
        raise Misuse(f"{name}: a whole number is wanted, not {type(value).__name__}") from None


def vector(name: str, value: Any, device: str, length: int | None = None) -> torch.Tensor:
    """`value`, if it is an int64 tensor of one dimension on a device of this type."""
    if not isinstance(value, torch.Tensor):
        raise Misuse(f"{name}: an int64 tensor is wanted, not {type(value).__name__}")
    if value.dtype is not torch.int64:
        raise Misuse(f"{name}: int64 is wanted, not {str(value.dtype).removeprefix('torch.')}")
    if value.dim() != 1:
        raise Misuse(f"{name}: one dimension is wanted, not the shape {tuple(value.shape)}")
    if value.device.type != device:
        raise Misuse(f"{name}: is on {value.device.type}, the pool is on {device}")
    if length is not None and value.numel() != length:
        raise Misuse(f"{name}: {length} numbers are wanted, one for each row, not {value.numel()}")
    return value


def page_ids(pages: Any, device: str) -> NDArray[np.int64]:
    """Page ids as a view."""
    view: NDArray[np.int64] = vector("pages", pages, device).numpy()
    return view


def matrix(name: str, value: Any, device: str, shape: tuple[int, int]) -> torch.Tensor:
    """`value`, if it is an int64 tensor of this shape on a device of this type."""
    if not isinstance(value, torch.Tensor) or value.dtype is not torch.int64 or value.shape != shape:
        given = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, torch.Tensor) else type(value).__name__
        raise Misuse(f"{name}: int64 {shape} is wanted, not {given.removeprefix('torch.')}")
    if value.device.type != device:
        raise Misuse(f"{name}: is on {value.device.type}, the pool is on {device}")
    return value
