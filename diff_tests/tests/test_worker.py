"""The client of workers: every way in which a worker can fail costs the program that it was at, and no other."""

import shutil
import time

import pytest
from kvspec.operations import Allocate, Configuration, Outcome, Start
from kvspec_diff import worker
from kvspec_diff.process import LARGEST_LINE
from kvspec_diff.program import Program
from kvspec_diff.recipes import EngineError
from kvspec_diff.worker import EngineSubject, ProgramFault, Worker

HELLO = '{"protocol":1,"subject":"fake","version":"1","capabilities":{"pool":["start"]}}'

SHELL = """
echo '{hello}'
while IFS= read -r line; do
    id=${{line#*\\"id\\":}}; id=${{id%%,*}}
    case $line in
        *'"row":"bad"'*) {fault} ;;
        *) echo '{{"id":'$id',"outcomes":[{{"status":"done","reason":"'$$'"}}]}}' ;;
    esac
done
"""

NODE = """
console.log('{hello}');
require('readline').createInterface({{input: process.stdin}}).on('line', (line) => {{
    const request = JSON.parse(line);
    if (request.operations[0].row === 'bad') process.exit(7);
    const outcomes = request.operations.map(() => ({{status: 'done', reason: String(process.pid)}}));
    console.log(JSON.stringify({{id: request.id, outcomes}}));
}});
"""


def shell(fault: str, hello: str = HELLO) -> list[str]:
    """A worker in POSIX shell that answers with its process id, and does `fault` when a row is called `bad`."""
    return ["sh", "-c", SHELL.format(fault=fault, hello=hello)]


def program(row: str) -> Program:
    return Program(Configuration(1), (Start(row, 0),))


def run(subject: Worker, rows: list[str]) -> list[str | ProgramFault]:
    """Run a program for each row; what came, by the process that did it."""
    requests = (worker._Request(0, {"pages": 1}, program(row).operations) for row in rows)
    return [
        answer if isinstance(answer, ProgramFault) else (answer.outcomes or [Outcome("done")])[0].reason
        for answer in subject.answers(requests)
    ]


@pytest.fixture
def subject(request: pytest.FixtureRequest):
    made = Worker("fake", request.param, timeout=1.0)
    yield made
    made.close()


def answers(rest: str) -> str:
    """Shell that answers the request at hand with the JSON members in `rest`."""
    return "echo '{" + '"id":' + f"'$id',{rest}" + "}'"


FAULTS = {
    "exit 3": "ended with status 3",
    "echo out of memory >&2; exit 3": "ended with status 3, saying: out of memory",
    "kill -9 $$": "died by SIGKILL",
    "sleep 60 & kill -9 $$": "died by SIGKILL",
    "sleep 60": "no answer in time",
    "yes >&2": "no answer in time",
    "exec >&-; sleep 60": "it closed its output and runs on",
    "echo nonsense": "nonsense: JSON is malformed",
    "echo": "nonsense: Input data was truncated",
    r"printf '\377\n'": "nonsense: JSON is malformed",
    """echo '{"id":0,"outcomes":[]}'""": "nonsense: an answer to request 0",
    """echo '{"id":null,"error":"?"}'""": "nonsense: an answer to request None",
    answers('"error":null'): "nonsense: an answer with nothing",
    answers('"happened":"?"'): "nonsense: an answer with happened",
    answers('"outcomes":[],"error":"?"'): "nonsense: an answer with outcomes and error",
    answers('"outcomes":[]'): "nonsense: 0 outcomes for 1 operations",
    answers('"outcomes":[{"status":"done"},{"status":"done"}]'): "nonsense: 2 outcomes for 1 operations",
    answers('"outcomes":[{"status":"error"},{"status":"error"}]'): "nonsense: 2 outcomes for 1 operations",
    answers('"outcomes":[{"status":"great"}]'): "nonsense: Invalid enum value 'great'",
    answers('"outcomes":[{"status":"done","pages":["1"]}]'): "nonsense: Expected `int`",
    answers('"outcomes":[{"status":"done","pages":[9223372036854775808]}]'): "nonsense: a number of more than 64 bits",
    answers('"outcomes":[{"status":"done","page":1}]'): "nonsense: Object contains unknown field `page`",
    """printf '{"id":'; yes [ | tr -d '\\n'""": "it wrote a line of more than",
    r"printf '%0100000d\n' 0 | tr 0 [": "nonsense:",
}


@pytest.mark.parametrize(("subject", "reason"), [(shell(fault), reason) for fault, reason in FAULTS.items()],
                         indirect=["subject"], ids=list(FAULTS))  # fmt: skip
def test_a_worker_that_fails_loses_one_program(subject: Worker, reason: str) -> None:
    one, two, fault, three, four = run(subject, ["a", "b", "bad", "c", "d"])
    assert isinstance(fault, ProgramFault)
    assert fault.index == 2
    assert fault.reason.startswith(f"the worker failed: {reason}")
    assert "\n" not in str(fault)
    assert one == two != three == four, "another process went on"


@pytest.mark.parametrize("subject", [shell(answers('"error":"no such option"'))], indirect=True)
def test_a_program_that_the_worker_does_not_take(subject: Worker) -> None:
    one, fault, two = run(subject, ["a", "bad", "b"])
    assert isinstance(fault, ProgramFault)
    assert str(fault) == "program 1: the worker does not take it: no such option"
    assert one == two, "the same process goes on"


