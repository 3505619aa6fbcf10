"""The pytest plugin, and the class as pytest runs it: in processes of their own, in empty folders."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kvspec_diff import profiles, pytest_plugin, trace
from kvspec_diff.monitor import judge

HEAVY = ("z3", "torch", "numpy", "msgspec", "hypothesis", "kvspec.operations", "kvspec_diff.profiles")

ONE_PAGE_SHORT = """
from kvspec_diff.conformance import Allocator, Conformance

class Shy(Allocator):
    def __init__(self, pages):
        self.free = list(range(1, pages + 1))
    def allocate(self, n):
        if n >= len(self.free):
            return None
        return [self.free.pop() for _ in range(n)]
    def release(self, pages):
        self.free += pages

class TestShy(Conformance):
    allocator = Shy
"""


def run(folder: Path, *arguments: str, text: str) -> subprocess.CompletedProcess[str]:
    """pytest on `text` as a test file, in a process of its own."""
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def failed(output: str) -> set[str]:
    return set(re.findall(r"^FAILED \S+::(\w+(?:\[.*?\])?)", output, re.MULTILINE))


def test_others_runs_import_nothing_of_it(tmp_path: Path) -> None:
    """The plugin is loaded, and it is all that is."""
    text = f"""
import sys
def test_it(pytestconfig):
    assert pytestconfig.pluginmanager.hasplugin("kvspec")
    assert [name for name in {HEAVY} if name in sys.modules] == []
    assert [name for name in sys.modules if name.startswith("kvspec")] == ["kvspec_diff", "kvspec_diff.pytest_plugin"]
"""
    done = run(tmp_path, text=text)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert [path.name for path in tmp_path.iterdir() if path.name != "__pycache__"] == ["test_it.py"]


def test_the_profiles_are_those_of_the_package() -> None:
    assert list(pytest_plugin.PROFILES) == list(profiles.EXAMPLES)


def test_a_profile_that_is_asked_for_is_known_to_hypothesis(tmp_path: Path) -> None:
    text = """
from hypothesis import settings
def test_it():
    assert settings().max_examples == 1_000
    assert not settings().derandomize
"""
    assert run(tmp_path, "--hypothesis-profile", "nightly", text=text).returncode == 0
    assert run(tmp_path, text=text).returncode == 1


@pytest.mark.parametrize("flag", ["--hypothesis-profile", "--kvspec-profile"])
def test_a_profile_of_somebody_else_is_left_alone(tmp_path: Path, flag: str) -> None:
    (tmp_path / "conftest.py").write_text(
        "from hypothesis import settings\nsettings.register_profile('nightly', max_examples=7)"
    )
    text = """
from hypothesis import settings
def test_it():
    assert settings.get_profile("nightly").max_examples == 7
"""
    done = run(tmp_path, flag, "nightly", text=text)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--kvspec-profile", "weekly"], "invalid choice: 'weekly'"),
        (["--kvspec-seconds", "0"], "invalid positive value: '0'"),
        (["--kvspec-seconds", "nan"], "invalid positive value: 'nan'"),
        (["--kvspec-seed", "-1"], "--kvspec-seed"),
    ],
)
def test_a_wrong_option_is_a_usage_error(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = run(tmp_path, *arguments, text="def test_it(): pass")
    assert done.returncode == 4
    assert says in done.stderr


def test_a_failure_names_the_law_and_saves_the_trace(tmp_path: Path) -> None:
    done = run(tmp_path, "--kvspec-traces", "found", text=ONE_PAGE_SHORT)
    assert failed(done.stdout) == {
        "test_capacity[O5-all-pages-asked-for-or-none-if-too-few]",
        "test_programs",
    }
    assert "Shy breaks O5: all pages asked for or none if too few" in done.stdout
    assert "INTERNALERROR" not in done.stdout + done.stderr
    places = set(re.findall(r"^trace: (.*)$", done.stdout, re.MULTILINE))
    assert {Path(place).parent for place in places} == {Path("found")}
    for place in places:
        saved = trace.read(tmp_path / place)
        assert (saved.header.law, saved.header.subject) == ("O5", "Shy")
        found = judge(saved.program, [outcome for outcome in saved.outcomes if outcome is not None])
        assert found is not None
        assert found.law == "O5"


def test_the_snippet_runs_as_it_is_printed(tmp_path: Path) -> None:
    done = run(tmp_path, text=ONE_PAGE_SHORT)
    lines = done.stdout.split("if too few\n")[1].split("trace:")[0].splitlines()[1:]
    code = "\n".join(line[4:] for line in lines)
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "AssertionError" in ran.stderr
    (tmp_path / "test_it.py").write_text(ONE_PAGE_SHORT.replace("n >= len", "n > len"))
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=False).returncode == 0


def test_it_works_without_the_plugin(tmp_path: Path) -> None:
    done = run(tmp_path, "-p", "no:kvspec", text=ONE_PAGE_SHORT)
    assert len(failed(done.stdout)) == 2
    assert list((tmp_path / "kvspec-traces").iterdir())


def test_a_trace_that_cannot_be_saved_is_no_other_failure(tmp_path: Path) -> None:
    (tmp_path / "kvspec-traces").write_text("a file")
    done = run(tmp_path, text=ONE_PAGE_SHORT)
    assert len(failed(done.stdout)) == 2
    assert "trace: not saved (" in done.stdout


COUNTED = """
from kvspec_diff.conformance import Conformance
from kvspec_diff.subjects.reference import Reference

