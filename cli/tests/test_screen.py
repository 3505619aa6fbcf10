"""Output: plain lines, or bars and colours on a terminal, or nothing but JSON."""

import json
import os
import pty
import subprocess
import sys

import pytest
from kvspec_cli import screen
from kvspec_cli.screen import Screen

WIDE = "a path/that is/very long " * 10


def test_lines_are_not_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    Screen().line(WIDE)
    Screen().line("[bold]no markup[/bold] :smile:", "bold red")
    assert capsys.readouterr().out == f"{WIDE}\n[bold]no markup[/bold] :smile:\n"


def test_tables_have_no_trailing_blanks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("FORCE_COLOR", "1")
    Screen().table(("name", "value"), [("[a]", "one\n:smile:"), ("bb", "")])
    assert capsys.readouterr().out == "name  value\n[a]   one\n      :smile:\nbb\n"


@pytest.mark.parametrize("width", [12, 20, 30, 40])
def test_a_narrow_table_has_all_its_text(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(screen, "PLAIN_WIDTH", width)
    Screen().table(("step", "what"), [("1  acquire(r=0, k=0, p=7)", "xyz XYZ")])
    lines = capsys.readouterr().out.splitlines()
    shown = "".join(lines)
    assert all(len(line) <= width for line in lines)
    assert [letter for letter in "stepwhat1acquire(r=0,k=0,p=7)xyzXYZ" if letter not in shown] == []


def test_control_characters_are_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    made = Screen()
    made.line("\x1b[31mred\r\x9b")
    made.table(("name",), [("\x1b[2J",)])
    with made.progress("\x07working"):
        pass
    done = capsys.readouterr()
    assert done.out == "\\x1b[31mred\\r\\x9b\nname\n\\x1b[2J\n"
    assert done.err == "\\x07working\n"


def test_json_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (True, False):
        made = Screen(as_json=as_json)
        made.line("a line")
        made.table(("a",), [("b",)])
        made.document({"c": [1, 2]})
    both = capsys.readouterr().out
    document, end, _ = both.partition("}\n")
    assert json.loads(document + end) == {"c": [1, 2]}
    assert both.endswith("}\na line\na\nb\n")


def test_progress_is_told_now_and_then(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100, 2))
    monkeypatch.setattr(screen.time, "monotonic", lambda: next(clock))
    with Screen().progress("working") as tell:
        for done in range(1000, 1010):
            tell(done, 2000 if done < 1005 else None, "at it")
    done = capsys.readouterr()
    assert done.out == ""
    assert done.err.splitlines() == [
        "working",
        "working: 1,002 of 2,000 at it",
        "working: 1,005 at it",
        "working: 1,008 at it",
    ]


def on_a_terminal(*arguments: str) -> tuple[int, str]:
    """The command's status, and what it wrote to a terminal."""
    ours, theirs = pty.openpty()
    variables = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    variables.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "kvspec_cli", *arguments]
    child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=variables)
    os.close(theirs)
    said = b""
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # how Linux says that the other side is closed
            break
        if not chunk:
            break
        said += chunk
    os.close(ours)
    return child.wait(), said.decode()


def test_a_terminal_gets_colours_and_a_bar() -> None:
    status, said = on_a_terminal("explore", "pages", "--pages", "1")
    assert status == 0
    assert "\x1b[1mpages\x1b[0m" in said
    assert "exploring pages" in said
    assert "\x1b[2K" in said, "the bar is gone when the work is done"


def test_bad_input_on_a_terminal_is_one_line() -> None:
    status, said = on_a_terminal("explore", "pagez")
    assert status == 2
    assert said.startswith("kvspec: unknown subject 'pagez'")
    assert said.count("\n") == 1
