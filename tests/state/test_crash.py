"""A process that dies at any write point leaves exactly what was acknowledged, or that and the operation in flight.

Each child is forked, carries out a workload, says after each operation that it is done, and is killed with SIGKILL at
its write point. The parent then opens the folder, compares it with the states it may hold, goes on with the workload
from there, and opens it once more.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.depth import seeds, some
from tests.faults import Deadly, Unplugged, Watched, dies, done_before_death
from tests.workload import Op, Session, State, abandon, check_views, history, state_of, workload

SLICES = 8
_MEMORY = Path("/dev/shm")  # a kill does not depend on syncs, so let them cost nothing


@pytest.fixture
def folder() -> Iterator[Path]:
    where = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where, prefix="whence-crash-") as made:
        yield Path(made) / "db"


@cache
def known(seed: int, size: int, snapshots: int) -> tuple[list[Op], list[State]]:
    """A workload and its states, whose views DuckDB agrees with."""
    ops = workload(seed, size, snapshots)
    states = history(ops)
    for state in states:
        check_views(state)
    return ops, states


def killed(path: Path, ops: list[Op], at: int, tear: float | None = None, **options: Any) -> int | None:
    """Let a child carry out a workload and be killed at a write point; how many operations it had finished.

    None if it came to its end alive, as it does when it has fewer write points."""

    def work(tell: int) -> None:
        session = Session(path, Deadly(at, tear=tear), **options)
        for op in ops:
            session.perform(op)
            os.write(tell, b".")
        session.db.close()

    return done_before_death(work)


def check_survivor(path: Path, ops: list[Op], states: list[State], done: int, further: int = 1) -> State:
    """The folder holds what was acknowledged, or that and the next operation; it goes on from there and lasts.

    What it held at first is given back."""
    session = Session(path)
    session.now = ops[max(done - 1, 0)].at
    found = state_of(session.db)
    allowed = states[done : done + 2]
    assert found in allowed, f"after {done} operations: epoch {found.epoch}, allowed {[s.epoch for s in allowed]}"
    reached = done + max(at for at, state in enumerate(allowed) if state == found)
    later = ops[reached : reached + further]
    for number, op in enumerate(later, reached + 1):
        session.perform(op)
        assert state_of(session.db) == states[number]
    last = reached + len(later)
    if done % 2:
        session.db.close()
    else:
        abandon(session.db)
    with Session(path).db as db:
        assert state_of(db) == states[last]
    return found


def count(path: Path, ops: list[Op], **options: Any) -> int:
    """How many write points a workload visits."""
    disk = Watched()
    session = Session(path, disk, **options)
    for op in ops:
        session.perform(op)
    session.db.close()
    shutil.rmtree(path)
    return disk.visited


@pytest.mark.parametrize("part", some(range(SLICES), 3))
def test_killed_at_every_write_point(folder: Path, part: int) -> None:
    ops, states = known(1, 24, 2)
    total = count(folder, ops)
    assert total > 250
    for at in range(1 + part, total + 1, SLICES):
        done = killed(folder, ops, at)
        assert done is not None, f"write point {at} of {total} was not reached"
        check_survivor(folder, ops, states, done)
        shutil.rmtree(folder)


def write_points(path: Path, ops: list[Op]) -> list[int]:
    """The write points of a workload at which bytes are written, as those can be torn."""
    found: list[int] = []

    class Noting(Watched):
        def visit(self, point: str, path: Path) -> None:
            if point == "write":
                found.append(self.visited)

    session = Session(path, Noting())
    for op in ops:
        session.perform(op)
    session.db.close()
    shutil.rmtree(path)
    return found


@pytest.mark.parametrize("part", some(range(4), 2))
def test_killed_in_the_middle_of_every_write(folder: Path, part: int) -> None:
    ops, states = known(2, 16, 1)
    rng = random.Random(part)
    for at in write_points(folder, ops)[part::4]:
        done = killed(folder, ops, at, tear=rng.choice([0.02, 0.3, 0.7, 0.99]))
        assert done is not None
        assert check_survivor(folder, ops, states, done) == states[done], "half a record counts as none"
        shutil.rmtree(folder)


def test_killed_while_recovering(folder: Path) -> None:
    ops, states = known(2, 16, 1)
    torn = write_points(folder, ops)[-3]
    done = killed(folder, ops, torn, tear=0.5)
    assert done is not None
    for at in range(1, 1000):
        if killed(folder, [], at) is None:
            break
    assert at > 5
    check_survivor(folder, ops, states, done)


@pytest.mark.parametrize("seed", seeds(5, 10))
def test_random_workloads_killed_at_random_points(folder: Path, seed: int) -> None:
    """With snapshots in the background after every few records, so that every run has other points in another order."""
    ops, states = known(seed, 20, 2)
    rng = random.Random(seed)
    options = {"snapshot_records": rng.randrange(3, 9)}
    total = count(folder, ops, **options)
    for _ in range(5):
        tear = rng.choice([None, 0.5])
        done = killed(folder, ops, rng.randrange(20, total - 20), tear, **options)
        if done is not None:
            check_survivor(folder, ops, states, done)
        shutil.rmtree(folder)


def unplugged(path: Path, ops: list[Op], at: int, rng: random.Random, **options: Any) -> int:
    """Let the power go at a write point; how many operations were finished."""
    disk = Unplugged(at, tear=rng.choice([None, 0.4]))
    done = 0

    def run(disk: Any) -> None:
        nonlocal done
        session = Session(path, disk, **options)
        try:
            for op in ops:
                session.perform(op)
                done += 1
            session.db.close()
        finally:
            abandon(session.db)

    assert dies(run, disk)
    disk.lose_power(rng)
    return done


@pytest.mark.parametrize("seed", seeds(4, 20))
def test_power_lost_under_commit(folder: Path, seed: int) -> None:
    ops, states = known(seed, 14, 2)
    rng = random.Random(seed)
    total = count(folder, ops)
    for at in rng.sample(range(1, total + 1), 16):
        done = unplugged(folder, ops, at, rng)
        check_survivor(folder, ops, states, done)
        shutil.rmtree(folder)


@pytest.mark.parametrize("durability", ["interval", "none"])
@pytest.mark.parametrize("seed", [20, 21])
def test_power_lost_when_epochs_are_not_synced(folder: Path, seed: int, durability: str) -> None:
    """Some prefix of the epochs is there, and all that `sync`, a snapshot or closing had made stable."""
    ops, states = known(seed, 14, 2)
    rng = random.Random(seed)
    options = {"durability": durability, "sync_interval": 3600.0}
    total, kept_back = count(folder, ops, **options), 0
    for at in rng.sample(range(1, total + 1), 16):
        done = unplugged(folder, ops, at, rng, **options)
        stable = max((i for i, op in enumerate(ops[:done], 1) if op.kind in ("sync", "snapshot", "reopen")), default=0)
        with Session(folder).db as db:
            found = state_of(db)
        assert found in states[stable : done + 2]
        kept_back += found not in states[done : done + 2]
        shutil.rmtree(folder)
    assert kept_back, "a workload that never loses anything tests nothing"
