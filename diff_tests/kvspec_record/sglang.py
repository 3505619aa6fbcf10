"""SGLang's token and paged allocators, and (up to 0.5.18) its radix cache, without a GPU and unmodified.

Options of a program: `subject` is `pool` (the allocator by itself) or `radix`; `allocator` is `token` (pages of one
slot) or `paged`; `sort` turns on the allocator's sorting of freed pages; `segments` frees by `free_segment` rather than
`free`; `hostile` overwrites every view that was passed to a free as soon as the call has returned.

Releases up to 0.5.18 grow a row inside a page by Triton kernels, which run here in Triton's interpreter.
"""

import importlib
import os
import warnings
from importlib.metadata import version
from typing import Any, ClassVar

os.environ.setdefault("TRITON_INTERPRET", "1")

import torch

from kvspec_record import sglang_plants, sglang_probes
from kvspec_record.caller import Caller, RequestError, Row

OPTIONS: dict[str, Any] = {"subject": "pool", "allocator": "token", "sort": False, "segments": False, "hostile": False}
RADIX_UP_TO = (0, 5, 18)


def declare_torchvision() -> Any:
    """Declare the two operators that torchvision's Python part looks up; they last as long as what is returned.

    SGLang imports torchvision, whose compiled part does not load beside a CPU build of torch.
    """
    make_library: Any = torch.library.Library
    library = make_library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library


def lengths(*values: int) -> torch.Tensor:
    """An int64 tensor."""
    return torch.tensor(values, dtype=torch.int64)


