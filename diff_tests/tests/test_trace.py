"""Trace files: what is written is read back, and everything that can be wrong with one is a line that says what."""

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from kvspec.operations import Allocate, Configuration, Finish, Outcome, Start, Write
from kvspec_diff import trace as traces
from kvspec_diff.program import LARGEST_POOL, Program, ProgramError
from kvspec_diff.trace import Trace, TraceError

HEADER = '{"kvspec":1,"machine":"deferred_free","configuration":{"pages":4,"page_size":2}}'
START = '{"op":"start","row":"a","prompt":0}'


def sample() -> Trace:
    return Trace(
        traces.header(Configuration(4, 2), subject="reference", law="D1", note="kept"),
        (Start("a", 0), Allocate("a", 3), Write("a", 0, 3), Finish("a")),
        (
            Outcome("done"),
            Outcome("done", pages=(1, 2), slots=(2, 3, 4), blank=(3, 4), available=0, state={"rows": {"a": [1, 2]}}),
            None,
            Outcome("misuse", reason="why"),
        ),
    )


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    traces.write(path, sample())
    assert traces.read(path) == sample()
    assert [child.name for child in tmp_path.iterdir()] == ["t.jsonl"]
    assert "reason" not in path.read_text().splitlines()[1]


def test_reading_streams(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f"{HEADER}\n{START}\nnonsense\n")
    first, steps = traces.stream(path)
    assert first.configuration == Configuration(4, 2)
    assert next(steps) == (Start("a", 0), None)
    with pytest.raises(TraceError, match=r"t\.jsonl:3: not JSON"):
        next(steps)


