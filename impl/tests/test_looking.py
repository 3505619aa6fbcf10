"""What files tell without a layout: whole ones are known, any change is a miss; and which of them go first."""

import errno
import json
import os
import random
import time
from pathlib import Path

import pytest
import torch
from kvspec.members import Layout, Part, Plain, Recurrent
from kvspec_diff.older_entries import version_2
from kvspec_diff.torture.watch import Taken
from kvspec_torch.blocks import Block
from kvspec_torch.disk import layouts
from kvspec_torch.disk.collecting import collect, order
from kvspec_torch.disk.files import Folder
from kvspec_torch.disk.looking import File, Said, is_store, judge, look, names, useless, whole
from kvspec_torch.disk.older import in_version_2
from kvspec_torch.entry_format import CHECKSUM, Format, Miss, checksum, key_of
from safetensors.torch import save

LAYOUT = Layout("toy", 2, (Plain((Part("k", (2,), "float16"),)), Recurrent((Part("state", (3,), "float32"),))))
FORMAT = Format(LAYOUT)
NOTHING = lambda *_: None  # noqa: E731


def entry(parent: str | None, index: int, tokens: list[int]) -> tuple[str, bytes]:
    key = key_of(parent, tokens, LAYOUT.signature)
    parts = {"0.k": torch.full((2, 2), index, dtype=torch.float16), "1.state": torch.full((3,), float(index))}
    return key, bytes(FORMAT.write(key, parent, Block(index, parts, True)))


FIRST, DATA = entry(None, 0, [1, 2])
KEY, SECOND = entry(FIRST, 1, [3, 4])


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def put(folder: Folder, key: str, data: bytes) -> None:
    path = f"/proc/self/fd/{folder.descriptor}/{key}.safetensors"
    with open(path, "wb") as file:
        file.write(data)


def found(folder: Folder, data: bytes, known: bool = False) -> Said | Miss:
    put(folder, KEY, data)
    file = whole(folder, KEY, {LAYOUT.signature: FORMAT} if known else {})
    assert file is not None
    assert file.size == len(data) or isinstance(file.said, Miss)
    return file.said


def test_a_whole_entry_tells_what_it_is(folder: Folder) -> None:
    said = found(folder, SECOND)
    assert isinstance(said, Said)
    assert (said.version, said.signature, said.key, said.parent) == ("3", LAYOUT.signature, KEY, FIRST)
    assert (said.tokens, said.index, said.stateful) == (2, 1, True)
    (file,) = look(folder, names(folder).keys)
    assert (file.said, file.size) == (said, len(SECOND))
    assert whole(folder, FIRST, {}) is None, "it is not there"


