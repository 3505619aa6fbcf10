"""A store in lockstep with the compiled machine `store`, and under every loss of power.

A program is a list of calls on a few keys. The store runs on a recorded folder, where file operations fail and the
process dies on demand. What an entry holds tells its key and the number of its save, so the state is observed from
bytes: from those in memory, and from those in the folder, which are not asked of the store.

What of the folder is on the disk the system decides, and only a crash shows it. So the machine's `settle`, the system's
own will, is put in afterwards, at the latest moment that explains what was found; if there is none, a law is broken.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import shake_128
from typing import Any

from kvspec.language.run import State
from kvspec_reference.entry_format import key_of
from kvspec_reference.files import Files, Killed, Recording

from kvspec_diff.beside import Beside, Broken
from kvspec_diff.subjects.stores import SIGNATURE, ReferenceStore, StoreSubject

REFERENCE = ReferenceStore()
Numbers = frozenset[int]


@dataclass(frozen=True)
class Call:
    """One call of a program, on the key of number `key`.

    `failing` and `killing` say which file operations of it go wrong; those of a `crash` are those of the opening that
    follows. After the process died, or if the call is a `crash`, power is lost if `loss` is a number: it chooses what
    is left. The opening that follows dies at file operation `again`, if that is a number. If it dies or fails, power is
    lost if `twice` is a number, and the next opening goes well.
    """

    name: str
    key: int = 0
    failing: Numbers = frozenset()
    killing: int | None = None
    loss: int | None = None
    again: int | None = None
    twice: int | None = None


Program = Sequence[Call]


@dataclass(frozen=True)
class Scope:
    """The store to be: the payload of each key in bytes, the budget in bytes and so on."""

    payloads: tuple[int, ...] = (20, 20, 20)
    budget: int = 1200
    slots: int = 2
    memory: int = 450
    evictions: int = 1
    piece: int = 200

    def open(self, files: Files, subject: StoreSubject = REFERENCE) -> Any:
        options = {"slots": self.slots, "memory": self.memory, "evictions": self.evictions, "piece": self.piece}
        lengths = {key(k): length for k, length in enumerate(self.payloads)}
        return subject.open(files, lengths, budget=self.budget, **options)

    def payload(self, k: int, version: int) -> bytes:
        """Tells key and save, to the last byte."""
        return version.to_bytes(4, "big") + shake_128(b"%d %d" % (k, version)).digest(self.payloads[k] - 4)

    def version(self, k: int, found: Any, subject: StoreSubject = REFERENCE) -> int:
        """Which save this is; 0 for a miss, -1 for what was never saved like this."""
        if hasattr(found, "reason"):
            return 0
        payload = subject.payload(key(k), found) or b""
        version = int.from_bytes(payload[:4], "big")
        return version if payload == self.payload(k, version) else -1

    def version_in(self, k: int, data: bytes | None, subject: StoreSubject = REFERENCE) -> int:
        """The same of a file's bytes, or of none."""
        if data is None:
            return 0
        return self.version(k, subject.read(key(k), data, self.payloads[k]), subject) or -1

    def sizes(self, subject: StoreSubject = REFERENCE) -> list[int]:
        """Bytes of each key's file."""
        return [len(subject.data(key(k), self.payload(k, 1))) for k in range(len(self.payloads))]


@cache
def key(k: int) -> str:
    """The key of number k; files are found in the order of these numbers reversed."""
    names = sorted((key_of(None, (n,), SIGNATURE) for n in range(8)), reverse=True)
    return names[k]


