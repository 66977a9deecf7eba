"""Reading: handles, ad-hoc queries, and Python functions in SQL."""

from __future__ import annotations

import datetime as dt
import gc
import os
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import whence
from whence.model.errors import CatalogError, EvaluationError, SqlError, WhenceError


@pytest.fixture
def db() -> Iterator[whence.Database]:
    with whence.open() as db:
        db.execute("""
            CREATE TABLE sale (item TEXT, price INT);
            CREATE VIEW total AS SELECT item, SUM(price) AS price FROM sale GROUP BY item;
        """)
        db.insert("sale", [("tea", 3), ("tea", 3), ("cake", None)])
        yield db


def test_a_handle_reads_in_every_shape(db: whence.Database, tmp_path: Path) -> None:
    sale = db["SALE"]
    rows: list[tuple[Any, ...]] = [("cake", None), ("tea", 3), ("tea", 3)]
    assert sorted(sale, key=repr) == sorted(sale.rows, key=repr) == rows
    assert len(sale) == 3
    assert ("tea", 3) in sale
    assert ("tea", 4) not in sale
    assert "tea" not in sale
    assert sale.columns == ["item", "price"]
    assert str(sale.schema) == "(item TEXT, price INTEGER)"
    assert sale.to_arrow().num_rows == 3
    assert sale.to_pandas().shape == (3, 2)
    assert sorted(sale.to_polars().rows(), key=repr) == rows
    assert {"item": "cake", "price": None} in sale.to_dicts()
    assert "3 rows" in repr(sale)
    sale.write(tmp_path / "sale.csv")
    assert db.insert("sale", tmp_path / "sale.csv") == 3
    assert len(sale) == 6


def test_queries_read_tables_and_views(db: whence.Database) -> None:
    result = db.query(
        "SELECT s.item, t.price, COUNT(*) AS n FROM sale s JOIN total t ON s.item = t.item GROUP BY ALL ORDER BY 1;"
    )
    assert result.columns == ["item", "price", "n"]
    assert result.rows == [("cake", None, 1), ("tea", 6, 2)]
    assert result == result.rows
    assert (len(result), result.count) == (2, 2)
    assert result.to_pandas().shape == (2, 3)
    assert result.to_polars().shape == (2, 3)
    assert result.to_dicts()[1] == {"item": "tea", "price": 6, "n": 2}
    assert "tea" in repr(result)
    db.delete("sale", [("tea", 3)])
    assert db.query("SELECT SUM(price) FROM sale").rows == [(3,)]
    assert db.execute("SELECT 1 AS one; SELECT 2 AS two").rows == [(2,)]


def test_queries_define_names_of_their_own(db: whence.Database) -> None:
    sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION SELECT i + 1 FROM n WHERE i < 3) SELECT SUM(i) FROM n"
    assert db.query(sql).rows == [(6,)]


@pytest.mark.parametrize(
    ("sql", "kind", "says"),
    [
        ("SELECT * FROM sales", SqlError, 'line 1, column 15: there is no table or view "sales"; did you mean "sale"?'),
        ("SELECT colour FROM sale", SqlError, "colour"),
        ("SELECT * FROM 'secret.csv'", WhenceError, ""),
        ("SELECT * FROM read_csv('secret.csv')", WhenceError, ""),
        ("SELECT CAST(item AS INT) FROM sale", EvaluationError, "Could not convert"),
        ("SELEC 1", SqlError, "line 1"),
        ("DELETE FROM sale", SqlError, "query takes a SELECT"),
        ("SELECT 1; SELECT 2", SqlError, "expected one statement"),
    ],
)
def test_errors_of_queries_are_ours(db: whence.Database, sql: str, kind: type[WhenceError], says: str) -> None:
    with pytest.raises(kind) as error:
        db.query(sql)
    assert says in str(error.value)


def test_python_variables_are_not_tables(db: whence.Database) -> None:
    secret = db["sale"].to_arrow()
    assert secret.num_rows
    with pytest.raises(SqlError):
        db.query("SELECT * FROM secret")


