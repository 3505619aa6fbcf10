"""Entries of the reference and of the store on tensors in lockstep with the machine `entry_format` (E1-E6)."""

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, get_args

import kvspec_reference.entry_format as reference_format
import kvspec_torch.entry_format as torch_format
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvspec_diff.beside import Broken, compiled
from kvspec_diff.entries import Harm, Step, meaning, random_steps, recorded, run
from kvspec_diff.profiles import register
from kvspec_diff.subjects.formats import (
    FormatSubject,
    Meaning,
    ReferenceFormat,
    TensorFormat,
    Written,
    said,
    with_field,
)
from kvspec_diff.subjects.names import KEYS, SIGNATURES, TEXTS

register()

BOTH = pytest.mark.parametrize("subject", [ReferenceFormat(), TensorFormat()], ids=["reference", "tensors"])


@BOTH
@settings(settings.get_profile("pr"))
@given(of=st.randoms(use_true_random=False))
def test_programs(subject: FormatSubject, of: random.Random) -> None:
    run(random_steps(of), subject)


@BOTH
def test_bulk(subject: FormatSubject, record_property: Callable[[str, object], None]) -> None:
    seen: Counter[str] = Counter()
    for seed in range(500):
        seen.update(run(random_steps(random.Random(seed)), subject).done)
    tried = {*compiled("entry_format").actions, *get_args(Harm), "not upgraded", "left alone"}
    assert {what: seen[what] for what in tried if seen[what] < 50} == {}, "hardly tried"
    text = f"{seen['read']} read, {seen['upgrade']} upgraded, {seen['damage']} damaged, {seen['miss']} misses"
    record_property("say", f"entries, {type(subject).__name__}: 500 programs in lockstep, {text}")


@BOTH
def test_what_is_written_says_what_it_is(subject: FormatSubject) -> None:
    for version in range(5):
        for signature in SIGNATURES if version > 1 else [None]:
            entries = [Written(version, signature, key, meaning(k, 0)) for k, key in enumerate(KEYS)]
            assert [said(subject, subject.write(entry)) for entry in entries] == entries


def test_other_processes_call_it_the_same() -> None:
    """One that hashes strings in another way, in another folder and another time zone (E6)."""
    modules = ("kvspec_reference.entry_format", "kvspec_torch.entry_format")
    code = (
        "import sys, json\nfrom importlib import import_module\nof = [import_module(m).key_of for m in sys.argv[2:]]\n"
    )
    code += "print(json.dumps([[key(*text) for text in json.loads(sys.argv[1])] for key in of]))"
    environment = {**os.environ, "PYTHONHASHSEED": "77", "TZ": "Asia/Kathmandu", "LC_ALL": "C"}
    command = [sys.executable, "-c", code, json.dumps(TEXTS), *modules]
    told = subprocess.run(command, env=environment, cwd="/", capture_output=True, check=True, text=True).stdout
    texts = [json.dumps(text) for text in TEXTS]
    for names, subject in zip(json.loads(told), (ReferenceFormat(), TensorFormat()), strict=True):
        table = dict(zip(texts, names, strict=True))
        hosts = (subject.key_of, lambda *text, table=table: table[json.dumps(text)])
        of = run([Step("name", h, x) for x in range(len(TEXTS)) for h in (0, 1)], subject, hosts)
        assert of.done == {"name": 2 * len(TEXTS)}


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("subject", [ReferenceFormat(), TensorFormat()])
def test_a_header_is_not_believed(subject: FormatSubject, version: int) -> None:
    """Another layout's entry that says it is ours, and one that says it has another key, are damaged (E1, E5)."""
    foreign = subject.write(Written(version, SIGNATURES[1], KEYS[0], meaning(0, 1)))
    ours = subject.write(Written(version, SIGNATURES[0], KEYS[0], meaning(0, 0)))
    assert subject.read(ours, KEYS[0]) == meaning(0, 0)
    for data, name, value, key in (
        (foreign, "signature", SIGNATURES[0], KEYS[0]), (ours, "key", KEYS[2], KEYS[2]),
    ):  # fmt: skip
        changed = with_field(subject.framing, data, name, value)
        assert said(subject, changed) == said(subject, data)._replace(**{name: value})
        assert subject.read(changed, key) is None