@pytest.mark.parametrize("subject", [shell("exit 3")], indirect=True)
def test_every_program_bad(subject: Worker) -> None:
    faults = run(subject, ["bad"] * 3)
    assert [fault.index for fault in faults if isinstance(fault, ProgramFault)] == [0, 1, 2]


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
@pytest.mark.parametrize("subject", [["node", "-e", NODE.format(hello=HELLO)]], indirect=True)
def test_a_worker_in_another_language(subject: Worker) -> None:
    one, fault, two = run(subject, ["a", "bad", "b"])
    assert isinstance(fault, ProgramFault)
    assert fault.reason == "the worker failed: ended with status 7"
    assert isinstance(one, str)
    assert one != two


def test_a_slow_consumer_is_no_hang() -> None:
    subject = Worker("fake", shell(""), timeout=0.5)
    answers = subject.answers(worker._Request(0, {"pages": 1}, program("a").operations) for _ in range(3))
    for answer in answers:
        time.sleep(0.6)
        assert not isinstance(answer, ProgramFault)
    subject.close()


STARTS = {
    "exit 4": "ended with status 4",
    "echo no module named engine >&2; exit 3": "saying: no module named engine",
    "sleep 60": "no answer in time",
    "echo hello": "JSON is malformed",
    "echo '{}'": "missing required field",
    f"echo '{HELLO.replace('1', '2', 1)}'; cat": "it speaks protocol 2, not 1",
    f"echo '{HELLO.replace('fake', 'other')}'; cat": "it is other 1, not fake 1",
}


@pytest.mark.parametrize(("script", "reason"), STARTS.items(), ids=list(STARTS))
def test_a_worker_that_does_not_start(script: str, reason: str) -> None:
    subject = Worker("fake", ["sh", "-c", script], expected=("fake", "1"), start_timeout=1.0)
    with pytest.raises(EngineError, match=reason) as caught:
        run(subject, ["a"])
    assert str(caught.value).startswith("fake: the worker did not start: ")
    assert "\n" not in str(caught.value)


def test_a_command_that_does_not_exist() -> None:
    with pytest.raises(EngineError, match="No such file"):
        run(Worker("fake", ["/nonexistent/python"]), ["a"])


def test_the_processes_end_with_the_worker() -> None:
    subject = Worker("fake", ["sh", "-c", f"echo '{HELLO}'; sleep 60 & wait"])
    assert subject.hello.subject == "fake"
    child = subject._process
    assert child is not None
    subject.close()
    assert child._child.returncode == -9


@pytest.fixture
def example():
    with EngineSubject("example", "1") as made:
        yield made


def test_an_engine_as_a_subject(example: EngineSubject) -> None:
    assert example.name == "example==1"
    assert example.capabilities == {"groups"}
    assert "allocate" in example.operations
    assert example.takes(Configuration(1, 3))
    done, allocated = example.run(Program(Configuration(3), (Start("a", 0), Allocate("a", 2))))
    assert done == Outcome("done", blank=(1, 2, 3), available=3)
    assert allocated == Outcome("done", pages=(1, 2), slots=(1, 2), blank=(3,), available=1)
    assert [probe for probe, _ in example.misuse()] == ["free twice"]


def test_answers_larger_than_any_pipe(example: EngineSubject) -> None:
    large = Program(Configuration(2_000), tuple(Start(f"r{i}", 0) for i in range(20)))
    results = list(example.run_many(large for _ in range(100)))
    assert len(results) == 100
    assert all(isinstance(result, list) and len(result) == 20 for result in results)


def test_requests_larger_than_any_pipe(example: EngineSubject) -> None:
    large = Program(Configuration(1), (Start("a", 0), *(Allocate("a", 0) for _ in range(2_000))))
    results = list(example.run_many(large for _ in range(70)))
    assert [len(result) for result in results if isinstance(result, list)] == [2_001] * 70


def test_an_answer_past_the_limit(example: EngineSubject) -> None:
    large = Program(Configuration(4_000_000), (Start("a", 0),))
    small = Program(Configuration(1), (Start("a", 0),))
    fault, result = example.run_many((large, small))
    assert isinstance(fault, ProgramFault)
    assert f"a line of more than {LARGEST_LINE} bytes" in fault.reason
    assert result == [Outcome("done", blank=(1,), available=1)]


def test_interleaved_and_abandoned_runs(example: EngineSubject) -> None:
    one = Program(Configuration(2), (Start("a", 0),))
    two = Program(Configuration(2), (Start("a", 0), Allocate("a", 1)))
    ones, twos = example.run_many(one for _ in range(200)), example.run_many(two for _ in range(200))
    lengths = [(len(x), len(y)) for x, y in zip(ones, twos, strict=True) if isinstance(x, list) and isinstance(y, list)]
    assert lengths == [(1, 2)] * 200
    ones = example.run_many(one for _ in range(200))
    next(ones)
    ones.close()
    assert len(example.run(two)) == 2


def test_run_raises_what_run_many_gives() -> None:
    with EngineSubject("example", "1", {"colour": "red"}) as subject, pytest.raises(ProgramFault, match="colour"):
        subject.run(program("a"))


def test_a_subject_that_the_engine_does_not_offer() -> None:
    subject = EngineSubject("example", "1", {"subject": "radix"})
    with subject, pytest.raises(EngineError, match="offers no subject 'radix', only pool"):
        _ = subject.capabilities


def test_an_unknown_plant() -> None:
    subject = EngineSubject("example", "1", plants=("weeds",))
    with subject, pytest.raises(EngineError, match="unknown plant 'weeds': there are keep_views"):
        subject.run(program("a"))
