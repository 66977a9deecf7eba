"""Joins of some inputs that views keep: which are chosen, that views share them, and that no choice changes a row."""

from __future__ import annotations

import random
from collections import Counter
from itertools import combinations
from pathlib import Path
from typing import Any

import duckdb
import pytest

import whence
from tests.depth import seeds
from whence.engine.core.operator import Batch, upwards
from whence.engine.relational.join import Join
from whence.engine.relational.join_steps import extended
from whence.plan.partitions.distribute import plan_component
from whence.plan.rewrite.keep_joins import KeptJoin, in_order, read_outside, top_joins
from whence.runtime.catalog import Catalog

TABLES = """
CREATE TABLE a (k INT, g INT); CREATE TABLE b (k INT, x INT);
CREATE TABLE c (g INT, y INT); CREATE TABLE d (x INT, z INT)
"""
QUERIES = {
    "v": "SELECT a.k, b.x, c.y, d.z FROM a, b, c, d WHERE a.k = b.k AND a.g = c.g AND b.x = d.x AND c.y < d.z + 4",
    "w": "SELECT b.x, COUNT(*) AS n, SUM(c.y) AS s FROM c, a, b WHERE a.k = b.k AND a.g = c.g GROUP BY b.x",
    "u": "SELECT DISTINCT v.k, w.n FROM v JOIN w ON v.x = w.x",
}


def catalog_of(db: whence.Database) -> Catalog:
    return db._coordinator.catalog


def keep_of(db: whence.Database, view: str, names: str, columns: str = "") -> KeptJoin:
    """Return what keeps the join of some tables in a view."""
    catalog = catalog_of(db)
    component = next(c for c in catalog.components if view in c.views)
    node = plan_component(component, catalog.planned, 10).node
    assert node is not None
    (flat,) = top_joins(node)[:1]
    inputs = [i for i, source in enumerate(flat.sources) if source.names[0] in names.split()]
    order = in_order(flat, inputs)
    found = sorted(read_outside(flat, inputs), key=lambda c: (order.index(c[0]), c[1]))
    if columns:
        found = [(i, c) for i in order for c in range(len(flat.sources[i].schema))]
    return KeptJoin(view, 0, order, tuple(found))


def joins_of(db: whence.Database, view: str) -> list[Join]:
    return [op for op in upwards([catalog_of(db).backend.operator(view)]) if isinstance(op, Join)]


def change(rng: random.Random, rows: dict[str, list[tuple[int, int]]], *targets: object) -> None:
    """Delete some rows and insert others, in each of the databases."""
    for name, held in rows.items():
        gone = [held.pop(rng.randrange(len(held))) for _ in range(rng.randrange(3)) if held]
        new = [(rng.randrange(5), rng.randrange(5)) for _ in range(rng.randrange(4))]
        held += new
        for target in targets:
            if isinstance(target, whence.Database):
                target.delete(name, gone)
                target.insert(name, new)


def expected(rows: dict[str, list[tuple[int, int]]]) -> dict[str, Counter[tuple[object, ...]]]:
    with duckdb.connect() as peer:
        for each in TABLES.split(";"):
            peer.execute(each)
        for name, held in rows.items():
            if held:
                peer.executemany(f"INSERT INTO {name} VALUES (?, ?)", held)
        for view, query in QUERIES.items():
            peer.execute(f"CREATE VIEW {view} AS {query}")
        return {view: Counter(peer.execute(f"SELECT * FROM {view}").fetchall()) for view in QUERIES}


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("partitions", [None, 2])
def test_any_kept_join_before_every_epoch_gives_the_rows_of_duckdb(seed: int, partitions: int | None) -> None:
    rng = random.Random(seed)
    rows: dict[str, list[tuple[int, int]]] = {name: [] for name in "abcd"}
    with whence.open(partitions=partitions) as db:
        db.execute(TABLES + ";" + ";".join(f"CREATE VIEW {view} AS {query}" for view, query in QUERIES.items()))
        for _ in range(8):
            tables = rng.choice([t for n in (2, 3) for t in combinations("abcd", n)])
            keeps = [keep_of(db, "v", " ".join(tables))]
            if rng.random() < 0.5:
                keeps.append(keep_of(db, "w", "a b", "all"))
            catalog_of(db).keep(keeps if rng.random() < 0.8 else [])
            with db.transaction():
                change(rng, rows, db)
            found = expected(rows)
            for view in QUERIES:
                assert Counter(db[view].rows) == found[view], (view, keeps)


def test_views_that_keep_the_same_join_share_it() -> None:
    with whence.open() as db:
        db.execute(TABLES + ";" + ";".join(f"CREATE VIEW {view} AS {query}" for view, query in QUERIES.items()))
        assert catalog_of(db).keep([keep_of(db, "v", "a b", "all"), keep_of(db, "w", "a b", "all")])
        first, second = ([op for op in joins_of(db, view) if len(op.inputs) == 2] for view in "vw")
        assert {id(op) for op in first} & {id(op) for op in second}
        assert "join of 3" in db.explain("v")
        assert catalog_of(db).keep([])
        assert "join of 4" in db.explain("v")


