"""What SGLang's allocators do with input outside their contract: small misuses, each on a fresh pool of six pages.

Nothing here is a fault: the contract leaves it open, so that it is reported apart, as unchecked misuse.
"""

from collections.abc import Callable
from typing import Any

import torch

from kvspec_record.caller import one_line


def slots(*values: int) -> torch.Tensor:
    """Slots as an int64 tensor."""
    return torch.tensor(values, dtype=torch.int64)


def _taken(allocator: Any) -> torch.Tensor:
    """Take two pages and return a copy of their slots."""
    given: torch.Tensor = allocator.alloc(2 * allocator.page_size).clone()
    return given


def free_twice(allocator: Any) -> None:
    given = _taken(allocator)
    allocator.free(given)
    allocator.free(given)


def free_twice_in_a_group(allocator: Any) -> None:
    given = _taken(allocator)
    allocator.free_group_begin()
    allocator.free(given)
    allocator.free(given)
    allocator.free_group_end()


def free_the_null_slot(allocator: Any) -> None:
    allocator.free(slots(0))


def free_a_slot_beyond_the_pool(allocator: Any) -> None:
    allocator.free(slots(1000))


def free_a_negative_slot(allocator: Any) -> None:
    allocator.free(slots(-1))


def free_part_of_a_page(allocator: Any) -> None:
    allocator.free(_taken(allocator)[:1])


def free_segment_from_inside_a_page(allocator: Any) -> None:
    allocator.free_segment(_taken(allocator)[1:], start_pos=1)


def allocate_part_of_a_page(allocator: Any) -> Any:
    return allocator.alloc(allocator.page_size // 2 if allocator.page_size > 1 else 0)


def allocate_a_negative_number(allocator: Any) -> Any:
    return allocator.alloc(-allocator.page_size)


def begin_twice(allocator: Any) -> None:
    given = _taken(allocator)
    allocator.free_group_begin()
    allocator.free(given)
    allocator.free_group_begin()
    allocator.free_group_end()


def end_twice(allocator: Any) -> None:
    given = _taken(allocator)
    allocator.free_group_begin()
    allocator.free(given)
    allocator.free_group_end()
    allocator.free_group_end()


def end_without_begin(allocator: Any) -> None:
    allocator.free_group_end()


def clear_in_a_group(allocator: Any) -> None:
    given = _taken(allocator)
    allocator.free_group_begin()
    allocator.free(given)
    allocator.clear()
    allocator.free_group_end()


def extend_an_empty_pool(allocator: Any) -> Any:
    allocator.alloc(allocator.available_size())
    given = allocator.alloc_extend(slots(0), slots(0), slots(1), slots(1), slots(-1), 1)
    return "refused" if given is None else given


def _pool(allocator: Any) -> str:
    from kvspec_record.sglang import free_list

    pages = free_list(allocator)
    text = f"{pages}, {allocator.available_size()} slots available"
    return text + (", a page twice" if len(set(pages)) < len(pages) else "")


def _probe(act: Callable[[Any], Any]) -> Callable[[Any], str]:
    def run(allocator: Any) -> str:
        try:
            answer = act(allocator)
        except Exception as error:
            return f"raised {one_line(error)}; free list {_pool(allocator)}"
        gave = f", gave {answer.tolist()}" if isinstance(answer, torch.Tensor) else ""
        return f"{'refused' if isinstance(answer, str) else 'accepted'}{gave}; free list {_pool(allocator)}"

    return run


PROBES: dict[str, Callable[[Any], str]] = {
    act.__name__.replace("_", " "): _probe(act)
    for act in (
        free_twice, free_twice_in_a_group, free_the_null_slot, free_a_slot_beyond_the_pool, free_a_negative_slot,
        free_part_of_a_page, free_segment_from_inside_a_page, allocate_part_of_a_page, allocate_a_negative_number,
        begin_twice, end_twice, end_without_begin, clear_in_a_group,
        extend_an_empty_pool,
    )
}  # fmt: skip
