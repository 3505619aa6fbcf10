"""The store, by hand: on a recorded folder, and on a real one (T1-T7)."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kvspec.members import Layout
from kvspec.operations import Misuse, Refused
from kvspec_reference.entry_format import Entry, Miss, key_of, write_entry
from kvspec_reference.files import Folder, Killed, Recording
from kvspec_reference.store import Report, Store

SIGNATURE = Layout("toy", 4, ()).signature
A, B, C, D = sorted(key_of(None, [n], SIGNATURE) for n in range(4))
SIZE = len(write_entry(Entry(A, None, 1, b"1234"), SIGNATURE))


def opened(files: Any = None, **more: Any) -> Store:
    options: dict[str, Any] = {"budget": 3 * SIZE, "memory": 2 * SIZE, "slots": 2, **more}
    return Store(files or Recording(), SIGNATURE, **options)


def put(of: Store, key: str, payload: bytes = b"1234") -> Report:
    of.save(key, payload, tokens=1)
    return of.write_next()


def read(of: Store, key: str) -> bytes | str:
    """The payload, or the reason of the miss."""
    found = of.read(key)
    return found.payload if isinstance(found, Entry) else found.reason


def actions(of: Store) -> list[tuple[str, str]]:
    return [(action, key) for _, action, key in of.take_actions()]


def test_a_run_by_hand() -> None:
    files = Recording()
    of = opened(files)
    of.save(B, b"1234", parent=A, tokens=7)
    entry = Entry(B, A, 7, b"1234")
    assert (of.read(B), of.used, files.names()) == (entry, 0, []), "what is queued can be read"
    assert of.write_next() == Report("acknowledged", B, acknowledged=(B,))
    assert (of.read(B), of.used, files.names()) == (entry, of.used, [f"{B}.entry"])
    assert [operation for operation, *_ in files.log] == [
        "sync_folder", "create", "write", "sync", "rename", "sync_folder"
    ]  # fmt: skip
    wanted = ["save", "begin", "sync", "rename", "settle", "acknowledge"]
    assert actions(of) == [(action, B) for action in wanted]
    assert of.write_next() == Report("idle")
    again = opened(files)
    assert (again.read(B), again.used, again.acknowledged) == (entry, of.used, {B})
    assert actions(again) == [("recover", B), ("acknowledge", B)]


def test_on_a_real_folder(tmp_path: Path) -> None:
    files = Folder(tmp_path)
    of = opened(files, piece=100)
    for name in ("somebody.txt", f"{D}.other", D):
        (tmp_path / name).write_bytes(b"else's")
    for key in (A, B, C):
        assert put(of, key).status == "acknowledged"
    assert put(of, D) == Report("acknowledged", D, evicted=(A,), acknowledged=(D,))
    (tmp_path / f"{A}.temporary").write_bytes(b"half")
    files.close()
    files = Folder(tmp_path)
    of = opened(files)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"{B}.entry", f"{C}.entry", f"{D}.entry", "somebody.txt", f"{D}.other", D]
    )
    assert (read(of, A), read(of, B), read(of, C), read(of, D)) == ("absent", b"1234", b"1234", b"1234")
    (tmp_path / f"{B}.entry").unlink()
    assert read(of, B) == "unreadable"
    of.evict(B)
    assert (read(of, B), of.used) == ("absent", 2 * SIZE)
    files.close()


def test_the_last_of_two_writes_wins() -> None:
    of = opened()
    of.save(A, b"1111")
    of.save(A, b"2222")
    assert (len(of.queue), read(of, A)) == (1, b"2222")
    assert of.write_next().status == "acknowledged"
    of.save(A, b"3333")
    assert read(of, A) == b"3333", "although an older one has its file"
    of.write_next()
    assert (read(of, A), of.used) == (b"3333", SIZE)
    assert read(opened(of.files), A) == b"3333"


def test_the_least_recently_used_goes_first() -> None:
    of = opened(memory=0)
    for key in (A, B, C):
        put(of, key)
    assert read(of, A) == b"1234"
    assert isinstance(of.peek(B), Entry), "that is no use"
    assert put(of, D).evicted == (B,)
    assert put(of, B).evicted == (C,)
    assert set(of.index) == {A, D, B}
    of = opened(memory=0)
    for key in (A, B, A, C):
        put(of, key)
    assert put(of, D).evicted == (B,), "a write is a use"
    assert (of.used, of.files.size(f"{A}.entry")) == (3 * SIZE, SIZE)


def test_what_is_replaced_is_the_last_to_go() -> None:
    of = opened(budget=2 * SIZE)
    put(of, A)
    put(of, B)
    assert put(of, A, b"5678").evicted == (B,)
    of = opened(budget=SIZE)
    put(of, A)
    assert put(of, A, b"5678").evicted == (A,)
    assert read(of, A) == b"5678"


def test_a_call_evicts_only_so_many() -> None:
    of = opened(evictions=1)
    for key in (A, B, C):
        put(of, key)
    report = put(of, D, b"x" * SIZE)
    assert report == Report("waiting", D, f"{SIZE - 2} bytes are lacking, and one call evicts at most 1", (A,))
    assert read(of, D) == b"x" * SIZE, "it is still queued"
    report = of.write_next()
    assert (report.status, report.evicted, set(of.index)) == ("acknowledged", (B,), {C, D})


def test_memory_has_a_budget() -> None:
    of = opened(memory=SIZE)
    of.save(A, b"1234")
    of.save(B, b"1234")
    assert list(of.hot) == [B]
    assert actions(of) == [("save", A), ("save", B), ("cool", A)]
    of.write_next()
    of.write_next()
    assert (read(of, A), read(of, B)) == (b"1234", b"1234")
    of.evict(B)
    assert list(of.hot) == []
    of = opened(memory=2 * SIZE)
    for key in (A, B, A, C):
        of.save(key, b"1234")
        of.write_next()
    assert list(of.hot) == [A, C], "a save is a use"


OPERATIONS = ("names", "create", "write", "write", "sync", "rename", "sync_folder")


@pytest.mark.parametrize("at", range(1, 6))
@pytest.mark.parametrize("there", [False, True])
def test_a_write_that_fails_leaves_what_was_there(at: int, there: bool) -> None:
    files = Recording()
    of = opened(files, piece=SIZE - 10)
    if there:
        put(of, A)
    of.save(A, b"5678")
    before = of.used
    files.plan(frozenset({at - 1}))
    report = of.write_next()
    assert (report.status, report.key, report.acknowledged) == ("failed", A, ())
    assert f"{OPERATIONS[at]} fails on purpose" in report.reason
    assert (read(of, A), of.used, len(of.queue)) == (b"1234" if there else "absent", before, 0)
    assert files.names() == [f"{A}.entry"] * there
    assert put(of, A, b"5678").status == "acknowledged"


def test_a_temporary_file_that_cannot_be_deleted_still_counts() -> None:
    files = Recording()
    of = opened(files)
    of.save(A, b"1234")
    files.plan(frozenset({1, 3, 4}))
    report = of.write_next()
    assert report.status == "failed"
    assert "write fails on purpose" in report.reason
    assert "its temporary file cannot be deleted" in report.reason
    assert (of.used, read(of, A)) == (SIZE, b"1234")
    of.save(B, b"1234")
    assert of.write_next().reason.startswith("its temporary file cannot be deleted")
    assert of.write_next() == Report("acknowledged", B, acknowledged=(B,))
    assert (of.used, read(of, A)) == (SIZE, "absent")


def test_a_folder_that_cannot_be_synced() -> None:
    files = Recording()
    of = opened(files)
    of.save(A, b"1234")
    files.plan(frozenset({4, 5}))
    assert of.write_next().status == "unsettled"
    assert (read(of, A), of.acknowledged) == (b"1234", set())
    assert of.write_next().status == "unsettled"
    assert of.write_next() == Report("idle", acknowledged=(A,))
    assert of.acknowledged == {A}
    of.evict(A)
    of.save(B, b"1234")
    files.plan(frozenset({0}))
    report = of.write_next()
    assert (report.status, list(of.queue)) == ("waiting", [B]), "its room is not certain to be free"
    assert of.write_next().status == "acknowledged"


def test_what_cannot_be_evicted() -> None:
    files = Recording()
    of = opened(files, budget=SIZE)
    put(of, A)
    of.save(B, b"1234")
    files.plan(frozenset({0, 1}))
    with pytest.raises(OSError, match="on purpose"):
        of.evict(A)
    report = of.write_next()
    assert (report.status, report.evicted, read(of, A), read(of, B)) == ("waiting", (), b"1234", b"1234")
    assert f"{SIZE} bytes are lacking, and entry {A} cannot be deleted" in report.reason


def test_a_damaged_file_is_a_miss_and_can_be_evicted_or_replaced() -> None:
    files = Recording()
    of = opened(files, memory=0)
    put(of, A)
    files.folder[f"{A}.entry"].firm = files.read(f"{A}.entry")[:-1] + b"!"
    assert (read(of, A), of.used, list(of.index)) == ("damaged", SIZE, [A])
    put(of, A, b"5678")
    assert read(of, A) == b"5678"
    files.folder[f"{A}.entry"].firm = b""
    assert read(of, A) == "short"
    of.evict(A)
    assert (read(of, A), of.used) == ("absent", 0)


def test_another_signature_finds_nothing_and_harms_nothing() -> None:
    files = Recording()
    put(opened(files), A)
    other = Store(files, Layout("other", 4, ()).signature, budget=3 * SIZE)
    found = other.read(A)
    assert isinstance(found, Miss)
    assert found.reason == "signature"
    assert read(opened(files), A) == b"1234"


def test_entries_of_others_count_and_are_the_first_to_go() -> None:
    """Of another signature, of a version without one, and what is no entry at all (E1, T2)."""
    foreign = write_entry(Entry(C, None, 1, b"1234"), Layout("other", 4, ()).signature)
    first = write_entry(Entry(D, None, 1, b"1234"), SIGNATURE)[:8] + b"\0\0\0\1" + b"x" * (SIZE - 12)
    files = Recording.of({f"{C}.entry": foreign, f"{D}.entry": first})
    of = opened(files, budget=4 * SIZE)
    put(of, A)
    put(of, B)
    of = opened(files, budget=4 * SIZE)
    assert (set(of.index), of.used, of.acknowledged) == ({A, B, C, D}, 4 * SIZE, {A, B})
    assert (read(of, A), read(of, B), read(of, C), read(of, D)) == (b"1234", b"1234", "signature", "version")
    names = sorted(key_of(None, [n], SIGNATURE) for n in range(4, 7))
    evicted = [put(of, name).evicted for name in names]
    assert evicted == [(D,), (C,), (A,)]
    files = Recording.of({f"{C}.entry": foreign, f"{D}.entry": first, f"{A}.entry": files.read(f"{B}.entry")})
    of = opened(files, budget=SIZE)
    assert (list(of.index), files.names()) == ([A], [f"{A}.entry"]), "also where opening makes room"


def test_an_older_entry_is_read_and_written_anew() -> None:
    """Tried again after a failure and after a restart; done once (E3)."""
    entry = Entry(A, None, 1, b"1234")
    old, new = write_entry(entry, SIGNATURE, 2), write_entry(entry, SIGNATURE)
    files = Recording.of({f"{A}.entry": old})
    of = opened(files, budget=4 * SIZE)
    assert (of.read(A), of.upgrade(A), len(of.queue)) == (entry, entry, 1)
    files.plan(frozenset({1}))
    assert (of.write_next().status, of.read(A), files.read(f"{A}.entry")) == ("failed", entry, old)
    of = opened(files, budget=4 * SIZE)
    assert of.upgrade(A) == entry
    assert (of.write_next().status, of.read(A), files.read(f"{A}.entry")) == ("acknowledged", entry, new)
    assert (of.upgrade(A), len(of.queue)) == (entry, 0)
    assert isinstance(of.upgrade(B), Miss)
    files.folder[f"{A}.entry"].firm = old[:-1]
    assert isinstance(opened(files, memory=0).upgrade(A), Miss)


def test_opening_with_a_smaller_budget() -> None:
    files = Recording()
    of = opened(files)
    for key in (C, B, A):
        put(of, key)
    of = opened(files, budget=2 * SIZE)
    assert (set(of.index), of.used) == ({B, C}, 2 * SIZE)
    assert files.names() == [f"{B}.entry", f"{C}.entry"]
    assert actions(of) == [("reclaim", A), *((action, key) for key in (B, C) for action in ("recover", "acknowledge"))]


def test_opening_after_the_process_died() -> None:
    files = Recording()
    of = opened(files)
    of.save(A, b"1234")
    files.plan(killing=3)
    with pytest.raises(Killed):
        of.write_next()
    assert files.names() == [f"{A}.temporary"]
    files.plan(frozenset({1}))
    with pytest.raises(OSError, match="unlink fails on purpose"):
        opened(files)
    of = opened(files)
    assert (files.names(), read(of, A), of.used) == ([], "absent", 0)


def test_the_caller_keeps_its_buffers() -> None:
    of = opened()
    with pytest.raises(Misuse, match="a payload is bytes, not bytearray"):
        of.save(A, bytearray(b"1234"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "kind", "reason"),
    [
        (lambda of: of.save("x", b""), Misuse, "key: 'x' is no SHA-256 in lower case"),
        (lambda of: of.save(A, b"", parent="../x"), Misuse, "parent: '../x' is no SHA-256"),
        (lambda of: of.save(A, b"", tokens=-1), Misuse, "-1 tokens cannot be stored"),
        (lambda of: of.save(A, b"", tokens=1.5), Misuse, "1.5 tokens cannot be stored"),
        (lambda of: of.save(A, "text"), Misuse, "a payload is bytes, not str"),
        (lambda of: of.save(A, b"x" * 1000), Refused, f"has {SIZE + 999} bytes, the budget is {3 * SIZE}"),
        (lambda of: of.save(D, b"1234"), Refused, f"entry {D}: the queue is full, it has 2 slots"),
        (lambda of: of.read("../etc/passwd"), Misuse, "key: '../etc/passwd' is no SHA-256"),
        (lambda of: of.read(None), Misuse, "key: None is no SHA-256"),
        (lambda of: of.evict("x"), Misuse, "key: 'x' is no SHA-256"),
        (lambda of: of.evict(B), Misuse, f"entry {B}: has no file"),
    ],
)
def test_bad_calls_are_refused_and_change_nothing(call: Callable[[Any], object], kind: Any, reason: str) -> None:
    files = Recording()
    of = opened(files)
    put(of, A)
    of.save(B, b"1234")
    of.save(C, b"1234")
    of.take_actions()
    before, log = repr(vars(of)), list(files.log)
    with pytest.raises(kind) as raised:
        call(of)
    assert reason in str(raised.value)
    full = "queue is full" in reason
    assert actions(of) == [("refuse", D)] * full
    assert (repr(vars(of)), files.log) == (before, log)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"budget": 0}, "budget: 0, at least 1 is wanted"),
        ({"budget": 1.5}, "budget: 1.5, at least 1 is wanted"),
        ({"slots": 0}, "slots: 0, at least 1 is wanted"),
        ({"memory": -1}, "memory: -1, at least 0 is wanted"),
        ({"evictions": 0}, "evictions: 0, at least 1 is wanted"),
        ({"piece": True}, "piece: True, at least 1 is wanted"),
    ],
)
def test_bad_options(options: dict[str, Any], reason: str) -> None:
    files = Recording.of({f"{A}.temporary": b""})
    with pytest.raises(Misuse, match=reason):
        opened(files, **options)
    with pytest.raises(Misuse, match="signature: 'toy' is no SHA-256"):
        Store(files, "toy", budget=SIZE)
    assert files.log == []
