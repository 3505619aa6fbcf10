"""A failing program as Python that a person can run: the calls that were made of the allocator, and what was expected.

The caller's writes into its own lists are shown only if the failure needs them.
"""

import json
from collections.abc import Sequence
from typing import Any

import msgspec
from kvspec.operations import AnyOperation, Outcome, Read, Write, prompt_token

from kvspec_diff.hosted import PASSED, RETURNED, SCRIBBLE, Call
from kvspec_diff.monitor import Monitor
from kvspec_diff.program import Program
from kvspec_diff.subject import Subject
from kvspec_diff.suite import UNNOTICED, CommandSubject, Driven, Hosted, Ran
from kvspec_diff.targets import EngineTarget, Examined, Fault, Target

WIDTH = 46
WRITES_ON = "the list is the caller's, who writes on in it"
MODES = (frozenset[str](), frozenset({PASSED}), frozenset({RETURNED}), frozenset({PASSED, RETURNED}))


def snippet(target: Target, examined: Examined, test: type) -> str:
    """Python that fails as the program does; `test` is the class that pytest collected."""
    assert examined.fault is not None
    if isinstance(target, Hosted):
        for mode in MODES:
            ran = target.ran(examined.program, mode)
            if mode == MODES[-1] or _same(examined.fault, target, examined.program, ran):
                return _Story(target, examined, ran, mode, test).text()
    if isinstance(target, EngineTarget) and isinstance(target._subject, CommandSubject):
        return _of_worker(target._subject, examined)
    return _of_subject(target._subject if isinstance(target, Driven) else None, examined, test)


def _same(fault: Fault, target: Hosted, program: Program, ran: Ran) -> bool:
    """Whether a run, with a caller that overwrites less, fails in the same way."""
    if fault.law == "R1":
        return True
    again = target.seen(program, ran)
    return again is not None and again.index == fault.index and fault.law in (again.law, "D5")