@pytest.mark.parametrize("partitions", [None, 2])
def test_kept_joins_are_there_after_reopening(tmp_path: Path, partitions: int | None) -> None:
    rng = random.Random(7)
    rows: dict[str, list[tuple[int, int]]] = {name: [] for name in "abcd"}
    with whence.open(tmp_path / "db", partitions=partitions) as db:
        db.execute(TABLES + ";" + ";".join(f"CREATE VIEW {view} AS {query}" for view, query in QUERIES.items()))
        for _ in range(3):
            change(rng, rows, db)
        assert catalog_of(db).keep([keep_of(db, "v", "a b c")])
        before = db.explain("v")
        db.snapshot()
        change(rng, rows, db)
    with whence.open(tmp_path / "db", partitions=partitions) as db:
        assert "join of 2" in before
        assert [line.split("[")[0] for line in db.explain("v").splitlines() if "join of" in line] == [
            line.split("[")[0] for line in before.splitlines() if "join of" in line
        ]
        epoch, past = db.epoch, Counter(db["v"].rows)
        change(rng, rows, db)
        found = expected(rows)
        assert {view: Counter(db[view].rows) for view in QUERIES} == found
        assert Counter(db.at(epoch)["v"].rows) == past
        if partitions is None and (row := next(iter(db["v"].rows), None)) is not None:
            assert db.why("v", row=row).witnesses
        assert db.what_if(delete={"a": rows["a"][:1]}) is not None
        assert {view: Counter(db[view].rows) for view in QUERIES} == found


CHAIN = """
CREATE TABLE tick (c INT, n INT); CREATE TABLE cell (c INT, b INT); CREATE TABLE block (b INT, a INT);
CREATE TABLE area (a INT, city INT);
CREATE VIEW first AS
  SELECT tick.n, area.city FROM tick, cell, block, area WHERE tick.c = cell.c AND cell.b = block.b AND block.a = area.a;
CREATE VIEW second AS
  SELECT area.city, tick.c, COUNT(*) AS n FROM area, tick, block, cell
  WHERE tick.c = cell.c AND cell.b = block.b AND block.a = area.a AND tick.n > 3 GROUP BY area.city, tick.c;
"""


def fill_chain(db: whence.Database) -> None:
    """Give each cell many blocks, of which one in fifty is in an area."""
    with db.transaction():
        db.insert("cell", [(c, b) for c in range(20) for b in range(c, 400, 2)])
        db.insert("block", [(b, b) for b in range(400)])
        db.insert("area", [(a, a % 3) for a in range(0, 400, 50)])
    for n in range(60):
        db.insert("tick", [(n % 20, n)])


def test_join_is_kept_where_it_saves_probes_and_shared_by_views(monkeypatch: pytest.MonkeyPatch) -> None:
    matches: list[int] = []

    def counted(*args: Any) -> Batch:
        found = extended(*args)
        matches.append(len(found))
        return found

    monkeypatch.setattr("whence.engine.relational.join.extended", counted)
    with whence.open() as db, whence.open() as plain:
        for each in (db, plain):
            each.execute(CHAIN)
            fill_chain(each)
        chosen = catalog_of(db).better_keeps(worth=1)
        assert {keep.view for keep in chosen} == {"first", "second"}
        assert all(len(keep.inputs) == 3 for keep in chosen), "all but the ticks, which change"
        assert db._coordinator.keep_joins(worth=1)
        kept = [next(op for op in joins_of(db, view) if len(op.inputs) == 3) for view in ("first", "second")]
        assert kept[0] is kept[1]
        assert not db._coordinator.keep_joins(worth=1), "nothing is left to be kept"
        looked = []
        for each in (db, plain):
            matches.clear()
            for n in range(100):
                each.insert("tick", [(n % 20, n)])
            each.insert("area", [(7, 1)])
            each.delete("cell", [(3, 3)])
            looked.append(sum(matches))
        assert 10 * looked[0] < looked[1], looked
        for view in ("first", "second"):
            assert Counter(db[view].rows) == Counter(plain[view].rows)


def test_nothing_is_kept_of_empty_tables_nor_where_it_does_not_pay() -> None:
    with whence.open() as db:
        db.execute(CHAIN)
        assert not catalog_of(db).better_keeps(worth=1)
        fill_chain(db)
        assert not catalog_of(db).better_keeps(), "some microseconds are not worth a relation"
    with whence.open() as db:
        db.execute(CHAIN.replace("CREATE VIEW first AS", "CREATE VIEW first WITH (adapt = 'off') AS"))
        fill_chain(db)
        assert {keep.view for keep in catalog_of(db).better_keeps(worth=1)} == {"second"}


def test_join_is_kept_by_itself_after_a_load_when_it_has_proved_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whence.adapt.keeping.WORTH", 1)
    with whence.open() as db:
        db.execute(CHAIN)
        fill_chain(db)
        for n in range(150):
            db.insert("tick", [(i % 20, 200 * n + i) for i in range(200)])
        assert catalog_of(db).planner.keeps
        assert Counter(db["first"].rows) == Counter(
            db.query("SELECT tick.n, area.city FROM tick, cell, block, area "
                     "WHERE tick.c = cell.c AND cell.b = block.b AND block.a = area.a").rows
        )  # fmt: skip
