"""Plans that change after every epoch change no row: in memory, in a folder that dies at any write, on partitions."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import pytest

import whence
from tests.adapt.random_plans import (
    DECLARED,
    VIEWS,
    adapt_randomly,
    carry_out,
    changes,
    check,
    joins,
)
from tests.depth import examples, seeds, some
from tests.faults import Mortal, dies, points
from tests.workload import abandon
from whence.model.errors import WhenceError
from whence.plan.algebra.join_paths import JoinOrders
from whence.runtime.spark.driver.partitioned_backend import PartitionedBackend
from whence.state.disk import Disk


def session(db: whence.Database, seed: int, epochs: int, verify: bool = True) -> None:
    """Run random epochs between random plans, some of them in vain."""
    rng = random.Random(seed)
    db.execute(DECLARED)
    db.execute(VIEWS)
    adapt_randomly(db, seed)
    for number in range(epochs):
        carry_out(db, changes(rng))
        if number % 3 == 2:
            db.what_if(insert={"a": [(1, 1)], "d": [(2, 3)]})
        if verify:
            check(db)


@pytest.mark.parametrize("seed", seeds(3))
def test_random_plans_have_the_rows_of_duckdb(seed: int) -> None:
    with whence.open(adapt="on") as db:
        session(db, seed, 10)
        assert db._coordinator.adaptation.switches >= 9
        assert {name: join.plan for name, join in joins(db).items()} == db._coordinator.catalog.orders


@pytest.mark.parametrize("seed", seeds(2))
def test_random_plans_on_partitions_have_the_rows_of_duckdb(seed: int, tmp_path: Path) -> None:
    with whence.open(tmp_path / "p.db", partitions=2, adapt="on") as db:
        session(db, seed, 6)
        wanted = dict(db._coordinator.catalog.orders)
        assert wanted, "joins were switched"
        assert all(plans == wanted for plans in plans_of_partitions(db))
    with whence.open(tmp_path / "p.db", partitions=2) as db:
        assert db._coordinator.catalog.orders == wanted
        assert all(plans == wanted for plans in plans_of_partitions(db))
        check(db)


def plans_of_partitions(db: whence.Database) -> list[dict[str, JoinOrders]]:
    """Return the plan of each decided join in every partition."""
    backend = db._coordinator.catalog.backend
    assert isinstance(backend, PartitionedBackend)
    parts = backend.runner.ask_all("read_joins", tuple(db._coordinator.catalog.orders))
    return [{name: reading.plan for name, reading in part.items()} for part in parts]


def test_process_that_dies_at_a_switch_leaves_the_plan_of_its_log(tmp_path: Path) -> None:
    """Kill it before and after every write, those of switches among them; reopen, and compare rows and plans."""

    def run(disk: Disk, folder: Path) -> None:
        db = whence.open(folder, disk=disk, adapt="on")
        left.append(db)
        session(db, 5, 4, verify=False)
        db.snapshot()
        carry_out(db, changes(random.Random(9)))
        db.close()

    left = list[whence.Database]()
    count = points(lambda disk: run(disk, tmp_path / "whole"))
    for number in some(range(1, count + 1), count)[:: max(1, count // examples(25))]:
        folder, disk = tmp_path / f"at{number}", Mortal(number)
        dies(partial(run, folder=folder), disk)
        if left:
            abandon(left.pop())
        with whence.open(folder) as db:
            if set(db.views) != {"v", "w", "s"}:
                continue
            check(db)
            orders = db._coordinator.catalog.orders
            assert {name: join.plan for name, join in joins(db).items() if name in orders} == orders
            carry_out(db, changes(random.Random(number)))
            check(db)


def test_switch_that_the_log_refuses_has_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with whence.open(tmp_path / "a.db", adapt="on") as db:
        session(db, 1, 3, verify=False)
        before, history = {n: j.plan for n, j in joins(db).items()}, db._coordinator.adaptation.switches
        adaptation, storage = db._coordinator.adaptation, db._coordinator.storage

        def refuse(record: bytes) -> None:
            raise WhenceError("no")

        monkeypatch.setattr(storage, "write_plans", refuse)
        with pytest.raises(WhenceError, match="no"):
            adaptation._look()
        assert {n: j.plan for n, j in joins(db).items()} == before == db._coordinator.catalog.orders
        assert adaptation.switches == history
        monkeypatch.undo()
        carry_out(db, changes(random.Random(2)))
        check(db)


def test_readers_and_the_past_have_the_plan_that_ran_then(tmp_path: Path) -> None:
    with whence.open(tmp_path / "r.db", adapt="on", retain="all") as db:
        session(db, 3, 3, verify=False)
        then, plans = db.epoch, dict(db._coordinator.catalog.orders)
        reader = whence.open(tmp_path / "r.db", read_only=True)
        assert reader["v"].rows is not None
        assert reader._coordinator.catalog.orders == plans
        carry_out(db, changes(random.Random(4)))
        assert db._coordinator.catalog.orders != plans
        assert sorted(reader["v"].rows) == sorted(db["v"].rows)
        assert {n: j.plan for n, j in joins(reader).items()} == db._coordinator.catalog.orders
        reader.close()
        past = db.at(then)
        assert {n: j.plan for n, j in joins(past).items()} == plans
        past.close()
    with whence.open(tmp_path / "r.db") as again:
        assert again.adapt() == "on"
        assert {n: j.plan for n, j in joins(again).items()} == again._coordinator.catalog.orders
        assert again._coordinator.adaptation.history.switches