@dataclass
class Run:
    """A store that runs a program with the machine beside it; raises `Broken`. `floors`: see `power_loss`."""

    scope: Scope
    subject: StoreSubject = REFERENCE
    recordings: list[tuple[Recording, list[tuple[int, ...]]]] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    """How often each action was performed, and each thing was answered."""

    def __post_init__(self) -> None:
        sizes = {"Key": len(self.scope.payloads), "Disk": 1}
        self.keys = range(sizes["Key"])
        disk = {"place": [0 for _ in self.keys], "budget": [self.scope.budget], "slots": [self.scope.slots]}
        self.files = self.subject.recording({})
        self.beside = Beside("store", sizes, {"size": self.scope.sizes(self.subject), **disk})
        self._opened = self.beside.mark()
        self.recordings.append((self.files, []))
        self.store = self.scope.open(self.files, self.subject)
        self._keep_floors()

    def call(self, call: Call) -> None:
        """One call, the actions it reported, and the whole state after it."""
        if call.name == "crash":
            self._crash(call)
            return
        self.files.plan(call.failing, call.killing)
        before = self.state.copy()
        try:
            answer = self._answer(call)
        except Killed:
            self._follow(self.store.take_actions())
            self._keep_floors(said=False)
            self._crash(call)
            return
        except (self.subject.misuse, self.subject.refused, OSError) as error:
            answer = error
        self.files.plan()
        actions = self.store.take_actions()
        self._follow(actions)
        self._keep_floors()
        self._compare()
        self._judge_answer(call, answer, [name for _, name, _ in actions], before)
        self._count(type(answer).__name__ if not isinstance(answer, self.subject.report) else answer.status)

    def _answer(self, call: Call) -> Any:
        k = call.key
        if call.name == "save":
            return self.subject.save(self.store, key(k), self.scope.payload(k, self.state.saves + 1))
        if call.name == "write":
            return self.store.write_next()
        return {"read": self.store.read, "evict": self.store.evict}[call.name](key(k))

    @property
    def state(self) -> State:
        """The machine's."""
        return self.beside.state

    # The machine follows.

    def _follow(self, actions: Sequence[tuple[str, str, str]]) -> None:
        for name, action, named in actions:
            assert name == "store"
            k = next(k for k in self.keys if key(k) == named)
            self.beside.step(action, k)
            self._count(action)

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    # The process dies, power is lost, the store is opened again.

    def _crash(self, call: Call) -> None:
        self._lose(call.loss)
        self.files.plan(call.failing if call.name == "crash" else frozenset(), call.again)
        try:
            self.store = self.scope.open(self.files, self.subject)
        except (Killed, OSError):
            self._count("not opened")
            self._keep_floors(said=False)
            self._lose(call.twice)
            self.files.plan()
            self.store = self.scope.open(self.files, self.subject)
        self.files.plan()
        self._recover()
        self._count("crash")
        self._keep_floors()
        self._compare()

    def _lose(self, choice: int | None) -> None:
        if choice is not None:
            left = list(self.files.points[-1].after_loss())
            self.files = self.subject.recording(left[choice % len(left)])
            self._count("loss")
            self.recordings.append((self.files, []))
            self._keep_floors(said=False)

    def _recover(self) -> None:
        """The machine finds what the store found, if something that was shown explains it."""
        found = self._shown()
        self._explain(found)
        for k in self.keys:
            if not found[k]:
                self.beside.step("recover", k)
        self._follow(self.store.take_actions())
        self._opened = self.beside.mark()

    def _explain(self, found: list[int]) -> None:
        """Run again from the last opening, with what the system settled by its own will."""
        final, agreed = self.state, self.beside.agreed
        steps, start = self.beside.back(self._opened), len(self.beside.steps)
        shown = [list(self.state.shown)]
        for action, arguments in steps:
            self.beside.step(action, *arguments)
            shown.append(list(self.state.shown))
        settled: dict[int, list[int]] = {}
        for k in self.keys:
            if final.durable[k] != found[k]:
                first = max((at + 1 for at, step in enumerate(steps) if step == ("settle", (k,))), default=0)
                moments = [at for at in range(first, len(shown)) if shown[at][k] == found[k]]
                if not moments:
                    law = "T4" if found[k] < final.acknowledged[k] else "T1"
                    raise Broken(law, f"key {k}: after a crash there is {found[k]}, which no crash may leave")
                settled.setdefault(moments[-1], []).append(k)
        self.beside.back(self._opened)
        for at, step in enumerate([*steps, None]):
            for k in settled.get(at, ()):
                self.beside.step("settle", k)
            if step is not None:
                self.beside.step(step[0], *step[1])
        put_in = {at: len(keys) for at, keys in settled.items()}
        self.beside.agreed = [n + sum(more for at, more in put_in.items() if at < n - start) for n in agreed]

    # What is observed.

    def _shown(self) -> list[int]:
        """By key, the version in the folder, read from its bytes."""
        found = [self.files.folder.get(key(k) + self.subject.entry) for k in self.keys]
        return [self.scope.version_in(k, at.now() if at else None, self.subject) for k, at in enumerate(found)]

    def _compare(self) -> None:
        """The whole state; what is rigid or only of the disk is left out."""
        store, scope, subject = self.store, self.scope, self.subject
        own: dict[str, Any] = {
            name: [scope.version_in(k, tier.get(key(k)), subject) for k in self.keys]
            for name, tier in (("hot", store.hot), ("queued", store.queue), ("temp", store.writing))
        }
        own["shown"], own["indexed"] = self._shown(), [key(k) in subject.index(store) for k in self.keys]
        own["latest"] = [scope.version(k, store.peek(key(k)), subject) for k in self.keys]
        own["used"], own["waiting"] = [store.used], [len(store.queue)]
        for name, value in own.items():
            if value != getattr(self.state, name):
                raise Broken("state", f"{name} is {value}, the specification has {getattr(self.state, name)}")
        said = [version != 0 for version in self.state.acknowledged]
        if said != [key(k) in store.acknowledged for k in self.keys]:
            raise Broken("state", f"acknowledged are {sorted(store.acknowledged)}, the specification has {said}")
        ending = subject.temporary
        left = {name: contents for name, contents in self.files.folder.items() if name.endswith(ending)}
        if not left.keys() <= {named + ending for named in store.writing}:
            raise Broken("T1", f"temporary files are left: {sorted(left)}")
        if any(left[key(k) + ending].loose for k in self.keys if key(k) + ending in left and self.state.synced[k]):
            raise Broken("T1", "a temporary file is said to be synced, and is not")
        if sum(map(len, store.hot.values())) > scope.memory:
            raise Broken("T2", f"{sum(map(len, store.hot.values()))} bytes in memory, at most {scope.memory}")
        self.beside.agrees()

    def _judge_answer(self, call: Call, answer: Any, actions: list[str], before: State) -> None:
        """A call that failed changed nothing (T6), a read is the latest (T3), a report says what was done."""
        if isinstance(answer, Exception):
            refused = isinstance(answer, self.subject.refused) and call.name == "save"
            if actions != ["refuse"] * refused or vars(self.state) != vars(before):
                raise Broken("T6", f"{answer!r}, and yet it did {actions}")
        elif call.name == "read":
            found, wanted = self.scope.version(call.key, answer, self.subject), self.state.latest[call.key]
            excused = getattr(answer, "reason", "") == "unreadable" and call.failing
            if found != wanted and not excused:
                raise Broken("T3", f"read {found}, latest is {wanted}")
        elif isinstance(answer, self.subject.report):
            kinds = [(name, actions.count(name)) for name in ("evict", "acknowledge")]
            if kinds != [("evict", len(answer.evicted)), ("acknowledge", len(answer.acknowledged))]:
                raise Broken("answer", f"{answer}, but it did {actions}")
            if len(answer.evicted) > self.scope.evictions:
                raise Broken("T2", f"{len(answer.evicted)} were evicted in one call")
            if (answer.status == "acknowledged") != (actions[-1:] == ["acknowledge"] and "rename" in actions):
                raise Broken("answer", f"{answer}, but it did {actions}")
            self._judge_progress(call, answer, before)

    def _judge_progress(self, call: Call, answer: Any, before: State) -> None:
        """If nothing goes wrong it is written, at the latest when there is room; after a sync all is acknowledged."""
        state = self.state
        if (answer.key is not None) != any(before.waiting) and not any(before.temp):
            raise Broken("answer", f"{answer}, and {before.waiting[0]} were queued")
        if answer.status in ("idle", "acknowledged") and state.acknowledged != state.shown:
            raise Broken("answer", f"{answer}, and yet {state.acknowledged} are acknowledged of {state.shown}")
        waits = answer.status == "waiting" and len(answer.evicted) == self.scope.evictions
        if not call.failing and answer.status not in ("idle", "acknowledged") and not waits:
            raise Broken("answer", f"{answer}, and nothing went wrong")
        if any(state.temp) != (answer.status == "failed" and "cannot be deleted" in answer.reason):
            raise Broken("answer", f"{answer}, and {state.temp} are in temporary files")

    def _keep_floors(self, said: bool = True) -> None:
        """For each new point, what must at least be found after a loss of power there: what was acknowledged.

        An entry whose file was deleted since is nothing that must be found. What a call acknowledges it says at its
        end.
        """
        files, floors = self.recordings[-1]
        floor = list(floors[-1]) if floors else list(self.state.acknowledged)
        for operation, *names in ([("",)] if not floors else []) + files.log[max(0, len(floors) - 1) :]:
            if operation == "unlink":
                floor = [0 if names[0] == key(k) + self.subject.entry else version for k, version in enumerate(floor)]
            floors.append(tuple(floor))
        if said:
            floors[-1] = tuple(self.state.acknowledged)


