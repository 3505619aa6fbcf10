"""The worker's side: what a caller does with an allocator, and the protocol, tried on the example engine."""

import ast
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import kvspec_record
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kvspec.operations import (
    Allocate,
    AnyOperation,
    Begin,
    Configuration,
    End,
    Free,
    Outcome,
    Overwrite,
    Read,
    Start,
    Trim,
    Write,
    prompt_token,
)
from kvspec_diff.compare import Errors, compare
from kvspec_diff.generate import Generator, programs
from kvspec_diff.monitor import judge
from kvspec_diff.profiles import register
from kvspec_diff.program import Program
from kvspec_diff.subjects.reference import Reference
from kvspec_record import caller, example
from kvspec_record.worker import respond

register()

FOLDER = Path(kvspec_record.__file__).parent
GENERATOR = Generator(frozenset({"groups", "checks"}))
SIX = (Start("a", 0), Allocate("a", 1), Begin(), Trim("a", 0), Allocate("a", 1), End())
"""In a group, a row gives its only page up and gets another: what is kept as a view now names the other."""


def run(program: Program, pool: Any = None, hostile: bool = False) -> list[Outcome]:
    """Run the program as a worker does, on the example's pool or another one."""
    pages, size = program.configuration.pages, program.configuration.page_size
    made = caller.Caller(pool or example.ListPool(pages, size), pages, size, hostile)
    operations = msgspec.to_builtins(program.operations)
    return msgspec.json.decode(json.dumps(made.run(list(operations))), type=list[Outcome])


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_tokens(prompt: int, position: int) -> None:
    assert caller.prompt_token(prompt, position) == prompt_token(prompt, position)


@settings(settings.get_profile("pr"))
@given(programs(GENERATOR))
def test_the_example_equals_the_reference(program: Program) -> None:
    found = compare(Reference().run(program), run(program), Errors.SAME_STATUS)
    assert found is None, str(found)


@settings(settings.get_profile("pr"))
@given(programs(GENERATOR))
def test_a_hostile_caller_finds_nothing_in_the_example(program: Program) -> None:
    found = compare(Reference().run(program), run(program, hostile=True), Errors.SAME_STATUS)
    assert found is None, str(found)


def test_nothing_can_be_written_over_a_row_that_has_room_for_nothing() -> None:
    # A view of no bytes at all is read-only, and even an empty slice of it cannot be written.
    program = Program(Configuration(2), (Start("a", 0), Allocate("a", 1), Start("b", 0), Overwrite("b", 0, 0, "a")))
    assert compare(Reference().run(program), run(program, hostile=True), Errors.SAME_STATUS) is None


def test_views_kept_in_a_group_are_found() -> None:
    program = Program(Configuration(3), SIX)
    assert judge(program, run(program)) is None
    found = judge(program, run(program, example.ListPool(3, 1, (example.KEEP_VIEWS,))))
    assert found is not None
    assert (found.law, found.index) == ("D1", 5)


def test_a_hostile_caller_finds_views_by_itself() -> None:
    program = Program(Configuration(3), (Start("a", 0), Allocate("a", 1), Begin(), Free("a", 0, 1), End()))
    keeping = example.ListPool(3, 1, (example.KEEP_VIEWS,))
    assert judge(program, run(program, keeping)) is None
    found = judge(program, run(program, example.ListPool(3, 1, (example.KEEP_VIEWS,)), hostile=True))
    assert found is not None
    assert found.index == 4


def test_a_group_that_is_lost_is_found() -> None:
    program = Program(Configuration(3), SIX)
    found = judge(program, run(program, example.ListPool(3, 1, (example.LOSE_GROUP,))))
    assert found is not None
    assert found.index == 5


def test_content_shows_who_shares_a_slot() -> None:
    class Same(example.ListPool):
        def allocate(self, row: caller.Row, tokens: int) -> list[int]:
            return [1] * tokens

    operations = (Start("a", 0), Allocate("a", 1), Write("a", 0, 1), Start("b", 8), Allocate("b", 1), Write("b", 0, 1))
    outcomes = run(Program(Configuration(2), (*operations, Read("a", 0, 1))), Same(2, 1))
    assert outcomes[-1].tokens == (prompt_token(8, 0),)


