"""Maintained provenance in partitions: views, failed epochs and what lasts are as embedded, whatever crosses."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import whence
from tests import inside
from tests.depth import DEEP, seeds
from tests.oracle import (
    Row,
    Twin,
    Update,
    assert_rows,
    drive,
    load,
    on_partitions,
    reads,
    statements,
    strata,
    stream,
    view_text,
)
from tests.partitioned.pairs import Pair, busy
from tests.partitioned.test_random import follow
from tests.partitioned.workers import Pool
from tests.property.test_random_programs import Case, cases, profile
from tests.workload import TABLES, Op
from whence.engine.core.batch import concat
from whence.engine.core.operator import Batch
from whence.engine.exchange.wire import MessageWriter, packets
from whence.engine.recursion.fixpoint import Fixpoint, annotated_policy
from whence.runtime import database

WAYS = (
    "maintain = 'absorption'",
    "maintain = 'absorption', propagate = 'eager'",
    "maintain = 'absorption', propagate = '2 epochs'",
    "maintain = 'absorption', provenance = 'bdd'",
    "maintain = 'relative'",
    "maintain = 'relative', propagate = 'eager'",
)
every_way = pytest.mark.parametrize("way", WAYS)

NETWORK = """
    CREATE TABLE link (src INT, dst INT, cost INT);
    CREATE TABLE down (node INT);
    CREATE VIEW reachable (src, dst) WITH ({0}) AS
      SELECT src, dst FROM link
      UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
    CREATE VIEW pairs (a, b) WITH ({0}) AS
      SELECT src, dst FROM link UNION SELECT x.a, y.b FROM pairs AS x JOIN pairs AS y ON x.b = y.a;
    CREATE VIEW cheapest WITH ({0}) AS
      SELECT src, dst, MIN(cost) AS cost FROM (
        SELECT src, dst, cost FROM link
        UNION SELECT link.src, cheapest.dst, link.cost + cheapest.cost
              FROM link JOIN cheapest ON link.dst = cheapest.src) AS q GROUP BY src, dst;
    CREATE VIEW widest WITH ({0}) AS
      SELECT src, dst, MAX(cost) AS cost FROM (
        SELECT src, dst, cost FROM link
        UNION SELECT link.src, widest.dst, LEAST(link.cost, widest.cost)
              FROM link JOIN widest ON link.dst = widest.src) AS q GROUP BY src, dst;
    CREATE VIEW safe (src, dst) WITH ({0}) AS
      SELECT src, dst FROM link WHERE NOT EXISTS (SELECT 1 FROM down WHERE down.node = link.dst)
      UNION SELECT link.src, safe.dst FROM link JOIN safe ON link.dst = safe.src
            WHERE NOT EXISTS (SELECT 1 FROM down WHERE down.node = link.dst)
