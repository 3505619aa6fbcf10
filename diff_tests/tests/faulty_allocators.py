"""A right allocator with every capability, and wrong ones: each fault is one that such code has had, or could have."""

from typing import Any

from kvspec.operations import Refused
from kvspec_diff.conformance import Allocator

EVERYTHING = ("groups", "cache", "copies", "pins", "checks")


class Right(Allocator):
    """Lists and counts."""

    def __init__(self, pages: int) -> None:
        self.free = list(range(1, pages + 1))
        self.refs = [0] * (pages + 1)
        self.cached: list[int] = []
        self.open = False
        self.waiting: list[int] = []

    def allocate(self, n: int) -> list[int] | None:
        if n < 0:
            raise ValueError(f"{n} pages")
        if n > len(self.free):
            return None
        taken, self.free = self.free[:n], self.free[n:]
        for page in taken:
            self.refs[page] = 1
        return list(taken)

    def release(self, pages: list[int]) -> None:
        for page in pages:
            if not 0 < page < len(self.refs) or not self.refs[page]:
                raise ValueError(f"nobody holds page {page}")
        for page in pages:
            self.drop(page)

    def drop(self, page: int) -> None:
        self.refs[page] -= 1
        if not self.refs[page] and page not in self.cached:
            self.let_go(page)

    def let_go(self, page: int) -> None:
        (self.waiting if self.open else self.free).append(page)

    def blank(self) -> list[int] | None:
        return self.free

    def available(self) -> int | None:
        return len(self.free)

    def begin(self) -> None:
        if self.open:
            raise ValueError("open already")
        self.open = True

    def end(self) -> None:
        if not self.open:
            raise ValueError("not open")
        self.open = False
        self.free += self.waiting
        self.waiting = []

    def publish(self, pages: list[int]) -> None:
        self.cached += pages

    def share(self, pages: list[int]) -> None:
        for page in pages:
            self.refs[page] += 1

    def evict(self, n: int) -> list[int]:
        if n < 0:
            raise ValueError(f"{n} pages")
        taken = [page for page in self.cached if not self.refs[page]][:n]
        self.cached = [page for page in self.cached if page not in taken]
        self.free += taken
        return list(taken)

    def copy(self, page: int) -> int | None:
        taken = self.allocate(1)
        if taken is None:
            return None
        self.drop(page)
        return taken[0]

    def pin(self, page: int) -> None:
        self.refs[page] += 1

    def unpin(self, page: int) -> None:
        self.drop(page)


class Hidden(Right):
    """Shows nothing of its state: it is judged by what it hands out."""

    def blank(self) -> None:
        return None

    def available(self) -> None:
        return None


class Raising(Right):
    """Says with `Refused` that there are too few, which is right as well."""

    def allocate(self, n: int) -> list[int]:
        taken = super().allocate(n)
        if taken is None:
            raise Refused
        return taken

    def copy(self, page: int) -> int:
        (taken,) = self.allocate(1)
        self.drop(page)
        return taken


class FreesTwice(Right):
    def let_go(self, page: int) -> None:
        super().let_go(page)
        super().let_go(page)


class Loses(Right):
    def let_go(self, page: int) -> None:
        if page != 2:
            super().let_go(page)


class LosesHidden(Hidden, Loses): ...


class MakesUpPages(Right):
    def blank(self) -> list[int]:
        return [*self.free, 99] if self.refs[1] else self.free


class ForgetsOthers(Right):
    """Frees a page while others hold it."""

    def drop(self, page: int) -> None:
        self.refs[page] = 0
        if page not in self.cached:
            self.let_go(page)


class EvictsHeld(Right):
    def evict(self, n: int) -> list[int]:
        if n < 0:
            raise ValueError(f"{n} pages")
        taken, self.cached = self.cached[:n], self.cached[n:]
        self.free += taken
        return list(taken)


class EvictsMore(Right):
    def evict(self, n: int) -> list[int]:
        return super().evict(n if n < 0 else n + 1)


class HandsOutTwice(Hidden):
    def allocate(self, n: int) -> list[int] | None:
        taken = super().allocate(n)
        if taken and n == 2:
            self.free.append(taken[0])
        return taken


class HandsOutNull(Right):
    def __init__(self, pages: int) -> None:
        super().__init__(pages)
        self.free = list(range(pages))


class HandsOutNullHidden(Hidden, HandsOutNull): ...


class RefusesTheLast(Right):
    def allocate(self, n: int) -> list[int] | None:
        return None if n >= len(self.free) else super().allocate(n)


