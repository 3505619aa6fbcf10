"""The specification as judge: a run's outcomes, translated to atomic actions, step the compiled machine.

The machine leaves the policy open: which page is handed out is the subject's choice and comes from its outcome. A guard
that fails names the law. What the subject shows of its own state after an operation, the blank pages and their number,
is compared with the machine's; where they differ, the laws are evaluated on the state that was observed.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import msgspec
from kvspec.deferred_free import DeferredFree
from kvspec.language.run import Compiled, OutOfScope, State, Violation, compile_machine
from kvspec.operations import (
    NULL_PAGE,
    Allocate,
    AnyOperation,
    Checkpoint,
    Copy,
    Evict,
    Finish,
    Free,
    Outcome,
    Read,
    Replace,
    Share,
    Start,
    Trim,
    Unpin,
    Write,
    prompt_token,
)

from kvspec_diff.caller import Action, Caller
from kvspec_diff.program import Program
from kvspec_diff.quality import handed


class Finding(msgspec.Struct, frozen=True):
    """A law that a run breaks, at which operation, on which pages.

    `kind` is `fault` for the subject's; `misuse` if it did what its caller may not ask for: "unchecked misuse", no
    fault unless the subject promises to check.
    """

    index: int
    operation: AnyOperation
    law: str
    explanation: str
    pages: tuple[int, ...] = ()
    kind: str = "fault"

    def __str__(self) -> str:
        """One line."""
        return f"operation {self.index} breaks {self.law}: {self.explanation}"


class Broken(Exception):
    """What `Monitor.step` found while it judged an operation."""

    def __init__(self, law: str, explanation: str, pages: Sequence[int] = (), kind: str = "fault") -> None:
        super().__init__(explanation)
        self.law, self.explanation, self.pages, self.kind = law, explanation, tuple(pages), kind


def judge(program: Program, outcomes: Sequence[Outcome]) -> Finding | None:
    """The first law that the run breaks, or None. Operations without an outcome are not judged."""
    monitor = Monitor(program)
    for index, (operation, outcome) in enumerate(zip(program.operations, outcomes, strict=False)):
        found = monitor.step(operation, outcome)
        if found is not None:
            return msgspec.structs.replace(found, index=index)
    return None


def translate(caller: Caller, operation: AnyOperation, outcome: Outcome) -> list[Action]:
    """The atomic actions that an outcome amounts to, taken in by `caller`; `Broken` if the contract says otherwise."""
    if outcome.status == "error":
        kind = "fault" if caller.apply(operation) else "misuse"
        raise Broken("raised", outcome.reason, kind=kind)
    if outcome.status == "misuse":
        if caller.apply(operation):
            raise Broken("contract", "what the caller may ask for was called a misuse")
        return []
    if not caller.apply(operation, handed(operation, outcome)):
        raise Broken("contract", f"a misuse was {outcome.status}", kind="misuse")
    actions = caller.take_actions()
    if outcome.status == "refused" and (not actions or actions[0][0] != "refuse"):
        raise Broken("O5", "refused what takes no page")
    return actions


class Monitor:
    """Follows one run of a program, operation by operation."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.caller = Caller(program.configuration)
        self.compiled = machine()
        self.state = start(program)
        self._steps: list[tuple[AnyOperation, Outcome]] = []

    def step(self, operation: AnyOperation, outcome: Outcome, reported: list[Action] | None = None) -> Finding | None:
        """Judge one more operation; `reported` are the actions that the subject says it performed, if it says so.

        An operation that the contract or a guard forbids is not followed, none of its actions: the monitor stays where
        it was before. Where only what is observed afterwards is wrong, it goes on from where the operation leads.
        """
        index = len(self._steps)
        try:
            self._counts(operation, outcome)
            actions = self._follow(operation, outcome, reported)
            try:
                if outcome.status == "done":
                    self._addresses(operation, outcome)
                self._observed(operation, outcome, actions)
            finally:
                self._steps.append((operation, outcome))
        except Broken as broken:
            return Finding(index, operation, broken.law, broken.explanation, broken.pages, broken.kind)
        return None

    def _follow(self, operation: AnyOperation, outcome: Outcome, reported: list[Action] | None) -> list[Action]:
        """Take in all of the operation's actions, or none: the steps so far are the journal."""
        try:
            actions = translate(self.caller, operation, outcome)
            if reported is not None and reported != actions:
                raise Broken("contract", f"reports the actions {reported}, its outcome amounts to {actions}")
            self._advance(actions)
        except BaseException:
            self._roll_back()
            raise
        return actions

    def _roll_back(self) -> None:
        again = self._replayed()
        self.caller, self.state = again.caller, again.state

    def _replayed(self) -> "Monitor":
        """A monitor that has followed the steps so far."""
        again = Monitor(self.program)
        for done, came in self._steps:
            again._advance(translate(again.caller, done, came))
        return again

    def _advance(self, actions: list[Action]) -> None:
        for name, *arguments in actions:
            try:
                self.compiled.actions[str(name)](self.state, *arguments)
            except Violation as violation:
                pages = _pages_of(str(name), arguments)
                law = violation.law or "contract"
                raise Broken(law, f"{name}{tuple(arguments)}: {violation.text} does not hold", pages) from None
            except OutOfScope:
                pages = _pages_of(str(name), arguments)
                raise Broken("O5", f"{name} of page {pages[-1]}, which the pool does not have", pages) from None

    def _counts(self, operation: AnyOperation, outcome: Outcome) -> None:
        """As many pages came back as the operation takes."""
        if outcome.status != "done" or not isinstance(operation, Allocate | Copy | Evict):
            return
        if NULL_PAGE in outcome.pages:
            raise Broken("R3", "the null page was handed out", (NULL_PAGE,))
        given = len(outcome.pages)
        if isinstance(operation, Evict):
            if given > max(operation.count, 0):
                raise Broken("P13", f"{given} pages were evicted, {operation.count} were asked for", outcome.pages)
            return
        row = self.caller.rows.get(operation.row)
        if row is None:
            return
        if isinstance(operation, Allocate):
            needed = self.caller.needs(row, operation.tokens) if operation.tokens > 0 else 0
        else:
            needed = int(operation.entry < len(row.entries) and not self.caller.writable(row, operation.entry))
        if given != needed:
            law = "O5" if isinstance(operation, Allocate) else "O7"
            raise Broken(law, f"{needed} pages were to be handed out, {given} came", outcome.pages)

    def _addresses(self, operation: AnyOperation, outcome: Outcome) -> None:
        """Slots are those of the row's pages (R6), and what is read there is the prompt's (R1)."""
        if not isinstance(operation, Allocate | Write | Read):
            return
        row = self.caller.rows[operation.row]
        if isinstance(operation, Allocate):
            positions = range(row.length - operation.tokens, row.length)
        else:
            positions = range(operation.start, operation.stop)
        size = self.caller.page_size
        slots = []
        for position in positions:
            page = row.entries[position // size]
            assert page is not None, "the caller's model checked that the entry is live"
            slots.append(page.number * size + position % size)
        if outcome.slots != tuple(slots):
            raise Broken("R6", f"positions {positions} are at {outcome.slots}, the row's pages say {tuple(slots)}")
        if isinstance(operation, Read):
            tokens = tuple(prompt_token(row.prompt, position) for position in positions)
            if outcome.tokens != tokens:
                wrong = [i for i, pair in enumerate(zip(outcome.tokens, tokens, strict=False)) if pair[0] != pair[1]]
                pages = sorted({slots[i] // size for i in wrong})
                raise Broken("R1", f"positions {positions} read {outcome.tokens}, the prompt has {tokens}", pages)

    def _observed(self, operation: AnyOperation, outcome: Outcome, actions: list[Action]) -> None:
        """What the subject shows of its state agrees with the machine."""
        changed = outcome.state.get("changed")
        if changed:
            raise Broken("D5", f"the caller's buffers of {', '.join(map(str, changed))} changed by themselves")
        if outcome.blank is not None:
            self._blank(operation, outcome, actions, outcome.blank)
        if outcome.available is not None and outcome.available != self.state.available:
            raise Broken("O6", f"{outcome.available} pages are said to be available, {self.state.available} are")

    def _blank(
        self, operation: AnyOperation, outcome: Outcome, actions: list[Action], observed: tuple[int, ...]
    ) -> None:
        blank = [False] * (self.program.configuration.pages + 1)
        twice, unknown = [], []
        for page in observed:
            if not 0 <= page < len(blank):
                unknown.append(page)
            elif blank[page]:
                twice.append(page)
            else:
                blank[page] = True
        if blank == self.state.blank and not twice and not unknown:
            return
        extra = [page for page, (seen, right) in enumerate(zip(blank, self.state.blank, strict=True)) if seen > right]
        lost = [page for page, (seen, right) in enumerate(zip(blank, self.state.blank, strict=True)) if seen < right]
        laws = self._laws(operation, outcome, actions, blank) if extra or lost else []
        laws += ["O2"] * bool(twice) + ["O1"] * bool(unknown)
        laws = list(dict.fromkeys(laws))
        says = [f"page {page} is blank and should not be: {self._place(page)}" for page in extra]
        says += [f"page {page} should be blank and is not" for page in lost]
        says += [f"page {page} is blank twice" for page in dict.fromkeys(twice)]
        says += [f"page {page} is blank, and the pool has no such page" for page in unknown]
        others = f" (breaks {', '.join(laws)})" if len(laws) > 1 else ""
        raise Broken(laws[0], "; ".join(says) + others, [*extra, *lost, *twice, *unknown])

    def _laws(self, operation: AnyOperation, outcome: Outcome, actions: list[Action], blank: list[bool]) -> list[str]:
        """The laws that the observed set of blank pages breaks, the one that says most first."""
        before, action = self._before_last(operation, outcome, actions)
        after = self.state.copy()
        released = [was and not blank[page] for page, was in enumerate(self.state.released)]
        vars(after).update(blank=blank, released=released)
        self.compiled.refresh(after)
        return name_laws(self.compiled, before, action, after) or ["O1"]

    def _place(self, page: int) -> str:
        """Where a page that should not be blank stands."""
        if page == NULL_PAGE:
            return "it is the null page"
        for name, row in self.caller.rows.items():
            for entry, held in enumerate(row.entries):
                if held is not None and held.number == page:
                    return f"row {name} holds it at entry {entry}"
        if any(pinned.number == page for _, pinned in self.caller.pins.values()):
            return "it is pinned"
        return "it is cached" if page in self.caller.cache else "its group is open"

    def _before_last(self, operation: AnyOperation, outcome: Outcome, actions: list[Action]) -> tuple[State, Action]:
        """The state before the operation's last action, found by running everything again."""
        again = self._replayed()
        again._advance(actions[:-1])
        return again.state, actions[-1] if actions else (quiet(),)


def name_laws(compiled: Compiled, before: State, action: Action, after: State) -> list[str]:
    """The ids of the laws that an observed step breaks: about this action first, then R3, then of steps and states."""
    name, arguments = str(action[0]), tuple(map(int, action[1:]))
    broken = compiled.judge(before, name, arguments, after)

    def rank(law: tuple[str, str]) -> int:
        return 0 if name in compiled.machine.laws[law[1]].on else 1 if law[0] == "R3" else 2

    known = [law for law in broken if law[1] in compiled.machine.laws]
    return list(dict.fromkeys(law for law, _ in sorted(known, key=rank)))


def _pages_of(name: str, arguments: Sequence[int | str]) -> list[int]:
    """The pages among an action's arguments."""
    params = machine().params[name]
    return [int(value) for value, sort in zip(arguments, params, strict=True) if sort.name == "Page"]


@cache
def quiet() -> str:
    """An action that no law names, in place of one where an operation has none: only the laws of all steps apply."""
    named = {name for law in machine().machine.laws.values() for name in (*law.on, *law.unless)}
    return next(name for name in machine().actions if name not in named)


@cache
def machine() -> Compiled:
    """The machine that judges, compiled once."""
    return compile_machine(DeferredFree)


def start(program: Program) -> State:
    """The machine's initial state, large enough for any run of the program."""
    return machine().start(*setting(program))


def setting(program: Program) -> tuple[dict[str, int], dict[str, Any]]:
    """The sizes of the sorts, enough for any run of the program, and what the rigid variables are."""
    size = program.configuration.page_size
    prompts = prompts_started(program) or [0]
    entries = most_entries(program) + 1  # one past the end, where a trim that keeps everything begins
    calls = sum(isinstance(operation, DEFERRING) for operation in program.operations)
    calls += sum(isinstance(operation, Checkpoint) for operation in program.operations) * entries
    sizes = {
        "Page": program.configuration.pages + 1,
        "Request": len(prompts),
        "Entry": entries,
        "Offset": size,
        "Call": max(1, calls),
    }
    return sizes, {"null": NULL_PAGE, "prefix": [_prefix(prompt, entries, size) for prompt in prompts]}


def prompts_started(program: Program) -> list[int]:
    """The prompts of the starts that are no misuse, in order."""
    live: set[str] = set()
    prompts = []
    for operation in program.operations:
        if isinstance(operation, Start) and operation.row not in live:
            live.add(operation.row)
            prompts.append(operation.prompt)
        elif isinstance(operation, Finish):
            live.discard(operation.row)
    return prompts


DEFERRING = Free | Trim | Finish | Replace | Unpin


@lru_cache(maxsize=1024)
def _prefix(prompt: int, entries: int, size: int) -> list[list[int]]:
    return [[prompt_token(prompt, entry * size + offset) for offset in range(size)] for entry in range(entries)]


def most_entries(program: Program) -> int:
    """No row of the program gets more entries than this. What asks for more than the pool has is never done."""
    pages, size = program.configuration.pages, program.configuration.page_size
    rows: dict[str, int] = {}
    most = 1
    for operation in program.operations:
        if isinstance(operation, Allocate) and 0 < operation.tokens <= (pages + 1) * size:
            new = -(-operation.tokens // size)
        elif isinstance(operation, Share) and 0 < operation.stop - operation.start <= pages:
            new = operation.stop - operation.start
        elif isinstance(operation, Finish):
            new = -rows.get(operation.row, 0)
        else:
            continue
        rows[operation.row] = rows.get(operation.row, 0) + new
        most = max(most, rows[operation.row])
    return most
