"""Memory that runs out in the middle of an operation of the fast twin, in place of each line that it runs.

The host path checks everything before it changes anything, so that up to the first change nothing is lost. From there
on it does not unwind: that would cost every call what only a machine out of memory needs. What is promised instead is
that a backup taken before brings everything back (D6), from every line. `HALF_DONE` says which functions can leave a
half done operation behind, and why; one more of them fails the test, and so does one that cannot any longer.

Not injected: the device path, whose calls run on the device later, where an allocator's failure ends the process's use
of it; and the reference, of which every line allocates and which is not to be cluttered with unwinding: where its
memory ends, the comparison ends.
"""

from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from typing import Any

import kvspec_torch
import pytest
from kvspec.operations import Allocate, AnyOperation, Configuration, Start, Trim
from kvspec_diff.exhaustive import Scope, Twin
from kvspec_diff.failures import Injector
from kvspec_diff.generate import Generator
from kvspec_diff.program import Program, operation_name
from kvspec_diff.subject import EVERYTHING

TAKES = "pages are taken from the ring, then named by the row, and the results are laid out last"
GIVES = "the row names the pages no more, then they lose a holder, and those without one are appended to the ring"
HOLDS = "the pages get a holder more, then the row names them"
LOOKS = "called also after a change, to find what is changed next or to lay out results; changes nothing itself"
GROUPS = "two facts, one after the other"

HALF_DONE = {
    "host.deferred_free.HostDeferredPool._let_go": GIVES,
    "host.deferred_free.HostDeferredPool._set_open": GROUPS,
    "host.deferred_free.HostDeferredPool.end": "the group is closed, then what it deferred becomes blank",
    "host.pages.HostPool._leave": GIVES,
    "host.pages.HostPool._make_blank": GIVES,
    "host.pages.HostPool._offer": GIVES,
    "host.pages.HostPool.drop": GIVES,
    "host.pages.HostPool.evict": "pages leave the heap one by one, then become blank together",
    "host.pages.HostPool.hold": HOLDS,
    "host.pages.HostPool.put": "pages are published, then numbered",
    "host.pages.HostPool.take": TAKES,
    "host.rows.HostRows._by_entry": LOOKS,
    "host.rows.HostRows._pad": LOOKS,
    "host.rows.HostRows._slots": LOOKS,
    "host.rows.HostRows._width": LOOKS,
    "host.rows.HostRows.allocate": TAKES,
    "host.rows.HostRows.copy": TAKES,
    "host.rows.HostRows.finish": GIVES,
    "host.rows.HostRows.free": GIVES,
    "host.rows.HostRows.pin": HOLDS,
    "host.rows.HostRows.replace": HOLDS,
    "host.rows.HostRows.share": HOLDS,
    "host.rows.HostRows.start": "the row is live, then gets its tokens",
    "host.rows.HostRows.trim": GIVES,
    "host.rows.HostRows.unpin": GIVES,
    "host.rows.HostRows.write": "tokens are written, then settled, and the results are laid out last",
    "host.rows.spread": LOOKS,
}

NEVER = {"read", "overwrite"}
"""Operations that change nothing, so that nothing can be half done."""

Record = Callable[[str, object], None]


class Stopped:
    """What happened where operations were stopped: how often, the functions that left a change behind and for which
    operations, and the lines before the first change."""

    def __init__(self) -> None:
        self.times = 0
        self.half_done: set[str] = set()
        self.operations: set[str] = set()
        self.clean: set[str] = set()


def stop_everywhere(program: Program, package: Any, stopped: Stopped) -> None:
    """Run the program; before each operation does what it does, stop it at each of its lines in turn."""
    pool = program.configuration
    twin, injector = (
        Twin(Scope(pool.pages, pool.page_size, "abcd", 40, "pqs"), "host", package),
        Injector("kvspec_torch"),
    )
    for operation in program.operations:
        memory, calm, n = twin.memory(), twin.glance(), 1
        while injector.run(n, lambda: bare(twin, package, operation)):  # noqa: B023
            twin._passed.clear()
            if twin.glance() == calm:
                stopped.clean.add(injector.point)
            else:
                stopped.half_done.add(injector.point.split(":")[0].removeprefix("kvspec_torch."))
                stopped.operations.add(operation_name(operation))
                twin.recall(memory)
                assert twin.glance() == calm, (injector.point, operation)
            n += 1
        stopped.times += n - 1


def bare(twin: Twin, package: Any, operation: AnyOperation) -> None:
    """One operation, whether it is done or not."""
    twin._done = 0
    with suppress(package.Misuse, package.Refused):
        getattr(twin, f"_{operation_name(operation)}", twin._plain)(operation)
    twin._returned.clear()


def test_memory_may_run_out_at_every_line(record_property: Record) -> None:
    stopped = Stopped()
    for program in islice(Generator(EVERYTHING).bulk(9, (30, 60)), 24):
        stop_everywhere(program, kvspec_torch, stopped)
    assert sorted(stopped.half_done) == sorted(HALF_DONE)
    assert not stopped.operations & NEVER
    assert len(stopped.clean) > 150
    assert all(HALF_DONE.values())
    record_property("say", f"failures: torch-host, memory ran out {stopped.times} times, every time brought back")


def test_a_restore_that_forgets_is_seen() -> None:
    class Forgetful(kvspec_torch.Cache):
        def restore(self, saved: Any) -> None:
            length = self._tensors["length"].clone()
            super().restore(saved)
            self._tensors["length"].copy_(length)

    class Package:
        Cache, Misuse, Refused = Forgetful, kvspec_torch.Misuse, kvspec_torch.Refused

    program = Program(Configuration(4, 1), (Start("a", 0), Allocate("a", 2), Trim("a", 0)))
    with pytest.raises(AssertionError):
        stop_everywhere(program, Package, Stopped())
