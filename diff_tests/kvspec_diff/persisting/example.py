"""The example's caches, which can be stored, one request at a time, with a fault or without.

`FAULTS` names what can be wrong with what is handed out, or with what is made of it again, each with its law.
"""

from array import array
from typing import Any, ClassVar

from kvspec_record import caches

from kvspec_diff.caches import example
from kvspec_diff.caches.example import Cache, Memory

FAULTS = {
    "hands_out_the_buffer": "B3", "counts_more_rows": "B5", "takes_one_row_less": "B1", "takes_zeros": "B1",
    "begins_at_the_ring": "B7", "ring_from_slot_zero": "B7", "forgets_the_kept": "B1", "state_comes_late": "B1",
    "state_begins_anew": "S2",
    "begins_at_zero": "B5", "changes_its_members": "E1", "import_raises": "B2", "export_raises": "raised",
    "no_base64": "B1", "no_members": "E1", "trims_what_is_gone": "B2", "export_is_refused": "E1",
    "append_is_refused": "B2", "tells_no_queries": "B2", "tells_no_states": "S2",
}  # fmt: skip
ROW = 3
"""Numbers of a row: content, position, content."""


class Driver(example.Driver):
    """The caches."""

    storing = ("full", "window", "state", "list")
    again: Cache | None = None

    def exported(self, made: Cache) -> tuple[list[Any], dict[str, bytes]]:
        """Rows, rings and states as numbers of 64 bits."""
        if self.fault == "export_raises":
            raise KeyError("export")
        if self.fault == "export_is_refused":
            raise caches.Refused("no")
        parts: dict[str, bytes] = {}
        members: dict[str, Any] = {}
        for path, memory in made.layers.items():
            members[path] = self._exported(path, memory, parts)
        if self.fault == "changes_its_members" and next(iter(made.layers.values())).lengths[0] % 2:
            members[next(iter(members))] = {"type": "absent"}
        if self.fault == "no_members":
            return [{"type": "heap"}], parts
        return _nested(members), parts

    def _exported(self, path: str, memory: Memory, parts: dict[str, bytes]) -> dict[str, Any]:
        rows, length = memory.rows[0], memory.lengths[0]
        if memory.kind == "state":
            states = memory.states[0]
            parts[f"{path}.state"] = _bytes([[state + (self.fault == "state_comes_late") for state in states]])
            return _member("recurrent", "state", len(states))
        if memory.kind == "full":
            if self.fault == "hands_out_the_buffer" and length % 2:
                rows = [*rows[:-1], [0, 0, 0]]
            parts[f"{path}.rows"] = _bytes(rows + [[9, 9, 9]] * (self.fault == "counts_more_rows"))
            return _member("plain", "rows", ROW)
        size, keep = memory.numbers["size"] - memory.numbers["keep"], memory.numbers["keep"]
        window = sorted(rows[-size:], key=lambda row: row[1] % size)
        if not keep:
            parts[f"{path}.rows"] = _bytes(window)
            return _member("window", "rows", ROW, size=size)
        kept = [*rows[:keep], *[[0, 0, 0]] * (keep - len(rows))]
        parts[f"{path}.0.kept"], parts[f"{path}.1.rows"] = _bytes(kept), _bytes(window)
        both = [_member("recurrent", "kept", keep * ROW), _member("window", "rows", ROW, size=size)]
        return {"type": "group", "members": both}

    def imported(self, like: Cache, parts: dict[str, bytes], position: int) -> Cache:
        """Layers of such parts."""
        if self.fault == "import_raises":
            raise KeyError("import")
        layers = {path: self._imported(path, memory, parts, position) for path, memory in like.layers.items()}
        self.again = Cache(layers, like.dtype)
        return self.again

    def _imported(self, path: str, like: Memory, parts: dict[str, bytes], position: int) -> Memory:
        made = Memory(like.kind, like.numbers, [[]], [position])
        if like.kind == "state":
            made.states = _rows(parts[f"{path}.state"], like.numbers["count"])
            return made
        if like.kind == "full":
            rows = _rows(parts[f"{path}.rows"])
            if self.fault == "takes_one_row_less":
                rows = rows[:-1]
            if self.fault == "takes_zeros":
                rows = [[0, 0, 0], *rows[1:]]
            made.rows = [rows]
            made.lengths = [0 if self.fault == "begins_at_zero" else position]
            return made
        size, keep = like.numbers["size"] - like.numbers["keep"], like.numbers["keep"]
        window = _rows(parts[f"{path}.1.rows" if keep else f"{path}.rows"])
        start = position - len(window)
        slots = [at % size for at in range(max(start, min(position, keep)), position)]
        if self.fault == "ring_from_slot_zero":
            slots.sort()
        kept = _rows(parts[f"{path}.0.kept"])[: min(position, keep)] if keep else []
        made.rows = [[*(kept if self.fault != "forgets_the_kept" else []), *(window[slot] for slot in slots)]]
        made.lengths = [len(window) if self.fault == "begins_at_the_ring" else position]
        return made

    def append(self, made: Cache, tokens: list[list[int]]) -> caches.Answer:
        """As the example; a fault refuses on what was restored, or does not tell what was seen."""
        if self.fault == "append_is_refused" and made is self.again:
            raise caches.Refused("no")
        answer = super().append(made, tokens)
        if self.fault == "tells_no_queries":
            answer["reads"] = {path: [[] for _ in rows] for path, rows in answer["reads"].items()}
        if self.fault == "tells_no_states":
            answer["states"] = {path: [[] for _ in rows] for path, rows in answer["states"].items()}
        return answer

    def trim(self, made: Cache, count: int) -> caches.Answer:
        """As the example; a fault asks no more whether anything has left a window."""
        if self.fault == "trims_what_is_gone" and all(each.kind != "state" for each in made.layers.values()):
            for memory in made.layers.values():
                memory.cut(count)
            return {"count": count, "trimmed": dict.fromkeys(made.layers, count)}
        return super().trim(made, count)


def _member(kind: str, name: str, width: int, **more: int) -> dict[str, Any]:
    return {"type": kind, "parts": [{"name": name, "shape": [width], "dtype": "int64"}], **more}


def _nested(members: dict[str, Any]) -> list[Any]:
    """Members by path as a list, those of a list as a group."""
    found: list[Any] = []
    for path, member in members.items():
        first, inside, _ = path.partition(".")
        if not inside:
            found.append(member)
        elif len(found) > int(first):
            found[int(first)]["members"].append(member)
        else:
            found.append({"type": "group", "members": [member]})
    return found


def _bytes(rows: list[list[int]]) -> bytes:
    return array("q", [number for row in rows for number in row]).tobytes()


def _rows(data: bytes, width: int = ROW) -> list[list[int]]:
    numbers = array("q")
    numbers.frombytes(data)
    return [list(numbers[i : i + width]) for i in range(0, len(numbers), width)]


class Client(example.Client):
    """Asked about caches that are to be stored."""

    offered = tuple(FAULTS)
    capabilities: ClassVar[dict[str, tuple[str, ...]]] = {"caches": Driver.operations, "stores": Driver.storing}

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        """The answer to one question."""
        answers = caches.run(Driver(self.fault), question)
        for answer in answers:
            if self.fault == "no_base64" and "exported" in answer:
                answer["exported"]["parts"] = dict.fromkeys(answer["exported"]["parts"], "?")
        return {"calls": answers}