def test_a_run_by_hand() -> None:
    steps = [
        Step("write", 0, 1, version=2), Step("write", 1, 1, 1), Step("write", 2, 2, version=4), Step("upgrade", 1),
        Step("read", 0, 2), Step("read", 1, 1), Step("upgrade", 0), Step("damage", 0, 3, harm="key"),
        Step("read", 0, 1), Step("read", 0, 3), Step("name", 1, 3),
    ]  # fmt: skip
    of = run(steps)
    assert (of.done["upgrade"], of.done["read"], of.done["miss"], of.named) == (1, 1, 3, {(1, 3): 3})
    assert recorded(7).steps == recorded(7).steps != recorded(8).steps


# Planted faults of the reference.


def anew(subject: FormatSubject, data: bytes, **changes: Any) -> bytes:
    """An entry written in another way."""
    return subject.write(said(subject, data)._replace(**changes))


class Unsummed(ReferenceFormat):
    """Compares no checksum when it reads (E5)."""

    def read(self, data: bytes, key: str) -> Meaning | None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reference_format, "_compare_checksum", lambda *given: None)
            return super().read(data, key)


class UnsummedUpgrade(ReferenceFormat):
    """Compares none when it upgrades: what is damaged has a fitting checksum then (E3)."""

    def upgrade(self, data: bytes, key: str) -> bytes | None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reference_format, "_compare_checksum", lambda *given: None)
            return super().upgrade(data, key)


class AnySignature(ReferenceFormat):
    """Takes the signature that it finds for its own (E1)."""

    def read(self, data: bytes, key: str) -> Meaning | None:
        return self.taken(reference_format.read_entry(data, reference_format.claimed_signature(data) or "", key))


class AnyKey(ReferenceFormat):
    """Does not look whose entry it is (E5)."""

    def read(self, data: bytes, key: str) -> Meaning | None:
        return next((found for each in KEYS if (found := ReferenceFormat.read(self, data, each))), None)


class Guessed(ReferenceFormat):
    """Takes any version for the newest (E2)."""

    def read(self, data: bytes, key: str) -> Meaning | None:
        return super().read(self.with_version(data, 3), key)


class Refusing(ReferenceFormat):
    """Does not read what has a parent (E1)."""

    def read(self, data: bytes, key: str) -> Meaning | None:
        return found if (found := super().read(data, key)) and found[0] is None else None


class Swapped(ReferenceFormat):
    """Gives what it reads the wrong way round (E5)."""

    def read(self, data: bytes, key: str) -> Meaning | None:
        return (found[0], found[1], found[2][::-1]) if (found := super().read(data, key)) else None


class Keyless(ReferenceFormat):
    """An upgrade forgets the key (E3)."""

    def upgrade(self, data: bytes, key: str) -> bytes | None:
        return anew(self, new, key="0" * 64) if (new := super().upgrade(data, key)) else None


class Parentless(ReferenceFormat):
    """An upgrade forgets the parent (E3)."""

    def upgrade(self, data: bytes, key: str) -> bytes | None:
        return (
            anew(self, new, meaning=(None, *said(self, new).meaning[1:]))
            if (new := super().upgrade(data, key))
            else None
        )


class Again(ReferenceFormat):
    """Upgrades what is of the newest version: there is more of it each time (E3)."""

    def upgrade(self, data: bytes, key: str) -> bytes | None:
        parent, tokens, payload = said(self, data).meaning if (new := super().upgrade(data, key)) else (None, 0, b"")
        return anew(self, data, meaning=(parent, 2 * tokens, payload)) if new == data else new


class Renumbered(ReferenceFormat):
    """An upgrade writes the new version's number over the old one, and leaves the rest as it is (E1)."""

    def upgrade(self, data: bytes, key: str) -> bytes | None:
        return self.with_version(data, 3) if super().upgrade(data, key) else None


class Lazy(ReferenceFormat):
    """Upgrades nothing (E3)."""

    def upgrade(self, data: bytes, key: str) -> bytes | None:
        return data