def test_a_slot_that_nothing_was_written_to() -> None:
    class Moving(example.ListPool):
        def begin(self) -> None:
            rows[0].put(0, [2])

    rows: list[caller.Row] = []
    made = caller.Caller(Moving(2, 1), 2, 1)
    program = (Start("a", 0), Allocate("a", 1), Write("a", 0, 1), Begin(), Read("a", 0, 1))
    begin = made.begin

    def find_row_and_begin() -> caller.Outcome:
        rows.append(made.rows["a"])
        return begin()

    made.begin = find_row_and_begin  # type: ignore[method-assign]
    assert made.run(msgspec.to_builtins(list(program)))[-1]["tokens"] == [caller.NEVER_WRITTEN]


def test_a_buffer_that_changes_by_itself() -> None:
    class Scribbling(example.ListPool):
        def buffer(self, row: str, capacity: int) -> tuple[memoryview, memoryview]:
            buffers.append(super().buffer(row, capacity)[0])
            return buffers[-1], buffers[-1]

        def begin(self) -> None:
            buffers[0][0] = 77

    buffers: list[memoryview] = []
    program = Program(Configuration(3), (Start("a", 0), Allocate("a", 1), Start("b", 0), Begin(), End()))
    outcomes = run(program, Scribbling(3, 1))
    assert [outcome.state.get("changed") for outcome in outcomes] == [None, None, None, ["a"], None]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [([1], "EngineFault: asked for 2 slots, the engine gave 1"), (KeyError("of\n pages"), "KeyError: 'of")],
)
def test_an_engine_that_raises_ends_the_program(answer: Any, reason: str) -> None:
    class Raising(example.ListPool):
        def allocate(self, row: caller.Row, tokens: int) -> list[int]:
            if isinstance(answer, Exception):
                raise answer
            return list(answer)

    outcomes = run(Program(Configuration(3), (Start("a", 0), Allocate("a", 2), Begin())), Raising(3, 1))
    assert [outcome.status for outcome in outcomes] == ["done", "error"]
    assert outcomes[1].reason.startswith(reason)
    assert "\n" not in outcomes[1].reason


def test_more_than_twice_the_pool_is_refused_without_asking() -> None:
    class Generous(example.ListPool):
        def allocate(self, row: caller.Row, tokens: int) -> list[int]:
            raise AssertionError("asked")

    outcomes = run(Program(Configuration(3), (Start("a", 0), Allocate("a", 2**31 - 1))), Generous(3, 1))
    assert outcomes[-1].status == "refused"
    assert "not asked" in outcomes[-1].reason


def request(operations: Sequence[Any] = (), **more: Any) -> dict[str, Any]:
    return {"id": 7, "configuration": {"pages": 3, "page_size": 1}, "operations": operations, **more}


MALFORMED = {
    "null": "a request is an object with an integer id",
    "{": "not JSON",
    "[" * 100_000: "not JSON",
    '{"id":true}': "a request is an object with an integer id",
    '{"id":7}': "a request has a configuration, an object",
    '{"id":7,"configuration":{}}': "a request has operations, a list",
    json.dumps(request(configuration={"pages": 0, "page_size": 1})): "pages is 0",
    json.dumps(request(configuration={"pages": 1, "page_size": "2"})): "page_size is '2'",
    json.dumps(request(configuration={"pages": 1, "page_size": 1, "sort": 1})): "unknown option 'sort'",
    json.dumps(request(more=1)): "unknown field 'more'",
    json.dumps(request(["start"])): "operation 0: unknown to this subject",
    json.dumps(request([{"op": "publish", "row": "a"}])): "operation 0: unknown to this subject",
    json.dumps(request([{"op": "run"}])): "operation 0: unknown to this subject",
    json.dumps(request([{"op": "start", "row": "a"}])): "operation 0 (start): operand 'prompt' is missing",
    json.dumps(request([{"op": "start", "row": 1, "prompt": 0}])): "operation 0 (start): operand 'row'",
    json.dumps(request([{"op": "start", "row": "a", "prompt": -1}])): "operation 0 (start): prompt is -1",
    json.dumps(request([{"op": "begin"}, {"op": "end", "row": "a"}])): "operation 1 (end): operand 'row'",
    json.dumps(request([{"op": "allocate", "row": "a", "tokens": 8}] * 10**6)): "row a grows past",
    '{"id":7,"configuration":{},"probe":"free thrice"}': "unknown probe 'free thrice'",
}


