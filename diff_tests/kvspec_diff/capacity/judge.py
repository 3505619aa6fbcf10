"""What an engine did with a program, a warm-up or a method, held against the formula (C1-C9)."""

from dataclasses import replace
from typing import Any, NamedTuple

from kvspec_reference.reservation import ATTENTION, RECURRENT, Group, Kind, blocks, null_entries

from kvspec_diff.batched.bounds import Step
from kvspec_diff.batched.fault import Fault, declines
from kvspec_diff.capacity.configuration import Configuration
from kvspec_diff.capacity.programs import chunk
from kvspec_diff.lookahead import Row, written

DONE, REFUSED, NOTHING = 0, 1, 2
FAMILY: dict[Kind, str] = {
    "full": "attention", "window": "attention", "chunk": "attention", "none": "state", "all": "state",
    "align": "state align", "cross": "cross",
}  # fmt: skip


class Call(NamedTuple):
    """The worker's answer to a step; see `kvspec_record.vllm_program`."""

    status: int
    scheduled: int
    hit: int
    held: int
    charged: int
    before: int
    free: int
    used: int
    tables: list[list[int]]


class Tracked:
    """A running request: where its steps are, and its tables (length and null entries) as they were last."""

    def __init__(self, prompt: int, hit: int) -> None:
        self.prompt = prompt
        self.settled = self.ahead = hit
        self.steps: list[tuple[int, int]] = []
        self.tables: list[list[int]] = []

    def schedule(self, tokens: int, drafts: int) -> None:
        """A step was given its blocks."""
        self.steps.append((tokens, drafts))
        self.ahead += tokens

    def retire(self, accepted: int) -> None:
        """The oldest step settles."""
        tokens, drafts = self.steps.pop(0)
        refused = drafts - min(accepted, drafts)
        self.settled += tokens - refused
        self.ahead -= refused