class Counted(Reference):
    def run(self, program):
        with open("programs", "a") as file:
            print(program, file=file)
        return super().run(program)

class TestIt(Conformance):
    subject = Counted()
"""


def programs(folder: Path, *arguments: str) -> list[str]:
    (folder / "programs").unlink(missing_ok=True)
    done = run(folder, *arguments, text=COUNTED)
    assert done.returncode == 0, done.stdout
    return (folder / "programs").read_text().splitlines()


def test_seed_and_seconds(tmp_path: Path) -> None:
    first = programs(tmp_path, "--kvspec-seed", "3")
    assert len(first) > 250
    assert programs(tmp_path, "--kvspec-seed", "3") == first
    assert programs(tmp_path, "--kvspec-seed", "4") != first
    bulk = ["-k", "test_ownership"]
    assert len(programs(tmp_path, *bulk)) == 2 * profiles.EXAMPLES["pr"]
    assert 0 < len(programs(tmp_path, *bulk, "--kvspec-seconds", "0.1")) < 2 * profiles.EXAMPLES["pr"]


NODE = """
const hello = {protocol: 1, subject: 'mine', version: '1',
               capabilities: {pool: ['start', 'allocate', 'write', 'read', 'free', 'overwrite', 'trim', 'finish']}};
console.log(JSON.stringify(hello));
require('readline').createInterface({input: process.stdin}).on('line', (line) => {
  const request = JSON.parse(line);
  const outcomes = request.operations.map((operation) =>
    operation.op === 'allocate' && operation.tokens > 0 ? {status: 'refused'} : {status: 'done'});
  if (request.operations.length > 40) process.exit(1);
  console.log(JSON.stringify({id: request.id, outcomes}));
});
"""


def test_a_worker_in_another_language(tmp_path: Path) -> None:
    """It refuses everything, and dies of long programs."""
    (tmp_path / "worker.js").write_text(NODE)
    text = """
from kvspec_diff.conformance import Conformance
class TestWorker(Conformance):
    worker = ["node", "worker.js"]
"""
    bounded = ("--kvspec-seconds", "1", "--deselect", "test_it.py::TestWorker::test_programs")
    done = run(tmp_path, *bounded, text=text)
    assert failed(done.stdout) == {
        "test_capacity[O5-all-pages-asked-for-or-none-if-too-few]",
        "test_answers[worker-the-worker-answers]",
    }
    shown = done.stdout.split("if too few\n")[1].split("trace:")[0].splitlines()[1:]
    code = "\n".join(line[4:] for line in shown)
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    outcomes = json.loads(ran.stdout.splitlines()[1])["outcomes"]
    assert outcomes[-1] == {"status": "refused"}


def test_a_worker_that_does_not_start(tmp_path: Path) -> None:
    text = """
from kvspec_diff.conformance import Conformance
class TestWorker(Conformance):
    worker = ["no-such-program"]
class TestNothing(Conformance):
    pass
"""
    done = run(tmp_path, "-k", "R1", text=text)
    assert len(failed(done.stdout)) == 1
    assert "no-such-program: the worker did not start" in done.stdout
    assert "TestNothing says not what to test; set its allocator, worker or subject" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_missing_method_fails_to_be_collected(tmp_path: Path) -> None:
    text = ONE_PAGE_SHORT + "    capabilities = ['groups']\n"
    done = run(tmp_path, text=text)
    assert done.returncode == 2
    assert "TypeError: Shy lacks the method begin for the capability 'groups' (declared by TestShy)" in done.stdout