def test_every_bit_and_every_length_is_noticed(folder: Folder) -> None:
    reasons = set()
    for bit in range(8 * len(SECOND)):
        data = bytearray(SECOND)
        data[bit // 8] ^= 1 << bit % 8
        said = found(folder, bytes(data))
        assert isinstance(said, Miss), bit
        reasons.add(said.reason)
    for data in (*(SECOND[:length] for length in range(len(SECOND))), SECOND + b"\0", SECOND + SECOND):
        assert isinstance(found(folder, data), Miss)
    assert reasons == {"foreign", "length", "header", "version", "key", "damaged"}


def test_what_only_the_layout_tells(folder: Folder) -> None:
    """Right in itself, but not of the layout that its signature names."""
    other = Format(Layout("toy", 2, (Plain((Part("k", (3,), "float16"),)),)))
    data = bytes(other.write(KEY, FIRST, Block(1, {"0.k": torch.zeros(2, 3, dtype=torch.float16)}, True)))
    forged = bytearray(data.replace(other.signature.encode(), LAYOUT.signature.encode()))
    view = memoryview(forged)
    view[CHECKSUM] = checksum([view[: CHECKSUM.start], view[CHECKSUM.stop :]])
    assert isinstance(found(folder, bytes(forged)), Said)
    assert isinstance(found(folder, bytes(forged), known=True), Miss)
    assert isinstance(found(folder, SECOND, known=True), Said)


@pytest.mark.parametrize(
    ("metadata", "reason", "no_use"),
    [
        ({}, "foreign", False),
        ({"format": "pt"}, "foreign", False),
        ({"format": "kvspec"}, "version", True),
        ({"format": "kvspec", "version": "1"}, "version", True),
        ({"format": "kvspec", "version": "4"}, "version", True),
        ({"format": "kvspec", "version": "2"}, "signature", True),
        ({"format": "kvspec", "version": "2", "signature": "0" * 64}, "header", False),
        ({"format": "kvspec", "version": "3", "signature": "0" * 64}, "header", False),
    ],
)
def test_what_is_no_entry_of_today(folder: Folder, metadata: dict[str, str], reason: str, no_use: bool) -> None:
    said = found(folder, save({"k": torch.zeros(2)}, metadata))
    assert isinstance(said, Miss)
    assert (said.reason, useless(said)) == (reason, no_use)


def test_names(folder: Folder, tmp_path: Path) -> None:
    assert not is_store(folder)
    (tmp_path / "notes").touch()
    assert not is_store(folder)
    (tmp_path / "lock").touch()
    assert is_store(folder)
    put(folder, KEY, SECOND)
    (tmp_path / f"{KEY}.temporary").touch()
    (tmp_path / f"{LAYOUT.signature}.layout").touch()
    (tmp_path / f"{KEY[:-1]}.safetensors").touch()
    there = names(folder)
    assert (there.keys, there.temporary, there.others) == ([KEY], [f"{KEY}.temporary"], 2)
    (tmp_path / f"{FIRST}.safetensors").symlink_to("notes")
    (tmp_path / f"{FIRST}.temporary").mkdir()
    os.mkfifo(tmp_path / f"{FIRST}.layout")
    (tmp_path / ".Hidden \n").touch()
    assert names(folder).others == 6


def test_a_long_header_is_read(folder: Folder) -> None:
    parts = tuple(Part(f"part_{number}", (1,), "int8") for number in range(1500))
    form = Format(Layout("long", 1, (Plain(parts),)))
    key = key_of(None, [1], form.signature)
    block = Block(0, {f"0.{part.name}": torch.zeros(1, 1, dtype=torch.int8) for part in parts}, True)
    data = bytes(form.write(key, None, block))
    assert int.from_bytes(data[:8], "little") > 2**16
    put(folder, key, data)
    (file,) = look(folder, [key])
    assert isinstance(file.said, Said)
    assert file.said == judge(data, len(data), key)


def test_a_file_is_read_no_further_than_it_makes_sense(folder: Folder, tmp_path: Path) -> None:
    """Whatever a file says of its length, and however long it is: neither memory nor time is spent on it."""
    path = tmp_path / f"{KEY}.safetensors"
    starts = {b"": "foreign", SECOND[:8]: "foreign", b"\0\0\0\0\x80\0\0\0{": "length", SECOND: "length"}
    for start, reason in starts.items():
        path.write_bytes(start)
        os.truncate(path, 2**40)
        file = whole(folder, KEY, {})
        assert file is not None
        assert isinstance(file.said, Miss)
        assert (file.said.reason, file.size) == (reason, 2**40)
    metadata = {"checksum": "0" * 64, "format": "kvspec", "key": KEY, "parent": "", "signature": "0" * 64,
                "tokens": "1", "version": "2"}  # fmt: skip
    tensor = {"data_offsets": [0, 1], "dtype": "U8", "shape": [2**63 - 1] * 300_000}
    text = json.dumps({"__metadata__": metadata, "layer_0_k": tensor}, separators=(",", ":")).encode()
    start_of_all = time.monotonic()
    said = judge(len(text).to_bytes(8, "little") + text, len(text) + 9, KEY)
    assert time.monotonic() - start_of_all < 10, "minutes, if they are multiplied"
    assert isinstance(said, Miss)
    assert (said.reason, len(said.text) < 500) == ("header", True)


def test_a_huge_entry_is_read_in_pieces(folder: Folder, tmp_path: Path) -> None:
    """A header may fit a file that is larger than the memory: only a piece of it is there at once."""
    form = Format(Layout("huge", 2**20, (Plain((Part("k", (64,), "uint8"),)),)))
    key = key_of(None, list(range(2**20)), form.signature)
    frame = form.frame(0, True)
    head = form.head(frame, b"0" * 32, key, None, 0, True)
    path = tmp_path / f"{key}.safetensors"
    path.write_bytes(head)
    os.truncate(path, len(head) + frame.payload)
    with Taken() as taken:
        taken.begin()
        file = whole(folder, key, {form.signature: form})
        most = taken.most()
    assert file is not None
    assert isinstance(file.said, Miss)
    assert (file.said.reason, file.size) == ("damaged", len(head) + 2**26)
    assert most < 2**26 // 2
    view = memoryview(bytearray(head) + bytes(frame.payload))
    right = checksum([view[: CHECKSUM.start], view[CHECKSUM.stop :]])
    assert right.decode() in file.said.text
    with open(path, "r+b") as opened:
        opened.seek(CHECKSUM.start)
        opened.write(right)
    assert isinstance(whole(folder, key, {}).said, Said)  # type: ignore[union-attr]


def test_a_lack_of_memory_is_a_miss(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*given: object) -> None:
        raise MemoryError

    put(folder, KEY, SECOND)
    for name in ("pieces", "head"):
        monkeypatch.setattr(folder, name, lacks)
        said = whole(folder, KEY, {}).said  # type: ignore[union-attr]
        assert isinstance(said, Miss)
        assert said.reason == "unreadable"


def test_a_text_about_a_file_is_short(folder: Folder) -> None:
    """However long what it says is: it is shown to people."""
    data = version_2(LAYOUT, KEY, FIRST, FORMAT.read(memoryview(bytearray(SECOND)), KEY).block)  # type: ignore[union-attr]
    length = 8 + int.from_bytes(data[:8], "little")
    header, long = json.loads(data[8:length]), "9" * 3000
    metadata, tensor = header["__metadata__"], header["layer_0_k"]
    told = [{**header, "__metadata__": metadata | {name: long}} for name in metadata]
    told += [{**header, "layer_0_k": tensor | {name: value}} for name in tensor for value in (long, [int(long)] * 2)]
    told += [{**header, f"layer{'_1' * 3000}_k": {}}, {**header, f"{long}.k": tensor}, {long: {}, **header}]
    texts = [json.dumps(each, sort_keys=True, separators=(",", ":")).encode() for each in told]
    texts += [text.replace(b"0", b"0." + long.encode(), 1) for text in texts]
    texts.append(in_version_2(header)[8:].replace(b'"shape":[', b'"shape":[1.' + long.encode() + b","))
    long_name = save({f"{long}.k": torch.zeros(2)}, metadata)[8:]
    for text in (*texts, long_name):
        bytes_ = len(text).to_bytes(8, "little") + text
        wide = memoryview(bytearray(bytes_))
        form = Format(LAYOUT)
        form.longest = 2**24
        for said in (judge(bytes_, len(bytes_), KEY), form.judge(bytes_, len(bytes_)), form.read(wide, KEY, 1)):
            assert not isinstance(said, Miss) or len(said.text) < 500


def test_an_older_entry_is_written_in_one_way_too(folder: Folder) -> None:
    data = version_2(LAYOUT, KEY, FIRST, FORMAT.read(memoryview(bytearray(SECOND)), KEY).block)  # type: ignore[union-attr]
    assert isinstance(found(folder, data), Said)
    length = 8 + int.from_bytes(data[:8], "little")
    text = json.dumps(dict(reversed(json.loads(data[8:length]).items())), separators=(",", ":")).encode()
    other = data[:8] + text.ljust(length - 8) + data[length:]
    assert len(other) == len(data)
    assert isinstance(found(folder, other), Miss)


def test_what_cannot_be_read_still_has_its_size(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*given: object) -> tuple[bytes, int]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    put(folder, KEY, SECOND)
    monkeypatch.setattr(folder, "head", unreadable)
    (file,) = look(folder, [KEY])
    assert isinstance(file.said, Miss)
    assert (file.said.reason, file.size) == ("unreadable", len(SECOND))
    assert whole(folder, KEY, {}) == file


def test_layouts(folder: Folder, tmp_path: Path) -> None:
    """Those that are whole are known; a damaged one is written again."""
    layouts.keep(folder, LAYOUT)
    path = tmp_path / f"{LAYOUT.signature}.layout"
    text = path.read_bytes()
    deep = b'{"model":"","block_size":1,"members":[' + b'{"type":"group","members":[' * 10_000
    changed = [text.replace(b"float16", other) for other in (b"float32", b"float17")]
    for other in (*changed, text[:-1], b"", deep, b"\xff"):
        path.write_bytes(other)
        assert layouts.known(folder) == {}
        layouts.keep(folder, LAYOUT)
        assert path.read_bytes() == text
    (tmp_path / f"{'0' * 64}.layout").write_bytes(text)
    (tmp_path / f"{'1' * 64}.layout").touch()
    os.truncate(tmp_path / f"{'1' * 64}.layout", 2**40)
    assert layouts.known(folder) == {LAYOUT.signature: LAYOUT}
    assert sorted(folder.names()) == sorted(each.name for each in tmp_path.iterdir())


def test_a_layout_that_cannot_be_read(folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*given: object) -> memoryview:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    layouts.keep(folder, LAYOUT)
    for name in ("read", "size"):
        with monkeypatch.context() as patched:
            patched.setattr(folder, name, unreadable)
            assert layouts.known(folder) == {}
            layouts.keep(folder, LAYOUT)
        assert layouts.known(folder) == {LAYOUT.signature: LAYOUT}
    path = tmp_path / f"{LAYOUT.signature}.layout"
    path.unlink()
    path.mkdir()
    layouts.keep(folder, LAYOUT)
    assert layouts.known(folder) == {}
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


# What goes first.


def file(key: str, parent: str | None, written: float, size: int = 1) -> File:
    return File(key, size, written, Said("3", "s", key, parent, 2, 0, ""))


def went(files: list[File]) -> list[tuple[str, str]]:
    return [(each.key, why) for each, why in order({each.key: each for each in files})]


def test_the_order() -> None:
    files = [
        file("a", None, 1), file("b", "a", 9), file("c", "a", 3), file("d", None, 2),
        file("y", "x", 0), file("z", "y", 50), File("m", 5, 99, Miss("version", "")),
    ]  # fmt: skip
    assert went(files) == [
        ("m", "of no use"), ("z", "without its parent"), ("y", "without its parent"),
        ("d", "oldest"), ("c", "oldest"), ("b", "oldest"), ("a", "oldest"),
    ]  # fmt: skip


def test_a_circle_comes_to_an_end() -> None:
    assert {key for key, _ in went([file("a", "b", 1), file("b", "a", 2), file("c", "b", 3)])} == {"a", "b", "c"}


def test_whenever_it_stops_there_are_prefixes_from_their_start() -> None:
    of = random.Random(0)
    for _ in range(50):
        keys = [f"{number:03}" for number in range(30)]
        files = [file(key, of.choice([None, *keys[:number]]), of.random()) for number, key in enumerate(keys)]
        left = {each.key: each for each in files}
        for key, _ in went(files):
            del left[key]
            for each in left.values():
                assert isinstance(each.said, Said)
                assert each.said.parent is None or each.said.parent in left
        assert left == {}


def test_collecting_stops_when_it_fits(folder: Folder, tmp_path: Path) -> None:
    put(folder, FIRST, DATA)
    put(folder, KEY, SECOND)
    (tmp_path / f"{KEY}.temporary").write_bytes(b"part")
    (tmp_path / "notes").write_bytes(b"x" * 10_000)
    os.utime(tmp_path / f"{FIRST}.safetensors", (1, 1))
    done = collect(folder, len(DATA) + len(SECOND), NOTHING)
    assert (dict(done.gone), done.bytes, done.entries_left) == ({"temporary": 1}, 4, 2)
    done = collect(folder, len(DATA), NOTHING)
    assert (dict(done.gone), done.entries_left, done.bytes_left) == ({"oldest": 1}, 1, len(DATA))
    assert sorted(folder.names()) == sorted([f"{FIRST}.safetensors", "notes"])
