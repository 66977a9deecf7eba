"""A folder goes from runtime to runtime: what one has written, the other goes on with, whoever was killed over it."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import whence
from tests import inside
from tests.depth import seeds
from tests.faults import Watched
from tests.oracle import assert_rows
from tests.partitioned.kills import killed, run_on, seen_by
from tests.partitioned.pairs import Pair, Side, assert_same, busy, held, with_functions
from whence.plan.algebra.program import Program
from whence.runtime import database
from whence.runtime.durable.checking import check
from whence.state.disk import Disk


def check_folder(path: Path) -> None:
    """`whence check` finds nothing wrong."""
    bare = whence.open()
    with_functions(bare)
    functions: Program = inside.coordinator(bare).program
    report = check(path, functions, Disk())
    assert not report.problems, report.problems
    assert all(view.ok for view in report.views), report.views


@pytest.mark.parametrize("seed", seeds(3))
def test_any_runtime_goes_on_with_what_another_wrote(seed: int, tmp_path: Path) -> None:
    rng = random.Random(f"interchange {seed}")
    pair = Pair(tmp_path / "db", partitions=rng.choice((1, 2, 5)))
    follower = None
    for number, op in enumerate(busy(seed, 20, snapshots=2)):
        pair.perform(op)
        if follower is None:
            follower = database.open(tmp_path / "db", read_only=True, setup=with_functions, clock=pair.plain.clock)
        assert_same(follower, pair.plain.db, f"followed, {op}")
        if number % 6 == 5:
            count = rng.choice((None, None, 1, 2, 3, 5))
            pair.reopen(**({} if count is None else {"partitions": count}))
            if rng.random() < 0.5:
                pair.other.db.snapshot()
        if number % 12 == 11:
            check_folder(tmp_path / "db")
    assert follower is not None
    follower.close()
    pair.close()
    check_folder(tmp_path / "db")


def test_the_past_is_the_same_on_every_runtime(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "db", partitions=2, retain="all")
    states = {}
    for op in busy(11, 10, snapshots=1):
        pair.perform(op)
        states[pair.plain.db.epoch] = held(pair.plain.db)
    pair.reopen(partitions=3)
    for epoch in sorted(states)[-5:]:
        past = held(pair.other.db.at(epoch))
        for name in past.keys() & {"link", "reachable", "cheapest"}:
            assert_rows(past[name].elements(), states[epoch][name].elements(), f"{name} at {epoch}")
    pair.close()


def test_a_writer_that_is_killed_anywhere_leaves_all_or_nothing(tmp_path: Path) -> None:
    ops = [op for op in busy(5, 9, snapshots=2) if op.kind != "sync"]
    states = seen_by(ops)
    disk = Watched()
    run_on(tmp_path / "whole", disk, ops, partitions=2)
    points = random.Random(0).sample(range(1, disk.visited + 1), 10)
    for at in points:
        path = tmp_path / f"db{at}"
        done = killed(path, ops, at, partitions=2)
        assert done is not None, f"lived at {at} of {disk.visited}"
        count = random.Random(at).choice((None, 1, 2, 3))
        side = Side(path, now=ops[max(done - 1, 0)].at, **({} if count is None else {"partitions": count}))
        found = side.db.epoch, held(side.db)
        reached = [done + i for i, state in enumerate(states[done : done + 2]) if state == found]
        assert reached, f"killed at {at} of {disk.visited}, {done} operations done, opened on {count}"
        for number in range(reached[-1], min(reached[-1] + 2, len(ops))):
            side.perform(ops[number])
            assert (side.db.epoch, held(side.db)) == states[number + 1]
        side.db.close()