@pytest.mark.parametrize(("line", "reason"), MALFORMED.items(), ids=list(MALFORMED.values()))
def test_a_malformed_request(line: str, reason: str) -> None:
    answer = respond(example.Adapter(()), line.encode())
    assert answer["error"].startswith(reason) or reason in answer["error"]
    assert answer.keys() == {"id", "error"}
    assert answer["id"] == (7 if '"id": 7' in line or '"id":7' in line else None)


def test_an_engine_that_cannot_be_set_up() -> None:
    class Broken(example.Adapter):
        def caller(self, pages: int, page_size: int, options: dict[str, Any]) -> caller.Caller:
            raise MemoryError("too\nlarge")

    assert respond(Broken(()), json.dumps(request()).encode()) == {"id": 7, "error": "MemoryError: too large"}


def start(code: str) -> "subprocess.CompletedProcess[str]":
    """Run the worker's folder after `code`, and let it answer one good request and one bad one."""
    lines = [json.dumps(request([{"op": "start", "row": "a", "prompt": 0}, {"op": "begin"}])), "nonsense"]
    script = f"import runpy, sys\nsys.argv = ['w', '--adapter', 'example']\n{code}\nrunpy.run_path({str(FOLDER)!r}, "
    script += "run_name='__main__')"
    return subprocess.run(
        [sys.executable, "-I", "-c", script], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=60
    )


def test_what_an_engine_prints_is_no_answer() -> None:
    noise = f"""
sys.path.insert(0, {str(FOLDER.parent)!r})
from kvspec_record import example
sys.path.pop(0)
def begin(self):
    import os, sys
    print("from Python")
    os.write(1, b"from C\\n")
    os.system("echo from a child")
    print("input:", sys.stdin.read())
example.ListPool.begin = begin
"""
    done = start(noise)
    hello, good, bad = map(json.loads, done.stdout.splitlines())
    assert hello["protocol"] == 1
    assert [outcome["status"] for outcome in good["outcomes"]] == ["done", "done"]
    assert bad["id"] is None
    assert {"from C", "from a child"} <= set(done.stderr.splitlines())
    assert done.returncode == 0


def test_nothing_else_of_kvspec_is_importable_in_the_engine() -> None:
    """The engine's path is what it was before the worker was started from its folder."""
    done = start(f"""
sys.path.insert(0, {str(FOLDER.parent)!r})
from kvspec_record import example
sys.path.pop(0)
before = list(sys.path)
example.ListPool.begin = lambda self: print(sys.path == before)
""")
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr.splitlines() == ["True"]


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--adapter", "unknown"], 2, "invalid choice"),
        (["--adapter", "example", "--plant", "weeds"], 2, "unknown plant 'weeds'"),
        (["--adapter", "sglang"], 3, "cannot import the engine"),
    ],
)
def test_a_worker_that_cannot_start(arguments: list[str], status: int, said: str) -> None:
    command = [sys.executable, "-c", "import sys; sys.modules['sglang'] = None; import runpy; "
               f"runpy.run_path({str(FOLDER)!r}, run_name='__main__')", *arguments]  # fmt: skip
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60)
    assert done.returncode == status
    assert said in done.stderr.splitlines()[-1]
    assert done.stdout == ""


def test_only_the_standard_library() -> None:
    brought = {"sglang": {"torch"}, "vllm": {"torch", "vllm"}, "transformers": {"torch", "transformers"},
               "mlx": {"mlx", "mlx_lm", "numpy"}}  # fmt: skip
    for path in FOLDER.glob("*.py"):
        allowed = {*sys.stdlib_module_names, "kvspec_record", *brought.get(path.stem.partition("_")[0], ())}
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in names} <= allowed, f"{path.name}: {names}"


def test_the_vocabulary_is_the_one_of_kvspec() -> None:
    kinds = {msgspec.inspect.type_info(kind).cls: msgspec.inspect.type_info(kind) for kind in AnyOperation.__args__}
    known = {str(info.tag): {field.encode_name for field in info.fields} for info in kinds.values()}
    for name, fields in caller.FIELDS.items():
        assert set(fields) == known[name]
    assert Overwrite in kinds