class AllocatorPool:
    """An allocator as a `kvspec_record.caller.Pool`: rows are int64 buffers, frees take views of them."""

    def __init__(self, allocator: Any, segments: bool) -> None:
        self.allocator = allocator
        self.page_size: int = allocator.page_size
        self.segments = segments
        self.checks_first = hasattr(allocator, "get_all_free_pages")

    def buffer(self, row: str, capacity: int) -> tuple[torch.Tensor, memoryview]:
        """A tensor of `capacity` zeros."""
        tensor = torch.zeros(capacity, dtype=torch.int64)
        return tensor, memory(tensor)

    def allocate(self, row: Row, tokens: int) -> list[int] | None:
        """Whole pages by `alloc`, growth that begins or ends inside a page by `alloc_decode` and `alloc_extend`.

        Up to 0.5.18 those two read the free list before they look how long it is, which an empty one does not survive:
        their caller must have looked. It does here; what happens otherwise is the probe `extend an empty pool`.
        """
        size, length = self.page_size, row.length
        if length % size == 0 and tokens % size == 0:
            given = self.allocator.alloc(tokens)
        else:
            last = lengths(row.slots[length - 1] if length % size else -1)
            after = lengths(length + tokens)
            if not self.checks_first and -(-(length + tokens) // size) - -(-length // size) > self.available():
                return None
            if tokens == 1:
                given = self.allocator.alloc_decode(after, after, last)
            else:
                before = lengths(length)
                given = self.allocator.alloc_extend(before, before, after, after, last, tokens)
        if given is None:
            return None
        slots: list[int] = given.tolist()
        given.fill_(0)
        return slots

    def free(self, view: torch.Tensor, start: int) -> None:
        """Free the view of the row."""
        if self.segments:
            self.allocator.free_segment(view, start_pos=start)
        else:
            self.allocator.free(view)

    def begin(self) -> None:
        """Open the free group."""
        self.allocator.free_group_begin()

    def end(self) -> None:
        """End the free group."""
        self.allocator.free_group_end()

    def blank(self) -> list[int]:
        """The free list, then what was freed since it was last sorted."""
        return free_list(self.allocator)

    def available(self) -> int:
        """`available_size()` in pages."""
        return int(self.allocator.available_size()) // self.page_size


def memory(tensor: torch.Tensor) -> memoryview:
    """The tensor's own memory (int64 or int32), as integers of its width."""
    shared: Any = tensor.numpy()
    flat = memoryview(shared).cast("B") if tensor.numel() else memoryview(bytearray())
    return flat.cast("q") if tensor.element_size() == 8 else flat.cast("i")


def free_list(allocator: Any) -> list[int]:
    """The pages in the allocator's free lists: those to be handed out next, then those that wait to be sorted in."""
    if hasattr(allocator, "get_all_free_pages"):
        pages: list[int] = allocator.get_all_free_pages().tolist()
        return pages
    return [*allocator.free_pages.tolist(), *allocator.release_pages.tolist()]


class Adapter:
    """What `kvspec_record.worker` asks of SGLang."""

    name = "sglang"
    page_sizes: ClassVar = {"token": (1,), "paged": tuple(2**power for power in range(11))}
    """Triton's ranges have a power of two elements, and the kernels have one over a page's slots."""

    def __init__(self, plants: tuple[str, ...]) -> None:
        torch.set_num_threads(1)
        warnings.simplefilter("ignore")
        self._torchvision = declare_torchvision()
        self.allocators = importlib.import_module("sglang.srt.mem_cache.allocator")
        self.version = version("sglang")
        self.plants = tuple(sglang_plants.PLANTS)
        self.probes = tuple(sglang_probes.PROBES)
        self.capabilities: dict[str, tuple[str, ...]] = {"pool": Caller.operations}
        if tuple(int(part) for part in self.version.split(".")[:3]) <= RADIX_UP_TO:
            from kvspec_record.sglang_radix import RadixCaller

            self.capabilities["radix"] = RadixCaller.operations
        for plant in plants:
            sglang_plants.plant(self.allocators, plant)

    def caller(self, pages: int, page_size: int, options: dict[str, Any]) -> Caller:
        """A caller of an empty allocator, or of an empty radix cache over one."""
        chosen = choose(options)
        allocator = self.allocator(pages, page_size, chosen)
        if chosen["subject"] == "pool":
            return Caller(AllocatorPool(allocator, chosen["segments"]), pages, page_size, chosen["hostile"])
        if chosen["subject"] not in self.capabilities:
            raise RequestError(f"sglang {self.version} has no subject {chosen['subject']!r} here")
        from kvspec_record.sglang_radix import RadixCaller, RadixPool

        return RadixCaller(RadixPool(allocator), pages, page_size, chosen["hostile"])

    def allocator(self, pages: int, page_size: int, chosen: dict[str, Any]) -> Any:
        """A fresh allocator of the chosen kind."""
        sizes = self.page_sizes[chosen["allocator"]]
        if page_size not in sizes:
            raise RequestError(f"page_size is {page_size}: the {chosen['allocator']} allocator takes one of {sizes}")
        if chosen["allocator"] == "paged":
            kind = self.allocators.PagedTokenToKVPoolAllocator
            return kind(pages * page_size, page_size, torch.int64, "cpu", None, chosen["sort"])
        return self.allocators.TokenToKVPoolAllocator(pages, torch.int64, "cpu", None, chosen["sort"])

    def probe(self, name: str, options: dict[str, Any]) -> str:
        """Do the misuse to a fresh allocator of the chosen kind, pages of four slots when paged."""
        chosen = choose(options)
        paged = chosen["allocator"] == "paged"
        allocator = self.allocator(6, 4 if paged else 1, chosen)
        return sglang_probes.PROBES[name](allocator)


def choose(options: dict[str, Any]) -> dict[str, Any]:
    """The options with their defaults; `RequestError` for one that is unknown or has an unknown value."""
    for name, value in options.items():
        if name not in OPTIONS:
            raise RequestError(f"unknown option {name!r}: there are {', '.join(OPTIONS)}")
        known = {"subject": ("pool", "radix"), "allocator": ("token", "paged")}.get(name, (False, True))
        if type(value) is not type(known[0]) or value not in known:
            raise RequestError(f"{name} is {value!r}: it must be one of {', '.join(str(choice) for choice in known)}")
    return {**OPTIONS, **options}