"""


def asked(sql: str, options: str) -> str:
    """Every view that recurses with these options."""
    parts = statements(sql)
    views = {view.name: view for s in parts if (view := view_text(s)) is not None}
    recursive = {
        name
        for stratum in strata(views)
        if len(stratum) > 1 or reads(views[stratum[0]], stratum[0])
        for name in stratum
    }
    return ";\n".join(
        s.replace(") AS ", f") WITH ({options}) AS ", 1) if (v := view_text(s)) and v.name in recursive else s
        for s in parts
    )


@profile(15)
@given(cases(recursive=True), st.sampled_from((1, 2, 3, 5)), st.sampled_from(WAYS), st.booleans())
def test_random_programs(case: Case, partitions: int, way: str, exchanged: bool) -> None:
    placed = f"{way}, partition = 'exchange'" if exchanged else way
    follow(Case(asked(case.sql, placed), case.policy, case.batches), partitions)


@every_way
@pytest.mark.parametrize("seed", seeds(1))
def test_networks(seed: int, way: str) -> None:
    """Links come and go, nodes fail and recover; each batch after one that fails; the same updates split otherwise."""
    rng = random.Random(f"{seed} {way}")
    nodes, count = rng.choice((3, 5, 7)), rng.choice((2, 3, 5))
    makers = {
        "link": lambda rng: (rng.randrange(nodes), rng.randrange(nodes), rng.randint(1, 9)),
        "down": lambda rng: (rng.randrange(nodes),),
    }
    with on_partitions(count):
        twin = Twin(NETWORK.format(f"{way}, partition = 'exchange'"))
        drive(twin, stream(f"{seed} {way}", makers, steps=6, size=3, start=nodes))
        twin.close()


@every_way
def test_equal_rows_in_several_partitions_are_several_reasons(way: str) -> None:
    """The rule that reads `seed` takes its rows where they lie, by their tag: two that differ in it alone are one."""
    tables = """CREATE TABLE seed (src INT, dst INT, tag INT) WITH (partition_by = 'tag');
                CREATE TABLE link (src INT, dst INT) WITH (partition_by = 'dst')"""
    view = f"""CREATE VIEW reach (src, dst) WITH ({way}, partition = 'exchange') AS
                SELECT src, dst FROM seed
                UNION SELECT link.src, reach.dst FROM link JOIN reach ON link.dst = reach.src"""
    with database.open(partitions=3, durability="none", on_spark={"copied_rows": 1}) as db:
        db.execute(tables)
        db.insert("link", [(0, 1), (1, 0)])
        db.insert("seed", [(1, 2, tag) for tag in range(6)])
        db.execute(view)
        assert "table seed by tag" in db.explain("reach")
        assert "ship by" not in db.explain("reach")
        for tag in range(6):
            assert set(db["reach"].rows) == {(0, 2), (1, 2)}
            db.delete("seed", [(1, 2, tag)])
        assert db["reach"].rows == []


numbers = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-99, 99), max_size=9)


@given(st.lists(st.tuples(numbers, numbers, st.binary(max_size=20)), max_size=4))
def test_letters_say_what_was_written(written: list[tuple[list[int], list[int], bytes]]) -> None:
    """One behind the other, too; one that was cut off is refused."""
    letters = [
        MessageWriter().numbers(np.array(a, np.int64)).data(c).numbers(np.array(b, np.int64)).letter()
        for a, b, c in written
    ]
    whole = concat(letters, 1)
    found = [(p.numbers().tolist(), p.data(), p.numbers().tolist(), p.ended) for p in packets(whole)]
    assert found == [(a, c, b, True) for a, b, c in written]
    if written:
        with pytest.raises(whence.DataError, match="truncated message"):
            list(packets(Batch(whole.rows[:-1], whole.ann[:-1])))


# -- what rows say -----------------------------------------------------------------------------------------------------


def reasons(ops: list[Any], view: str) -> dict[Row, set[frozenset[Row]]]:
    """The minimal witnesses of each row of a view, as the cells of their rows."""
    found = {}
    for op in ops:
        relation, policy = op.program.outputs[view], op.policy
        rows = op.live(relation)
        for row, function in zip(rows.tolist(), policy.annotations_of(relation, rows).tolist(), strict=True):
            witnesses = policy.formulas.witnesses(function, 10_000)
            cells = [policy.variables.rows(np.array(w, np.int64))[1].tolist() for w in witnesses]
            found[tuple(row)] = {frozenset(map(tuple, some)) for some in cells}
    return found


def exchanges(db: whence.Database, view: str) -> list[Fixpoint]:
    """The operators of a view in all partitions."""
    runtime: Any = inside.coordinator(db)
    ops = [
        op
        for p in range(runtime.catalog.backend.partitions)
        for op in runtime.driver.runner._here(p).partition.flow.order
    ]
    return [
        op
        for op in ops
        if isinstance(op, Fixpoint) and op.mailbox.shared and annotated_policy(op) and view in op.program.outputs
    ]


@pytest.mark.parametrize("algebra", ["absorption", "relative"])
def test_eagerly_homes_know_all_reasons(algebra: str) -> None:
    """As the one partition of an embedded database does, whatever came and went."""
    sql = NETWORK.format(f"maintain = '{algebra}', propagate = 'eager', partition = 'exchange'")
    table, _, view, *_ = sql.split(";")
    with database.open() as plain, database.open(partitions=3, durability="none") as db:
        for each in (plain, db):
            each.execute(f"{table}; {view}")
        for batch in stream(3, {"link": lambda rng: (rng.randrange(5), rng.randrange(5), 1)}, steps=6, start=8):
            for each in (plain, db):
                load(each, batch)
            port: Any = inside.coordinator(plain).catalog.backend.operator("reachable")
            assert reasons(exchanges(db, "reachable"), "reachable") == reasons([port.fixpoint], "reachable")


def test_what_is_held_is_sent_in_its_time() -> None:
    """In the third epoch from the first, and not before: counted in epochs, or by their times."""
    now, rows = [1000.0], {}
    for way in ("lazy", "2 epochs", "10 s"):
        sql = NETWORK.format(f"maintain = 'absorption', propagate = '{way}', partition = 'exchange'")
        table, _, view, *_ = sql.split(";")
        with database.open(partitions=3, durability="none", clock=lambda: now[0]) as db:
            db.execute(f"{table}; {view}")
            rows[way] = []
            for epoch in range(4):
                far = max(0, epoch - 1)
                ends = [(a, (a + 1 + epoch) % 6) if epoch < 2 else (a, a) for a in range(6)]
                load(db, [("link", (a + 10 * far, b + 10 * far, 1), 1) for a, b in ends])
                rows[way].append(db.metrics()["shipped"]["reachable"]["epoch"]["rows"])
                now[0] += 6
    for way in ("2 epochs", "10 s"):
        more = [n > least for n, least in zip(rows[way], rows["lazy"], strict=True)]
        assert more == [False, False, True, False], rows


# -- what lasts, and what comes again ----------------------------------------------------------------------------------


# Fails when the recursion is over, so that an epoch is undone from its very end.
POISON = """
    CREATE TABLE poison (x TEXT);
    CREATE VIEW poisoned AS SELECT CAST(x || CAST(cost AS TEXT) AS INT) AS n FROM poison, cheapest