class _Story:
    """The text of one run: `names` has, for each page number, how to say where it was handed out last."""

    def __init__(self, target: Hosted, examined: Examined, ran: Ran, mode: frozenset[str], test: type) -> None:
        assert examined.fault is not None
        self.fault: Fault = examined.fault
        self.target, self.ran, self.mode, self.test = target, ran, mode, test
        self.program = examined.program
        self.size = self.program.configuration.page_size
        self.monitor = Monitor(self.program)
        self.names: dict[int, str] = {}
        self.lists: dict[tuple[Call, str], str] = {}
        self.used: set[str] = set()
        self.lines: list[tuple[str, str]] = []
        self.place = 0
        """The line of the last call."""
        self.answered = ""
        """What the pages of the last answer are called."""
        self.misused: Call | None = None
        """A call that the contract forbids."""

    def text(self) -> str:
        arguments = self.target.arguments(self.program.configuration)
        pool = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        kind = self.target.kind
        made = self.ran.asked is not None
        says = f"blank: {_shown(self._blank())}" if made else f"raised {self.ran.outcomes[0].reason}"
        self.lines.append((f"pool = {kind.__qualname__}({pool})", says))
        if self.fault.law == "R1":
            self.lines.append(("memory = {}", "what stands in each slot"))
        for index, operation in enumerate(self.program.operations[: self.fault.index + 1] if made else ()):
            self._operation(index, operation, self.ran.outcomes[index])
        head = ["from contextlib import suppress"] if any("suppress(" in code for code, _ in self.lines) else []
        head += [f"from {kind.__module__} import {kind.__qualname__.split('.')[0]}"]
        if any("buffer(" in code for code, _ in self.lines):
            head.append(f"from {self.test.__module__} import {self.test.__qualname__.split('.')[0]}")
        body = [f"{code:{WIDTH}}  # {comment}" if comment else code for code, comment in self.lines]
        return "\n".join(f"    {line}".rstrip() for line in [*head, "", *body])

    def _operation(self, index: int, operation: AnyOperation, outcome: Outcome) -> None:
        before = self._blank()
        deferred = list(self.monitor.caller.deferred)
        failing = index == self.fault.index
        if not (failing and self.fault.law == "R1"):
            self.monitor.step(operation, outcome)
        calls = [call for call in self.ran.asked or () if call.index == index]
        forbidden = outcome.status == "misuse" or (failing and UNNOTICED in self.fault.explanation)
        self.misused = calls[-1] if calls and forbidden else None
        for call in calls:
            self._call(call, before, outcome, said=not failing or call is not calls[-1])
        if self.fault.law == "R1" and isinstance(operation, Write | Read):
            self._memory(operation, outcome, failing)
        gone = [page.number for page in self.monitor.caller.deferred if page not in deferred]
        if calls and not failing:
            self._after(calls[-1], before, gone)
        if failing and self.fault.law != "R1":
            self._verdict(calls[-1] if calls else None, outcome, before)

    def _blank(self) -> list[int]:
        return [page for page, blank in enumerate(self.monitor.state.blank) if blank]

    # Calls.

    def _call(self, call: Call, before: list[int], outcome: Outcome, *, said: bool) -> None:
        """The lines of a call; `said`: with what came back."""
        given = self._given(call)
        code = f"pool.{call.method}({given})"
        comment = ""
        if call.method in ("allocate", "copy", "evict"):
            comment = self._expected(call, before) + (f"; got {_got(call)}" if said else "")
            code = self._assigned(call, code)
        if call.raised and outcome.status in ("misuse", "refused"):
            code = f"with suppress(Exception): {code}"
        if call is self.misused:
            comment = "expected an exception, and no change"
        elif not (said or comment or call.raised):
            comment = f"expected blank afterwards: {_shown(self._blank())}"
        self.lines.append((code, comment))
        self.place = len(self.lines) - 1
        if self.ran.changed is not None and self.ran.changed[0] is not call and not said:
            return  # what had changed was seen before this answer was overwritten
        if PASSED in self.mode and isinstance(call.given, tuple):
            self.lines.append((_scribbled(given, getattr(self.test, "buffer", list)), WRITES_ON))
        if RETURNED in self.mode and (call, RETURNED) in self.lists:
            name = self.lists[call, RETURNED]
            self.lines.append((f"{self.answered} = [int(page) for page in {name}]", ""))
            self.lines.append((_scribbled(name, call.form), WRITES_ON))

    def _given(self, call: Call) -> str:
        if not isinstance(call.given, tuple):
            if call.method in ("copy", "pin", "unpin"):
                return self.names.get(call.given or 0, str(call.given))
            return "" if call.given is None else str(call.given)
        text = f"[{', '.join(self.names.get(page, str(page)) for page in call.given)}]"
        if getattr(self.test, "buffer", list) is not list:
            text = f"{self.test.__qualname__}.buffer({text})"
        if PASSED not in self.mode and self.ran.changed is None:
            return text
        name = self.lists[call, PASSED] = self._fresh("given")
        self.lines.append((f"{name} = {text}", ""))
        return name

    def _assigned(self, call: Call, code: str) -> str:
        """The call, with names for the pages that came back."""
        row = str(getattr(self.program.operations[call.index], "row", "evicted"))
        name = self.answered = self._fresh(row)
        if call.method == "copy":
            self.names |= {page: name for page in call.answer or ()} if call.answer is not ... else {}
            return f"{name} = {code}"
        if isinstance(call.answer, tuple):
            self.names |= {page: f"{name}[{i}]" for i, page in enumerate(call.answer)}
            if RETURNED in self.mode and hasattr(call.form, "__setitem__"):
                got = self.lists[call, RETURNED] = self._fresh("got")
                return f"{got} = {code}"
            if call.form not in (list, tuple):
                return f"{name} = [int(page) for page in {code}]"
        return f"{name} = {code}"

    def _fresh(self, name: str) -> str:
        number = 1
        while (fresh := name if number == 1 else f"{name}{number}") in self.used:
            number += 1
        self.used.add(fresh)
        return fresh

    def _expected(self, call: Call, before: list[int]) -> str:
        """What an answer may be."""
        if call.method == "evict":
            return f"expected at most {call.given} of {_shown(self._evictable())}"
        wanted = 1 if call.method == "copy" else int(call.given or 0)  # type: ignore[arg-type]
        if wanted > len(before):
            return f"expected None: {len(before)} blank"
        return f"expected {wanted} of the blank {_shown(before)}"

    def _evictable(self) -> list[int]:
        caller = self.monitor.caller
        return sorted(page.number for page in caller.cache.values() if page.holders == 0)

    def _after(self, call: Call, before: list[int], gone: list[int]) -> None:
        """Say after the last call of an operation what it changed."""
        code, comment = self.lines[self.place]
        became = sorted(set(self._blank()) - set(before))
        says = [f"blank now: {_shown(became)}"] if became else []
        says += [f"to be blank at the end: {_shown(gone)}"] if gone else []
        plain = {"publish": "cached", "share": "one holder more", "pin": "one holder more", "begin": "a group opens"}
        if not comment and not says:
            says = [plain.get(call.method, "nothing becomes blank")]
        self.lines[self.place] = (code, "; ".join(([comment] if comment else []) + says))

    def _memory(self, operation: Write | Read, outcome: Outcome, failing: bool) -> None:
        """The contents, which the caller keeps."""
        row = self.monitor.caller.rows.get(operation.row)
        prompt = row.prompt if row is not None else 0
        for position, slot in zip(range(operation.start, operation.stop), outcome.slots, strict=False):
            page, offset = divmod(slot, self.size)
            name = self.names.get(page, str(page))
            place = f"memory[{name}]" if self.size == 1 else f"memory[{name}, {offset}]"
            token = prompt_token(prompt, position)
            if isinstance(operation, Write):
                value = -1 - position if operation.draft else token
                self.lines.append((f"{place} = {value}", f"row {operation.row} writes its position {position}"))
            elif failing and outcome.tokens[position - operation.start] != token:
                self._assert(f"{place} == {token}", f"row {operation.row} wrote {token} there")

    # The end.

    def _assert(self, condition: str, comment: str) -> None:
        self.lines.append((f"assert {condition}", f"{comment}: breaks {self.fault.law}"))

    def _verdict(self, call: Call | None, outcome: Outcome, before: list[int]) -> None:
        """Lines that fail."""
        if self.ran.changed is not None:
            changed, which = self.ran.changed
            name = self.lists[changed, which]
            during = changed is call and which == PASSED
            says = f"[{', '.join(map(str, changed.given))}]" if during and isinstance(changed.given, tuple) else ""
            return self._assert(f"list({name}) == {says or f'[{SCRIBBLE}] * len({name})'}", "it is the caller's")
        if call is not None and call.raised and outcome.status == "error":
            self.lines[self.place] = (self.lines[self.place][0], f"raised {outcome.reason}")
            return None
        if call is not None and call.raised and outcome.status == "refused":
            self._assert("False", "it raised Refused")
            return None
        method = outcome.reason.partition("():")[0]
        if outcome.status == "error" and method in ("blank", "available"):
            self.lines.append((f"pool.{method}()", f"raised{outcome.reason.partition(':')[2]}"))
            return None
        if outcome.status != "error" and call is not None and isinstance(call.answer, tuple | None):
            condition = self._answer_wrong(self.answered, call, before)
            if condition:
                return self._assert(condition, f"got {_got(call)}")
        after = self._blank()
        if outcome.blank is not None and sorted(outcome.blank) != after:
            return self._assert(f"sorted(pool.blank()) == {after}", f"got {sorted(outcome.blank)}")
        if outcome.available is not None and outcome.available != len(after):
            return self._assert(f"pool.available() == {len(after)}", f"got {outcome.available}")
        self.lines.append((f"raise AssertionError({f'breaks {self.fault.law}: {self.fault.explanation}'!r})", ""))
        return None

    def _answer_wrong(self, name: str, call: Call, before: list[int]) -> str:
        """The condition that an answer does not keep, if there is one."""
        answer = call.answer
        if call.method == "evict":
            kept = set(answer or ()) <= set(self._evictable()) and len(answer or ()) <= int(str(call.given))
            return "" if kept else f"len({name}) <= {call.given} and set({name}) <= {set(self._evictable()) or 'set()'}"
        if call.method == "copy":
            right = (answer is None) == (not before) and set(answer or ()) <= set(before)
            return "" if right else f"{name} in {before or [None]}"
        if call.method != "allocate" or not isinstance(call.given, int) or call.given < 0:
            return ""
        if call.given > len(before):
            return "" if answer is None else f"{name} is None"
        if answer is None:
            return f"{name} is not None"
        if len(answer) == len(set(answer)) == call.given and set(answer) <= set(before):
            return ""
        return f"len(set({name})) == len({name}) == {call.given} and set({name}) <= {set(before)}"


