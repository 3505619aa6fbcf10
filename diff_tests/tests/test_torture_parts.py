"""What the parts of the torture are made of: each does what it says, or its figures would show nothing."""

import contextlib
import errno
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from kvspec_diff import damage
from kvspec_diff.beside import Broken
from kvspec_diff.torture import kills, power, toys
from kvspec_diff.torture.figures import Tally
from kvspec_diff.torture.headers import KINDS, Parted, headers, sealed
from kvspec_diff.torture.stock import DEEP, links, stock
from kvspec_diff.torture.tight import CHANGES, Tight
from kvspec_diff.torture.watch import Taken, Watch, limited
from kvspec_torch.disk.files import Folder
from kvspec_torch.entry_format import Entry, Format, chain

KEYS = chain([1] * 8, 4, toys.LAYOUT.signature)
ENTRY = bytes(Format(toys.LAYOUT).write(KEYS[1], KEYS[0], toys.block(toys.LAYOUT, 1, 7)))


def test_an_entry_is_put_together_as_it_was() -> None:
    assert Parted.of(ENTRY).joined() == ENTRY
    assert sealed(ENTRY) == ENTRY
    changed = ENTRY[:-1] + bytes([ENTRY[-1] ^ 1])
    found = Format(toys.LAYOUT).read(memoryview(bytearray(sealed(changed))), KEYS[1])
    assert isinstance(found, Entry), "the checksum fits"
    assert sealed(b"short") == b"short"


def test_headers_are_of_every_kind_and_always_the_same() -> None:
    made = list(headers(ENTRY, 600, seed=3))
    assert len(made) == 600
    assert all(data != ENTRY for _, data in made)
    kinds = Counter(how.removesuffix(" (checksum fits)") for how, _ in made)
    assert {kind.__name__.strip("_") for kind in (*KINDS, *damage.KINDS)} == kinds.keys()
    assert sum("fits" in how for how, _ in made) > 100
    assert made == list(headers(ENTRY, 600, seed=3))
    assert made != list(headers(ENTRY, 600, seed=4))


def test_a_watch_hears_what_is_touched(tmp_path: Path) -> None:
    (tmp_path / "inside").write_bytes(b"x")
    folder = Folder(tmp_path)
    with Watch(tmp_path) as watch:
        folder.read("inside")
        folder.names()
        (tmp_path / "inside").read_bytes()
    assert watch.strange == []
    assert watch.seen >= 3
    with Watch(tmp_path) as watch:
        for name in ("../outside", "/dev/null", str(tmp_path / ".." / "x"), str(tmp_path / "a" / "b")):
            with contextlib.suppress(OSError):
                os.close(os.open(name, os.O_RDONLY))
        os.listdir("/")
    assert len(watch.strange) == 5
    assert watch.seen == 5
    open("/dev/null").close()
    assert len(watch.strange) == 5, "only while it watches"


def test_memory_is_limited_and_counted() -> None:
    with limited(2**28), pytest.raises(MemoryError):
        np.empty(2**30, np.uint8)
    np.empty(2**30, np.uint8)
    with Taken() as taken:
        taken.begin()
        bytes(1000)
        np.ones(10**6, np.uint8)
        assert 10**6 <= taken.most() < 1.1 * 10**6
        taken.begin()
        assert taken.most() < 10**4


def test_a_full_disk_is_full(tmp_path: Path) -> None:
    for failing in range(len(CHANGES)):
        (base := tmp_path / str(failing)).mkdir()
        files, wrong = Tight(base, failing), []
        calls = (("create", "a"), ("write", "a", b"four"), ("sync", "a"), ("rename", "a", "b"), ("sync_folder",),
                 ("unlink", "b"))  # fmt: skip
        for name, *arguments in calls:
            try:
                getattr(files, name)(*arguments)
            except OSError as error:
                wrong.append((name, error.errno))
                break
        assert wrong == [(CHANGES[failing], errno.ENOSPC)]
        assert [path.read_bytes() for path in base.iterdir()] == [[], [b"fo"], [b"four"], [b"four"], [b"four"],
                                                                  [b"four"]][failing]  # fmt: skip
        files.close()


def test_what_is_acknowledged_is_demanded(tmp_path: Path) -> None:
    """The judge of the kills: what is lost, of an older version, or never saved is told apart."""
    chain_ = kills.names()
    tally = Tally("kills", "", lambda *_: None)
    floors = kills.Floors()
    key = chain_.keys[0]
    kills.follow([["opened"], ["acknowledged", key, "5"]], floors, tally)
    assert floors == {key: 5}
    kills.look(tmp_path, chain_, floors, 0, tally)
    assert tally.bad == {"lost": 1}
    form = Format(kills.LAYOUT)
    (tmp_path / f"{key}.safetensors").write_bytes(form.write(key, None, kills.made(0, 4)))
    kills.look(tmp_path, chain_, floors, 0, tally)
    assert tally.bad == {"lost": 2}
    (tmp_path / f"{key}.safetensors").write_bytes(form.write(key, None, kills.made(0, 6)))
    kills.look(tmp_path, chain_, floors, 0, tally)
    assert tally.bad == {"lost": 2}
    (tmp_path / f"{key}.safetensors").write_bytes(form.write(key, None, kills.made(0, 6))[:-9])
    kills.look(tmp_path, chain_, floors, 0, tally)
    assert tally.bad == {"lost": 3, "misread": 1}
    odd = kills.made(0, 6)
    odd.parts["0.values"][0, 0] ^= 1
    (tmp_path / f"{key}.safetensors").write_bytes(form.write(key, None, odd))
    kills.look(tmp_path, chain_, floors, 0, tally)
    assert tally.bad == {"lost": 3, "misread": 2}
    kills.follow([["evicting", key], ["wrong", "it", "fell"]], floors, tally)
    assert (floors, tally.bad["failed"]) == ({}, 1)


def test_figures_that_are_too_small_fail() -> None:
    tally = Tally("x", "what", lambda *_: None)
    tally.least("tries", 10, 10)
    assert tally.part().ok
    tally.least("tries", 9, 10)
    part = tally.part()
    assert (part.ok, part.failed, part.figures) == (False, 1, {"tries": 9})
    assert part.wrong == ["failed: tries: 9, at least 10 were to be tried"]


def test_a_program_that_always_fails_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is noticed without an fsync counts only if nothing is with all of them."""

    def broken(*given: object) -> None:
        raise Broken("T4", "always")

    monkeypatch.setattr(power, "power_loss", broken)
    for kind in power.KINDS.values():
        tally = Tally("power", "", lambda *_: None)
        power.without_each(kind, kind().make, "store", tally)
        assert tally.figures["store: of these noticed"] == tally.figures["store: fsyncs left out"]
        assert tally.part().wrong == ["failed: store: ['T4'] are broken with every fsync in its place"]


def test_a_stock_is_of_prefixes(tmp_path: Path) -> None:
    keys = stock(tmp_path / "shelf", 120, older=True)
    assert len(set(keys)) == 120
    parents = dict(links(120, toys.LAYOUT))
    assert [key for key in keys if parents[key] is None] == [keys[0], keys[DEEP], keys[2 * DEEP]]
    assert toys.same(toys.block(toys.LAYOUT, 1, 2), toys.block(toys.LAYOUT, 1, 2))
    assert not toys.same(toys.block(toys.LAYOUT, 1, 2), toys.block(toys.LAYOUT, 1, 3))
    assert not toys.same(None, toys.block(toys.LAYOUT, 1, 2))
