"""Rows named by primary key, by columns and values, by some of their columns: deleting, updating and asking."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import whence
from tests import inside
from whence.engine.core import key_lookup as lookups
from whence.model.errors import DataError, MissingRowError

RUNTIMES: list[dict[str, Any]] = [{}, {"partitions": 3}]


@pytest.fixture(params=RUNTIMES, ids=["embedded", "partitions"])
def db(request: pytest.FixtureRequest) -> Iterator[whence.Database]:
    with whence.open(**request.param) as database:
        database.execute("""
            CREATE TABLE k (id TEXT PRIMARY KEY, x INT);
            CREATE TABLE pair (a INT, b TEXT, x DOUBLE, PRIMARY KEY (a, b));
            CREATE TABLE bag (a INT, b INT);
            CREATE VIEW total AS SELECT COUNT(*) AS n, SUM(x) AS s FROM k
        """)
        database.insert("k", [("a", 1), ("b", 2), ("c", 3), ("d", None)])
        database.insert("pair", [(1, "u", 0.5), (1, "v", 1.5), (2, "u", 2.5)])
        database.insert("bag", [(1, 1), (1, 1), (1, 2), (2, 2), (None, 3)])
        yield database


def rows(db: whence.Database, table: str) -> list[tuple[Any, ...]]:
    return sorted(db[table].rows, key=repr)


def test_partial_dict_is_a_condition(db: whence.Database) -> None:
    assert db.delete("k", {"id": "a"}) == 1
    assert rows(db, "k") == [("b", 2), ("c", 3), ("d", None)]
    assert db["total"].rows == [(3, 5)]


def test_partial_dict_deletes_every_copy_and_a_full_one_deletes_one(db: whence.Database) -> None:
    assert db.delete("bag", {"b": 1, "a": 1}) == 1
    assert db.delete("bag", {"a": 1}) == 2
    assert rows(db, "bag") == [(2, 2), (None, 3)]


def test_what_if_by_key_shows_the_loss(db: whence.Database) -> None:
    assert db.what_if(delete={"k": {"id": "b"}})["total"].deleted == [(4, 6)]
    assert db.what_if(delete={"k": "id = 'b' OR x > 2"}).tables["k"].deleted == [("b", 2), ("c", 3)]
    assert db.what_if(update={"k": ({"x": 7}, {"id": ["a", "b"]})})["total"].inserted == [(4, 17)]
    assert len(db["k"]) == 4


def test_none_in_a_condition_is_null(db: whence.Database) -> None:
    assert db.delete("k", where={"x": None}) == 1
    assert db.delete("bag", {"a": None}) == 1
    assert db.update("bag", {"a": None}, {"b": 2}) == 2
    assert rows(db, "bag") == [(1, 1), (1, 1), (None, 2), (None, 2)]


def test_list_in_a_condition_is_in(db: whence.Database) -> None:
    assert db.delete("k", where={"id": ["a", "b", "zz"]}) == 2
    assert db.delete("bag", where={"a": {1, 2}, "b": range(2)}) == 2
    assert db.delete("bag", where={"a": []}) == 0
    assert db.update("k", {"x": 0}, {"x": [3, None]}) == 2
    assert rows(db, "k") == [("c", 0), ("d", 0)]


def test_keys_of_one_and_of_several_columns(db: whence.Database) -> None:
    assert db.delete("k", key="a") == 1
    assert db.delete("k", key=["b", ("c",), "b", "zz"]) == 2
    assert db.delete("k", key=np.array(["zz", "yy"])) == db.delete("k", key=pd.Series(["zz"])) == 0
    assert db.delete("pair", key=(1, "u")) == 1
    assert db.update("pair", {"x": 9.0}, key={"b": "v", "a": 1}) == 1
    assert db.delete("pair", key=[(2, "u"), (3, "u")]) == 1
    assert rows(db, "k") == [("d", None)]
    assert rows(db, "pair") == [(1, "v", 9.0)]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_frame_with_some_columns_is_conditions(db: whence.Database, make: Any) -> None:
    assert db.delete("k", make({"ID": ["a", "zz", "c"]})) == 2
    assert db.delete("bag", make({"a": pa.array([1, None], pa.int32()).to_pylist()})) == 4
    assert rows(db, "k") == [("b", 2), ("d", None)]
    assert rows(db, "bag") == [(2, 2)]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet"])
def test_file_with_some_columns_is_conditions(db: whence.Database, tmp_path: Path, suffix: str) -> None:
    path, ids = tmp_path / f"gone.{suffix}", ["a", "zz", "c"]
    if suffix == "jsonl":
        path.write_text("".join(json.dumps({"id": i}) + "\n" for i in ids) + '{"id": "b", "x": 2}\n{"x": null}\n')
    elif suffix == "csv":
        path.write_text("\n".join(["id", *ids]) + "\n")
    else:
        pd.DataFrame({"id": ids}).to_parquet(path)
    assert db.delete("k", path) == (4 if suffix == "jsonl" else 2)
    assert rows(db, "k") == ([] if suffix == "jsonl" else [("b", 2), ("d", None)])


def test_writes_of_the_transaction_are_found(db: whence.Database) -> None:
    with db.transaction():
        db.insert("k", [("e", 5), ("a", 10)])
        assert db.update("k", {"x": 6}, key=["e", "a"]) == 2
        assert db.delete("k", {"x": 6}) == 2
        assert db.delete("k", key="a") == 0
        assert db.delete("k", [("b", 2), {"id": "b"}]) == 1
        with pytest.raises(MissingRowError), db.transaction():
            db.delete("k", key=["c", "a"], strict=True)
        assert db.delete("k", key="c", strict=True) == 1
    assert rows(db, "k") == [("d", None)]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"key": ["a", "zz"]}, "table k: no row with id = 'zz' to delete"),
        ({"data": [("b", 2), {"id": "a"}, {"id": "zz"}]}, "table k: no row with id = 'zz' to delete"),
        ({"data": {"id": ["zz", "a"], "x": [7]}}, "'zz', 'a'"),
        ({"data": pa.table({"id": ["a", "zz"]})}, "table k: no row with id = 'zz' to delete"),
        ({"where": {"x": [7, 8]}}, "table k: no row with {'x': [7, 8]} to delete"),
        ({"where": "x > 7"}, "table k: no row with 'x > 7' to delete"),
    ],
)
def test_strict_names_what_is_missing(db: whence.Database, given: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError if "data" in given else MissingRowError) as caught:
        db.delete("k", strict=True, **given)
    assert said in str(caught.value)
    assert len(db["k"]) == 4


@pytest.mark.parametrize(
    ("table", "given", "said"),
    [
        ("k", {"data": {"idd": "a"}}, 'no column idd in (id TEXT, x INTEGER); did you mean "id"?'),
        ("k", {"data": [{"id": "a"}, {"y": 1}]}, "no column y"),
        ("k", {"where": {"idd": "a"}}, 'did you mean "id"?'),
        ("k", {"data": {}}, "a condition needs a column"),
        ("k", {"where": {}}, "a condition needs a column"),
        ("bag", {"where": {"a": range(2000), "b": range(2000)}}, "more than 1,000,000 combinations"),
        ("k", {"data": {"ID": "a", "id": "b"}}, "given twice"),
        ("k", {"data": {"x": "one"}}, "column x: 'one' (str) is not a value of type INTEGER"),
        ("k", {"key": ("a", 1)}, "('a', 1) is not a key (id)"),
        ("pair", {"key": [1, "u"]}, "1 is not a key (a, b) (a key is a tuple, and a list has several keys)"),
        ("pair", {"key": {"a": 1}}, "a key has the columns a, b"),
        ("bag", {"key": 1}, "table bag has no primary key: name its rows by where={column: value}"),
        ("k", {}, "delete takes one of rows, key=… or where=…"),
        ("k", {"key": "a", "where": {"id": "a"}}, "delete takes one of"),
        ("k", {"data": "a"}, "expected rows"),
    ],
)
def test_unclear_deletion_is_refused(db: whence.Database, table: str, given: dict[str, Any], said: str) -> None:
    with pytest.raises(DataError) as caught:
        db.delete(table, **given)
    assert said in str(caught.value)
    assert len(db["k"]) == 4


def test_update_by_key_and_where_is_refused(db: whence.Database) -> None:
    with pytest.raises(DataError, match="not both"):
        db.update("k", {"x": 1}, {"id": "a"}, key="a")
    with pytest.raises(DataError, match="a condition needs a column"):
        db.update("k", {"x": 1}, {})


def test_unknown_text_does_not_grow_the_dictionary(db: whence.Database) -> None:
    words = len(inside.dictionary(db))
    db.delete("k", {"id": "never seen"})
    db.delete("k", key="never seen either")
    db.execute("DELETE FROM k WHERE id = 'nor this'")
    assert len(inside.dictionary(db)) <= words + 1  # evaluating a predicate interns its constants


def test_streams_refuse_conditions(db: whence.Database) -> None:
    db.execute("CREATE STREAM s (a INT)")
    for given in ({"data": {"a": 1}}, {"where": {"a": 1}}, {"where": "a = 1"}, {"data": [(1,)]}):
        with pytest.raises(whence.WhenceError, match="stream"):
            db.delete("s", **given)


# -- indexes -----------------------------------------------------------------------------------------------------------


def test_lookup_by_other_columns_builds_an_index_and_keeps_few() -> None:
    db = whence.open()
    db.execute("CREATE TABLE t (a INT PRIMARY KEY, b INT, c INT, d INT, e INT, f INT)")
    db.insert("t", [(i, i % 997, i % 499, i % 7, i % 11, i % 13) for i in range(5000)])
    relation = inside.table(db, "t").relation
    db.delete("t", where={"a": 1, "b": 1})
    db.delete("t", where={"b": 5})
    assert set(relation.indexes) == {(0,)}
    db.delete("t", where={"b": 6})
    assert set(relation.indexes) == {(0,), (1,)}
    for column in ("c", "d", "e", "f"):
        for value in (1, 2):
            db.execute(f"UPDATE t SET {column} = -1 WHERE {column} = {value}")
    assert set(relation.indexes) == {(0,), (2,), (3,), (4,), (5,)}
    db.execute("CREATE VIEW v AS SELECT x.a, y.a AS z FROM t AS x JOIN t AS y ON x.c = y.c AND x.a < y.a WHERE x.b = 9")
    for column in ("b", "d", "e", "f"):
        db.delete("t", where={column: 3})
        db.delete("t", where={column: 4})
    expected = db.query("SELECT COUNT(*) FROM t AS x JOIN t AS y ON x.c = y.c AND x.a < y.a WHERE x.b = 9").rows
    assert [(len(db["v"]),)] == expected
    db.execute("DROP VIEW v")
    left = db.query("SELECT COUNT(*) FROM t WHERE c = -1").rows[0][0]
    assert left > 0
    assert db.delete("t", where={"c": -1}) == left


@pytest.mark.parametrize("options", RUNTIMES, ids=["embedded", "partitions"])
def test_sql_conditions_find_what_a_scan_finds(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookups, "SMALL", 0)
    chance = random.Random(13)
    terms = [
        *("a = 1", "1 = a", "a IN (1, 2, NULL)", "a IS NULL", "a = 3000000000", "a = 1.0", "a = b", "a = 1 + 1"),
        *("b IS NOT DISTINCT FROM 2", "b = NULL", "b IS NOT DISTINCT FROM NULL", "c = 'x'", "c IN ('y', 'none')"),
        *("d = 0.5", "d = 0", "d = -0.0", "m = 1.5", "m = 1", "m = 1.55", "o", "NOT o", "o = TRUE", "b > 1"),
        *("(a, b) IN ((1, 2), (2, 1))", "a = 1 OR a = 2", "a = 1 OR b = 2", "(a = 1 AND b = 1) OR (a = 2 AND c = 'x')"),
        *("t = DATE '2024-01-02'", "NOT (a = 1)", "COALESCE(a, 0) = 0", "i = INTERVAL '30 days'", "i IS NULL"),
    ]
    with whence.open(**options) as db:
        db.execute("""CREATE TABLE t (a INT, b BIGINT, c TEXT, d DOUBLE, m DECIMAL(6, 2), o BOOLEAN, t DATE,
                      i INTERVAL);
                      CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t GROUP BY a""")
        values = [
            *(["NULL", "1", "2", "3"], ["NULL", "1", "2"], ["NULL", "'x'", "'y'"]),
            *(["NULL", "0.5", "0.0"], ["NULL", "1.5", "1"], ["NULL", "TRUE", "FALSE"]),
            ["NULL", "DATE '2024-01-02'"],
            ["NULL", "INTERVAL '30 days'", "INTERVAL '1 month'"],
        ]
        for step in range(60):
            if step % 6 == 0:
                made = (", ".join(chance.choice(some) for some in values) for _ in range(40))
                db.execute(f"INSERT INTO t VALUES {', '.join(f'({row})' for row in made)}")
            where = " AND ".join(chance.sample(terms, chance.choice([1, 1, 2, 3])))
            expected = db.query(f"SELECT COUNT(*) FROM t WHERE {where}").rows[0][0]
            supposed = db.what_if(f"DELETE FROM t WHERE {where}")
            assert len(supposed.tables["t"].deleted if supposed.tables else []) == expected, where
            if expected < 10:
                assert db.execute(f"DELETE FROM t WHERE {where}").count == expected, where
            else:
                assert db.execute(f"UPDATE t SET b = b + 1 WHERE {where}").count == expected, where
            assert sorted(db["v"].rows, key=repr) == sorted(
                db.query("SELECT a, COUNT(*) FROM t GROUP BY a").rows, key=repr
            )


def test_questions_name_a_table_row_by_some_columns() -> None:
    db = whence.open()
    db.execute("CREATE TABLE t (a INT, b INT, c TEXT)")
    db.insert("t", [(i, i % 3, None if i % 2 else "x") for i in range(2000)])
    assert db.why("t", a=7).holds
    assert db.why("t", a=8, c="x").holds
    assert not db.why("t", a=8, c=None).holds
    with pytest.raises(DataError, match="667 rows of t match"):
        db.why("t", b=1)
