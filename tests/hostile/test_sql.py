"""Hostile SQL: huge, deep, or named to do harm. It is answered or refused in seconds, with a short SqlError, and an
error changes nothing."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import whence

SECONDS = 20.0  # of processor time, for inputs that a quadratic step would keep busy for minutes
MESSAGE = 700  # characters


@pytest.fixture
def db() -> whence.Database:
    found = whence.open()
    found.execute("""
        CREATE TABLE t (a INT, b BIGINT, s TEXT);
        CREATE TABLE u (a INT, c TEXT);
        CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t GROUP BY a
    """)
    found.insert("t", [(1, 2, "x"), (2, 3, "y")])
    return found


def run(db: whence.Database, sql: str) -> whence.WhenceError | None:
    """Run the SQL; the error it ended in, which must be ours, short, and have changed nothing."""
    epoch, rows, names = db.epoch, sorted(db["t"].rows), (db.tables, db.views)
    began = time.process_time()
    error = None
    try:
        db.execute(sql)
    except whence.WhenceError as failure:
        error = failure
        assert len(str(error)) < MESSAGE
        assert (db.epoch, sorted(db["t"].rows), (db.tables, db.views)) == (epoch, rows, names)
    assert time.process_time() - began < SECONDS
    db.insert("t", [(77, 0, "still alive")])
    assert (77, 1) in db["v"].rows
    db.delete("t", [(77, 0, "still alive")])
    return error


# -- huge ------------------------------------------------------------------------------------------------------------

TEN_MB = 10_000_000


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO t VALUES " + "(1,2,'abc')," * (TEN_MB // 12),
        "SELECT a FROM t WHERE a IN (" + "12345," * (TEN_MB // 6),
        "SELECT '" + "x" * TEN_MB + "'",
        "/*" + "x" * TEN_MB + "*/ SELECT 1",
        "\x01~^" * (TEN_MB // 3),
        "SELECT 1;" * (TEN_MB // 9),
    ],
    ids=["values", "in", "literal", "comment", "garbage", "statements"],
)
def test_ten_megabytes_are_refused_at_once(db: whence.Database, sql: str) -> None:
    error = run(db, sql)
    assert isinstance(error, whence.SqlError)
    assert "at most 4,000,000 are read at once" in str(error)


BIG = 3_900_000


@pytest.mark.parametrize(
    ("sql", "says"),
    [
        ("INSERT INTO t VALUES " + "(1,2,'abc')," * (BIG // 12), "more than 300,000 words and signs"),
        ("SELECT a FROM t WHERE a IN (" + "12345," * (BIG // 6), "more than 300,000 words and signs"),
        ("," * BIG, "more than 300,000 words and signs"),
        ("abc " * (BIG // 4), "more than 300,000 words and signs"),
        ("/*" * (BIG // 2), "more than 300,000 words and signs"),
        ("SELECT 1;" * 11_000, "a script may have 10,000 statements"),
        ("SELEKT 1;" * 20_000, "line 1, column 1: syntax error"),
        ("'" + "x" * BIG, "a quote or a comment that does not end"),
        ('SELECT "' + "x" * BIG + '" FROM t', "a name of 3,900,000 characters"),
        ("SELECT " + "x" * BIG, "a name of 3,900,000 characters"),
        ("SELECT " + "1" * BIG, "a number of 3,900,000 digits"),
        ("INSERT INTO t VALUES ('" + "x" * BIG + "', 1, '')", "is not a value of type INTEGER"),
        ("INSERT INTO t VALUES ('1e999999999', 1, '')", "is not a value of type INTEGER"),
        ("CREATE VIEW w AS SELECT INTERVAL '" + "1 day " * 100_000 + "' AS i", "too long an interval"),
        ("SELECT a\ud800 FROM t", "half of a character"),
    ],
)
def test_big_text_is_refused_with_a_short_message(db: whence.Database, sql: str, says: str) -> None:
    assert says in str(run(db, sql))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT '" + "x" * BIG + "' AS s",
        "INSERT INTO u VALUES (1, '" + "x" * BIG + "')",
        "/*" + "x" * BIG + "*/ SELECT 1",
        "CREATE VIEW w AS SELECT a FROM t WHERE a IN (" + ",".join(map(str, range(8_000))) + ")",
        "INSERT INTO u VALUES " + ",".join(f"({i}, 'x')" for i in range(10_000)),
        "CREATE VIEW w AS SELECT " + ",".join(f"a + {i} AS c{i}" for i in range(2_000)) + " FROM t",
        "CREATE VIEW w AS SELECT " + ",".join(["a"] * 2_000) + " FROM t",
        "CREATE TABLE w (" + ",".join(f"c{i} INT" for i in range(5_000)) + ")",
        "".join(f"CREATE VIEW w{i} AS SELECT a FROM {f'w{i - 1}' if i else 't'};" for i in range(300)),
    ],
    ids=["literal", "insert", "comment", "in", "values", "columns", "same name", "table", "views on views"],
)
def test_big_text_that_means_something_works(db: whence.Database, sql: str) -> None:
    assert run(db, sql) is None


# -- deep ------------------------------------------------------------------------------------------------------------

NESTED: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: f"SELECT {'(' * n}a{')' * n} AS x FROM t",
    "parentheses never closed": lambda n: f"SELECT {'(' * n}",
    "parentheses never opened": lambda n: f"SELECT 1{')' * n}",
    "queries in parentheses": lambda n: f"{'(' * n}SELECT a AS x FROM t{')' * n}",
    "subqueries": lambda n: f"{'SELECT a + 1 AS a FROM (' * n}SELECT a FROM t{') AS x' * n}",
    "doubling subqueries": lambda n: f"{'SELECT a - a AS a FROM (' * n}SELECT a FROM t{') AS x' * n} WHERE a > 3",
    "grouped subqueries": lambda n: f"{'SELECT a, COUNT(*) AS n FROM (' * n}SELECT a FROM t{') AS x GROUP BY a' * n}",
    "EXISTS": lambda n: f"SELECT a FROM t WHERE {'EXISTS (SELECT 1 FROM u WHERE ' * n}u.a = 1{')' * n}",
    "IN": lambda n: f"SELECT a FROM t WHERE {'a IN (SELECT a FROM u WHERE ' * n}a = 1{')' * n}",
    "WITH": lambda n: f"{'WITH x AS (' * n}SELECT a FROM t{') SELECT a FROM x' * n}",
    "NOT": lambda n: f"SELECT {'NOT ' * n}(a = 1) AS x FROM t",
    "minus": lambda n: f"SELECT {'- ' * n}a AS x FROM t",
    "CASE": lambda n: f"SELECT {'CASE WHEN a = 1 THEN ' * n}a{' END' * n} AS x FROM t",
    "CASE as subject": lambda n: f"SELECT {'CASE ' * n}a{' WHEN 1 THEN 2 WHEN 2 THEN 3 END' * n} AS x FROM t",
    "calls": lambda n: f"SELECT {'abs(' * n}a{')' * n} AS x FROM t",
    "CAST": lambda n: f"SELECT {'CAST(' * n}a{' AS INT)' * n} AS x FROM t",
    "casts in a row": lambda n: f"SELECT a{'::INT::TEXT' * n} AS x FROM t",
    "IS NULL in a row": lambda n: f"SELECT a{' IS NULL' * n} AS x FROM t",
    "subscripts": lambda n: f"SELECT a{'[1]' * n} AS x FROM t",
    "dots": lambda n: f"SELECT a{'.a' * n} AS x FROM t",
    "lists": lambda n: f"SELECT {'[' * n}1{']' * n} AS x",
    "power": lambda n: f"SELECT {'2 ** ' * n}a AS x FROM t",
    "lambdas": lambda n: f"SELECT {'x -> ' * n}1 AS x",
    "joins in parentheses": lambda n: f"SELECT 1 AS x FROM {'(' * n}t{' CROSS JOIN u)' * n}",
}


@pytest.mark.parametrize("shape", NESTED)
def test_what_is_too_deep_is_refused(db: whence.Database, shape: str) -> None:
    for prefix, levels in (
        ("", 1_000),
        ("CREATE VIEW w AS ", 1_000),
        ("EXPLAIN ", 1_000),
        ("INSERT INTO u (a) ", 8_000),
    ):
        error = run(db, prefix + NESTED[shape](levels))
        assert isinstance(error, whence.SqlError)
        assert error.line == 1, str(error)


def test_a_hundred_thousand_levels_are_refused(db: whence.Database) -> None:
    for shape in ("parentheses", "NOT"):
        assert "nested too deeply: at most 100 levels" in str(run(db, NESTED[shape](100_000)))


@pytest.mark.parametrize("shape", NESTED)
def test_what_is_nearly_too_deep_is_answered_or_refused(db: whence.Database, shape: str) -> None:
    for levels in (10, 60, 95):
        run(db, NESTED[shape](levels))
        run(db, "CREATE OR REPLACE VIEW w AS " + NESTED[shape](levels))


@pytest.mark.parametrize(
    "call", ["CASE {} WHEN 1 THEN 2 WHEN 2 THEN 3 END", "({} BETWEEN 1 AND 2)::INT", "nullif({}, 1)", "fmod({}, 2)"]
)
def test_what_duckdb_would_write_out_again_and_again_is_refused(db: whence.Database, call: str) -> None:
    sql = "a"
    for _ in range(40):
        sql = call.format(sql)
    assert "nested too deeply" in str(run(db, f"SELECT {sql} FROM t"))


def test_a_thread_and_a_caller_deep_in_its_own_calls_fare_no_worse() -> None:
    """Threads have smaller stacks, and callers may have used up much of Python's own limit."""
    outcome: list[Any] = []

    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
            return
        db = whence.open()
        db.execute("CREATE TABLE t (a INT); CREATE TABLE u (a INT)")
        for shape in NESTED.values():
            for sql in (shape(60), "CREATE OR REPLACE VIEW w AS " + shape(60)):
                try:
                    db.execute(sql)
                except Exception as failure:
                    outcome.append(failure)

    thread = threading.Thread(target=deep, args=(sys.getrecursionlimit() // 3,))
    thread.start()
    thread.join()
    assert [e for e in outcome if not isinstance(e, whence.WhenceError)] == []


@pytest.mark.parametrize(
    "query",
    [
        "SELECT a FROM t WHERE " + " AND ".join(f"a <> {i}" for i in range(2_000)),
        "SELECT a FROM t WHERE " + " OR ".join(f"a = {i}" for i in range(2_000)),
        "SELECT a FROM t WHERE " + " OR ".join(f"a = {i} AND b = {i}" for i in range(300)),
        " UNION ".join(f"SELECT a + {i} AS a FROM t" for i in range(200)),
        "SELECT CASE " + " ".join(f"WHEN a = {i} THEN {i}" for i in range(700)) + " END AS x FROM t",
        "SELECT coalesce(" + ",".join(["a"] * 3_000) + ") AS x FROM t",
        "SELECT t0.a FROM t t0 " + " ".join(f"JOIN t t{i} ON t{i}.a = t0.a" for i in range(1, 20)),
        "WITH "
        + ",".join(f"c{i} AS (SELECT a FROM {f'c{i - 1}' if i else 't'})" for i in range(90))
        + "SELECT a FROM c89",
    ],
    ids=["AND", "OR", "AND and OR", "UNION", "CASE", "coalesce", "joins", "CTEs"],
)
def test_what_is_long_but_flat_works(db: whence.Database, query: str) -> None:
    assert run(db, query) is None
    assert run(db, "CREATE VIEW w AS " + query) is None
    assert sorted(db["w"].rows, key=str) == sorted(db.query(query).rows, key=str)


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT " + "+".join(["a"] * 10_000) + " AS x FROM t", "nested too deeply"),
        ("SELECT " + "||".join(["s"] * 10_000) + " AS x FROM t", "nested too deeply"),
        (" UNION ".join(["SELECT a FROM t"] * 1_500), "a statement may have 1,000 UNIONs"),
        (" EXCEPT ".join(["SELECT a FROM t"] * 900), "nested too deeply"),
        ("SELECT 1 AS x FROM t t0" + "".join(f", t t{i}" for i in range(1_000)), "a FROM may join 64 relations"),
        (
            "WITH c0 AS (SELECT a FROM t)"
            + "".join(f", c{i} AS (SELECT x.a FROM c{i - 1} x JOIN c{i - 1} y ON x.a = y.a)" for i in range(1, 40))
            + " SELECT a FROM c39",
            "too large: more than 100,000 operations",
        ),
        ("SELECT a FROM t WHERE " + " AND ".join([f"a IN (SELECT a + {i} FROM u)" for i in range(300)]), "too deeply"),
    ],
    ids=["+", "||", "UNION", "EXCEPT", "joins", "doubling CTEs", "subqueries"],
)
def test_what_a_view_cannot_follow_is_refused(db: whence.Database, query: str, says: str) -> None:
    assert says in str(run(db, "CREATE VIEW w AS " + query))