class GivesFewer(Right):
    def allocate(self, n: int) -> list[int] | None:
        return super().allocate(min(n, len(self.free)))


class TakesAndRefuses(Right):
    """A refusal that changes something."""

    def allocate(self, n: int) -> list[int] | None:
        taken = super().allocate(n)
        if taken is None:
            self.free = self.free[1:]
        return taken


class CountsWaiting(Right):
    def available(self) -> int:
        return len(self.free) + len(self.waiting)


class EndForgets(Right):
    def end(self) -> None:
        self.waiting = self.waiting[1:]
        super().end()


class NoWaiting(Right):
    def let_go(self, page: int) -> None:
        self.free.append(page)


class Nests(Right):
    def begin(self) -> None:
        self.open = True


class EndsAnyway(Right):
    def end(self) -> None:
        self.open = True
        super().end()


class KeepsList(Right):
    """Keeps the list itself until the group ends."""

    def __init__(self, pages: int) -> None:
        super().__init__(pages)
        self.kept: list[list[int]] = []

    def release(self, pages: list[int]) -> None:
        if self.open:
            self.kept.append(pages)
        else:
            super().release(pages)

    def end(self) -> None:
        super().end()
        for pages in self.kept:
            super().release(pages)
        self.kept = []


class HandsOutItsOwn(Right):
    def allocate(self, n: int) -> list[int] | None:
        if n != len(self.free):
            return super().allocate(n)
        taken = self.free
        for page in taken:
            self.refs[page] = 1
        self.free = taken if n == 0 else self.waiting[:0]
        self.lent = taken
        return taken

    def let_go(self, page: int) -> None:
        super().let_go(page)
        if hasattr(self, "lent"):
            self.lent.append(page)


class UsesOneListForAll(Right):
    def __init__(self, pages: int) -> None:
        super().__init__(pages)
        self.answer: list[int] = []

    def allocate(self, n: int) -> list[int] | None:
        taken = super().allocate(n)
        if taken is None:
            return None
        self.answer[:] = taken
        return self.answer


class EmptiesTheList(Right):
    def release(self, pages: list[int]) -> None:
        super().release(pages)
        pages.clear()


class Raises(Right):
    def release(self, pages: list[int]) -> None:
        if len(pages) == 3:
            raise IndexError("three")
        super().release(pages)


class BareNumber(Right):
    def allocate(self, n: int) -> Any:
        taken = super().allocate(n)
        return taken[0] if taken and n == 1 else taken


class CannotBeMade(Right):
    def __init__(self, pages: int) -> None:
        if pages == 5:
            raise RuntimeError("five")
        super().__init__(pages)


class FreesWhatNobodyHolds(Right):
    def release(self, pages: list[int]) -> None:
        super().release([page for page in pages if 0 < page < len(self.refs) and self.refs[page]])


class StopsHalfway(Right):
    """A misuse that changes something."""

    def release(self, pages: list[int]) -> None:
        for page in pages:
            super().release([page])


class CopiesNothing(Right):
    def copy(self, page: int) -> int:
        return page


class Unpins(Right):
    def unpin(self, page: int) -> None:
        return None


FAULTS: dict[type[Right], set[str]] = {
    FreesTwice: {"O2", "R1"},
    Loses: {"O1"},
    LosesHidden: {"O5 refused"},
    MakesUpPages: {"O1"},
    ForgetsOthers: {"O2"},
    EvictsHeld: {"O4"},
    EvictsMore: {"P13"},
    HandsOutTwice: {"O5"},
    HandsOutNull: {"R3"},
    HandsOutNullHidden: {"R3"},
    RefusesTheLast: {"O5 refused"},
    GivesFewer: {"O5 refused"},
    TakesAndRefuses: {"O5 refused"},
    CountsWaiting: {"O6"},
    EndForgets: {"D1"},
    NoWaiting: {"D3"},
    Nests: {"D4"},
    EndsAnyway: {"D3"},
    KeepsList: {"D5"},
    HandsOutItsOwn: {"D5"},
    UsesOneListForAll: {"D5"},
    EmptiesTheList: {"D5"},
    Raises: {"raised"},
    BareNumber: {"raised"},
    CannotBeMade: {"raised"},
    FreesWhatNobodyHolds: {"O2"},
    StopsHalfway: {"O2"},
    CopiesNothing: {"O5"},
    Unpins: {"O1"},
}
"""The laws that each is found to break, or more."""