def lockstep(program: Program, scope: Scope, subject: StoreSubject = REFERENCE) -> Run:
    """Run a program with the machine beside it; raises `Broken` with the law."""
    run = Run(scope, subject)
    for call in program:
        run.call(call)
    return run


@dataclass
class Tally:
    """How much `power_loss` replayed: points of recordings, folders that a loss may leave, those of recoveries."""

    points: int = 0
    states: int = 0
    during_recovery: int = 0
    different: set[Any] = field(default_factory=set)
    """The folders, each with what must be found in it, and the store."""


def power_loss(
    program: Program, scope: Scope, subject: StoreSubject = REFERENCE, tally: Tally | None = None, cuts: int = 2
) -> Tally:
    """Replay every legal loss of power at every point of a recorded program, and again while the store recovers.

    After each: what was acknowledged is found, or a later version; nothing is half written; nothing temporary is left;
    what the loss left is within the budget. Raises `Broken` with the law.
    """
    tally = tally or Tally()
    for files, floors in lockstep(program, scope, subject).recordings:
        assert len(floors) == len(files.points)
        for point, floor in zip(files.points, floors, strict=True):
            tally.points += 1
            for left in point.after_loss(cuts):
                tally.states += 1
                for recovering in _reopened(left, floor, scope, subject, tally):
                    tally.during_recovery += 1
                    for _ in _reopened(recovering, floor, scope, subject, tally):
                        pass
    return tally


def _reopened(
    left: dict[str, bytes], floor: tuple[int, ...], scope: Scope, subject: StoreSubject, tally: Tally
) -> Iterator[dict[str, bytes]]:
    """Open what a loss left and look at it, once; then what another loss leaves at any point of the opening."""
    known = (frozenset(left.items()), floor, scope)
    if known in tally.different:
        return
    tally.different.add(known)
    taken = sum(map(len, set(left.values())))  # a file that was renamed may have both names; its bytes are there once
    if taken > scope.budget:
        raise Broken("T2", f"{taken} bytes may be left, the budget is {scope.budget}")
    files = subject.recording(left)
    store = scope.open(files, subject)
    if any(name.endswith(subject.temporary) for name in files.folder):
        raise Broken("T1", f"temporary files are left: {sorted(files.folder)}")
    for k, least in enumerate(floor):
        found = scope.version(k, answer := store.read(key(k)), subject)
        if found < 0 or (found == 0 and key(k) in subject.index(store)):
            raise Broken("T1", f"key {k}: something half written is shown: {answer}")
        if found < least:
            raise Broken("T4", f"key {k}: {found} is found, {least} was acknowledged")
    for point in files.points:
        yield from point.after_loss()
