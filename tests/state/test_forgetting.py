"""Words are forgotten in the log: a crash at any write point, a failing disk or a lost image changes no code."""

from __future__ import annotations

import errno
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import whence
from tests import inside
from tests.depth import DEEP
from tests.faults import Deadly, Failing, Unplugged, dies, done_before_death, points
from tests.workload import abandon
from whence.model.codes import FORGOTTEN
from whence.model.errors import StorageError
from whence.state.codec import pack_forgotten, pack_words, unpack_forgotten, unpack_words
from whence.state.disk import Disk

SCRIPT = """
CREATE TABLE word (x TEXT);
CREATE VIEW loud AS SELECT x || '!' AS x, COUNT(*) AS n FROM word GROUP BY x;
CREATE VIEW ends AS SELECT MIN(x) AS low, MAX(x) AS high FROM word
"""
STEPS = 12
_MEMORY = Path("/dev/shm")


@pytest.fixture
def folder() -> Iterator[Path]:
    where = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where, prefix="whence-forget-") as made:
        yield Path(made) / "db"


def step(db: whence.Database, number: int) -> None:
    """Let words come and go, some of them again; forget those that nothing has every third time."""
    if number == 0:
        db.execute(SCRIPT)
    elif number % 3 == 0:
        db.snapshot()
    else:
        with db.transaction():
            db.insert("word", [(f"{number} {n}",) for n in range(3)] + [("often",)])
            db.execute(f"DELETE FROM word WHERE x LIKE '{number - 2} %' OR (x = 'often' AND {number % 2} = 0)")


def state(db: whence.Database) -> dict[str, Counter[Any]]:
    return {name: Counter(db[name].rows) for name in (*db.tables, *db.views)}


@cache
def states() -> list[dict[str, Counter[Any]]]:
    """What there is before the first step and after each."""
    with whence.open() as db:
        found = [state(db)]
        for number in range(STEPS):
            with suppress(whence.WhenceError):  # there are no snapshots in memory
                step(db, number)
            found.append(state(db))
        return found


def run(path: Path, disk: Disk, tell: int | None = None) -> None:
    with whence.open(path) as db:
        step(db, 0)
    db = whence.open(path, disk=disk)
    for number in range(1, STEPS):
        step(db, number)
        if tell is not None:
            os.write(tell, b".")
    db.close()


def check_survivor(path: Path, done: int) -> None:
    """The folder holds what was acknowledged, or that and the next step; it goes on from there to the same end."""
    with whence.open(path) as db:
        found, allowed = state(db), states()[done : done + 2]
        assert found in allowed
        for number in range(done + max(at for at, wanted in enumerate(allowed) if wanted == found), STEPS):
            step(db, number)
            assert state(db) == states()[number + 1]
    with whence.open(path) as db:
        assert state(db) == states()[-1]
    assert whence.check(path).ok


def test_killed_at_many_write_points(folder: Path) -> None:
    total = points(lambda disk: run(folder, disk))
    shutil.rmtree(folder)
    assert total > 60
    for at in range(1, total + 1, 1 if DEEP else 7):
        done = done_before_death(lambda tell, at=at: run(folder, Deadly(at), tell))
        assert done is not None
        check_survivor(folder, 1 + done)
        shutil.rmtree(folder)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # what is left of those who died
def test_power_lost_at_many_write_points(folder: Path) -> None:
    rng = random.Random(3)
    for at in range(1, points(lambda disk: run(folder, disk)), 5):
        shutil.rmtree(folder, ignore_errors=True)
        disk = Unplugged(at, tear=rng.choice([None, 0.5]))
        assert dies(lambda disk: run(folder, disk), disk)
        disk.lose_power(rng)
        with whence.open(folder) as db:
            assert state(db) in states()
        assert whence.check(folder).ok


def test_disk_that_refuses_while_words_are_forgotten(folder: Path) -> None:
    total = points(lambda disk: run(folder, disk))
    for at in range(20, total, 7):
        shutil.rmtree(folder, ignore_errors=True)
        with whence.open(folder) as db:
            step(db, 0)
        disk = Failing(at, errno.ENOSPC)
        done = STEPS
        db = whence.open(folder, disk=disk)
        for number in range(1, STEPS):
            try:
                step(db, number)
            except StorageError:
                done = number
                break
        disk.heal()
        for number in range(done, STEPS):
            step(db, number)
            assert state(db) == states()[number + 1]
        db.close()
        with whence.open(folder) as db:
            assert state(db) == states()[-1]


def test_image_is_lost_after_words_were_forgotten(folder: Path) -> None:
    """An earlier image and the log behind it give the same words and codes."""
    db = whence.open(folder, retain=100)
    for number in range(STEPS):
        step(db, number)
    words = inside.coordinator(db).dictionary
    wanted = state(db), words.since(0)
    assert words.holes > 3
    past = dict.fromkeys(db.retained)
    for epoch in past:
        with db.at(epoch) as then:
            assert state(then) in states()
            if epoch == db.epoch:
                assert inside.coordinator(then).dictionary.since(0) == wanted[1]
    abandon(db)
    with whence.open(folder) as db:
        assert (state(db), inside.coordinator(db).dictionary.since(0)) == wanted


def test_follower_forgets_what_the_writer_forgets(folder: Path) -> None:
    db = whence.open(folder)
    step(db, 0)
    follower = whence.open(folder, read_only=True)
    feed = follower.changes("loud")
    told: Counter[Any] = Counter()
    for number in range(1, STEPS):
        step(db, number)
        assert state(follower) == state(db)
        if number % 4 == 0:
            for change in feed:
                told[change.row] += change.sign
    for change in feed:
        told[change.row] += change.sign
    assert +told == state(db)["loud"]
    assert follower.metrics()["words_forgotten"] == db.metrics()["words_forgotten"] > 0
    assert follower.metrics()["dictionary"] == db.metrics()["dictionary"]
    follower.close()
    db.close()


def test_interrupt_between_log_and_dictionary_goes_back_to_the_log(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = whence.open(folder)
    for number in range(3):
        step(db, number)
    words = inside.coordinator(db).dictionary

    def interrupted(codes: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(words, "forget", interrupted)
    with pytest.raises(KeyboardInterrupt):
        db.snapshot()
    assert state(db) == states()[3]
    for number in range(3, STEPS):
        step(db, number)
        assert state(db) == states()[number + 1]
    db.close()
    with whence.open(folder) as db:
        assert state(db) == states()[-1]


def test_codec_of_holes_and_of_forgotten_codes() -> None:
    words = ["a", FORGOTTEN, whence.Interval(1, 2, 3), FORGOTTEN, ""]
    assert unpack_words(pack_words(words)) == words
    rng = np.random.default_rng(1)
    for size in (1, 9, 100_000):
        codes = np.unique(rng.integers(0, 2 * size, size))
        assert np.array_equal(unpack_forgotten(memoryview(pack_forgotten(codes))), codes)
    for bad in (b"", b"x" * 15, pack_forgotten(np.arange(80_000))[:-1]):
        with pytest.raises(ValueError, match=r"."):
            unpack_forgotten(memoryview(bad))
