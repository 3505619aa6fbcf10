"""What `kvspec bench pages` measures is what it says: both monitors check the same, both pools do the same calls."""

import json
import os
import subprocess
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import kvspec_record
import kvspec_torch
import pytest
import torch
from kvspec.language.run import OutOfScope, State, Violation
from kvspec_diff.bench import by_hand, events, goals, run
from kvspec_diff.engines import Environment
from kvspec_diff.monitor import machine, start
from kvspec_diff.recipes import EngineError
from kvspec_record.bench import pools

SLOTS = 2**14
BOTH = ("blank", "available", "cached", "released", "refs", "settled", "written", "content", "reading", "open")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread, as in the worker, and short rounds."""
    monkeypatch.setattr(pools, "REPEATS", 2)
    monkeypatch.setattr(pools, "BATCH", {1: 8, 64: 8, 4096: 1})
    monkeypatch.setattr(pools, "SAMPLED", 4)
    before = torch.get_num_threads()
    assert pools.threads() == 1
    yield
    torch.set_num_threads(before)


def same(state: State, monitor: by_hand.Monitor) -> bool:
    rows = [
        [page if live else 0 for page, live in zip(*pair, strict=True)]
        for pair in zip(state.row, state.live, strict=True)
    ]
    queued = sorted(
        page for pair in zip(state.queued, state.value, strict=True) for there, page in zip(*pair, strict=True) if there
    )
    return (
        all(getattr(state, name) == getattr(monitor, name) for name in BOTH)
        and rows == monitor.row
        and queued == sorted(monitor.queue)
    )


def passes(function: Callable[..., None], *arguments: object) -> bool:
    try:
        function(*arguments)
    except (Violation, OutOfScope, by_hand.Wrong, IndexError):
        return False
    return True


def test_both_monitors_keep_the_same_state() -> None:
    seen: Counter[str] = Counter()
    for stream in events.streams(150):
        state, monitor = start(stream.program), events.by_hand_for(stream.program)
        for name, *arguments in stream.events:
            machine().actions[str(name)](state, *arguments)
            getattr(monitor, str(name))(*arguments)
            assert same(state, monitor), (name, arguments)
            seen[str(name)] += 1
    assert seen.keys() == machine().actions.keys() - {"pad"}, "every event is compared; padding has no check"


def test_both_monitors_refuse_the_same() -> None:
    verdicts: Counter[bool] = Counter()
    for stream in events.streams(40, seed=8):
        state, monitor = start(stream.program), events.by_hand_for(stream.program)
        # Each event of the next stream, where it does not belong, before each of this one's; and again what was done.
        for number, (name, *arguments) in enumerate(stream.events):
            for other, *operands in (stream.events[-1 - number], stream.events[number // 2]):
                if other in ("release", "end_read", "replace"):
                    continue  # their calls are numbered, which only the machine's proof needs
                wanted = machine().enabled[str(other)](state, *operands)
                if not wanted:
                    assert not passes(getattr(monitor, str(other)), *operands), (other, operands)
                    assert same(state, monitor), "what was refused changed nothing"
                elif other in ("refuse", "overwrite"):
                    assert passes(getattr(monitor, str(other)), *operands), (other, operands)
                verdicts[wanted] += 1
            machine().actions[str(name)](state, *arguments)
            getattr(monitor, str(name))(*arguments)
    assert min(verdicts.values()) > 200


def test_events_are_measured_in_rounds() -> None:
    compiled, hand = events.measured(7, programs=3)
    assert len(compiled) == len(hand) == 7
    assert min(compiled + hand) > 0


class Sorted:
    """As SGLang's, and it counts what it is asked."""

    def __init__(self, sort: bool, slots: int) -> None:
        self.need_sort, self.sorts, self.calls = sort, 0, Counter[str]()
        self.free_pages, self.release_pages = torch.arange(1, slots + 1), torch.empty(0, dtype=torch.int64)

    def alloc(self, n: int) -> torch.Tensor:
        self.calls[f"alloc {n}"] += 1
        if self.need_sort and n > len(self.free_pages):
            self.merge_and_sort_free()
        assert n <= len(self.free_pages)
        taken, self.free_pages = self.free_pages[:n], self.free_pages[n:]
        return taken

    def free(self, slots: torch.Tensor) -> None:
        self.calls[f"free {len(slots)}"] += 1
        name = "release_pages" if self.need_sort else "free_pages"
        setattr(self, name, torch.cat((getattr(self, name), slots)))

    def merge_and_sort_free(self) -> None:
        self.sorts += 1
        self.free_pages = torch.cat((self.free_pages, self.release_pages)).sort()[0]
        self.release_pages = self.release_pages[:0]


def made(kept: list[Any], sort: bool, slots: int) -> pools.Side:
    pool = Sorted(sort, slots)
    kept.append(pool)
    return pools.Side(pool.alloc, pool.free, torch.Tensor.__getitem__, pool)


@pytest.mark.parametrize("n", pools.SIZES)
def test_release(n: int) -> None:
    kept: list[Sorted] = []
    ours, peer = pools.release(n, 0.3, partial(made, kept), 7, SLOTS)
    assert len(ours) == len(peer) == 7
    assert min(ours + peer) > 0
    calls = 8 * pools.REPEATS * pools.BATCH[n]
    assert kept[0].calls[f"alloc {n}"] == kept[0].calls[f"free {n}"] == calls, "one round more, to warm up"
    assert len(kept[0].free_pages.unique()) == len(kept[0].free_pages) == SLOTS - int(SLOTS * 0.3)
    assert not torch.equal(kept[0].free_pages, kept[0].free_pages.sort()[0])


