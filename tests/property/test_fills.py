"""Loads that outweigh what is there, in any order and any parts: the same views, and a failed load leaves no trace.

What counts as large is set to a few rows, so that small batches take the way of bulk loads.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whence
from tests import inside
from tests.depth import examples
from tests.oracle import Batch, Twin, Update, assert_rows, load, on_partitions, with_provenance
from whence.engine.core import fill

TABLES = """
    CREATE TABLE member (who INT, grp INT);
    CREATE TABLE nested (grp INT, parent INT);
    CREATE TABLE granted (grp INT, doc INT);
    CREATE TABLE doc (doc INT PRIMARY KEY, name TEXT, size DECIMAL(12, 2));
    CREATE TABLE denied (who INT, doc INT);
"""
RECURSIVE = """
    CREATE VIEW belongs AS
      SELECT who, grp FROM member
      UNION
      SELECT belongs.who, nested.parent FROM belongs JOIN nested ON belongs.grp = nested.grp;
"""
VIEWS = """
    CREATE VIEW allowed AS
      SELECT b.who, g.doc, b.grp, d.name FROM belongs b JOIN granted g ON g.grp = b.grp JOIN doc d ON d.doc = g.doc;
    CREATE VIEW may_read AS
      SELECT DISTINCT a.who, a.doc FROM allowed a
      WHERE NOT EXISTS (SELECT 1 FROM denied x WHERE x.who = a.who AND x.doc = a.doc);
    CREATE VIEW twice AS
      SELECT a.who, b.doc FROM granted g JOIN member a ON a.grp = g.grp JOIN granted b ON b.grp = g.doc;
    CREATE VIEW used AS SELECT doc, name FROM doc WHERE doc IN (SELECT doc FROM granted);
    CREATE VIEW named AS SELECT g.grp, d.name FROM granted g LEFT JOIN doc d ON d.doc = g.doc;
    CREATE VIEW figures AS
      SELECT who, COUNT(*) AS n, COUNT(DISTINCT name) AS names, MIN(name) AS first, MAX(doc) AS last FROM allowed
      GROUP BY who;
    CREATE VIEW sizes AS SELECT COUNT(*) AS n, SUM(size) AS total, MAX(name) AS last FROM doc;
    CREATE VIEW doubles AS SELECT grp, SUM(CAST(doc AS DOUBLE) / 4) AS total FROM granted GROUP BY grp;
    CREATE VIEW head AS SELECT who, grp FROM member ORDER BY grp DESC, who LIMIT 3;
    CREATE VIEW idle AS SELECT grp FROM nested EXCEPT SELECT grp FROM granted;
    CREATE VIEW busy AS SELECT grp FROM member INTERSECT ALL SELECT grp FROM granted;