class Judge:
    """Follows a program; what the engine answers is compared after every call."""

    def __init__(self, configuration: Configuration, row: Row) -> None:
        self.configuration = configuration
        self.groups = configuration.described
        self.limits = configuration.limits(row)
        self.running: dict[int, Tracked] = {}
        self.free = configuration.pool
        self.lines: list[tuple[str, ...]] = []

    def judge(self, steps: list[Step], answers: list[Any]) -> Fault | None:
        """The first thing that is wrong."""
        for step, answer in zip(steps, answers, strict=False):
            if isinstance(answer, str):
                if declines(answer):
                    return None
                return self._fault("raised", "", f"{shown(step)} raised {answer}")
            call = Call(*answer)
            found = getattr(self, f"_{step[0]}")(call, *step[1:]) or self._pool(call, step)
            if found is not None:
                return found
            self.free = call.free
        return None

    def _admit(self, call: Call, r: int, prompt: int, shared: int, wanted: int) -> Fault | None:
        if r in self.running:
            return self._same(call, self.running[r])
        tracked = Tracked(prompt, call.hit)
        if not 0 <= call.hit < prompt:
            return self._fault("R1", "", f"a prompt of {prompt} tokens found {call.hit} of them computed")
        tokens = chunk(self.configuration, call.hit, prompt, wanted)
        tracked.tables = [[call.hit // group.size if group.kind != "cross" else 0, 0] for group in self.groups]
        refused = self._reserve(call, tracked, tokens, 0, first=True)
        if call.status == DONE:
            self.running[r] = tracked
        return refused

    def _step(self, call: Call, r: int, wanted: int, drafts: int) -> Fault | None:
        tracked = self.running.get(r)
        if tracked is None:
            return self._nothing(call)
        left = self.limits.length - tracked.ahead
        inside = tracked.ahead < tracked.prompt
        drafts = 0 if inside else max(min(drafts, left - 1), 0)
        tokens = chunk(self.configuration, tracked.ahead, tracked.prompt, wanted) if inside else 1 + drafts
        if tokens > left:
            return self._nothing(call)
        return self._reserve(call, tracked, tokens, drafts, first=False)

    def _retire(self, call: Call, r: int, accepted: int) -> Fault | None:
        tracked = self.running.get(r)
        if tracked is None or not tracked.steps:
            return self._nothing(call)
        tracked.retire(accepted)
        return self._same(call, tracked)

    def _finish(self, call: Call, r: int) -> Fault | None:
        tracked = self.running.get(r)
        if tracked is None or tracked.steps:
            return self._nothing(call)
        del self.running[r]
        held = sum(entries - nulls for entries, nulls in tracked.tables)
        if not self.configuration.caching and call.free != self.free + held:
            return self._fault("C9", "", f"request {r} held {held} blocks; its end made {call.free - self.free} free")
        return None

    def _reserve(self, call: Call, tracked: Tracked, tokens: int, drafts: int, *, first: bool) -> Fault | None:
        """A step of so many tokens: how many blocks it needs, whether it got them, and what the tables are then."""
        if call.status == NOTHING or call.scheduled != tokens:
            return self._fault("adapter", "", f"scheduled {call.scheduled} tokens, not {tokens}")
        end = tracked.ahead + tokens
        wanted = [blocks(group, end, self.limits) for group in self.groups]
        growth = self._needs(tracked, wanted, first) + call.held
        found = self._tables(call, tracked, wanted, end) if call.status == DONE else None
        found = found or self._account(call, tracked, growth, end, first)
        if found is not None:
            return found
        if call.status == REFUSED:
            return self._unchanged(call, tracked, first)
        tracked.tables = call.tables
        tracked.schedule(tokens, drafts)
        return None

    def _account(self, call: Call, tracked: Tracked, growth: int, end: int, first: bool) -> Fault | None:
        """The scheduler's check reckons with what the formula says, decides by it, and that is what is taken."""
        # Below 0 it means 0: a table of kind `align` that refused drafts left longer counts against itself in vLLM.
        if max(call.charged, 0) != growth:
            less = [self._short(group, end) for group in self.groups]
            short = self.limits.lookahead > 0 and call.charged == self._needs(tracked, less, first) + call.held
            return self._fault("C2" if short else "C3", "", f"the scheduler's check reckons with {call.charged} blocks "
                               f"more, the formula with {growth}")  # fmt: skip
        if (call.status == REFUSED) != (growth > call.before):
            did = "is refused" if call.status == REFUSED else "is granted"
            return self._fault("C3", "", f"a step that needs {growth} blocks {did} with {call.before} free")
        if call.status == DONE and call.free != call.before - growth:
            return self._fault("C3", "", f"the check reckoned with {growth} blocks, {call.before - call.free} went")
        return None

    def _needs(self, tracked: Tracked, wanted: list[int], first: bool) -> int:
        """Blocks that the pool has to give for tables of these lengths."""
        return sum(self._growth(*each, first) for each in zip(self.groups, wanted, tracked.tables, strict=True))

    def _growth(self, group: Group, wanted: int, table: list[int], first: bool) -> int:
        """Blocks that the pool has to give for it. With `align` only the running state and the spares are real."""
        more = max(wanted - table[0], 0)
        if group.kind == "align":
            return min(more, 1 + self.limits.spares if first else 1)
        return more

    def _tables(self, call: Call, tracked: Tracked, wanted: list[int], end: int) -> Fault | None:
        for number, (group, want) in enumerate(zip(self.groups, wanted, strict=True)):
            (entries, nulls), before = call.tables[number], tracked.tables[number][0]
            named = f"group {number} ({group.kind}) has {entries} blocks"
            want = max(want, before)
            if entries < before:
                return self._numbers("C6", group, end, want, entries, f"{named}; it had {before}")
            if group.kind in ATTENTION and entries * group.size < end:
                return self._numbers("C4", group, end, want, entries, f"{named}: a step ends at {end} tokens")
            if entries < want:
                law = "C7" if group.kind in RECURRENT else "C1"
                law = "C2" if entries == max(self._short(group, end), before) else law
                return self._numbers(law, group, end, want, entries, f"{named}; it needs {want}")
            if entries > want:
                return self._numbers("C5", group, end, want, entries, f"{named}; {want} are enough")
            if not self._nulls_fit(group, tracked, entries, nulls):
                says = f"{named}, of which {nulls} are null with {tracked.settled} tokens settled"
                return self._numbers("R4", group, end, want, entries, says)
        return None

    def _short(self, group: Group, end: int) -> int:
        """The table's length if one position less were written past the step."""
        less = max(self.limits.lookahead - 1, 0)
        return blocks(group, end, replace(self.limits, lookahead=less))

    def _nulls_fit(self, group: Group, tracked: Tracked, entries: int, nulls: int) -> bool:
        """Exactly those before the window; of a recurrent state, never the last one, nor a spare."""
        if group.kind in RECURRENT:
            last = max(tracked.settled - 1, 0) // group.size
            spared = entries - nulls >= 1 + self.limits.spares
            return spared and (nulls <= last or group.kind == "align")
        return nulls == (null_entries(group, tracked.settled) if group.kind != "cross" else 0)

    def _unchanged(self, call: Call, tracked: Tracked, first: bool) -> Fault | None:
        """A refusal leaves every table as long as it was, and takes no block."""
        if call.free < call.before or call.free < self.free:
            return self._fault("C9", "", f"a refusal took blocks: {self.free} were free, now {call.free}")
        if first:
            return self._fault("C9", "", "a refused request has a table") if call.tables else None
        if [entries for entries, _ in call.tables] != [entries for entries, _ in tracked.tables]:
            return self._fault("C9", "", f"a refusal changed the tables: {tracked.tables}, now {call.tables}")
        tracked.tables = call.tables
        return None

    def _same(self, call: Call, tracked: Tracked) -> Fault | None:
        """Nothing about the request's tables has changed, and they cover its steps still."""
        if call.tables != tracked.tables:
            return self._fault("C8", "", f"the tables changed without a step: {tracked.tables}, now {call.tables}")
        return None

    def _nothing(self, call: Call) -> Fault | None:
        return None if call.status == NOTHING else self._fault("adapter", "", "a step that was none was done")

    def _pool(self, call: Call, step: Step) -> Fault | None:
        """Every block is free or in a table; with nobody running all are free."""
        if call.free + call.used != self.configuration.pool:
            return self._fault("C9", "", f"after {shown(step)} {call.free} blocks are free and {call.used} in tables, "
                               f"of {self.configuration.pool}")  # fmt: skip
        self.lines.append((shown(step), str(call.tables), str(call.free)))
        return None

    def _numbers(self, law: str, group: Group, end: int, want: int, entries: int, says: str) -> Fault:
        head = ("ends at", "looks ahead", "longest", "spares", "formula", "engine")
        row = (end, self.limits.lookahead, self.limits.length, self.limits.spares, want, entries)
        family, method = FAMILY[group.kind], self.configuration.method
        return Fault(law, *blamed(law, "program", family, method), says, head, (tuple(map(str, row)),))

    def _fault(self, law: str, family: str, says: str) -> Fault:
        head = ("step", "tables (entries, null)", "free")
        return Fault(
            law, *blamed(law, "program", family, self.configuration.method), says, head, tuple(self.lines[-3:])
        )


def blamed(law: str, where: str, family: str, method: str) -> tuple[str, str]:
    """Where a fault is to be sought, and of what: a lookahead that is wrong shows wherever its method is used."""
    return ("lookahead", method) if law == "C2" else (where, family)


def shown(step: Step) -> str:
    """`admit(0, 9, 0, 5)`."""
    return f"{step[0]}({', '.join(map(str, step[1:]))})"


def warmup(configuration: Configuration, row: Row, rows: list[list[Any]]) -> list[Fault]:
    """The faults of a warm-up's tables, one of each key: they are what the allocator and the formula say, or are not.

    Steps behind the longest sequence are left out: no formula says what they need.
    """
    limits = configuration.limits(row)
    found: dict[tuple[str, str, str], Fault] = {}
    for function, step, request, computed, tokens, tables, reserved in rows:
        end = computed + tokens
        if end > limits.length:
            continue
        for number, group in enumerate(configuration.described):
            want = blocks(group, end, limits)
            warm, given = tables[number], reserved[number] if reserved else None
            if warm == given == want:
                continue
            law = "C3" if warm != given else "C5" if warm > want else "C2"
            says = f"{function} runs step {step} of {request} with {warm} blocks in group {number} ({group.kind}); "
            says += f"its allocator reserves {given}, the formula says {want}"
            head = ("step", "ends at", "group", "warm-up", "allocator", "formula")
            line = (str(step), str(end), f"{number} {group.kind}", str(warm), str(given), str(want))
            place = blamed(law, function, FAMILY[group.kind], row.method)
            fault = Fault(law, *place, says, head, (line,))
            found.setdefault(fault.key, fault)
    return list(found.values())


def lookahead(row: Row, drafts: int, answer: dict[str, Any]) -> Fault | None:
    """The release's own number for a method is what its drafter writes (C2), and its two places agree (C3)."""
    want, told, planned = written(row, drafts), answer["scheduler"], answer["config"]
    line = (row.method, str(drafts), str(want), str(told), "-" if planned is None else str(planned), row.source)
    head = ("method", "drafts", "written", "scheduler", "configuration", "source")
    if planned is not None and planned != told:
        says = f"{row.method} with {drafts} drafts: the scheduler looks {told} ahead, the configuration says {planned}"
        return Fault("C3", "lookahead", row.method, says, head, (line,))
    if told != want:
        says = f"{row.method} with {drafts} drafts writes {want} positions past its step; the scheduler reserves {told}"
        return Fault("C2", "lookahead", row.method, says, head, (line,))
    return None
