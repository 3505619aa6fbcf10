"""Entries that were written by many, beside the compiled machine `entry_format` (E1-E6).

Files are written in any version and signature, damaged, deleted, upgraded and read, and hosts compute keys. What a file
says is observed from its bytes, not by the reader; of a damaged one it is enough that it is never read. The format is a
parameter. Where the two differ the observed state is judged by the laws of the step.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import shake_128
from typing import Any, Literal, get_args

from kvspec.language.run import State

from kvspec_diff.beside import Beside, Broken, compiled
from kvspec_diff.subjects.formats import FormatSubject, Meaning, ReferenceFormat, Written, said, with_field
from kvspec_diff.subjects.names import KEYS, LENGTH, SIGNATURES, TEXTS, TOKENS

FILES, NEWEST, OLDEST = 3, 3, 2
REFERENCE = ReferenceFormat()

Host = Callable[[str | None, Sequence[int], str], str]
"""Computes a key."""


SOME_KEY, SOME_SIGNATURE = len(KEYS), len(SIGNATURES)
"""Numbers of any other key, and of any other signature or none."""


def meaning(k: int, g: int) -> Meaning:
    """What the entry of this key and this signature means, to the last byte."""
    return TEXTS[k][0] if k < SOME_KEY else None, TOKENS, shake_128(b"%d %d" % (k, g)).digest(LENGTH)


MEANINGS = [meaning(k, g) for k in range(SOME_KEY + 1) for g in range(SOME_SIGNATURE + 1)]

Name = Literal["write", "damage", "delete", "upgrade", "read", "name"]
Harm = Literal["bit", "cut", "version", "signature", "key", "payload"]


@dataclass(frozen=True)
class Step:
    """A step. read: of the first file that is an entry of this key, from `file` on. name: by host `file`, of a text.

    damage: `harm` says what is changed; into what, `key`, `signature`, `version` say, and where, `at`.
    """

    name: Name
    file: int = 0
    key: int = 0
    signature: int = 0
    version: int = NEWEST
    harm: Harm = "bit"
    at: int = 0


def random_steps(of: random.Random, length: int = 40) -> list[Step]:
    """Steps on any files; most entries are ours, and of versions that can be read."""
    names: list[Name] = [*get_args(Name), "write", "damage", "read", "read"]
    return [
        Step(
            of.choice(names), of.randrange(FILES), of.choice((0, 0, 1, 1, 2, 3)), of.choice((0, 0, 0, 1)),
            of.choice((0, 1, 2, 2, 2, 3, 3, 3, 3, 4)), of.choice(get_args(Harm)), of.randrange(10**6),
        )
        for _ in range(length)
    ]  # fmt: skip


@dataclass
class Run:
    """Files that steps are run on, the machine beside them; raises `Broken` with the law. `hosts` compute keys."""

    subject: FormatSubject = REFERENCE
    hosts: Sequence[Host] = ()
    files: dict[int, bytes] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    got: dict[int, Meaning] = field(default_factory=dict)
    named: dict[tuple[int, int], int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hosts = self.hosts or (self.subject.key_of, self.subject.key_of)
        sizes = {"File": FILES, "Key": SOME_KEY + 1, "Signature": SOME_SIGNATURE + 1, "Meaning": len(MEANINGS) + 1}
        each = SOME_SIGNATURE + 1
        wanted = [list(range(k * each, (k + 1) * each)) for k in range(SOME_KEY + 1)]
        rigid = {"wanted": wanted, "mine": 0, "oldest": OLDEST, "newest": NEWEST, "key_of": list(range(len(TEXTS)))}
        self.beside = Beside("entry_format", sizes | {"Host": len(self.hosts), "Text": len(TEXTS)}, rigid)

    @property
    def state(self) -> State:
        """The machine's."""
        return self.beside.state

    def step(self, step: Step) -> None:
        """One step, and the whole state after each action of it."""
        getattr(self, f"_{step.name}")(step)

    def _write(self, step: Step) -> None:
        f, k, v = step.file, step.key, step.version
        g = step.signature if v > 1 else SOME_SIGNATURE
        self.files[f], self.names[f] = self._bytes(v, g, k), KEYS[k]
        self._take("write", f, k, v, g)

    def _damage(self, step: Step) -> None:
        """What is whole is changed, unless what somebody may write comes out."""
        f = step.file
        if f not in self.files or self.state.damaged[f]:
            return
        data = self._harmed(self.files[f], step)
        v, g, k, m = self._numbers(data)
        if data == self.files[f] or (v <= 4 and k < SOME_KEY and data == self._bytes(v, g, k)):
            return
        self.files[f] = data
        self._take("damage", f, v, g, k, m)
        self._count(step.harm)

    def _harmed(self, data: bytes, step: Step) -> bytes:
        if step.harm == "bit":
            at, bit = divmod(step.at % (8 * len(data)), 8)
            return data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
        if step.harm == "cut":
            return data[: step.at % len(data)]
        if step.harm == "version":
            return self.subject.with_version(data, step.version)
        if step.harm == "payload":
            return data[:-LENGTH] + meaning(step.key, step.signature)[2]
        value = KEYS[step.key] if step.harm == "key" else SIGNATURES[step.signature]
        return with_field(self.subject.framing, data, step.harm, value)

    def _delete(self, step: Step) -> None:
        self.files.pop(step.file, None)
        self._take("delete", step.file)

    def _upgrade(self, step: Step) -> None:
        """What is upgraded is other bytes; whatever is whole and older has to be."""
        f = step.file
        if f not in self.files:
            return
        data = self.subject.upgrade(self.files[f], self.names[f])
        if data is not None and data != self.files[f]:
            self.files[f] = data
            self._take("upgrade", f)
        elif compiled("entry_format").enabled["upgrade"](self.state, f):
            raise Broken("E3", f"file {f} is whole and older, and is not upgraded")
        else:
            self._count("left alone" if data else "not upgraded")

    def _read(self, step: Step) -> None:
        """An older entry is upgraded first."""
        k = step.key
        for f in ((step.file + n) % FILES for n in range(FILES)):
            found = self.subject.read(self.files[f], KEYS[k]) if f in self.files else None
            if found is not None:
                if self._numbers(self.files[f])[0] < NEWEST:
                    self._upgrade(Step("upgrade", f))
                self.got[k] = found
                self._take("read", f, k)
                return
        self.got.pop(k, None)
        self._take("miss", k)

    def _name(self, step: Step) -> None:
        h, x = step.file % len(self.hosts), step.key
        k = self.named[h, x] = _number(KEYS, self.hosts[h](*TEXTS[x]))
        self._take("name", h, x, k)

    # The machine.

    def _take(self, action: str, *arguments: int) -> None:
        """The machine's step; then what the files say, what was read last, and what the hosts call it, all of it."""
        before = self.state.copy()
        self.beside.step(action, *arguments)
        self._count(action)
        seen = self._seen()
        if vars(seen) != vars(self.state):
            broken = compiled("entry_format").judge(before, action, arguments, seen)
            differ = {name: value for name, value in vars(seen).items() if value != getattr(self.state, name)}
            wanted = {name: getattr(self.state, name) for name in differ}
            raise Broken(broken[0][0] if broken else "state", f"{action}{arguments}: {differ}, and not {wanted}")
        self.beside.agrees()

    def _seen(self) -> Any:
        """The machine's state with all that is observed in its place."""
        seen: Any = self.state.copy()
        seen.present = [f in self.files for f in range(FILES)]
        for f, data in self.files.items():
            seen.version[f], seen.signature[f], seen.key[f], seen.means[f] = self._numbers(data)
        seen.reads = [k in self.got for k in range(SOME_KEY + 1)]
        for k, found in self.got.items():
            seen.got[k] = _number(MEANINGS, found)
        seen.knows = [[(h, x) in self.named for x in range(len(TEXTS))] for h in range(len(self.hosts))]
        for (h, x), k in self.named.items():
            seen.named[h][x] = k
        return seen

    def _numbers(self, data: bytes) -> tuple[int, int, int, int]:
        """Version, signature, key and meaning, as a file says them; what has no number is the last one of its sort."""
        try:
            found = said(self.subject, data)
        except Exception:  # whatever it is, it is no entry
            found = Written(0, None, "", (None, 0, b""))
        numbers = (_number(SIGNATURES, found.signature), _number(KEYS, found.key), _number(MEANINGS, found.meaning))
        return found.version, *numbers

    def _bytes(self, v: int, g: int, k: int) -> bytes:
        signature = SIGNATURES[g] if g < SOME_SIGNATURE else None
        return self.subject.write(Written(v, signature, KEYS[k], meaning(k, g)))

    def _count(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1


def _number(among: Sequence[Any], value: object) -> int:
    return among.index(value) if value in among else len(among)


def run(steps: Sequence[Step], subject: FormatSubject = REFERENCE, hosts: Sequence[Host] = ()) -> Run:
    """Run steps with the machine beside it; raises `Broken` with the law."""
    of = Run(subject, hosts)
    for step in steps:
        of.step(step)
    return of


def recorded(seed: int) -> Beside:
    """The machine after a program of the reference."""
    return run(random_steps(random.Random(seed))).beside
