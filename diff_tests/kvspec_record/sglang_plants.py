"""Faults that can be planted into SGLang's allocators at run time, to see that the harness finds them.

Each is a patch of one method, written so that it works in every release that has the method.
"""

from collections.abc import Callable
from typing import Any

import torch

from kvspec_record.caller import RequestError


def keep_views(allocators: Any) -> None:
    """What is freed in a group is kept as the caller's view: 0.5.17's behaviour, in later releases."""
    base = allocators.BaseTokenToKVPoolAllocator
    if not hasattr(base, "_copy_for_free_group"):
        raise RequestError("this release has no _copy_for_free_group: it keeps the caller's views as it is")
    base._copy_for_free_group = staticmethod(lambda free_index: free_index)


def forget_last(allocators: Any) -> None:
    """A free loses the last slot that it names."""
    _wrap(allocators, "free", lambda free, allocator, index: free(allocator, index[:-1]))


def free_twice(allocators: Any) -> None:
    """Every free happens twice."""
    _wrap(allocators, "free", lambda free, allocator, index: (free(allocator, index), free(allocator, index)))


def lose_group(allocators: Any) -> None:
    """The end of a group drops what was freed in it."""

    def end(original: Any, allocator: Any) -> None:
        pending = allocator.free_group
        if pending is not None:
            pending.clear()
        original(allocator)

    _wrap(allocators, "free_group_end", end)


def refuse_the_last(allocators: Any) -> None:
    """An allocation that would take the last page is refused."""
    _wrap(
        allocators, "alloc",
        lambda alloc, allocator, need: None if need >= allocator.available_size() else alloc(allocator, need),
    )  # fmt: skip


def hand_out_again(allocators: Any) -> None:
    """An allocation leaves the pages that it hands out in the free list."""

    def alloc(original: Any, allocator: Any, need: int) -> Any:
        given = original(allocator, need)
        if given is not None and need > 0:
            pages = given[:: allocator.page_size] // allocator.page_size
            allocator.free_pages = torch.cat((pages, allocator.free_pages))
        return given

    _wrap(allocators, "alloc", alloc)


PLANTS: dict[str, Callable[[Any], None]] = {
    "copy_for_free_group=identity": keep_views,
    "free=forget_last": forget_last,
    "free=twice": free_twice,
    "free_group_end=lose": lose_group,
    "alloc=refuse_the_last": refuse_the_last,
    "alloc=hand_out_again": hand_out_again,
}


def plant(allocators: Any, name: str) -> None:
    """Plant the fault; `RequestError` when it is unknown or the release has no place for it."""
    if name not in PLANTS:
        raise RequestError(f"unknown plant {name!r}: there are {', '.join(PLANTS)}")
    PLANTS[name](allocators)


def _wrap(allocators: Any, method: str, around: Callable[..., Any]) -> None:
    """Replace the method, in each allocator that defines it itself, by `around(original, allocator, ...)`."""
    for kind in (allocators.TokenToKVPoolAllocator, allocators.PagedTokenToKVPoolAllocator):
        original = getattr(kind, method)
        setattr(kind, method, lambda self, *given, original=original: around(original, self, *given))
