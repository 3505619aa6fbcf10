"""What `kvspec bench store` measures is what it says: each side does its work, and the growths are the laws'."""

from pathlib import Path

import pytest
import torch
from kvspec_diff.bench import goals, growth, run, stores
from kvspec_diff.bench.goals import STORES
from kvspec_torch.block_store import BlockStore
from kvspec_torch.disk.files import Folder

ROUNDS = 2


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short rounds."""
    monkeypatch.setattr(stores, "A_ROUND", 2**20)
    monkeypatch.setattr(stores, "RESTORED", 12)
    monkeypatch.setattr(stores, "SHORT", 2)
    monkeypatch.setattr(stores, "LONG", 20)


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the store synced, and the peer."""
    found: list[str] = []
    file, folder, theirs = Folder.sync, Folder.sync_folder, stores.synced
    monkeypatch.setattr(Folder, "sync", lambda self, name: (found.append("file"), file(self, name))[1])
    monkeypatch.setattr(Folder, "sync_folder", lambda self: (found.append("folder"), folder(self))[1])
    monkeypatch.setattr(stores, "synced", lambda path, flags: (found.append("theirs"), theirs(path, flags))[1])
    return found


def test_both_sides_save_and_sync(synced: list[str]) -> None:
    ours, peer = stores.saved(1, ROUNDS)
    assert len(ours) == len(peer) == ROUNDS
    assert min(ours + peer) > 0
    blocks = 4 * (ROUNDS + 1)
    layout = 1
    assert synced.count("file") == blocks + layout
    assert synced.count("folder") >= blocks
    assert synced.count("theirs") == 2 * blocks + ROUNDS + 1, "file and folder, and the folder where they are deleted"


def test_a_block_has_the_size_that_is_said() -> None:
    for size in (1, 4, 16):
        rows = stores.rows(stores.layout(size * 2**20), 0)
        assert sum(tensor.nbytes for tensor in rows.values()) == size * 2**20
    assert sum(tensor.nbytes for tensor in stores.rows(stores.layout(stores.SMALL), 0).values()) == stores.SMALL


def test_what_is_not_restored_is_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, peer = stores.restored(ROUNDS, 2**16)
    assert len(ours) == len(peer) == ROUNDS
    restore = BlockStore.restore
    monkeypatch.setattr(BlockStore, "restore", lambda self, tokens: restore(self, tokens[:-1]))
    with pytest.raises(AssertionError, match="only 176 tokens were restored"):
        stores.restored(ROUNDS, 2**16)


def test_the_peer_reads_everything(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * 999)
    assert stores.plainly(path) == path.read_bytes()


def test_what_is_appended_is_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[stores.Growing] = []
    usual = stores.Growing.__init__

    def keep(self: stores.Growing, *arguments: object) -> None:
        usual(self, *arguments)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(stores.Growing, "__init__", keep)
    stores.grown.cache_clear()
    for clock in ("wall", "work"):
        ours, peer = stores.appended(clock, ROUNDS)
        assert len(ours) == len(peer) == ROUNDS
        assert min(ours + peer) > 0
    stores.grown.cache_clear()
    assert [side.blocks for side in made] == [each + stores.APPENDED * (ROUNDS + 1) for each in (20, 2)]
    assert made[0].cache.position == made[0].blocks * stores.TOKENS
    assert torch.equal(made[0].cache.read("0.keys")[-stores.TOKENS :], made[0].new["0.keys"])


def test_blocks_are_linear_and_whole_states_are_not() -> None:
    once, twice = growth.on_disk("block", 8), growth.on_disk("block", 16)
    assert 1.9 <= twice / once <= 2.1
    once, twice = growth.on_disk("whole", 8), growth.on_disk("whole", 16)
    assert twice / once > 3.2


def test_memory_is_measured_apart_and_whole_states_are_noticed() -> None:
    blocks, whole = growth.measured_apart("block", [16, 32]), growth.measured_apart("whole", [16])
    assert 1.8 <= blocks[1] / blocks[0] <= 2.2
    assert whole[0] > 4 * blocks[0]


def test_every_goal_can_be_measured() -> None:
    assert stores.MEASURED.keys() == {goal.name for goal in STORES}
    told: list[str] = []
    facts: list[run.Facts] = []
    goal = next(goal for goal in STORES if goal.name == "disk-16")
    (figure,) = run.run([goal], 7, {}, told.append, facts)
    assert (figure.met, figure.rounds, told) == (True, 1, [goal.what])
    assert run.ours().engine == goals.SAFETENSORS