def _scribbled(name: str, form: object) -> str:
    """The statement with which the caller overwrites its own list, or tensor."""
    return f"{name}[:] = [{SCRIBBLE}] * len({name})" if form is list else f"{name}[:] = {SCRIBBLE}"


def _shown(pages: Sequence[int]) -> str:
    """`1-4, 7`, or `none`."""
    runs: list[list[int]] = []
    for page in pages:
        if runs and page == runs[-1][-1] + 1:
            runs[-1].append(page)
        else:
            runs.append([page])
    shown = (f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
    return ", ".join(shown) or "none"


def _got(call: Call) -> str:
    if call.answer is None or call.answer is ...:
        return "None"
    return str(call.answer[0]) if call.method == "copy" else str(list(call.answer))


def _of_worker(subject: CommandSubject, examined: Examined) -> str:
    """Python that sends the program to the worker and prints what it says."""
    configuration = msgspec.to_builtins(examined.program.configuration) | subject.options
    lines = ["import json, subprocess", "", "operations = [", *_operations(examined, json=True), "]"]
    lines += [f'request = {{"id": 1, "configuration": {configuration!r}, "operations": operations}}']
    lines += [f"command = {list(subject.command)!r}"]
    lines += ['sent = json.dumps(request) + "\\n"']
    lines += ["print(subprocess.run(command, input=sent, text=True, capture_output=True).stdout)"]
    return "\n".join(f"    {line}".rstrip() for line in lines)


def _of_subject(subject: Subject | None, examined: Examined, test: type) -> str:
    """Python that runs the program on the subject and prints what the specification says of it."""
    pool = examined.program.configuration
    names = sorted({type(operation).__name__ for operation in examined.program.operations})
    lines = [
        f"from kvspec.operations import {', '.join(['Configuration', *names])}",
        "from kvspec_diff.monitor import judge",
        "from kvspec_diff.program import Program",
        f"from {test.__module__} import {test.__qualname__.split('.')[0]}",
        "",
        f"program = Program(Configuration({pool.pages}, {pool.page_size}), (",
        *_operations(examined, json=False),
        "))",
        f"found = judge(program, {test.__qualname__}.subject.run(program))",
        "assert found is None, found",
    ]
    return "\n".join(f"    {line}".rstrip() for line in lines)


def _operations(examined: Examined, *, json: bool) -> list[str]:
    """A line for each operation, with what came of it."""
    lines = []
    for index, operation in enumerate(examined.program.operations):
        outcome = examined.outcomes[index] if index < len(examined.outcomes) else None
        code = _json(operation) if json else repr(operation)
        came = "" if outcome is None else _came(outcome)
        broken = examined.fault is not None and examined.fault.index == index and examined.fault.operation
        says = f"{came}: breaks {examined.fault.law}" if broken and examined.fault is not None else came
        lines.append(f"    {code + ',':{WIDTH}}  # {says}" if says else f"    {code},")
    return lines


def _json(operation: AnyOperation) -> str:
    fields: dict[str, Any] = {name: v for name, v in msgspec.to_builtins(operation).items() if v is not False}
    return json.dumps(fields)


def _came(outcome: Outcome) -> str:
    parts = [f"{name} {_shown(value)}" for name in ("pages", "tokens") if (value := getattr(outcome, name))]
    return ", ".join([outcome.status, *parts]) + (f" ({outcome.reason})" if outcome.reason else "")