# -- names -----------------------------------------------------------------------------------------------------------

NAMES = [
    "../../etc/passwd",
    "/etc/passwd",
    "file.csv",
    "https://example.com/x.parquet",
    "a\nb",
    'a"b',
    "a'b",
    'x"; DROP TABLE y; --',
    "x'; DROP TABLE y; --",
    "--",
    "/*",
    "\U0001f600",
    "É",
    "İ",
    "ß",
    "select",
    "table",
    "a.b",
    "$",
    "$1",
    "%s",
    "{0}",
    "\\",
    " ",
    "*",
    "1",
    "rowid",
    "main",
    "memory",
    "information_schema",
    "duckdb_settings",
    "query",
    "x" * 1_000,
]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_a_name_and_nothing_else(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    db, q = whence.open(), quoted(name)
    db.execute("CREATE TABLE y (a INT); INSERT INTO y VALUES (1)")
    db.execute(f"CREATE TABLE {q} ({q} INT PRIMARY KEY)")
    db.execute(f"INSERT INTO {q} ({q}) VALUES (1)")
    db.insert(name, [{name: 2}])
    db.execute(f"CREATE VIEW w AS SELECT {q}, COUNT(*) AS n FROM {q} GROUP BY {q}")
    assert sorted(db.query(f"SELECT x.{q} FROM {q} AS x JOIN y ON x.{q} = y.a").rows) == [(1,)]
    assert sorted(db.query(f"SELECT {q} FROM w WHERE {q} > 0").rows) == [(1,), (2,)]
    assert db.query(f"WITH {q} AS (SELECT 7 AS {q}) SELECT {q} FROM {q}").rows == [(7,)]
    assert db.update(name, {name: 3}, {name: 2}) == db.execute(f"DELETE FROM {q} WHERE {q} = 3").count == 1
    db.execute(f"DROP TABLE {q} CASCADE")
    db.execute(f"CREATE VIEW {q} AS SELECT a AS {q} FROM y UNION SELECT {q} + 1 FROM {q} WHERE {q} < 3")
    assert sorted(db.query(f"SELECT * FROM {q}").rows) == [(1,), (2,), (3,)]
    assert db["y"].rows == [(1,)]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name", ["", "a\0b", "\0", "\ud800", "x" * 10_000], ids=["empty", "a NUL", "NUL", "half", "long"]
)
def test_what_is_no_name_is_refused(db: whence.Database, name: str) -> None:
    q = quoted(name)
    for sql in (
        f"CREATE TABLE {q} (a INT)",
        f"CREATE TABLE w ({q} INT)",
        f"CREATE VIEW {q} AS SELECT a FROM t",
        f"CREATE VIEW w AS SELECT a AS {q} FROM t",
        f"SELECT a AS {q} FROM t",
        f"WITH {q} AS (SELECT 1) SELECT * FROM {q}",
        f"SELECT * FROM {q}",
    ):
        error = run(db, sql)
        assert isinstance(error, whence.SqlError)
        assert error.line == 1


