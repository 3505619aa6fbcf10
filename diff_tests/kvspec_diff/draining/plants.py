"""Faults of a decoder, each a place of the reference's text, what stands there instead, and the law that finds it."""

import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from kvspec_reference import drain


class Fault(NamedTuple):
    """What goes wrong; the law; the place, and what is planted there."""

    what: str
    law: str
    before: str
    after: str

    def __str__(self) -> str:
        """For the name of a test."""
        return self.what


TAKE = 'self._did("take")'
"""Where the last one queued becomes the next input."""

PINNED = "self.batch.pinned = False\n            self.row"
"""Where the pin is released, whatever happened."""

CANCEL = 'self._did("cancel")'
"""Where a request was cancelled."""

OWNER = "None if self.arrival is None else row"
"""Who has the row after a hand-off."""

AFTERWARDS = "self.rest = max(0, self.rest - 1)\n        return {row.name: row.plain_step(self.model)}"
"""What the stream does after a hand-off that failed."""

SPECULATES_ON = "self.speculates = True\n        done = self._emit()\n        self._cycle(row)\n        return done"
"""In place of that."""

WAITS = "if self.arrival is not None:"
"""Where a step asks whether somebody waits."""

FAULTS = (
    Fault("the newest of the queue is emitted first", "J1", "self.queue.popleft()", "self.queue.pop()"),
    Fault("a plain step feeds its token twice", "J1", "[done.token])", "[done.token] * 2)[1:]"),
    Fault("a cycle feeds the last token last", "J1", "[row.last(), *drafted])", "[*drafted, row.last()])"),
    Fault("what was refused stays in the cache", "J1", "- (self.drafts - accepted))", "- 0)"),
    Fault("the token after those accepted is lost", "J1", "found[: accepted + 1]", "found[: max(1, accepted)]"),
    Fault("all drafts are taken for right", "J1", "drafted[accepted] == found", "drafted[accepted] is not found"),
    Fault("the last one queued is emitted twice", "J1", TAKE, f"{TAKE}; row.queue.appendleft(row.queue[0])"),
    Fault("the last one queued is fed before it is emitted", "J1", TAKE, TAKE + "; self.model.feed(row.cache, [0])"),
    Fault("the next input loses its probability", "J1", TAKE, f"{TAKE}; row.queue[0] = Sampled(row.queue[0].token, 0)"),
    Fault("two positions share a random number", "J1", "self.seed, len(rows))", "self.seed, len(rows) // 2)"),
    Fault("who is late loses its prompt", "J1", "self.rows += rows", "self.rows += rows; rows[1].cache.cut(0)"),
    Fault("the drain stops a token early", "J2", "len(self.row.queue) > 1 else", "len(self.row.queue) > 2 else"),
    Fault("the stream has its row still", "J3", OWNER, "row"),
    Fault("the stream has its row meanwhile", "J3", "True, None, False", "True, row, False"),
    Fault("after a failure nobody has the row", "J3", AFTERWARDS, f"self.row = None; {AFTERWARDS}"),
    Fault("the row is not merged", "J3", "merge([row, arrival]", "merge([arrival]"),
    Fault("what is cancelled is kept", "J3", CANCEL, CANCEL + "; self.kept.append(((), Cache()))"),
    Fault("what was not emitted is kept", "J3", "row.cache.cut(len(row.prompt) + len(row.emitted))", "pass"),
    Fault("a failed hand-off speculates on", "J4", AFTERWARDS, SPECULATES_ON),
    Fault("a cycle starts while somebody waits", "J4", WAITS, "if self.arrival is not None and self.row.queue:"),
    Fault("nobody joins a plain stream", "J4", WAITS, "if self.arrival is not None and self.speculates:"),
    Fault("a cool-down is cut short", "J4", "and self.rest == 0:", "and self.rest <= 1:"),
    Fault("the pin survives an exception", "J5", PINNED, PINNED.replace("False", "self.arrival is not None")),
    Fault("the pin is never released", "J5", PINNED, "self.row"),
    Fault("a request begins in another one's cool-down", "state", "prompt), name, 0", "prompt), name, self.rest"),
)  # fmt: skip


def planted(fault: Fault) -> ModuleType:
    """The reference with the fault in it."""
    path = Path(drain.__file__ or "")
    text = path.read_text(encoding="utf-8")
    if text.count(fault.before) != 1:
        raise LookupError(f"{path.name} has {text.count(fault.before)} places {fault.before!r}, not one")
    module = ModuleType("planted")
    sys.modules["planted"] = module  # dataclasses look their module up
    exec(compile(text.replace(fault.before, fault.after), fault.what, "exec"), vars(module))
    return module
