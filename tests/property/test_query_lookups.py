"""`db.query` answers look-ups itself, or hands DuckDB only the rows that a query can use: the answers are DuckDB's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

import whence
from tests.depth import examples
from whence.engine.core import key_lookup
from whence.model.errors import WhenceError
from whence.runtime.reading import adhoc, reader

PROGRAM = """
CREATE TABLE t (id BIGINT, name TEXT, n INT, d DATE, ok BOOLEAN, p DECIMAL(9, 2), w DECIMAL(30, 1), x DOUBLE,
                at TIMESTAMP, span INTERVAL);
CREATE TABLE u (name TEXT NOT NULL, n INT);
CREATE VIEW v AS SELECT name, n, COUNT(*) AS many FROM t GROUP BY name, n;
CREATE VIEW r AS SELECT name, n FROM u UNION SELECT r.name, u.n FROM r JOIN u ON r.n = u.n;
CREATE STREAM s (name TEXT, n INT);
"""
ROWS = [
    (1, "a", 1, "2024-01-01", True, "1.50", "123456789012345678901234567.5", 0.5, "2024-01-01 10:00", None),
    (1, "a", 1, "2024-01-01", True, "1.50", "123456789012345678901234567.5", 0.5, "2024-01-01 10:00", None),
    (2, "A", -2, "2024-02-29", False, "2.00", "1.0", -0.0, None, whence.Interval(1, 2, 3)),
    (-(2**62), "it's", None, None, None, None, None, None, None, None),
    (3, None, 2, "1999-12-31", True, "0.01", "-5.5", 1e300, "1999-12-31 23:59:59.999999", whence.Interval(0, 0, 1)),
    (4, "", 3, "2024-01-01", False, "-1.50", "0.0", 2.0, "2024-01-01", None),
]
PAIRS = [("a", 1), ("A", 2), ("", 1), ("it's", -2), ("a", 3)]
RELATIONS = {
    "t": ("id", "name", "n", "d", "ok", "p", "w", "x", "at", "span"),
    "u": ("name", "n"),
    "v": ("name", "n", "many"),
    "r": ("name", "n"),
    "s": ("name", "n"),
}
CONSTANTS = {
    "id": ("1", "-4611686018427387904", "99", "'1'", "1.0", "99999999999999999999", "NULL"),
    "name": ("'a'", "'A'", "''", "'it''s'", "'never'", "1", "NULL", "('a')", "'a' || ''"),
    "n": ("1", "-2", "(2)", "- 2", "3000000000", "'2'", "1.5", "NULL", "true"),
    "d": ("'2024-01-01'", "DATE '2024-02-29'", "'2024-1-1'", "'2024-02-30'", "CAST('2024-01-01' AS DATE)", "'soon'"),
    "ok": ("true", "FALSE", "'true'", "1", "NULL"),
    "p": ("1.5", "1.50", "2", "'1.5'"),
    "w": ("1", "123456789012345678901234567.5", "-5.5"),
    "x": ("0.5", "0", "-0.0", "2"),
    "at": (
        *("'2024-01-01'", "TIMESTAMP '2024-01-01 10:00:00'", "'1999-12-31 23:59:59.999999'", "DATE '2024-01-01'"),
        *("'2024-02-30 00:00:00'", "'2024-01-01 10:00:00.0'", "'2024-01-01 24:00:00'"),
    ),
    "span": ("INTERVAL 1 MONTH",),
    "many": ("1", "2"),
}


@pytest.fixture(scope="module", params=[{}, {"partitions": 2}], ids=["embedded", "partitions"])
def db(request: pytest.FixtureRequest) -> Iterator[whence.Database]:
    with whence.open(**request.param) as database, mock.patch.object(key_lookup, "SMALL", 0):
        database.execute(PROGRAM)
        database.insert("t", ROWS)
        database.insert("u", PAIRS)
        database.insert("s", PAIRS * 2)
        yield database


@contextmanager
def all_by_duckdb() -> Iterator[None]:
    """Hand every relation over as a whole."""
    with (
        mock.patch.object(reader, "simple_query", return_value=None),
        mock.patch.object(adhoc, "pinned_relations", return_value={}),
    ):
        yield


@st.composite
def conditions(draw: st.DrawFn, alias: str, relation: str) -> str:
    column = draw(st.sampled_from(RELATIONS[relation]))
    some = CONSTANTS[column]
    named = draw(st.sampled_from([column, column.upper(), f"{alias}.{column}"] if alias else [column]))
    match draw(st.integers(0, 8)):
        case 0 | 1 | 2:
            return f"{named} = {draw(st.sampled_from(some))}"
        case 3:
            return f"{draw(st.sampled_from(some))} = {named}"
        case 4:
            return f"{named} IN ({', '.join(draw(st.lists(st.sampled_from(some), min_size=1, max_size=3)))})"
        case 5:
            return f"{named} IS NULL"
        case 6:
            return f"({draw(conditions(alias, relation))} AND {draw(conditions(alias, relation))})"
        case 7:
            return f"{named} IS NOT NULL"
    return f"({draw(conditions(alias, relation))} OR {draw(conditions(alias, relation))})"


@st.composite
def queries(draw: st.DrawFn) -> str:
    relation = draw(st.sampled_from(sorted(RELATIONS)))
    alias = draw(st.sampled_from(["", relation, "z", "Z"]))
    columns = RELATIONS[relation]
    named = alias or relation
    item = st.sampled_from(
        [
            *columns,
            *(f"{named}.{c}" for c in columns),
            f"{columns[0]} AS other",
            f"{columns[1]} AS {columns[0]}",
            "n + 1",
        ]
    )
    selected = draw(
        st.one_of(
            st.sampled_from(["*", "COUNT(*)", "count(*) AS c", "COUNT(n)", f"{named}.*", "DISTINCT name"]),
            st.lists(item, min_size=1, max_size=3).map(", ".join),
        )
    )
    terms = draw(st.lists(conditions(named, relation), max_size=3))
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    source = f"{relation} {alias}" if alias and alias != relation else relation
    match draw(st.integers(0, 9)):
        case 0:
            return f"SELECT {selected} FROM {source}{where} ORDER BY ALL LIMIT 2"
        case 1:
            kind = draw(st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN", "SEMI JOIN"]))
            on = "" if kind == "CROSS JOIN" else f" ON {named}.n = other.n"
            return f"SELECT {named}.n FROM {source} {kind} u AS other{on}{where}"
        case 2:
            return f"SELECT other.n FROM u AS other WHERE EXISTS (SELECT 1 FROM {source}{where or ' WHERE true'})"
        case 3:
            return f"WITH c AS (SELECT * FROM {source}{where}) SELECT * FROM c UNION ALL SELECT * FROM {relation}"
        case 4:
            return f"SELECT n, COUNT(*) AS c FROM {source}{where} GROUP BY n"
        case 5:
            return f"SELECT (SELECT COUNT(*) FROM {source}{where}) AS c, n FROM u"
    return f"SELECT {selected} FROM {source}{where}"


@st.composite
def lookups(draw: st.DrawFn) -> str:
    """Queries that are answered without DuckDB, most of them."""
    relation = draw(st.sampled_from(sorted(RELATIONS)))
    columns = RELATIONS[relation]
    picked = st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True)
    selected = draw(st.one_of(st.sampled_from(["*", "COUNT(*)", "count(*) AS c"]), picked.map(", ".join)))
    terms = []
    for column in draw(picked):
        some = draw(st.lists(st.sampled_from(CONSTANTS[column][:3]), min_size=1, max_size=3))
        terms.append(draw(st.sampled_from([f"{column} = {some[0]}", f"{column} IN ({', '.join(some)})"])))
    return f"SELECT {selected} FROM {relation} WHERE {' AND '.join(terms)}"


def answer(db: whence.Database, sql: str) -> Any:
    try:
        found = db.query(sql).to_arrow()
    except WhenceError as error:
        return type(error)
    return found.schema, sorted(map(repr, found.to_pylist())), found.num_rows


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sql=st.one_of(queries(), lookups()))
def test_answers_are_those_of_duckdb(db: whence.Database, sql: str) -> None:
    with all_by_duckdb():
        expected = answer(db, sql)
    found = answer(db, sql)
    if isinstance(expected, type) and not isinstance(found, type):
        return  # an error on a row that the query does not use: DuckDB may raise it or not
    assert found == expected