"""
PROGRAMS = {policy: (TABLES + RECURSIVE + VIEWS, policy) for policy in ("support", "dred")} | {
    algebra: (with_provenance(TABLES + RECURSIVE + VIEWS, f"maintain = '{algebra}'"), "support")
    for algebra in ("absorption", "relative")
}
every_program = pytest.mark.parametrize("program", PROGRAMS)

number = st.integers(0, 4)
pair = st.tuples(number, number)
named = st.tuples(number, st.sampled_from(["a", "b", "c", None]), st.integers(0, 9))
update = st.one_of(
    *(st.tuples(st.just(name), pair, st.just(1)) for name in ("member", "nested", "granted", "denied")),
    st.tuples(st.just("doc"), named, st.just(1)),
)
loads = st.lists(st.tuples(st.lists(update, min_size=1, max_size=12), st.booleans()), min_size=1, max_size=5)


@contextmanager
def large_from(rows: int) -> Iterator[None]:
    """Let batches of so many rows count as large."""
    with mock.patch.object(fill, "LEAST", rows):
        yield


def images(db: whence.Database) -> dict[str, Any]:
    """All state that a snapshot would write, but for sums of DOUBLE, which keep their width."""
    found = {key: part() for key, _, part in inside.dataflow(db).parts()}
    return {
        f"{key}/{name}": array.copy()
        for key, image in found.items()
        for name, array in image.items()
        if "words" not in image
    }


def assert_same_images(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert before.keys() == after.keys()
    for key, array in before.items():
        assert np.array_equal(array, after[key]), key


@every_program
@settings(max_examples=examples(12))
@given(batches=loads, least=st.sampled_from([1, 2, 6]))
def test_loads_in_any_parts_and_after_failures_are_recomputed(
    program: str, batches: list[tuple[list[Update], bool]], least: int
) -> None:
    sql, policy = PROGRAMS[program]
    with large_from(least):
        twin = Twin(sql, policy)
        try:
            for batch, fails in batches:
                if fails:
                    twin.abort(batch)
                twin.apply(batch)
            for batch, _ in reversed(batches):  # what was filled is kept up to date
                gone = [(table, row, -1) for table, row, _ in batch if row in twin.tables[table]][:1]
                if gone:
                    twin.apply(gone)
        finally:
            twin.close()


@every_program
@settings(max_examples=examples(5))
@given(batch=st.lists(update, min_size=4, max_size=30), later=st.lists(update, max_size=5))
def test_both_orders_hold_the_same_and_no_one_has_to_listen(program: str, batch: Batch, later: Batch) -> None:
    sql, policy = PROGRAMS[program]
    with large_from(2):
        twin = Twin(sql, policy)
        try:
            twin.apply(batch)
            with twin.open() as alone:  # has no feeds, so changes of views are dropped on the way
                load(alone, batch)
                load(alone, later)
                twin.apply(later)
                for name in alone.views:
                    if name != "poisoned":
                        assert_rows(alone[name].rows, twin.db[name].rows, name)
            twin.check_splits([batch[: len(batch) // 2], batch[len(batch) // 2 :], later])
        finally:
            twin.close()


@every_program
@settings(max_examples=examples(5))
@given(batch=st.lists(update, min_size=1, max_size=20), more=st.lists(update, max_size=4))
def test_a_failed_load_into_empty_tables_leaves_the_very_state(program: str, batch: Batch, more: Batch) -> None:
    sql, policy = PROGRAMS[program]
    with large_from(1):
        twin = Twin(sql, policy)
        try:
            empty = images(twin.db)
            twin.abort(batch)
            assert_same_images(empty, images(twin.db))
            twin.apply(batch)
            twin.apply(more)
        finally:
            twin.close()


def test_a_failed_load_over_little_leaves_the_very_state() -> None:
    sql, policy = PROGRAMS["support"]
    little: Batch = [("member", (0, 1), 1), ("nested", (1, 2), 1), ("granted", (2, 3), 1), ("doc", (3, "a", 1), 1)]
    much: Batch = [
        *((("member"), (who, who % 4), 1) for who in range(60)),
        *(("nested", (grp, grp + 1), 1) for grp in range(2, 12)),
        *(("granted", (grp, doc), 1) for grp in range(12) for doc in range(4)),
        *(("doc", (doc, f"name {doc}", doc), 1) for doc in range(4, 20)),
    ]
    with large_from(4):
        twin = Twin(sql, policy)
        twin.apply(little)
        before = images(twin.db)
        twin.abort(much)
        assert_same_images(before, images(twin.db))
        twin.apply(much)
        twin.apply([("denied", (who, 3), 1) for who in range(60)])
        twin.close()


def test_a_load_that_a_recursion_refuses_leaves_the_very_state() -> None:
    with large_from(1), whence.open(recursion_limit=20) as db:
        db.execute("""
            CREATE TABLE step (a INT, b INT);
            CREATE VIEW way WITH (policy = 'dred') AS
              SELECT a, b FROM step UNION SELECT way.a, step.b FROM way JOIN step ON way.b = step.a;
            CREATE VIEW depth AS SELECT a, COUNT(*) AS n FROM way GROUP BY a;
        """)
        before = images(db)
        with pytest.raises(whence.RecursionLimitError):
            db.insert("step", [(i, i + 1) for i in range(60)])
        assert_same_images(before, images(db))
        db.insert("step", [(i, i + 1) for i in range(10)])
        assert len(db["way"]) == 55


@settings(max_examples=examples(4))
@given(batches=loads)
def test_partitions_take_loads_too(batches: list[tuple[list[Update], bool]]) -> None:
    sql, policy = PROGRAMS["support"]
    with large_from(1), on_partitions(2):
        twin = Twin(sql, policy)
        try:
            for batch, fails in batches:
                if fails:
                    twin.abort(batch)
                twin.apply(batch)
        finally:
            twin.close()


def test_a_load_of_rows_that_expire_can_fail_and_be_repeated() -> None:
    rows = [(number, number % 3) for number in range(20)]
    now = [0.0]
    with large_from(1), whence.open(clock=lambda: now[0]) as db:
        db.execute("""
            CREATE TABLE seen (x INT, y INT) WITH (ttl = '10 s');
            CREATE TABLE poison (x TEXT);
            CREATE VIEW per AS SELECT y, COUNT(*) AS n FROM seen GROUP BY y;
            CREATE VIEW poisoned AS SELECT CAST(x AS INT) AS n FROM poison;
        """)
        before = images(db)
        with pytest.raises(whence.EvaluationError):
            load(db, [*(("seen", row, 1) for row in rows), ("poison", ("none",), 1)])
        assert_same_images(before, images(db))
        db.insert("seen", rows)
        assert_rows(db["per"].rows, [(0, 7), (1, 7), (2, 6)])
        now[0] = 5
        db.insert("seen", [(0, 0), (100, 0)])
        now[0] = 12
        assert_rows(db["per"].rows, [(0, 2)])
