"""Parameters: values in the place of `?`, `$1`, `:name` and `$name`."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

import whence
from whence import DataError, SqlError
from whence.sql.parameters import bind_parameters
from whence.sql.parse import parse, parse_one
from whence.sql.position import write_sql

UTC = dt.UTC


def bound(sql: str, params: Any) -> str:
    [statement] = bind_parameters([parse_one(sql)], params)
    return write_sql(statement.query)


@pytest.fixture
def db():
    with whence.open() as db:
        db.execute("CREATE TABLE t (id INT, name TEXT)")
        db.insert("t", [(1, "ada"), (2, "bob"), (3, None)])
        db.create_table_function("one", lambda x: [(x,)], args=["INT"], returns="(y INT)")
        yield db


# -- styles


@pytest.mark.parametrize(
    ("sql", "params"),
    [
        ("SELECT id FROM t WHERE name = ? AND id < ?", ["ada", 2]),
        ("SELECT id FROM t WHERE id < $2 AND name = $1", ("ada", 2)),
        ("SELECT id FROM t WHERE name = $1 AND $1 = name", ["ada"]),
        ("SELECT id FROM t WHERE name = :who AND id < $most", {"who": "ada", "most": 2}),
        ("SELECT id FROM t WHERE name=:select AND :order=id", {"select": "ada", "order": 1}),
        ("SELECT id FROM t WHERE name = ? LIMIT ? OFFSET ?", ["ada", 5, 0]),
    ],
)
def test_styles(db, sql, params):
    assert db.query(sql, params).rows == [(1,)]
    assert db.query(sql.replace("FROM t", "FROM t, one(1)"), params).rows == [(1,)]  # on our own operators


def test_question_marks_are_counted_through_a_script(db):
    sql = "INSERT INTO t VALUES (?, ?); DELETE FROM t WHERE id = ?; SELECT id FROM t ORDER BY id LIMIT ?"
    assert db.execute(sql, [7, "x", 1, 2]).rows == [(2,), (3,)]


def test_names_are_for_the_whole_script(db):
    results = list(db.script("INSERT INTO t VALUES (:n, :w); SELECT name FROM t WHERE id = :n", {"n": 9, "w": "z"}))
    assert results[-1].rows == [("z",)]


def test_nothing_runs_if_a_later_statement_lacks_a_value(db):
    with pytest.raises(SqlError, match=r"line 2, column 24: no value for the parameter :b"):
        db.execute("DELETE FROM t WHERE id = :a;\nDELETE FROM t WHERE id=:b", {"a": 1})
    assert len(db["t"]) == 3


@pytest.mark.parametrize(
    ("sql", "params", "message"),
    [
        ("SELECT ?, :a", [1], "line 1, column 11: [?] and :a are mixed"),
        ("SELECT ?, $1", [1], "line 1, column 11: [?] and [$]1 are mixed"),
        ("SELECT $1, $a", [1], "line 1, column 12: [$]1 and [$]a are mixed"),
        ("SELECT ?,\n ?", [1], "line 2, column 2: no value for the parameter [?], number 2: 1 value is given"),
        ("SELECT $3", [1], "line 1, column 8: no value for the parameter [$]3: 1 value is given"),
        ("SELECT $0", [1], "no value for the parameter [$]0"),
        ("SELECT ?", None, "no value for the parameter [?], number 1: 0 values are given"),
        ("SELECT :a", None, "no value for the parameter :a; give it by name"),
        ("SELECT :nmae", {"name": 1}, 'column 8: no value for the parameter :nmae; did you mean "name"'),
        ("SELECT :a", [1], "column 8: no value for the parameter :a; give it by name in a dict such as {'a': …}"),
        ("SELECT ?", {"a": 1}, "column 8: [?] takes its value from a list or tuple, but params is a dict"),
        ("SELECT ?", [1, 2], "value 2 of params is not used"),
        ("SELECT $2", [1, 2], "value 1 of params is not used"),
        ("SELECT 1", [1], "value 1 of params is not used"),
        ("SELECT :a", {"a": 1, "b": 2}, "the value of 'b' in params is not used"),
        ("SELECT * FROM ?", ["t"], "column 15: [?] is a value; the name of a table cannot be a parameter"),
        ("SELECT id FROM t ORDER BY ?", [1], "column 27: [?] is a value; a column to order by cannot"),
        ("SELECT id FROM t GROUP BY :a", {"a": "id"}, "column 27: :a is a value; a column to group by cannot"),
        ("SELECT 1 AS ?", ["x"], "column 13: [?] is a value; a name cannot be a parameter"),
        ("INSERT INTO t (?, name) VALUES (1, 'x')", ["id"], "column 16: [?] is a value, and none can stand here"),
        ("DROP TABLE ?", ["t"], "column 12: .*expected the name of a table"),
        ("SELECT id FROM t LIMIT ?", [-1], "column 24: LIMIT takes a whole number from 0 on, not -1"),
        ("SELECT id FROM t LIMIT 1 OFFSET ?", ["x"], "column 33: OFFSET takes a whole number"),
        ("SELECT id IN ? FROM t", [5], "column 14: IN [?] takes a list of values, not 5"),
        ("SELECT id = ANY(?) FROM t", [5], "column 17: ANY and ALL take a list"),
        ("SELECT (id, name) IN ? FROM t", [[1]], "column 22: IN compares tuples of 2 values, and the list has 1"),
        ("CREATE VIEW v AS SELECT id FROM t WHERE id = ?", [1], "column 46: CREATE takes no parameters: .*outlives"),
        ("CREATE TABLE u (x INT) WITH (ttl = ?)", ["1 s"], "column 36: CREATE takes no parameters"),
        ("WITH RECURSIVE v AS (SELECT id FROM t WHERE id = ?)", [1], "column 50: CREATE takes no parameters"),
        ("EXPLAIN CREATE VIEW v AS SELECT ? AS x", [1], "column 33: CREATE takes no parameters"),
    ],
)
def test_refusals_name_the_parameter_and_its_place(db, sql, params, message):
    with pytest.raises(SqlError, match=message):
        db.execute(sql, params)
    assert db.tables == ["t"]
    assert not db.views


@pytest.mark.parametrize("params", ["x", b"x", 5, {1, 2}, object(), iter([1])])
def test_params_is_a_sequence_or_a_mapping(db, params):
    with pytest.raises(DataError, match="params is a list or tuple of values, or a dict by name"):
        db.query("SELECT ?", params)


@pytest.mark.parametrize(
    "value", [b"bytes", object(), {"a": 1}, dt.time(1), 2**63, -(2**63), "\ud800", 1j, Decimal("sNaN"), [[1]]]
)
def test_other_values_are_refused_by_name(db, value):
    with pytest.raises(DataError, match=r"the parameter :x \(line 1, column 8\)"):
        db.query("SELECT :x", {"x": value})


def test_a_colon_is_a_parameter_only_where_an_operand_begins():
    sql = "SELECT x: 5, y:z, {'a':b}, a[:b], a[1:c], [:d], :e::INT"
    named = 'SELECT 5 AS x, z AS y, {\'a\': b}, a[:b], a[1:c], [1] AS "[$d]", CAST(2 AS INT) AS "CAST($e AS INT)"'
    assert bound(sql, {"d": 1, "e": 2}) == named
    assert [p.text for p in parse_one("SELECT x AT TIME ZONE :a, x AT TIME ZONE $b").parameters] == [":a", "$b"]
    assert [p.text for p in parse_one("SELECT '?', \"?\", $$?$$ /* ? */, ? -- :x").parameters] == ["?"]


def test_binding_leaves_the_parsed_statement_as_it_was():
    statement = parse_one("SELECT * FROM t WHERE a IN ? AND b = ANY(?) AND c = ?")
    before = repr(statement.query)
    for params in ([[1], [2], 3], [[], ["x", None], "it's"]):
        [found] = bind_parameters([statement], params)
        assert not found.parameters
        assert repr(statement.query) == before


def test_columns_are_named_by_the_text(db):
    assert db.query("SELECT ?, ? + 1, :x AS y".replace(":x", "?"), [1, 2, 3]).columns == ["?", "? + 1", "y"]
    assert db.query("SELECT :a FROM t, one(1)", {"a": 1}).columns == ["$a"]


# -- lists


@pytest.mark.parametrize("source", ["t", "t, one(1)"])
@pytest.mark.parametrize(
    ("condition", "params", "ids"),
    [
        ("id IN ?", [[1, 3]], [1, 3]),
        ("id IN (?)", [[1, 3]], [1, 3]),
        ("id IN (?)", [1], [1]),
        ("id IN (?, ?, 3)", [(1,), 2], [1, 2, 3]),
        ("id = ANY(?)", [{2}], [2]),
        ("id <> ALL(?)", [range(1, 3)], [3]),
        ("id NOT IN ?", [np.array([1, 2])], [3]),
        ("id IN ?", [[]], []),
        ("id NOT IN ?", [[]], [1, 2, 3]),
        ("name IN ?", [["ada", None]], [1]),
        ("NOT name = ANY(?)", [frozenset()], [1, 2, 3]),
        ("name NOT IN ?", [["ada", None]], []),
        ("(id, name) IN ?", [[(1, "ada"), (2, "x")]], [1]),
    ],
)
def test_lists(db, source, condition, params, ids):
    assert sorted(db.query(f"SELECT id FROM {source} WHERE {condition}", params).rows) == [(i,) for i in ids]
    changed = db.what_if(f"DELETE FROM t WHERE {condition}", params).tables
    assert [row[0] for row in changed["t"].deleted] == ids if ids else not changed


def test_lists_elsewhere_are_lists_of_duckdb(db):
    assert db.query("SELECT list_contains(?, id) AS x FROM t ORDER BY id", [[1, 2]]).rows == [
        (True,),
        (True,),
        (False,),
    ]
    assert db.query("SELECT id FROM t WHERE id > ALL(?)", [[1, 2]]).rows == [(3,)]
    with pytest.raises(SqlError, match="an array is not supported"):
        db.delete("t", where="id > ?", params=[[1]])


def test_a_list_of_no_values_still_checks_its_column(db):
    with pytest.raises(SqlError, match="nmae"):
        db.delete("t", where="nmae IN ?", params=[[]])


# -- values


TYPES: dict[str, hs.SearchStrategy[Any]] = {
    "BOOLEAN": hs.booleans() | hs.booleans().map(np.bool_),
    "INTEGER": hs.integers(-(2**31), 2**31 - 1) | hs.integers(-100, 100).map(np.int8),
    "BIGINT": hs.integers(-(2**63) + 1, 2**63 - 1) | hs.integers(-(2**62), 2**62).map(np.int64),
    "DOUBLE": hs.floats() | hs.floats(width=32).map(np.float32),
    "DECIMAL(38,10)": hs.decimals(-(10**28) + 1, 10**28 - 1, places=10)
    | hs.integers(-(10**28) + 1, 10**28 - 1).map(Decimal),
    "TEXT": hs.text()
    | hs.sampled_from(["'; DROP TABLE t; --", "''", "\\'", "\0", "$1", ":a", "?", "%s", "/*", '"', "\n"]),
    "DATE": hs.dates(),
    "TIMESTAMP": hs.datetimes() | hs.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=hs.timezones()),
    "INTERVAL": hs.timedeltas(dt.timedelta(-(10**6)), dt.timedelta(10**6))
    | hs.builds(whence.Interval, *(hs.integers(-1000, 1000),) * 3),
}


@pytest.fixture(scope="module")
def typed():
    with whence.open() as db:
        for number, type in enumerate(TYPES):
            db.execute(f"CREATE TABLE t{number} (x {type})")
        db.create_table_function("one", lambda x: [(x,)], args=["INT"], returns="(y INT)")
        yield db


def same(a: Any, b: Any) -> bool:
    return repr(a) == repr(b) or (isinstance(a, float) and math.isnan(a) and math.isnan(b))


@pytest.mark.parametrize("type", TYPES)
@settings(max_examples=60, deadline=None)
@given(data=hs.data())
def test_a_parameter_is_the_value_that_insert_takes(typed, type, data):
    table = f"t{list(TYPES).index(type)}"
    value = data.draw(TYPES[type] | hs.none())
    typed.execute(f"DELETE FROM {table}")
    typed.insert(table, [(value,)])
    [(stored,)] = typed[table].rows
    typed.execute(f"DELETE FROM {table}; INSERT INTO {table} VALUES (:v)", {"v": value})
    assert same(typed[table].rows[0][0], stored)
    [(answer,)] = typed.query(f"SELECT CAST(? AS {type}) AS x", [value]).rows
    assert same(answer, typed.query(f"SELECT x FROM {table}").rows[0][0])
    for source in (table, f"{table}, one(1)"):
        sql = f"SELECT COUNT(*) AS n FROM {source} WHERE x IS NOT DISTINCT FROM $1"
        assert typed.query(sql, [value]).rows == [(1,)], source
    assert typed.delete(table, where="x IS NOT DISTINCT FROM ?", params=[value]) == 1


@settings(max_examples=60, deadline=None)
@given(hs.decimals(-(10**30), 10**30, allow_nan=False))
def test_a_decimal_has_the_type_and_digits_of_its_literal(typed, value):
    text = f"{value:f}"
    text += "." * ("." not in text)
    literal = typed.query(f"SELECT typeof({text}) AS type, {text} AS x")
    assert typed.query("SELECT typeof(:x) AS type, :x AS x", {"x": value}).rows == literal.rows


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (dt.datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin")), dt.datetime(2024, 7, 1, 10)),
        (np.datetime64("2024-07-01"), dt.date(2024, 7, 1)),
        (np.datetime64("2024-07-01T10:00:00.123456789"), dt.datetime(2024, 7, 1, 10, 0, 0, 123456)),
        (np.float64("inf"), math.inf),
        (Decimal("-Infinity"), -math.inf),
        (Decimal("1E+5"), Decimal("100000")),
        (Decimal("1." + "0" * 39 + "1"), 1.0),
        (np.str_("a"), "a"),
        (-0.0, 0.0),
    ],
)
def test_values_are_read_as_the_types_they_have(db, value, expected):
    [(found,)] = db.query("SELECT ? AS x", [value]).rows
    assert (found, type(found)) == (expected, type(expected))


def test_numpy_durations(db):
    assert db.query("SELECT TIMESTAMP '2024-01-01' + ? AS x", [np.timedelta64(90, "m")]).rows == [
        (dt.datetime(2024, 1, 1, 1, 30),)
    ]
    assert db.query("SELECT DATE '2024-01-01' + INTERVAL ? DAY AS x", [-1]).rows == [(dt.datetime(2023, 12, 31),)]


def test_a_negative_number_is_one_operand(db):
    for source in ("", " FROM t, one(1) LIMIT 1"):
        assert db.query(f"SELECT ? ^ 2 AS a, 3 - ? AS b{source}", [-2, -1]).rows == [(4.0, 4)]


# -- where else


def test_conditions_of_delete_and_update(db):
    assert db.update("t", {"name": "x"}, "id = :id AND name = :old", params={"id": 1, "old": "ada"}) == 1
    assert db.delete("t", where="id IN ?", params=[[1, 2]]) == 2
    with pytest.raises(SqlError, match="line 1, column 6: no value for the parameter"):
        db.delete("t", where="id = ?")
    with pytest.raises(SqlError, match=r"line 1, column 1: .*idd"):
        db.delete("t", where="idd = ?", params=[1])
    for call in (
        lambda: db.delete("t", [(3, None)], params=[1]),
        lambda: db.delete("t", where={"id": 3}, params=[1]),
        lambda: db.update("t", {"name": "x"}, {"id": 3}, params=[1]),
        lambda: db.update("t", {"name": "x"}, params=[1]),
    ):
        with pytest.raises(DataError, match="params is for a condition in SQL"):
            call()
    assert db["t"].rows == [(3, None)]


def test_what_if(db):
    assert len(db.what_if("DELETE FROM t WHERE id > ?", [1]).tables["t"]) == 2
    found = db.what_if(
        "INSERT INTO t VALUES (:new, 'new')",
        {"new": 9, "gone": 1, "old": "bob"},
        delete={"t": "id = :gone"},
        update={"t": ({"name": "x"}, "name = :old")},
    )
    assert found.tables["t"].inserted == [(2, "x"), (9, "new")]
    with pytest.raises(SqlError, match="'other' in params is not used"):
        db.what_if("DELETE FROM t WHERE id = :a", {"a": 1, "other": 2})
    with pytest.raises(SqlError, match="no value for the parameter :b"):
        db.what_if("DELETE FROM t WHERE id = :a", {"a": 1}, delete={"t": "id = :b"})
    with pytest.raises(SqlError, match="no value for the parameter"):
        db.what_if("DELETE FROM t WHERE id = ?", [1], delete={"t": "id = ?"})
    assert len(db["t"]) == 3


def test_explain(db):
    assert "'ada'" in db.execute("EXPLAIN SELECT id FROM t WHERE name = ?", ["ada"]).message


def test_progress_is_by_keyword(db):
    heard: list[Any] = []
    db.execute("CREATE VIEW v AS SELECT id FROM t", progress=lambda *step: heard.append(step))
    assert heard


def test_partitions_past_epochs_and_followers(tmp_path):
    with whence.open(tmp_path / "db", retain="all") as db:
        db.execute("CREATE TABLE t (x INT)")
        db.execute("INSERT INTO t VALUES (?)", [1])
        db.execute("INSERT INTO t VALUES (?)", [2])
        with whence.open(tmp_path / "db", read_only=True) as reader:
            assert reader.query("SELECT x FROM t WHERE x > ?", [1]).rows == [(2,)]
        assert db.at(1).query("SELECT x FROM t WHERE x >= :x", {"x": 1}).rows == [(1,)]
    with whence.open(partitions=2) as db:
        db.execute("CREATE TABLE t (x INT)")
        db.execute("INSERT INTO t VALUES (?), (?), (?)", [1, 2, 3])
        db.execute("UPDATE t SET x = x + ? WHERE x = ?", [10, 3])
        assert db.delete("t", where="x IN ?", params=[[1, 13]]) == 2
        assert db.query("SELECT x FROM t WHERE x = ?", [2]).rows == [(2,)]


def test_parameters_of_a_statement_are_in_order():
    [first, second] = parse("SELECT ?, :a;\n SELECT $b")
    assert [(p.key, p.line, p.column) for p in first.parameters] == [(1, 1, 8), ("a", 1, 11)]
    assert [(p.key, p.text, p.line, p.column) for p in second.parameters] == [("b", "$b", 2, 9)]