@pytest.mark.parametrize(
    ("lines", "place", "text"),
    [
        ([], 1, "the file is empty"),
        ([HEADER, ""], 2, "an empty line; delete it"),
        ([HEADER, "{"], 2, "not JSON"),
        ([HEADER, "[" * 5000], 2, "not JSON"),
        ([HEADER, '{"op":"start","row":"a","prompt":' + "1" * 5000 + "}"], 2, ""),
        ([HEADER, "[1]"], 2, "not a JSON object but list"),
        ([HEADER, '{"row":"a"}'], 2, 'no "op"'),
        ([HEADER, '{"op":"alocate","row":"a","tokens":1}'], 2, "unknown operation 'alocate' (did you mean 'alloc"),
        ([HEADER, '{"op":["start"]}'], 2, "unknown operation ['start']"),
        ([HEADER, START, '{"op":"allocate","row":"a"}'], 3, "'allocate' lacks 'tokens'; its fields: row, tokens"),
        ([HEADER, '{"op":"start","rwo":"a","prompt":0}'], 2, "'start' has no field 'rwo' (did you mean 'row'?)"),
        ([HEADER, START, '{"op":"allocate","row":"a","tokens":"3"}'], 3, "'allocate': Expected int, got str at tokens"),
        ([HEADER, START, '{"op":"trim","row":"a","tokens":-1}'], 3, "'trim': Expected int >= 0 at tokens"),
        ([HEADER, '{"op":"start","row":"A b","prompt":0}'], 2, "'start': Expected str matching regex"),
        ([HEADER, START, '{"op":"finish","row":"b"}'], 3, "unknown row 'b'"),
        ([HEADER, START, '{"op":"replace","row":"a","entry":0,"source":"b"}'], 3, "unknown source 'b'"),
        ([HEADER, START, '{"op":"unpin","name":"x"}'], 3, "unknown pin 'x'"),
        ([HEADER, '{"op":"begin","outcome":3}'], 2, "the outcome of 'begin' is not a JSON object"),
        ([HEADER, '{"op":"begin","outcome":{"status":"fine"}}'], 2, "the outcome of 'begin': Invalid enum value"),
        ([HEADER, '{"op":"begin","outcome":{"pages":[]}}'], 2, "the outcome of 'begin' lacks 'status'"),
        (["{}"], 1, 'not a header: no "kvspec"'),
        (['{"kvspec":"' + "x" * 5000 + '"}'], 1, "format version 'xxxxxxxxxxxx...xxxxxxxxxxxxx' is not supported"),
        ([HEADER, '{"op":"' + "x" * 5000 + '"}'], 2, "unknown operation 'xxxxxxxxxxxx...xxxxxxxxxxxxx'"),
        ([HEADER.replace('"kvspec":1', '"kvspec":2')], 1, "format version 2 is not supported; this"),
        ([HEADER.replace('"kvspec":1', '"kvspec":"1"')], 1, "format version '1' is not supported"),
        ([HEADER.replace("deferred_free", "defered_free")], 1, "unknown machine 'defered_free' (did you mean"),
        ([HEADER.replace('"pages":4', '"pages":0')], 1, "the header: Expected int >= 1 at configuration.pages"),
        ([HEADER.replace('"pages":4', f'"pages":{LARGEST_POOL}')], 1, f"a pool of {2 * LARGEST_POOL} slots"),
        ([HEADER.replace("configuration", "config")], 1, "the header has no field 'config'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(tmp_path: Path, lines: list[str], place: int, text: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    with pytest.raises(TraceError) as caught:
        traces.read(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:{place}: {text}")
    assert "\n" not in message
    assert len(message) < 400


def test_a_cut_last_line_is_called_so(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(f"{HEADER}\n{START}\n" + '{"op":"allocate","row":"a","tok')
    with pytest.raises(TraceError, match=r":3: the file ends in the middle of this line"):
        traces.read(path)
    path.write_text(f"{HEADER}\n{START}")
    assert len(traces.read(path).operations) == 1, "a last line that is whole needs no line end"


def test_other_encodings_and_endless_lines(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(HEADER.encode() + b'\n{"op":"start","row":"\xff"}\n')
    with pytest.raises(TraceError, match=r":2: not UTF-8 at byte 22 of the line"):
        traces.read(path)
    with path.open("wb") as file:
        file.truncate(traces.LONGEST_LINE + 10)
    with pytest.raises(TraceError, match=r":1: a line of more than"):
        traces.read(path)


@pytest.mark.parametrize("name", ["absent.jsonl", "."])
def test_what_cannot_be_opened(tmp_path: Path, name: str) -> None:
    with pytest.raises(TraceError, match=r"cannot be read \((No such file|Is a directory)"):
        traces.read(tmp_path / name)


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot be written \(No such file"):
        traces.write(tmp_path / "absent" / "t.jsonl", sample())
    with pytest.raises(TraceError, match="is not a file"):
        traces.write("/dev/full", sample())


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_at_the_end_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(TraceError, match="No space left on device"):
        traces.write(path, sample())
    assert [child.read_text() for child in tmp_path.iterdir()] == ["old"]


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    """A real limit on the size of files, in a process of its own."""
    code = (
        "import sys\nfrom kvspec.operations import Configuration, Start\nfrom kvspec_diff import trace\n"
        "steps = tuple(Start('a', i) for i in range(2000))\n"
        "try:\n    trace.write(sys.argv[1], trace.Trace(trace.header(Configuration(1)), steps, (None,) * 2000))\n"
        "except trace.TraceError as error:\n    print(error)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, str(tmp_path / "t.jsonl")],
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )
    assert done.stderr == ""
    assert done.stdout == f"{tmp_path / 't.jsonl'}: cannot be written (File too large); nothing was left there\n"
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing(tmp_path: Path) -> None:
    def interrupted() -> None:
        with traces.Writer(tmp_path / "t.jsonl", traces.header(Configuration(1))) as writer:
            writer.add(Start("a", 0))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list(tmp_path.iterdir()) == []


def test_a_line_too_long_to_be_read_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "LONGEST_LINE", 150)
    with pytest.raises(TraceError, match=r"t\.jsonl:3: the line would have"):
        traces.write(tmp_path / "t.jsonl", sample())
    assert list(tmp_path.iterdir()) == []


def test_a_program_may_hold_misuse_but_no_unknown_operand() -> None:
    Program(Configuration(1), (Start("a", 0), Finish("a"), Allocate("a", -1))).validate()
    with pytest.raises(ProgramError) as caught:
        Program(Configuration(1), (Start("row_one", 0), Finish("row_on"))).validate()
    assert caught.value.index == 1
    assert str(caught.value) == "unknown row 'row_on': no earlier operation starts it (did you mean 'row_one'?)"
