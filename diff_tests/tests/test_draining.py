"""The reference decoder against plain decoding, on every schedule of a small scope and beyond (J1-J5)."""

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvspec_diff.beside import compiled
from kvspec_diff.draining import schedule as schedules
from kvspec_diff.draining.judge import compare, judged
from kvspec_diff.draining.plants import FAULTS, Fault, planted
from kvspec_diff.draining.schedule import LARGER, NAMES, SMALL, Operation, Scope, at_random, every
from kvspec_diff.draining.subject import Reference, Seen
from kvspec_diff.profiles import register

register()

Record = Callable[[str, object], None]
TINY = Scope(tokens=3, drafts=1, pause=1, arrivals=1, failures=1)
RANDOM = [at_random(random.Random(seed)) for seed in range(100)]


@pytest.mark.parametrize("scope", [SMALL, pytest.param(LARGER, marks=pytest.mark.nightly)], ids=str)
def test_every_schedule(scope: Scope, record_property: Record) -> None:
    found = compare(Reference(), every(scope))
    assert found.finding is None, found.finding
    assert found.happened.keys() == compiled("drain").actions.keys()
    assert found.schedules >= 3_000
    record_property("say", f"late joins: {scope}: {found}")


def test_at_every_moment_everything_is_tried() -> None:
    """Ending it, and one step at least; an arrival and its withdrawal, a failure, each number of accepted drafts."""
    schedules = [schedule.operations for schedule in every(TINY)]
    assert len(set(schedules)) == len(schedules)
    assert {operations[-1].name for operations in schedules} == {"cancel", "finish"}
    tried: dict[tuple[Operation, ...], set[Operation]] = {}
    for operations in schedules:
        for place in range(1, len(operations)):
            tried.setdefault(operations[:place], set()).add(operations[place])
    seen = Counter(
        operation.name if not operation.raises else "raises" for moment in tried.values() for operation in moment
    )
    assert min(seen[name] for name in {*NAMES, "raises"} - {"begin"}) > 2
    for done, operations_there in tried.items():
        names = {operation.name for operation in operations_there}
        steps = sum(operation.name == "step" for operation in done)
        assert "finish" in names
        assert names >= {"cancel", "step"} or steps >= TINY.tokens
        arrived = [operation.name for operation in done if operation.name in ("arrive", "withdraw", "leave")]
        assert arrived or "arrive" in names or steps >= TINY.tokens


@settings(settings.get_profile("pr"))
@given(st.randoms(use_true_random=False))
def test_schedules_of_several_requests(of: random.Random) -> None:
    schedule = at_random(of)
    finding = judged(schedule, Reference().run(schedule))[1]
    assert finding is None, finding


def test_bulk(record_property: Record) -> None:
    found = compare(Reference(), (at_random(random.Random(seed)) for seed in range(300)))
    assert found.finding is None, found.finding
    assert {name: found.happened[name] for name in compiled("drain").actions if found.happened[name] < 50} == {}
    record_property("say", f"late joins: of several requests: {found}")


# Planted faults


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_is_found_by_its_law(fault: Fault) -> None:
    subject = Reference(planted(fault))
    found = compare(subject, every(SMALL)).finding or compare(subject, RANDOM).finding
    assert found is not None
    assert found.law == fault.law, found


def test_the_reference_with_nothing_planted_breaks_nothing() -> None:
    nothing = Fault("nothing", "", FAULTS[0].before, FAULTS[0].before)
    assert compare(Reference(planted(nothing)), every(TINY)).finding is None
    with pytest.raises(LookupError, match="has 0 places 'nowhere'"):
        planted(Fault("nothing", "", "nowhere", ""))


class Silent(Reference):
    """Does not report the actions that it performs."""

    def run(self, schedule: schedules.Schedule) -> list[Seen]:
        return [replace(seen, actions=None) for seen in super().run(schedule)]


WITHDRAW = 'self.arrival = None\n        self._did("withdraw")'
STAYS = Fault("who withdrew waits for good", "J3", WITHDRAW, 'self._did("withdraw")')


def test_who_withdrew_and_joins_is_found_without_the_machine() -> None:
    found = compare(Silent(planted(STAYS)), every(TINY)).finding
    assert found is not None
    assert (found.law, found.operation) == ("J3", 3), found


# The reference says what can be done: one that is wrong ends too.

NOTED = "self.emitted.append(self.queue.popleft())"
BATCH = "if self.row is None:\n            return self._batch_step()"
RAISES = "raise RuntimeError('gone')"
ENDLESS = (
    STAYS,
    Fault("the others never leave", "state", 'self.row = self._unmerged()\n        self._did("leave")', "pass"),
    Fault("only the last emission is noted", "state", NOTED, "self.emitted[:] = [self.queue.popleft()]"),
    Fault("no emission is noted", "error", NOTED, "return self.queue.popleft()"),
    Fault("no step emits", "J4", BATCH, f"if self.row is not None:\n            return {{}}\n        {BATCH}"),
    Fault("no request begins", "error", 'self._did("begin")', RAISES),
    Fault("a step raises", "error", 'self._did("decode")\n        return {row', f"{RAISES}\n        return {{row"),
    Fault("a withdrawal raises", "error", WITHDRAW, RAISES),
)


@pytest.mark.parametrize("fault", ENDLESS, ids=str)
def test_a_decoder_that_never_finishes_ends_with_a_finding(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Reference(planted(fault))
    monkeypatch.setattr(schedules, "Decoder", subject.package.Decoder)
    longest = 2 + TINY.tokens + 2 * TINY.arrivals
    assert all(len(schedule.operations) <= longest for schedule in every(TINY))
    found = compare(subject, every(TINY)).finding
    assert found is not None
    assert found.law == fault.law, found


# The command


def command(*arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """It is run, after something else."""
    run = f"{before}\nimport runpy\nrunpy.run_module('kvspec_diff.draining', run_name='__main__', alter_sys=True)"
    return subprocess.run([sys.executable, "-c", run, *arguments], capture_output=True, text=True, check=False)


def test_the_command_has_no_arguments() -> None:
    told = command("--help")
    assert (told.returncode, told.stderr) == (0, "")
    assert "with plain decoding on every schedule" in " ".join(told.stdout.split())
    refused = command("more")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert refused.stderr.endswith("error: unrecognized arguments: more\n")


INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored behind a shell's &
if {module!r}:
    class Interrupting:
        def find_spec(self, name, path=None, target=None):
            if name == {module!r}:
                signal.raise_signal(signal.SIGINT)
    sys.meta_path.insert(0, Interrupting())
else:
    from kvspec_diff.draining import schedule
    def asked(scope, every=schedule.every):
        yield from list(every(scope))[:9]
        signal.raise_signal(signal.SIGINT)
        yield from every(scope)
    schedule.every = asked
"""


@pytest.mark.parametrize("module", ["", "kvspec_diff.draining.judge", "kvspec_reference.drain"])
def test_the_command_is_interrupted(module: str) -> None:
    done = command(before=INTERRUPTED.format(module=module))
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "kvspec_diff.draining: interrupted\n"