"""


def network(path: Path | None, way: str, partitions: int, **options: Any) -> whence.Database:
    db = database.open(path, partitions=partitions, durability="none", **options)
    if not db.tables:
        db.execute(NETWORK.format(f"{way}, partition = 'exchange'"))
        db.execute(POISON)
    return db


def links(seed: int, steps: int) -> list[list[Update]]:
    makers = {
        "link": lambda rng: (rng.randrange(6), rng.randrange(6), rng.randint(1, 9)),
        "down": lambda rng: (rng.randrange(6),),
    }
    return stream(seed, makers, steps=steps, size=4, start=12)


def known(db: whence.Database, partition: int) -> dict[Any, Any]:
    """All that a partition's rows show and hold, in words that do not depend on slots and numbers."""
    runtime: Any = inside.coordinator(db)
    found = {}
    for op in runtime.driver.runner._here(partition).partition.flow.order:
        if isinstance(op, Fixpoint) and op.mailbox.shared and (policy := annotated_policy(op)):
            annotations = policy.annotations
            slots = np.flatnonzero(annotations.published[: annotations.slots])
            relations, cells = op.store.describe(slots)
            for slot, relation, row in zip(slots, relations.tolist(), cells.tolist(), strict=True):
                both = [
                    {
                        frozenset(map(str, np.column_stack(policy.variables.rows(np.array(w, np.int64))).tolist()))
                        for w in policy.formulas.witnesses(int(handle), 10_000)
                    }
                    for handle in (annotations.published[slot], annotations.buffered[slot])
                ]
                found[op.fingerprint, relation, tuple(row)] = both
    return found


def assert_same_views(db: whence.Database, plain: whence.Database, what: object) -> None:
    for name in plain.views:
        assert_rows(db[name].rows, plain[name].rows, f"{name}, {what}")


