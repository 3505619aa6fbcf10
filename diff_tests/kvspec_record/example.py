"""An engine in fifty lines, to show what an adapter is and to test the worker where no engine is installed.

Its pool is a list of pages, first in first out. Two plants make it wrong in ways that the harness must see.
"""

from typing import Any, ClassVar

from kvspec_record.caller import Caller, RequestError, Row

KEEP_VIEWS = "keep_views"
LOSE_GROUP = "lose_group"


class ListPool:
    """A `kvspec_record.caller.Pool`."""

    def __init__(self, pages: int, page_size: int, plants: tuple[str, ...] = ()) -> None:
        self.free_pages = list(range(1, pages + 1))
        self.page_size = page_size
        self.plants = plants
        self.group: list[Any] | None = None

    def buffer(self, row: str, capacity: int) -> tuple[memoryview, memoryview]:
        """Memory for `capacity` slots; slices of a memoryview are views."""
        memory = memoryview(bytearray(8 * capacity)).cast("q")
        return memory, memory

    def allocate(self, row: Row, tokens: int) -> list[int] | None:
        """Fill the row's last page, then take whole ones."""
        size = self.page_size
        new = -(-(row.length + tokens) // size) - -(-row.length // size)
        if new > len(self.free_pages):
            return None
        taken, self.free_pages = self.free_pages[:new], self.free_pages[new:]
        inside = range(row.length % size, size) if row.length % size else ()
        last = row.slots[row.length - 1] // size if inside else 0
        slots = [last * size + offset for offset in inside]
        slots += [page * size + offset for page in taken for offset in range(size)]
        return slots[:tokens]

    def free(self, view: memoryview, start: int) -> None:
        """Free the pages that the view names now, or keep a copy of it for the group's end."""
        if self.group is None:
            self.free_pages += dict.fromkeys(slot // self.page_size for slot in view)
        else:
            self.group.append(view if KEEP_VIEWS in self.plants else view.tolist())

    def begin(self) -> None:
        """Open a group."""
        self.group = []

    def end(self) -> None:
        """Free what the group kept."""
        kept, self.group = self.group, None
        for slots in () if LOSE_GROUP in self.plants else kept or ():
            self.free(slots, 0)

    def blank(self) -> list[int]:
        """The free list."""
        return list(self.free_pages)

    def available(self) -> int:
        """Its length."""
        return len(self.free_pages)


class Adapter:
    """What `kvspec_record.worker` asks of an engine."""

    name = "example"
    version = "1"
    plants = (KEEP_VIEWS, LOSE_GROUP)
    probes = ("free twice",)
    page_sizes: ClassVar[dict[str, tuple[int, ...]]] = {}

    def __init__(self, plants: tuple[str, ...]) -> None:
        unknown = [plant for plant in plants if plant not in self.plants]
        if unknown:
            raise RequestError(f"unknown plant {unknown[0]!r}: there are {', '.join(self.plants)}")
        self.planted = plants
        self.capabilities = {"pool": Caller.operations}

    def caller(self, pages: int, page_size: int, options: dict[str, Any]) -> Caller:
        """A caller of an empty pool; `RequestError` for an option that there is not."""
        hostile = options.pop("hostile", False)
        if options or type(hostile) is not bool:
            raise RequestError(f"unknown option {next(iter(options), 'hostile')!r}: there is hostile")
        return Caller(ListPool(pages, page_size, self.planted), pages, page_size, hostile)

    def probe(self, name: str, options: dict[str, Any]) -> str:
        """What happens on misuse: here, a page freed twice stands in the free list twice."""
        pool = ListPool(1, 1, self.planted)
        pool.free(memoryview(bytearray(8)).cast("q"), 0)
        return f"accepted; free list {pool.blank()}"
