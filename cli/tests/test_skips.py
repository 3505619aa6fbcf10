"""No test is skipped, or expected to fail, but for a reason that somebody wrote down in `allowed_skips.txt`."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ALLOWED = Path(__file__).with_name("allowed_skips.txt")
SKIPS = ("skip", "skipif", "importorskip", "xfail", "skipTest", "SkipTest")


def reasons(source: str) -> Iterator[str]:
    """The reason of each skip, as it is written: a text in quotes, or an expression."""
    nodes = list(ast.walk(ast.parse(source)))
    calls = {id(node.func): node for node in nodes if isinstance(node, ast.Call)}
    part_of_more = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}  # as in pytest.skip.Exception
    marks = {id(mark) for node in nodes for mark in getattr(node, "decorator_list", [])}
    for node in nodes:
        if isinstance(node, ast.Attribute):
            name = node.attr
        elif isinstance(node, ast.Name) and (id(node) in calls or id(node) in marks):
            name = node.id
        else:
            continue
        if name not in SKIPS or id(node) in part_of_more:
            continue
        call = calls.get(id(node))
        given = [word.value for word in call.keywords if word.arg == "reason"] if call else []
        if call and not given and name in ("skip", "importorskip"):
            given = call.args[:1]
        yield ast.unparse(given[0]) if given else f"{name} without a reason"


def found(root: Path) -> set[tuple[str, str]]:
    """Every skip under the components' `tests` folders."""
    files = [path for path in root.glob("*/tests/*.py") if path != Path(__file__)]
    return {(path.relative_to(root).as_posix(), reason) for path in files for reason in reasons(path.read_text())}


def allowed(text: str) -> dict[tuple[str, str], str]:
    """The lines of the list: why each skip is right, by file and reason."""
    lines = [line.split(" | ") for line in text.splitlines() if line and not line.startswith("#")]
    return {(file, reason): why for file, reason, why in lines}


def test_every_skip_is_allowed_and_every_allowed_one_is_there() -> None:
    listed = allowed(ALLOWED.read_text())
    assert found(ROOT) == set(listed), (
        f"say in {ALLOWED.relative_to(ROOT)} why a new skip is right; delete a stale line"
    )
    assert all(len(why.split()) >= 4 for why in listed.values())


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import pytest\n@pytest.mark.skip(reason='later')\ndef test(): ...", "'later'"),
        ("@pytest.mark.skipif(True, reason=WHY)\ndef test(): ...", "WHY"),
        ("@pytest.mark.skip\ndef test(): ...", "skip without a reason"),
        ("@pytest.mark.xfail(raises=OSError)\ndef test(): ...", "xfail without a reason"),
        ("from pytest import skip\ndef test(): skip(str(e))", "str(e)"),
        ("x = pytest.importorskip('node')", "'node'"),
        ("pytest.param(1, marks=pytest.mark.skipif(a, reason='b'))", "'b'"),
        ("raise unittest.SkipTest('c')", "SkipTest without a reason"),
    ],
)
def test_a_skip_is_found(tmp_path: Path, source: str, reason: str) -> None:
    (tmp_path / "part" / "tests").mkdir(parents=True)
    (tmp_path / "part" / "tests" / "test_x.py").write_text(source)
    assert found(tmp_path) == {("part/tests/test_x.py", reason)}


def test_what_is_no_skip(tmp_path: Path) -> None:
    assert (
        list(reasons("skip = {1}\nskip.add(proof.skipped)\nprint('skip', skip)\npytest.raises(pytest.skip.Exception)"))
        == []
    )
    assert allowed("# a comment\na | 'b' | c d e f\n") == {("a", "'b'"): "c d e f"}
    with pytest.raises(ValueError, match="unpack"):
        allowed("a | 'b'\n")
