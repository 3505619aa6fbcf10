"""The parts of a block as tensors: their form, copies that pin nothing, and equality bit for bit (B1, B6, S4).

Bits are copied as integers of the same width: torch makes a bool that is neither 0 nor 1 into a 1, and has not every
operation for every dtype.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from kvspec.members import WIDTHS, Layout, Part, Recurrent, Window, checked
from kvspec.operations import Misuse as Wrong

from kvspec_torch.errors import Misuse
from kvspec_torch.forms import whole

Parts = Mapping[str, torch.Tensor]
"""Tensors by the part's path, such as "2.1.state": (rows, *shape), and (*shape) for a recurrent state."""

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in WIDTHS}
INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


Wanted = Mapping[str, tuple[Part, tuple[int, ...]]]
"""By path, a part and the shape that its tensor is to have."""


class Form:
    """What a layout wants of tensors. Raises `Misuse` for a layout that is none."""

    def __init__(self, layout: Layout) -> None:
        try:
            self.layout = checked(layout)
        except Wrong as error:
            raise Misuse(str(error)) from None
        self.leaves = self.layout.leaves
        self.members = {f"{at}.{part.name}": (leaf, part) for at, leaf in self.leaves.items() for part in leaf.parts}
        self.stateless = all(leaf.sliced for leaf in self.leaves.values())
        """Whether no member has a state: then every block has all the states that there are."""

    def block(self, index: int, stateful: bool) -> Wanted:
        """The parts that block `index` has, with its states or without, in the order of the layout."""
        size = self.layout.block_size
        start, end = index * size, (index + 1) * size
        wanted: dict[str, tuple[Part, tuple[int, ...]]] = {}
        for path, (leaf, part) in self.members.items():
            if isinstance(leaf, Recurrent):
                shape: tuple[int, ...] = part.shape
            elif isinstance(leaf, Window):
                shape = (leaf.rows(end), *part.shape)
            else:
                shape = (leaf.rows(end) - leaf.rows(start), *part.shape)
            if leaf.sliced or stateful:
                wanted[path] = part, shape
        return wanted


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory, as integers; a copy only of what is negated lazily."""
    return tensor.detach().resolve_neg().view(INTEGERS[tensor.element_size()])


def empty(shape: Iterable[int], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """A tensor of its own, contiguous, that can be written under `torch.inference_mode` and without it."""
    with torch.inference_mode(False):
        return torch.empty(tuple(shape), dtype=dtype, device=device)


def compact(pieces: Iterable[torch.Tensor], shape: tuple[int, ...], part: Part, device: torch.device) -> torch.Tensor:
    """The pieces (integers) one behind the other, in a tensor whose memory is nothing but their bytes."""
    joined = empty(shape, DTYPES[part.dtype], device)
    target, at = bits(joined), 0
    for piece in pieces:
        if piece.shape == target.shape:
            target.copy_(piece)
        else:
            target[at : at + piece.shape[0]] = piece
            at += piece.shape[0]
    return joined


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """The same bits in memory of their own, and nothing else there."""
    copy = empty(tensor.shape, tensor.dtype, tensor.device)
    bits(copy).copy_(bits(tensor))
    return copy


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are equal bit for bit, in dtype and in shape. The host waits for a device here."""
    if one.dtype is not other.dtype or one.shape != other.shape:
        return False
    return torch.equal(bits(one), bits(other).to(one.device))


def same_parts(one: Parts, other: Parts) -> bool:
    """Whether the same paths name equal tensors."""
    return one.keys() == other.keys() and all(same(tensor, other[path]) for path, tensor in one.items())


def fit(what: str, parts: Any, wanted: Wanted) -> None:
    """See to it that `parts` has tensors of these dtypes and shapes, and nothing else.

    Raises `Misuse` that names the first path that is wrong.
    """
    if not isinstance(parts, Mapping):
        raise Misuse(f"{what}: tensors by path are wanted, not {type(parts).__name__}")
    for path in [*wanted, *parts]:
        if path not in parts:
            raise Misuse(f"{what}: {path} is missing")
        if path not in wanted:
            raise Misuse(f"{what}: {path} does not belong here")
    for path, (part, shape) in wanted.items():
        fit_one(f"{what}: {path}", parts[path], shape, part.dtype)


def fit_one(what: str, value: Any, shape: tuple[int, ...], dtype: str) -> None:
    """See to it that `value` is a dense tensor of this shape and dtype."""
    wanted = f"{dtype} of the shape {shape}"
    if not isinstance(value, torch.Tensor):
        raise Misuse(f"{what}: {wanted} is wanted, not {type(value).__name__}")
    if value.dtype is not DTYPES[dtype] or value.shape != shape:
        given = str(value.dtype).removeprefix("torch.")
        raise Misuse(f"{what}: {wanted} is wanted, not {given} of the shape {tuple(value.shape)}")
    if value.layout is not torch.strided:
        raise Misuse(f"{what}: a dense tensor is wanted, not {value.layout}")


def device_of(device: Any) -> torch.device:
    """The device of this name, if there is one. Raises `Misuse` otherwise."""
    if not isinstance(device, str | torch.device):
        raise Misuse(f"device: the name of one is wanted, such as 'cpu', not {device!r}")
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        raise Misuse(f"device: {str(device)!r} cannot be used here: {str(error).partition(chr(10))[0]}") from error


def count_of(name: str, value: Any) -> int:
    """`value` as an int that is not negative."""
    if isinstance(value, bool) or whole(name, value) < 0:
        raise Misuse(f"{name}: a whole number from 0 is wanted, not {value}")
    return whole(name, value)
