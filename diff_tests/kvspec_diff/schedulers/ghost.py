"""The model's side of a scheduler: tables as a worker keeps them, and in each cell what was written there last.

A step first writes all its positions and then reads, as attention does layer by layer: so what another request of the
same step writes may be read. What is read has to be the request's own prefix (R1), written at all (R4), in no null
block (R3); what a prefix hit claims has to be the prefix that was asked for (P1), of whole blocks and short of the last
token (P12). A content is a number for the whole prefix that ends there; what a cell held stays when its block changes
hands, as it does in a real pool.
"""

from typing import Any

from kvspec_record import toy
from kvspec_reference.reservation import first_read

from kvspec_diff.batched.fault import Fault
from kvspec_diff.schedulers.case import Setup

NULL = 0

Cell = tuple[int, int]
"""A block and an offset in it."""


class Tracked:
    """A request: its tokens as they should be, and the content of each position."""

    def __init__(self, number: int, prompt: int, shared: int, tokens: int) -> None:
        self.number, self.tokens = number, tokens
        self.known = toy.prompt(number, prompt, shared)
        self.emitted = 0
        self.contents: list[int] = []
        self.tables: list[list[int]] = []

    def content(self, position: int) -> int:
        """The content that a read of a known position returns."""
        while len(self.contents) <= position:
            self.contents.append(extended(self.contents, self.known[len(self.contents)]))
        return self.contents[position]


def extended(contents: list[int], token: int) -> int:
    """The content behind these, if the next token is this one."""
    return hash((contents[-1] if contents else 0, token))


def fault(law: str, where: str, says: str) -> Fault:
    """A fault of a scheduler."""
    return Fault(law, "scheduler", where, says, (), ())


class Ghost:
    """Follows the steps of a scheduler."""

    def __init__(self, setup: Setup) -> None:
        self.groups = setup.described
        self.requests: dict[int, Tracked] = {}
        self.cells: list[dict[Cell, int]] = [{} for _ in self.groups]
        self.lost = False

    def follow(self, answer: dict[str, Any], aborted: set[int]) -> list[Fault]:
        """An operation was answered: the first thing wrong with it. What follows a fault is not judged."""
        found = None
        if not self.lost:
            found = self._step(answer["parts"]) if "parts" in answer else None
            for r, tokens in answer.get("emitted", ()):
                found = found or self._emit(r, tokens)
        for r in answer.get("ended", ()):
            request = self.requests.pop(r)
            if request.emitted < request.tokens and r not in aborted and not self.lost:
                says = f"request {r} ended with {request.emitted} of {request.tokens} tokens"
                found = found or fault("A4", "ended", says)
        self.lost = self.lost or found is not None
        return [found] if found else []

    def _step(self, parts: list[Any]) -> Fault | None:
        for part in parts:
            r, start, *_, fresh = part
            found = (self._hit(r, start) if fresh and start else None) or self._write(*part)
            if found:
                return found
        for r, start, *_, fresh in parts:
            found = self._read(r, start, fresh)
            if found:
                return found
        return None

    def _write(
        self, r: int, start: int, count: int, drafts: list[int], added: list[list[int]], fresh: bool
    ) -> Fault | None:
        request = self.requests[r]
        if fresh:
            request.tables = [list(table) for table in added]
        else:
            request.tables = [[*table, *more] for table, more in zip(request.tables, added, strict=True)]
        certain = count - len(drafts)
        if start + certain > len(request.known) or certain < 1:
            return fault("R4", "tokens", f"request {r} computes {count} tokens, {len(drafts)} of them drafts, from "
                         f"position {start}, and {len(request.known)} are known")  # fmt: skip
        if start + certain < len(request.known) and drafts:
            return fault("C4", "drafts", f"request {r} has drafts inside of what is known")
        if start:
            request.content(start - 1)
        contents = list(request.contents[:start])
        for position, token in enumerate([*request.known[start : start + certain], *drafts], start):
            contents.append(extended(contents, token))
            for group, table, cells in zip(self.groups, request.tables, self.cells, strict=True):
                place, offset = divmod(position, group.size)
                if place >= len(table):
                    says = (
                        f"request {r} writes position {position}, and its table has {len(table)} blocks of {group.size}"
                    )
                    return fault("C1", "table", says)
                if table[place] == NULL:
                    return fault("R3", "write", f"request {r} writes position {position} into the null block")
                cells[table[place], offset] = contents[-1]
        return None

    def _hit(self, r: int, start: int) -> Fault | None:
        request = self.requests[r]
        size = max(group.size for group in self.groups)
        if start % size or start > len(request.known) - 1:
            return fault("P12", "length", f"request {r} is said to have {start} of {len(request.known)} tokens in "
                         f"blocks of {size}")  # fmt: skip
        return None

    def _read(self, r: int, start: int, fresh: bool) -> Fault | None:
        request = self.requests[r]
        for group, table, cells in zip(self.groups, request.tables, self.cells, strict=True):
            for position in range(first_read(group, start), start):
                place, offset = divmod(position, group.size)
                block = table[place]
                content = cells.get((block, offset))
                if content == request.content(position) and block != NULL:
                    continue
                read = f"request {r} reads position {position} in block {block} of a {group.kind} group"
                if block == NULL:
                    return fault("R3", "read", read)
                if content is None:
                    return fault("R4", "hit" if fresh else "read", f"{read}, where nothing was ever written")
                if fresh:
                    return fault("P1", "hit", f"{read}, found as a part of its prefix, and it is none")
                return fault("R1", "read", f"{read}, and it is not its own prefix")
        return None

    def _emit(self, r: int, tokens: list[int]) -> Fault | None:
        request = self.requests[r]
        for token in tokens:
            if token != toy.next_token(request.known):
                return fault("A4", "token", f"request {r} emits token {request.emitted} otherwise than it was computed")
            request.known.append(token)
            request.emitted += 1
        if request.emitted > request.tokens:
            says = f"request {r} emits {request.emitted} tokens, and {request.tokens} were asked for"
            return fault("A4", "tokens", says)
        return None
