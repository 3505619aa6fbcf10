"""What an engine answered to a program over its caches, held against what a cold prefill of the same tokens gives.

The law of a wrong read is told by what was done before it:

- rows of a step on another object, which were written after this one came to be: S4, and `where` is the operation that
  made the younger of the two;
- else the last operation since the object was last read rightly, by `LAW`; `where` names all of them;
- where there was none but appending: R1 for a full memory, B7 for a window or a chunk, S2 for a state;
- a state that is the one of another position of its row: S1, and S3 where it is handed out;
- right rows that were written for other positions: B5, of an object that comes of a file, a state, blocks or a copy;
- blocks of a full memory that were joined to another number of tokens: B4.

One fault is told of an object; then it is `doubtful`, as is what comes of it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from kvspec_record import toy

from kvspec_diff.batched.fault import Fault
from kvspec_diff.caches.case import Case
from kvspec_diff.caches.ghost import REFUSED, Ghost, Object
from kvspec_diff.caches.kinds import Member
from kvspec_diff.caches.promises import HANDED, Promises
from kvspec_diff.caches.sight import HEAD, Wrong, cut, held, seen

LAW = {
    "padded": "B9", "trim": "B8", "reset": "B8", "copy": "S4", "state": "S4", "read": "S4", "slice": "S4",
    "restore": "B2", "file": "B1", "reblock": "B3", "merge": "B9", "extract": "B9", "filter": "B9", "extend": "B9",
    "repeat": "B9", "reorder": "B9",
}  # fmt: skip
"""The law that an operation breaks when what is read after it is wrong."""

ALONE = {"full": "R1", "window": "B7", "chunk": "B7", "state": "S2"}
"""The law that is broken when nothing was done but appending, by the family of the memory."""

RESTORING = ("copy", "state", "restore", "file", "reblock")

Mark = tuple[str, str, str]
"""A class, an operation, and what came of it: `done`, `held` (and a later read was right), `refused`, `raised`,
`nothing`, `misuse`, `doubtful`."""


class Judged(NamedTuple):
    """What is wrong, one fault of a key; how often each operation was done on each class, and what came of it."""

    faults: list[Fault]
    marks: Counter[Mark]


def judge(case: Case, answers: Sequence[dict[str, Any]], promises: Promises) -> Judged:
    """Follow the answers."""
    made = Judge(case, promises)
    for step, answer in enumerate(answers):
        made.follow(step, answer)
    made.end()
    return Judged(list({each.key: each for each in reversed(made.faults)}.values())[::-1], made.marks)


class Judge:
    """Follows a program; `faults` in order."""

    def __init__(self, case: Case, promises: Promises) -> None:
        self.setup, self.promises = case.setup, promises
        self.ghost = Ghost(case.setup, promises)
        self.faults: list[Fault] = []
        self.marks: Counter[Mark] = Counter()

    def follow(self, step: int, answer: dict[str, Any]) -> None:
        """Judge an answer, and take what was done into account."""
        op, status = answer["op"], answer["status"]
        if op[0] == "fresh":
            self.faults.append(self._raised(answer))
            return
        some = self.ghost.subjects(op)
        if some:
            self._outcome(step, answer, some)
        elif status not in ("nothing", "misuse"):
            self.faults.append(Fault("B2", op[0], "", "there is a state where none was kept"))
        for before, path in answer.get("changed", ()):
            self._changed(before, path, op)

    def end(self) -> None:
        """What was handed out and is what it was."""
        for kept in self.ghost.handed.values():
            self._mark(kept.of.batch, f"isolate_{kept.name}", "doubtful" if kept.of.doubtful else "held")
            if len(kept.tied) > 1:
                doubtful = any(self.ghost.objects[number].doubtful for number in kept.tied)
                self._mark(kept.of.batch, "isolate_restore", "doubtful" if doubtful else "held")

    def _outcome(self, step: int, answer: dict[str, Any], some: list[Object]) -> None:
        op, status = answer["op"], answer["status"]
        batch = some[0].batch
        one = all(each.batch == batch for each in some)
        verdict = self.promises.verdict(self.setup, batch, op[0]) if one else "misuse"
        doubtful = any(each.doubtful for each in some)
        self._mark(batch, op[0], "doubtful" if doubtful else status)
        if status in ("nothing", "misuse"):
            return
        if verdict == "misuse" or doubtful:
            self._apply_doubtful(step, answer)
        elif status == "raised":
            if verdict != "refused":
                self.faults.append(self._raised(answer))
            self.ghost.doubt(op)
        elif status == "refused":
            if verdict == "promised":
                says = f"{_call(op)} is promised, and refused: {answer['why']}"
                self.faults.append(Fault(LAW.get(op[0], "R1"), f"{op[0]}{REFUSED}", "", says))
            self.ghost.refuse(op)
        else:
            self._done(step, answer, some, verdict)

    def _apply_doubtful(self, step: int, answer: dict[str, Any]) -> None:
        """What nothing is promised of: it is kept track of, and not judged."""
        if answer["status"] == "done":
            if answer["op"][0] == "trim":
                answer = answer | {"count": max(int(answer["count"]), 0)}
            self.ghost.do(step, answer)
            if "made" in answer:
                self.ghost.objects[-1].doubtful = True
        if answer["status"] != "refused":
            self.ghost.doubt(answer["op"])

    def _done(self, step: int, answer: dict[str, Any], some: list[Object], verdict: str) -> None:
        op = answer["op"]
        fault = self._trimmed(answer, some[0], verdict) if op[0] == "trim" else None
        self.ghost.do(step, answer)
        here = some[0]
        if op[0] in ("append", "padded"):
            fault = self._read(step, answer, here)
            if fault is None:
                self._credit(here, op[0])
        elif op[0] in HANDED:
            fault = self._held(answer, here)
        if fault is not None:
            self.faults.append(fault)
            here.doubtful = True

    def _credit(self, here: Object, name: str) -> None:
        """The object was read rightly: what was done with it held."""
        for done in (*here.since, name):
            self._mark(here.batch, done.removesuffix(REFUSED), "held")
        here.since = ("padded",) if name == "padded" else ()

    def _trimmed(self, answer: dict[str, Any], here: Object, verdict: str) -> Fault | None:
        """A trim takes the same off all layers, and says how much."""
        asked, count, each = answer["op"][2], answer["count"], answer["trimmed"]
        lengths = [len(row) for row in here.rows]
        if asked > min(lengths) and len(set(lengths)) > 1:
            here.doubtful = True  # more than the shortest row has: what is left of it nobody says
            return None
        most = min(asked, min(lengths))
        rows = tuple((f"layer {path}", str(taken)) for path, taken in each.items())
        head = ("layer", "tokens off")
        done = ", ".join(dict.fromkeys((*here.since, "trim")))
        other = next((path for path, taken in each.items() if taken != count), None)
        if other is not None:
            says = f"the trim of {asked} tokens says that {count} are gone, and the layers do not all agree"
            less = next((path for path, taken in each.items() if taken < most), other)
            members = self.promises.members(self.setup, here.batch)
            family = next((member.of for member in members if f"{member.path}.".startswith(f"{less}.")), "")
            return Fault("B8", f"{done}: layers", family, says, head, rows)
        if count > most or (count < most and verdict == "promised") or count < 0:
            says = f"of {min(lengths)} tokens the trim of {asked} says that {count} are gone"
            return Fault("B8", f"{done}: count", "", says, head, rows)
        return None

    def _read(self, step: int, answer: dict[str, Any], here: Object) -> Fault | None:
        """What each query of a step saw."""
        lengths = answer["lengths"]
        if len(lengths) != len(here.rows):
            says = f"there are {len(lengths)} rows, and should be {len(here.rows)}"
            return self._fault(here, "", "R1", "rows", says)
        for member in self.promises.members(self.setup, here.batch):
            part = answer.get("states" if member.family == "state" else "reads", {}).get(member.path)
            if part is None or len(part) != len(here.rows):
                says = f"layer {member.path} does not tell {len(here.rows)} rows"
                return Fault("raised", "worker", member.of, says)
            if member.family != "state" and list(map(len, part)) != lengths:
                says = f"layer {member.path} tells of {list(map(len, part))} queries, and there are {lengths}"
                return Fault("raised", "worker", member.of, says)
            stored = answer.get("dtypes", {}).get(member.path, self.setup.dtype)
            if stored != self.setup.dtype:
                says = f"layer {member.path} is of {stored} now, and was made of {self.setup.dtype}"
                return self._fault(here, member.of, ALONE[member.family], "dtype", says)
            for r, told in enumerate(part):
                fault = self._row(step, here, member, r, told, max(lengths) == 1)
                if fault:
                    return fault
        return None

    def _row(self, step: int, here: Object, member: Member, r: int, told: Any, alone: bool) -> Fault | None:
        history = here.rows[r]
        where = f"row {r} of object {self.ghost.owner[step]}, layer {member.path} ({member.of})"
        if member.family == "state":
            return self._state(here, member, where, history, told)
        start = len(history) - len(told)
        for j, flat in enumerate(told):
            wrong = seen(member, history, start + j, alone, flat)
            if wrong:
                return self._wrong(here, member, f"{where}: {wrong.says}", wrong)
        return None

    def _state(
        self, here: Object, member: Member, where: str, history: Sequence[int], told: Sequence[int]
    ) -> Fault | None:
        for entry in range(max(member.numbers[0], len(told))):
            states = list(folded(history, entry))
            now = told[entry] if entry < len(told) else None
            if now == states[-1]:
                continue
            others = [position for position, state in enumerate(states) if state == now]
            if others:
                says = f"{where}: the state after {len(history)} tokens is the one after {others[-1]}"
                return self._fault(here, member.of, "S1", "", says, law="S1")
            says = f"{where}: the state of entry {entry} is not that of its {len(history)} tokens"
            return self._fault(here, member.of, ALONE["state"], "", says)
        return None

    def _held(self, answer: dict[str, Any], here: Object) -> Fault | None:
        """What was handed out: a slice and a read at once; of a state its place, and all else when it is restored."""
        name, o, *numbers = answer["op"]
        for member in self.promises.members(self.setup, here.batch):
            if name == "state":
                fault = self._stored(answer, here, member)
                if fault:
                    return fault
                continue
            part = answer.get("held", {}).get(member.path)
            for r, (flat, history) in enumerate(zip(part or (), here.rows, strict=False)):
                if name == "slice":
                    wrong = cut(member, history, numbers[0], sum(numbers), flat)
                else:
                    wrong = held(member, history, flat)
                if wrong:
                    before = tuple(each for each in here.since if each not in HANDED)
                    here.since = (*before, name)
                    law = "B3" if name == "slice" else "" if before else ALONE[member.family]
                    where = f"the {name} of row {r} of object {self.ghost.number(o)}, layer {member.path} ({member.of})"
                    return self._wrong(here, member, f"{where}, {wrong.says}", wrong, law)
        if name != "state":
            self._mark(here.batch, name, "held")
        return None

    def _stored(self, answer: dict[str, Any], here: Object, member: Member) -> Fault | None:
        """A recurrent state that is handed out is none of another position of its row."""
        told = answer.get("states", {}).get(member.path, ()) if member.family == "state" else ()
        for r, (entries, history) in enumerate(zip(told, here.rows, strict=False)):
            for entry, now in enumerate(entries):
                *others, right = folded(history, entry)
                if now != right and now in others:
                    where = f"layer {member.path} ({member.of}), row {r}"
                    says = f"{where}: the state of {others.index(now)} tokens is handed out after {len(history)}"
                    return Fault("S3", "state", member.of, says)
        return None

    def _wrong(self, here: Object, member: Member, says: str, wrong: Wrong, law: str = "") -> Fault:
        for content in wrong.contents:
            step, other = self._stranger(here, content)
            if other is not None:
                number = self.ghost.owner[step]
                says += f"; step {step} wrote that to object {number}" + ", after this one came to be" * (
                    step > here.made
                )
                by = {here.by, other.by}
                here.since = ("restore" if "restore" in by else max(here, other, key=lambda each: each.made).by,)
                return self._fault(here, member.of, "S4", "", says, HEAD, wrong.rows, law="S4")
        last = here.since[-1].removesuffix(REFUSED) if here.since else ""
        if member.family == "full" and last == "reblock" and wrong.moved:
            law = "B4"
        elif wrong.position and member.family == "full" and (not last or last in RESTORING):
            law = "B5"
        aspect = "positions" if wrong.position else ""
        return self._fault(here, member.of, ALONE[member.family], aspect, says, HEAD, wrong.rows, law)

    def _stranger(self, here: Object, content: int) -> tuple[int, Object | None]:
        """The step and the object of a content that is another object's, since this one came to be, else None."""
        step = toy.told(content)[0]
        owner = self.ghost.owner.get(step)
        if owner is None or self.ghost.objects[owner] is here:
            return step, None
        # What shares memory by a state may have been written to before it was copied, or merged.
        apart = self.promises.verdict(self.setup, here.batch, "isolate_restore") in ("promised", "optional")
        restored = not apart and "restore" in (here.by, self.ghost.objects[owner].by)
        if step <= here.made and not restored:
            return step, None
        mine = not restored and any(content == toy.content(token) for row in here.rows for token in row)
        return step, None if mine else self.ghost.objects[owner]

    def _fault(
        self, here: Object, family: str, alone: str, aspect: str, says: str, head: tuple[str, ...] = (),
        rows: tuple[tuple[str, ...], ...] = (), law: str = "",
    ) -> Fault:  # fmt: skip
        law = law or (LAW[here.since[-1].removesuffix(REFUSED)] if here.since else alone)
        where = ", ".join(here.since) or "append"
        return Fault(law, f"{where}: {aspect}" if aspect else where, family, says, head, rows)

    def _raised(self, answer: dict[str, Any]) -> Fault:
        where = f"{answer['op'][0]}: {answer['raised'].rpartition(' at ')[2]}"
        return Fault("raised", where, "", f"{_call(answer['op'])} raised {answer['raised']}")

    def _changed(self, before: int, path: str, op: list[Any]) -> None:
        """What a step handed out has changed."""
        kept = self.ghost.handed.get(before)
        if kept is None:
            return
        doubtful, batch = kept.of.doubtful, kept.of.batch
        self.ghost.changed(before)
        verdict = self.promises.verdict(self.setup, batch, f"isolate_{kept.name}")
        if doubtful or verdict not in ("promised", "optional"):
            return
        of = next((each.of for each in self.promises.members(self.setup, batch) if each.path == path), "")
        says = f"the {kept.name} that step {before} handed out, layer {path} ({of}), was changed by {_call(op)}"
        self.faults.append(Fault("S4", f"{kept.name} kept", of, says))

    def _mark(self, batch: bool, operation: str, outcome: str) -> None:
        for name in self.promises.named(self.setup, batch):
            self.marks[name, operation, outcome] += 1


def folded(history: Iterable[int], entry: int) -> Iterator[int]:
    """The states after 0, 1, ... tokens."""
    state = 0
    yield state
    for token in history:
        state = toy.fold(state, token, entry)
        yield state


def _call(op: list[Any]) -> str:
    return f"{op[0]}({', '.join(map(str, op[1:]))})"