def test_scalar_functions_serve_views_and_queries(db: whence.Database) -> None:
    @db.create_function("shout", args=["TEXT"], returns="TEXT")
    def shout(text: str | None) -> str | None:
        return text and text.upper()

    assert shout("x") == "X"
    db.execute("CREATE VIEW loud AS SELECT shout(item) AS item FROM sale")
    assert sorted(db["loud"].rows) == [("CAKE",), ("TEA",), ("TEA",)]
    assert db.query("SELECT DISTINCT shout(item) FROM sale ORDER BY 1").rows == [("CAKE",), ("TEA",)]
    with pytest.raises(CatalogError, match='"shout" is used by loud'):
        db.create_function("shout", str, args=["TEXT"], returns="TEXT")
    db.execute("DROP VIEW loud")
    db.create_function("shout", lambda t: t + "!", args=["TEXT"], returns="TEXT")
    assert db.query("SELECT shout('a')").rows == [("a!",)]
    assert db.execute("SHOW FUNCTIONS").rows == [("shout", "(TEXT)", "TEXT")]


def test_functions_of_any_number_of_arguments_serve_queries(db: whence.Database) -> None:
    db.create_function("seven", lambda: 7, args=[], returns="INT")
    db.create_function("joined", lambda a, b, c: f"{a}{b}{c}", args=["TEXT", "INT", "DOUBLE"], returns="TEXT")
    db.create_function("ratio", lambda a, b: a / b, args=["INT", "INT"], returns="DOUBLE")
    assert db.query("SELECT seven(), joined('x', NULL, 0.5), ratio(1, 2)").rows == [(7, "xNone0.5", 0.5)]
    with pytest.raises(EvaluationError, match="function ratio failed: ZeroDivisionError"):
        db.query("SELECT ratio(1, 0)")
    with pytest.raises(SqlError, match="line 1, column 8: joined takes 3 arguments, not 1"):
        db.query("SELECT joined('x')")


def test_a_date_that_python_has_not_is_our_error(db: whence.Database) -> None:
    for sql in ("SELECT DATE '9999-12-31' + 1 AS d", "SELECT TIMESTAMP '9999-12-31 00:00:00' + INTERVAL 2 DAY AS d"):
        result = db.query(sql)
        for read in (lambda result=result: result.rows, lambda result=result: repr(result)):
            with pytest.raises(EvaluationError, match="column d holds a value that Python cannot"):
                read()
    with pytest.raises(EvaluationError, match="pandas cannot"):
        db.query("SELECT DATE '9999-12-31' + 1 AS d").to_pandas()


def test_a_function_of_ours_comes_before_a_built_in_one(db: whence.Database) -> None:
    db.create_function("lower", lambda text: text + "!", args=["TEXT"], returns="TEXT")
    db.execute("CREATE VIEW v AS SELECT DISTINCT lower(item) AS item FROM sale")
    assert sorted(db["v"]) == [("cake!",), ("tea!",)]
    result = db.query("SELECT lower(item) FROM sale WHERE lower(item) = 'cake!'")
    assert (result.rows, result.columns) == ([("cake!",)], ["LOWER(item)"])


def test_a_function_that_raises_undoes_the_batch(db: whence.Database) -> None:
    db.create_function("inverse", lambda x: 1 / x, args=["INT"], returns="DOUBLE")
    db.execute("CREATE TABLE n (x INT); CREATE VIEW i AS SELECT inverse(x) AS y FROM n")
    db.insert("n", (2,))
    with pytest.raises(EvaluationError, match="ZeroDivisionError"):
        db.insert("n", [(4,), (0,)])
    assert db["i"].rows == [(0.5,)]
    with pytest.raises(EvaluationError, match="ZeroDivisionError"):
        db.query("SELECT inverse(0)")


def test_functions_of_every_type(db: whence.Database) -> None:
    values = [
        ("BOOLEAN", "TRUE", True),
        ("BIGINT", "5", 5),
        ("DOUBLE", "0.5::DOUBLE", 0.5),
        ("DECIMAL(9,2)", "1.25::DECIMAL(9,2)", Decimal("1.25")),
        ("TEXT", "'x'", "x"),
        ("DATE", "DATE '2024-02-29'", dt.date(2024, 2, 29)),
        ("TIMESTAMP", "TIMESTAMP '2024-02-29 01:02:03'", dt.datetime(2024, 2, 29, 1, 2, 3)),
    ]
    for i, (type_name, literal, value) in enumerate(values):
        db.create_function(f"same{i}", lambda x: x, args=[type_name], returns=type_name)
        assert db.query(f"SELECT same{i}({literal}), same{i}(NULL)").rows == [(value, None)]


