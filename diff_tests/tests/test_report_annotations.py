"""GitHub annotations: the runner's escaping, paths inside of the workspace, and only where a runner reads them."""

import io
from pathlib import Path

import pytest
from kvspec.deferred_free import DeferredFree
from kvspec_diff.report.annotations import Annotation, annotate, law_place, line_of, wanted, workspace


def test_a_line(tmp_path: Path) -> None:
    found = Annotation("a title", "a message", tmp_path / "folder" / "x.py", 7)
    assert line_of(found, tmp_path) == "::error file=folder/x.py,line=7,title=a title::a message"
    assert line_of(found._replace(line=None), tmp_path) == "::error file=folder/x.py,title=a title::a message"
    assert line_of(found._replace(file=Path("folder/x.py")), tmp_path) == line_of(found, tmp_path)


def test_what_the_runner_would_misread_is_escaped(tmp_path: Path) -> None:
    found = Annotation("50%: a, b\nc", "100% sure:\r\n::error::x, y", tmp_path / "a,b:c%.py", 1)
    assert line_of(found, tmp_path) == (
        "::error file=a%2Cb%3Ac%25.py,line=1,title=50%25%3A a%2C b%0Ac::100%25 sure:%0D%0A::error::x, y"
    )


@pytest.mark.parametrize("file", ["/elsewhere/x.py", "../x.py", "folder/../../x.py"])
def test_a_file_outside_of_the_workspace_is_left_out(file: str, tmp_path: Path) -> None:
    assert line_of(Annotation("t", "m", Path(file), 7), tmp_path) == "::error title=t::m"


def test_only_a_runner_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = [Annotation("t", "m"), Annotation("u", "n")]
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    annotate(found)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    annotate(found)
    assert capsys.readouterr() == ("", "::error title=t::m\n::error title=u::n\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "false")
    annotate(found, always=True, out=(out := io.StringIO()))
    assert out.getvalue() == "::error title=t::m\n::error title=u::n\n"
    assert [wanted({"GITHUB_ACTIONS": text}) for text in ("true", "false", "")] == [True, False, False]


def test_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert workspace({"GITHUB_WORKSPACE": "/checkout"}) == Path("/checkout")
    assert workspace({}) == workspace({"GITHUB_WORKSPACE": ""}) == tmp_path


def test_where_a_law_stands() -> None:
    file, line = law_place(DeferredFree, "frees_what_was_named")
    assert file.name == "deferred_free.py"
    around = file.read_text().splitlines()[line - 1 : line + 1]
    assert any("def frees_what_was_named" in text for text in around)
    assert law_place(DeferredFree, "reads_prefix")[0].name == "read_law.py"
    assert law_place(DeferredFree, "no such law") == (file, 1)