@pytest.mark.parametrize("n", pools.SIZES)
def test_drain_cycles(n: int) -> None:
    kept: list[Sorted] = []
    ours, peer = pools.drained(n, partial(made, kept), 7, SLOTS)
    assert len(ours) == len(peer) == 7
    cycles = 8 * pools.CYCLES
    assert kept[0].sorts == 2 * cycles + 1, "one on the clock and one off it, a cycle; one at the half that is used"
    batches = min(4, SLOTS // 2 // (n * pools.BATCH[n]))
    assert kept[0].calls[f"alloc {n}"] == cycles * (batches * pools.BATCH[n] + 1)
    assert len(kept[0].free_pages.unique()) == SLOTS // 2


class Blocks:
    """As vLLM's: blocks that were freed are handed out again first."""

    def __init__(self, slots: int, caching: bool = True, size: int = 16) -> None:
        self.free = deque([object() for _ in range(slots)])

    def get_new_blocks(self, n: int) -> list[object]:
        return [self.free.popleft() for _ in range(n)]

    def free_blocks(self, blocks: list[object]) -> None:
        self.free.extendleft(reversed(blocks))


def blocks(slots: int) -> pools.Side:
    pool = Blocks(slots)
    return pools.Side(pool.get_new_blocks, pool.free_blocks, pools.in_order, pool)


def test_allocate_and_release() -> None:
    ours, peer = pools.both(64, blocks, 7, SLOTS)
    assert len(ours) == len(peer) == 7
    assert pools.in_order(list("abc"), torch.tensor([2, 0, 1])) == ["c", "a", "b"]


def test_the_state_of_a_page() -> None:
    (ours,), (peer,) = pools.state(blocks, 7, SLOTS)
    state = vars(kvspec_torch.PagePool(SLOTS)._path)
    tensors = sum(part.nbytes for part in state.values() if isinstance(part, torch.Tensor))
    assert tensors / SLOTS < ours < 64
    assert 16 + 8 <= peer < 64, "an object and its place in the queue"


def test_what_is_measured_has_a_goal_or_is_reported() -> None:
    assert list(pools.MEASURED) == [goal.name for goal in goals.GOALS if goal.peer != goals.BY_HAND]


def test_a_pool_that_checks_nothing_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kvspec_torch.PagePool, "release", lambda self, pages: None)
    with pytest.raises(AssertionError, match="a blank page could be released"):
        pools.ours(8)


ENGINE = """
from collections import deque
print("hello from the engine")
class BlockPool:
    def __init__(self, slots, caching, size):
        self.free = deque(range(slots))
    def get_new_blocks(self, n):
        return [self.free.popleft() for _ in range(n)]
    def free_blocks(self, blocks):
        self.free.extendleft(blocks)
"""


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed vLLM that is a few lines."""
    core = tmp_path / "vllm" / "v1" / "core"
    core.mkdir(parents=True)
    (core / "block_pool.py").write_text(ENGINE)
    metadata = tmp_path / "vllm-0.33.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n")
    there = Environment("vllm", "0.33.0", tmp_path, "", Path(sys.executable))
    monkeypatch.setattr(run.engines, "find", lambda *_: there)
    variables = {**os.environ, "PYTHONPATH": str(tmp_path)}
    monkeypatch.setattr(run.engines, "worker_command", lambda _: ([], variables))
    return metadata / "METADATA"


def chosen(*names: str) -> list[goals.Goal]:
    return [goal for goal in goals.GOALS if goal.name in names]


def test_the_worker(engine: Path) -> None:
    facts: list[run.Facts] = []
    told: list[str] = []
    figures = list(run.run(chosen("vllm-1", "state"), 7, {}, told.append, facts))
    assert [(figure.name, figure.rounds) for figure in figures] == [("vllm-1", 7), ("state", 1)]
    assert [(each.version, each.threads, each.torch) for each in facts] == [("0.33.0", 1, torch.__version__)]
    assert told[0] == "starting vllm==0.33.0"


def test_another_release_is_not_measured(engine: Path) -> None:
    engine.write_text(engine.read_text().replace("0.33.0", "0.34.0"))
    with pytest.raises(EngineError, match=r"vllm==0.33.0: the benchmark's worker failed: it is vllm 0.34.0"):
        list(run.run(chosen("vllm-1"), 7, {}, lambda _: None, []))


def test_a_worker_that_fails(engine: Path) -> None:
    (engine.parents[1] / "vllm" / "v1" / "core" / "block_pool.py").write_text("raise ImportError('no such GPU')")
    with pytest.raises(EngineError, match=r"worker failed: ended with status 1, saying: ImportError: no such GPU"):
        list(run.run(chosen("vllm-1"), 7, {}, lambda _: None, []))


def test_the_engines_libraries_come_first(engine: Path, tmp_path: Path) -> None:
    """The folder that has our package is looked at last, and only while it is imported."""
    (tmp_path / "impl").mkdir()
    (tmp_path / "impl" / "numpy.py").write_text("raise AssertionError('not this one')")
    (tmp_path / "impl" / "kvspec_torch").symlink_to(Path(kvspec_torch.__file__).parent)
    command, variables = run.command(run.engines.find(), ["vllm-1"], 7)
    assert variables["OMP_NUM_THREADS"] == "1"
    assert command[:2] == [sys.executable, str(Path(kvspec_record.__file__).parent / "bench")]
    command[command.index("--impl") + 1] = str(tmp_path / "impl")
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line.get("name") for line in lines] == [None, "vllm-1"]
    assert "hello from the engine" in done.stderr