def test_table_functions_in_views_and_queries(db: whence.Database) -> None:
    @db.create_table_function("upto", args=["INT"], returns="(n INT)")
    def upto(n: int | None) -> list[tuple[int]]:
        return [(i,) for i in range(n or 0)]

    db.execute("CREATE VIEW counted AS SELECT item, n FROM sale, upto(price)")
    assert sorted(db["counted"].rows) == [("tea", 0), ("tea", 0), ("tea", 1), ("tea", 1), ("tea", 2), ("tea", 2)]
    db.delete("sale", [("tea", 3)])
    assert sorted(db["counted"].rows) == [("tea", 0), ("tea", 1), ("tea", 2)]
    assert db.query("SELECT n FROM sale, upto(price) ORDER BY n DESC LIMIT 2").rows == [(2,), (1,)]
    assert len(upto(2)) == 2


@pytest.mark.parametrize("row", [(1,), (1, 2, 3), ()])
def test_a_table_function_with_a_row_of_the_wrong_width(db: whence.Database, row: tuple[int, ...]) -> None:
    db.create_table_function("pair", lambda n: [(n, n), row], args=["INT"], returns="(a INT, b INT)")
    says = rf"pair\(3\) yielded a row of {len(row)} values, .*; it should have the 2 of \(a INTEGER, b INTEGER\)"
    with pytest.raises(EvaluationError, match=says):
        db.execute("CREATE VIEW paired AS SELECT * FROM sale, pair(price)")
    with pytest.raises(EvaluationError, match=says):
        db.query("SELECT * FROM pair(3)")
    assert "paired" not in db.views


def test_insert_from_a_query(db: whence.Database) -> None:
    assert (
        db.execute("INSERT INTO sale (price, item) SELECT price + 1, item FROM sale WHERE price IS NOT NULL").count == 2
    )
    assert sorted(db["sale"].rows, key=repr) == [("cake", None), ("tea", 3), ("tea", 3), ("tea", 4), ("tea", 4)]
    assert db.execute("INSERT INTO sale VALUES ('a', 1 + 1), ('b', NULL)").count == 2
    assert ("a", 2) in db["sale"]
    operators = db.metrics()["operators"]
    assert db.execute("INSERT INTO sale SELECT item, COUNT(*) FROM sale GROUP BY item").count == 4
    assert db.metrics()["operators"] == operators


@pytest.mark.parametrize(
    ("sql", "rows"),
    [
        ("SELECT first_value(b IGNORE NULLS) OVER (ORDER BY a) FROM w ORDER BY a", [(None,), (5,), (5,)]),
        ("SELECT a FROM w QUALIFY row_number() OVER (ORDER BY b) = 1", [(2,)]),
        (
            "WITH RECURSIVE r(k, v) USING KEY (k) AS (SELECT 1, 2 UNION SELECT k, v + 1 FROM r WHERE v < 5) FROM r",
            [(1, 5)],
        ),
    ],
)
def test_adhoc_query_keeps_all_that_it_says(sql: str, rows: list[tuple[Any, ...]]) -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE w (a INT, b INT); INSERT INTO w VALUES (1, NULL), (2, 5), (3, 6)")
        assert db.query(sql).rows == rows


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT a INTO z FROM w", "SELECT INTO is not supported: a query only reads"),
        (
            "WITH z AS (DELETE FROM w RETURNING a) SELECT 1",
            "DELETE inside a query is not supported: a query only reads",
        ),
        ("SELECT a FROM w FOR UPDATE", "DuckDB has no such query"),
        ("SELECT a FROM w QUALIFY nonsense > 1", "nonsense not found"),
        ("SELECT nonsense FROM w QUALIFY row_number() OVER () = 1", 'unknown column "nonsense"|"nonsense" not found'),
    ],
)
def test_adhoc_query_that_writes_or_cannot_be_asked_is_refused(sql: str, message: str) -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE w (a INT, b INT)")
        with pytest.raises(whence.SqlError, match=message):
            db.query(sql)


def test_forked_child_neither_closes_nor_uses_its_parents_connection() -> None:
    db = whence.open()
    db.execute("CREATE TABLE t (a INT)")
    db.insert("t", (1,))
    db.create_function("same", lambda x: x, args=["INT"], returns="INT")
    query = "SELECT SUM(same(a)) AS s FROM t"
    assert db.query(query).rows == [(1,)]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(db.query(query).rows != [(1,)])
            del db
            gc.collect()
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert db.query(query).rows == [(1,)]