def test_a_name_of_a_cte_and_of_a_table_means_each_in_its_place(db: whence.Database) -> None:
    found = db.query("SELECT a FROM t WHERE EXISTS (WITH t AS (SELECT 1 AS b) SELECT b FROM t)")
    assert sorted(found.rows) == [(1,), (2,)]


# -- what DuckDB could do ----------------------------------------------------------------------------------------------

REACHING = [
    "SELECT * FROM '{file}'",
    "FROM '{file}'",
    'SELECT * FROM "{file}"',
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM read_blob('{file}')",
    "SELECT * FROM read_json('{file}')",
    "SELECT * FROM read_parquet('{file}')",
    "SELECT * FROM parquet_scan('{file}')",
    "SELECT * FROM sniff_csv('{file}')",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM main.read_csv('{file}')",
    "SELECT * FROM \"read_csv\"('{file}')",
    "SELECT (SELECT COUNT(*) FROM read_text('{file}'))",
    "SELECT 1 WHERE EXISTS (FROM '{file}')",
    "SELECT * FROM t, read_text('{file}')",
    "SELECT a FROM t UNION ALL SELECT 1 FROM read_text('{file}')",
    "WITH x AS (SELECT * FROM read_csv('{file}')) SELECT * FROM x",
    "SELECT * FROM query('SELECT 1')",
    "SELECT * FROM query('FROM ''{file}''')",
    "SELECT * FROM query_table('t')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM pragma_version()",
    "SELECT * FROM enable_profiling()",
    "SELECT * FROM enable_logging()",
    "SELECT * FROM checkpoint()",
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM main.t",
    "SELECT getenv('HOME')",
    "SELECT current_setting('home_directory')",
    "SELECT write_log('x')",
    "SELECT main.write_log('x')",
    "SELECT nextval('s')",
    "SELECT $1",
    "SELECT ?",
    "COPY t TO '{folder}/out.csv'",
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "COPY t FROM '{file}'",
    "WITH x AS (COPY t TO '{folder}/out.csv') SELECT 1",
    "SELECT * FROM (COPY t TO '{folder}/out.csv')",
    "SELECT 1; COPY t TO '{folder}/out.csv'",
    "ATTACH '{folder}/x.db'",
    "EXPORT DATABASE '{folder}/x'",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{folder}/x.so'",
    "PRAGMA version",
    "SET enable_external_access = true",
    "RESET ALL",
    "CALL pragma_version()",
    "CREATE SECRET (TYPE s3)",
    "CREATE MACRO m(x) AS x",
    "SELECT a INTO x FROM t",
]


@pytest.mark.parametrize("sql", REACHING)
@pytest.mark.parametrize("prefix", ["", "CREATE VIEW w AS ", "INSERT INTO u ", "EXPLAIN "])
def test_nothing_reaches_beyond_the_tables(db: whence.Database, prefix: str, sql: str, tmp_path: Path) -> None:
    file = tmp_path / "file.csv"
    file.write_text("a\n1\n")
    error = run(db, prefix + sql.format(file=file, folder=tmp_path))
    assert isinstance(error, whence.SqlError)
    assert list(tmp_path.iterdir()) == [file]


def test_python_variables_are_not_tables(db: whence.Database) -> None:
    import pyarrow

    secret = pyarrow.table({"a": [1]})
    assert "there is no table or view" in str(run(db, "SELECT * FROM secret"))
    del secret


def test_functions_of_the_user_may_have_refused_names(db: whence.Database) -> None:
    db.create_function("getenv", lambda name: f"<{name}>", args=["TEXT"], returns="TEXT")
    assert db.query("SELECT getenv('HOME') AS x").rows == [("<HOME>",)]