class HostOrder(ReferenceFormat):
    """A key has the tokens in the byte order of the host (E6)."""

    def key_of(self, parent: str | None, tokens: Sequence[int], signature: str) -> str:
        before = bytes.fromhex(signature) + (b"\1" + bytes.fromhex(parent) if parent else b"\0")
        return sha256(b"kvspec key\0" + before + b"".join(n.to_bytes(8, sys.byteorder) for n in tokens)).hexdigest()


class Orphaned(ReferenceFormat):
    """A key does not depend on the parent (E6)."""

    def key_of(self, parent: str | None, tokens: Sequence[int], signature: str) -> str:
        return super().key_of(None, tokens, signature)


class Hashed(ReferenceFormat):
    """A key is made of what this process hashes strings to (E6)."""

    def key_of(self, parent: str | None, tokens: Sequence[int], signature: str) -> str:
        return super().key_of(parent, [hash(signature) % 2**63, *tokens], signature)


# The same of tensors.


class AnyTensorChecksum(torch_format.Format):
    """Works out the checksum, and does not compare it (E5)."""

    def read(self, data: memoryview, key: str, index: int | None = None) -> Any:
        if torch_format.METADATA.match(data, 8):
            rest = [data[: torch_format.CHECKSUM.start], data[torch_format.CHECKSUM.stop :]]
            data[torch_format.CHECKSUM] = torch_format.checksum(rest)
        return super().read(data, key, index)


class AnyTensorSignature(torch_format.Format):
    """Takes another signature for its own (E1, and E3 where it upgrades)."""

    def judge(self, head: bytes, size: int) -> Any:
        return super().judge(head.replace(SIGNATURES[1].encode(), SIGNATURES[0].encode()), size)


class AnyTensorKey(torch_format.Format):
    """Does not look whose entry it is (E5)."""

    def read(self, data: memoryview, key: str, index: int | None = None) -> Any:
        return super().read(data, getattr(self.judge(bytes(data), len(data)), "key", key), index)


class GuessedTensor(torch_format.Format):
    """Takes version 4 for 3 (E2)."""

    def judge(self, head: bytes, size: int) -> Any:
        return super().judge(head.replace(b'"version":"4"', b'"version":"3"'), size)


class OlderTensor(torch_format.Format):
    """Takes every entry for an older one (E1)."""

    def judge(self, head: bytes, size: int) -> Any:
        found = super().judge(head, size)
        return found if isinstance(found, torch_format.Miss) else replace(found, older=True)


class KeylessTensor(torch_format.Format):
    """What it writes anew has the first key (E3)."""

    def write(self, key: str, parent: str | None, block: Any) -> memoryview:
        return super().write(KEYS[0], parent, block)


class ParentlessTensor(torch_format.Format):
    """What it writes anew has no parent (E3)."""

    def write(self, key: str, parent: str | None, block: Any) -> memoryview:
        return super().write(key, None, block)


FAULTS: list[tuple[type, set[str]]] = [
    (Unsummed, {"E5"}), (UnsummedUpgrade, {"E3"}), (AnySignature, {"E1", "E2"}), (AnyKey, {"E5"}),
    (Guessed, {"E2", "E5"}), (Refusing, {"E1"}), (Swapped, {"E5"}), (Keyless, {"E3"}), (Parentless, {"E3"}),
    (Again, {"E3"}), (Renumbered, {"E1"}), (Lazy, {"E3"}), (HostOrder, {"E6"}), (Orphaned, {"E6"}), (Hashed, {"E6"}),
    (AnyTensorChecksum, {"E5"}), (AnyTensorSignature, {"E1", "E3"}), (AnyTensorKey, {"E5"}), (GuessedTensor, {"E2"}),
    (OlderTensor, {"E1"}), (KeylessTensor, {"E3"}), (ParentlessTensor, {"E3"}),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "laws"), FAULTS)
def test_faults_are_found(fault: type, laws: set[str]) -> None:
    """By the laws that they break, and by no other."""
    subject = TensorFormat(fault) if issubclass(fault, torch_format.Format) else fault()
    found: Counter[str] = Counter()
    for seed in range(100):
        try:
            run(random_steps(random.Random(seed)), subject)
        except Broken as error:
            found[error.law] += 1
    assert set(found) == laws, found