@pytest.mark.parametrize("way", WAYS if DEEP else [WAYS[3], WAYS[5]])
def test_a_partition_that_is_lost_comes_back_as_it_was(way: str) -> None:
    """It is made anew from what it was sent, which does not have the epochs that failed: others count on its having
    told them exactly what it told them."""
    rng = random.Random(way)
    plain = network(None, way, 1)
    with network(None, way, 3) as db:
        runtime: Any = inside.coordinator(db)
        for number, batch in enumerate(links(5, 7)):
            more = [("link", (rng.randrange(6), rng.randrange(6), rng.randint(1, 9)), 1) for _ in range(20)]
            with pytest.raises(whence.EvaluationError):
                load(db, [*more, *reversed(batch), ("poison", ("not a number",), 1)])
            lost = rng.randrange(3)
            before = known(db, lost)
            del runtime.driver.runner._local[lost]
            assert known(db, lost) == before
            load(db, batch)
            load(plain, batch)
            assert_same_views(db, plain, number)
    plain.close()


@pytest.mark.parametrize("way", [WAYS[0], WAYS[5]])
def test_images(way: str, tmp_path: Path) -> None:
    """Opened again on as many partitions, each goes on from its image; on others, all is derived anew."""
    plain, db = network(None, way, 1), network(tmp_path / "db", way, 3)
    for number, batch in enumerate(links(7, 12)):
        load(db, batch)
        load(plain, batch)
        assert_same_views(db, plain, number)
        if number % 4 == 3:
            before = [known(db, p) for p in range(3)]
            db.snapshot()
            db.close()
            if number == 7:
                with network(tmp_path / "db", way, 2) as other:
                    assert_same_views(other, plain, "on two partitions")
                    other.snapshot()
            db = network(tmp_path / "db", way, 3)
            assert_same_views(db, plain, "opened again")
            if number != 7:
                assert [known(db, p) for p in range(3)] == before
    db.close()
    plain.close()


def test_any_runtime_goes_on_with_what_another_wrote(tmp_path: Path) -> None:
    """A busy folder with maintained views in it goes from runtime to runtime."""
    ops = busy(4, 14, snapshots=2)
    at = len(TABLES)
    views = [
        f"""CREATE VIEW near{i} (a, b) WITH ({way}, partition = 'exchange') AS
              SELECT src, dst FROM link
              UNION SELECT link.src, near{i}.b FROM link JOIN near{i} ON link.dst = near{i}.a"""
        for i, way in enumerate((WAYS[0], WAYS[2], WAYS[5]))
    ]
    ops = [*ops[:at], *(Op("sql", ops[0].at, sql) for sql in views), *ops[at:]]
    pair = Pair(tmp_path / "db", partitions=2)
    for number, op in enumerate(ops):
        pair.perform(op)
        if number % 7 == 6:
            count = (3, None, 2, 5)[number // 7 % 4]
            pair.reopen(**({} if count is None else {"partitions": count}))
    pair.close()


@pytest.mark.parametrize("way", WAYS if DEEP else [WAYS[0]])
def test_jobs(way: str, tmp_path: Path) -> None:
    """As jobs or inline, on workers that die, lag behind and do things twice, with epochs that fail."""
    rng, pool = random.Random(way), Pool(way)
    plain = network(None, way, 1)
    options = {"spark": pool, "on_spark": {"host": "127.0.0.1", "inline_rows": 3}}
    db = network(tmp_path / "db", way, 3, **options)
    for number, batch in enumerate(links(11, 6)):
        runtime: Any = inside.coordinator(db)
        runtime.driver.runner.mode = rng.choice(("job", "job", "inline"))
        if number % 3 == 1:
            with pytest.raises(whence.EvaluationError):
                load(db, [*reversed(batch), ("poison", ("not a number",), 1)])
        load(db, batch)
        load(plain, batch)
        runtime.driver.runner.mode = "inline"
        assert_same_views(db, plain, number)
        if number == 4:
            db.snapshot()
    db.close()
    plain.close()


def test_a_recursion_without_end_is_stopped() -> None:
    sql = """CREATE TABLE start (n INT);
             CREATE VIEW counted (n, m) WITH (maintain = 'absorption', partition = 'exchange', recursion_limit = 50) AS
               SELECT n, n FROM start UNION SELECT m, m + 1 FROM counted"""
    with database.open(partitions=3) as db:
        db.execute(sql)
        with pytest.raises(whence.RecursionLimitError, match=r"the recursive view counted does not end.*\(n=1, "):
            db.insert("start", [(1,)])
        assert db["counted"].rows == []
        assert len(db["start"]) == 0
