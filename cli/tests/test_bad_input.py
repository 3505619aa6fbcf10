"""Bad input: one line that says what, where and what to do; exit status 2; nothing half written."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND_LINES = [
    (["store", "gc", "x", "--bud", "1"], r"Try `kvspec store gc --help`\.$"),
    (["store", "verify"], r"Try `kvspec store verify --help`\.$"),
    (["store", "gc", "x", "y", "--budget", "1"], r"Try `kvspec store gc --help`\.$"),
    (["prove", "--jsn"], r"Try `kvspec prove --help`\.$"),
    (["prov"], r"Did you mean .prove."),
    (["--jsn"], r"Unknown command .--jsn."),
    (["prove", "--jsn"], r"Unknown option: --jsn. Did you mean --json"),
    (
        ["prove", "pagez"],
        r"unknown subject 'pagez' \(did you mean 'pages'\?\); there are pages, read_law, deferred_free, quotients",
    ),
    (["prove", "--variant", "sglang-3406"], r"unknown variant 'sglang-3406' \(did you mean 'sglang-34067'\?\)"),
    (["prove", "pages", "--variant", "sglang-34067"], r"a machine by itself: leave out pages"),
    (["prove", "--seed", "x"], r"--seed: unable to convert .x. into int"),
    (["prove", "--seed", "-1"], r"--seed is -1; give a number from 0"),
    (["prove", "--smt", "FILE"], r"--smt .*FILE: is there already; name a new or an empty folder"),
    (["prove", "--smt", "NONE/NONE"], r"--smt NONE/NONE: there is no folder .*/NONE; make it first"),
    (["prove", "--smt", "NEW", "--proofs", "FILE"], r"--proofs FILE: is there already"),
    (
        ["prove", "--seed", "5", "--seeds", "9999999999"],
        r"--seeds is 9999999999; from --seed 5 on there are 2147483643",
    ),
    (["prove", "pages", "--ledger"], r"--ledger is of all laws: with it go --seed, --write and --json alone"),
    (["prove", "--ledger", "--smt", "NEW"], r"--ledger is of all laws"),
    (["prove", "--ledger", "--write", "."], r"--write \.: is a folder; name a file"),
    (["prove", "--ledger", "--write", "NONE/NONE"], r"--write NONE/NONE: there is no folder .*/NONE; make it first"),
    (["explore"], r"name a subject or a --variant"),
    (["explore", "pages", "--law", "D1"], r"unknown law of pages 'D1'.*; there are O1, O2"),
    (["explore", "pages", "--pages", "0"], r"--pages is 0; give a number from 1 to"),
    (["explore", "pages", "--prompts", "on"], r"unknown --prompts 'on' \(did you mean 'one'\?\)"),
    (["explore", "pages", "--max-states", "0"], r"--max-states is 0"),
    (["diff", "--subject", "torhc"], r"unknown subject 'torhc' \(did you mean 'torch'\?\); there are reference, torch"),
    (["diff", "--subject", "torch", "--engine", "example==1"], r"--subject or --engine, not both"),
    (["diff", "--seconds", "0"], r"--seconds is 0; give a number above 0"),
    (["diff", "--seconds", "nan"], r"--seconds is nan"),
    (["diff", "--traces", "-1"], r"--traces is -1"),
    (["diff", "--seed", "-1"], r"--seed is -1; give 0 or more"),
    (["diff", "--sort"], r"only an engine has options.*give --engine"),
    (["diff", "--plant", "x"], r"only an engine has options and planted faults"),
    (["diff", "--engine", "sglang"], r"'sglang' does not name an engine: write NAME==VERSION"),
    (["diff", "--engine", "sglang==0.5.17"], r"not installed: run `kvspec engine install sglang==0.5.17`"),
    (["diff", "--engine", "example==2"], r"there is no example==2: the example is example==1"),
    (["diff", "--engine", "sglang==9.9"], r"no recipe was tried for sglang 9.9: there are recipes for 0.5.17"),
    (["diff", "--engine", "sglnag==0.5.17"], r"unknown engine 'sglnag'"),
    (["diff", "--engine", "example==1", "--allocator", "paged"], r"no option 'allocator'; there are hostile"),
    (["diff", "--engine", "example==1", "--plant", "nope"], r"unknown plant 'nope': there are keep_views"),
    (["diff", "--save", "FILE/x"], r"cannot save to .*/x \(Not a directory\); name another folder with --save"),
    (["diff", "--save", "FILE"], r"cannot save to .*/FILE \(File exists\)"),
    (["replay"], r"TRACE requires an argument"),
    (["replay", "NONE"], r"NONE: cannot be read \(No such file or directory\)"),
    (["replay", "."], r"cannot be read \(Is a directory\)"),
    (["replay", "FILE", "--subject", "torhc"], r"FILE:1: the file is empty"),
    (["engine", "instal"], r"Did you mean .install."),
    (["engine", "install"], r"SPEC requires an argument"),
    (["engine", "install", "sglang==x"], r"'x' is no release: write numbers with dots"),
    (["engine", "install", "sglang==0.5.17", "vlmm==1"], r"unknown engine 'vlmm'"),
    (["engine", "remove", "sglang==0.5.17"], r"not installed; `kvspec engine list` shows what is"),
    (["check", "--seconds", "-3"], r"--seconds is -3"),
    (["report", "--seconds", "-3"], r"--seconds is -3; give a number above 0, or 0 for none"),
    (["report", "--out", "/proc/x"], r"--out /proc/x: cannot write in /proc \(.*\); name another place"),
    (["check", "--seed", "-1"], r"--seed is -1"),
]


@pytest.mark.parametrize(("arguments", "reason"), COMMAND_LINES, ids=lambda value: " ".join(value)[:60])
def test_command_lines(kvspec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments, reason: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("FILE").touch()
    done = kvspec(*arguments)
    assert (done.status, done.out) == (2, "")
    assert done.complaint.startswith("kvspec: ")
    assert sum(line.startswith("kvspec: ") for line in done.err.splitlines()) == 1
    assert re.search(reason, done.complaint), done.complaint
    assert [path.name for path in tmp_path.iterdir() if path.name != "state"] == ["FILE"]


HEADER = '{"kvspec":1,"machine":"deferred_free","configuration":{"pages":4,"page_size":1},"subject":"reference"}\n'
START = '{"op":"start","row":"a","prompt":0}\n'

TRACES = [
    ("", r"trace.jsonl:1: the file is empty"),
    ("{", r"trace.jsonl:1: the file ends in the middle of this line"),
    (START, r"trace.jsonl:1: not a header"),
    (HEADER.replace(":1,", ":2,", 1), r"trace.jsonl:1: format version 2 is not supported"),
    (HEADER + START + '{"op":"allocate","row":"a","tok', r"trace.jsonl:3: the file ends in the middle"),
    (HEADER + "[]\n", r"trace.jsonl:2: not a JSON object but list"),
    (HEADER + '{"op":"alocate","row":"a","tokens":1}\n', r"trace.jsonl:2: unknown operation 'alocate' \(did you mean"),
    (
        HEADER + START + '{"op":"trim","row":"b","tokens":1}\n',
        r"trace.jsonl:3: unknown row 'b': no earlier operation starts it",
    ),
    (HEADER + START + '{"op":"trim","row":"a","tokens":"1"}\n', r"trace.jsonl:3: 'trim': Expected int, got str"),
    (HEADER + START + '{"op":"checkpoint","row":"a"}\n', r"trace.jsonl:3: torch-host has no 'checkpoint'; it takes"),
]


@pytest.mark.parametrize(("text", "reason"), TRACES, ids=[reason[15:50] for _, reason in TRACES])
def test_traces(kvspec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, reason: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace.jsonl").write_text(text)
    done = kvspec("replay", "trace.jsonl", "--subject", "torch")
    assert (done.status, done.out) == (2, "")
    assert re.search(f"^kvspec: {reason}", done.complaint), done.complaint


def test_traces_without_outcomes(kvspec, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(HEADER + START)
    assert kvspec("replay", path).complaint.endswith(
        "no outcomes are recorded in it: give --subject or --engine to run it"
    )
    path.write_text(HEADER + START + START.replace("}", ',"outcome":{"status":"misuse"}}'))
    done = kvspec("replay", path)
    assert done.status == 2
    assert done.complaint.startswith(f"kvspec: {path}:2: no outcome is recorded here")


def test_pages_that_no_allocator_takes(kvspec, tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(HEADER.replace('"page_size":1', '"page_size":2000') + START)
    done = kvspec("replay", path, "--subject", "torch")
    assert done.status == 2
    assert done.complaint.startswith(f"kvspec: {path}:1: the header: ")


def test_a_full_disk_leaves_no_trace(kvspec, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    done = kvspec(
        "diff", "--engine", "example==1", "--plant", "keep_views", "--traces", 50, "--save", tmp_path / "found"
    )
    assert done.status == 2
    assert done.complaint.endswith("cannot be written (No space left on device); nothing was left there")
    assert list((tmp_path / "found").iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["explore", "pages"], ["explore", "pages", "--json"], ["explore", "--help"]])
def test_a_standard_output_that_takes_nothing(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "kvspec_cli", *arguments], stdout=full, stderr=subprocess.PIPE,
                              text=True, check=False)  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("No space left on device")
    assert "Traceback" not in done.stderr


def test_a_reader_that_has_seen_enough() -> None:
    child = subprocess.Popen([sys.executable, "-m", "kvspec_cli", "explore", "pages"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)  # fmt: skip
    assert child.stdout is not None
    child.stdout.close()
    assert child.stderr is not None
    said = child.stderr.read()
    child.stderr.close()
    assert child.wait() == 2
    assert said.splitlines()[0] == "exploring pages"
    assert "Traceback" not in said


@pytest.mark.parametrize("arguments", [["report", "--out"], ["report", "--itf"], ["prove", "--ledger", "--write"],
                                       ["prove", "--smt"], ["prove", "--proofs"]], ids=" ".join)  # fmt: skip
def test_a_device_is_not_replaced_by_a_file(kvspec, tmp_path: Path, arguments: list[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    done = kvspec(*arguments, pipe)
    assert (done.status, done.out) == (2, "")
    assert f"{arguments[-1]} {pipe}: is " in done.complaint
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir() if path.name != "state"] == ["pipe"]


def closing(streams: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command line with redirections of its streams, such as `>&-`."""
    words = f'exec "$0" -m kvspec_cli "$@" {streams}'
    return subprocess.run(["sh", "-c", words, sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_standard_streams_that_are_closed() -> None:
    done = closing(">&-", "explore", "pages")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "kvspec: standard output is closed; send it to a file, or to /dev/null\n"
    whole = closing("", "explore", "pages")
    for streams in ("<&-", "2>&-", "<&- 2>&-"):
        done = closing(streams, "explore", "pages")
        assert (done.returncode, done.stdout) == (0, whole.stdout), streams


def test_a_closed_stream_is_not_taken_for_a_file(tmp_path: Path) -> None:
    """The worker's words would land in the trace, if that were the next file to be opened."""
    found = ("diff", "--engine", "example==1", "--plant", "keep_views", "--traces", "20", "--save")
    for streams in ("2>&-", "<&- 2>&-"):
        folder = tmp_path / streams.replace(" ", "")
        assert closing(streams, *found, str(folder)).returncode == 1
        (path,) = folder.iterdir()
        assert closing("", "replay", str(path)).returncode == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [["explore", "pages"], ["explore", "pagez"]])
def test_a_standard_error_that_takes_nothing(arguments: list[str]) -> None:
    assert closing("2>/dev/full", *arguments).returncode == 2


def test_control_characters_are_shown(kvspec, tmp_path: Path) -> None:
    path = tmp_path / "\x1b[31mred.jsonl"
    path.write_text(
        HEADER.replace("reference", r"\u001b[31mred\u0007\u009b") + START.replace("}", ',"outcome":{"status":"done"}}')
    )
    done = kvspec("replay", path)
    assert (done.status, done.out.splitlines()[0]) == (0, r"\x1b[31mred\x07\x9b")
    path.write_text("")
    assert r"\x1b[31mred.jsonl:1: the file is empty" in kvspec("replay", path).complaint
