"""Queries with many subqueries or many joins over one table: planning and upkeep grow with their number, not by powers.

Before, 20 of most of these took hours or all memory; here each has 20 and is compared with an ad-hoc answer.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import whence

MANY = range(20)


def _list(part: Callable[[int], str], by: str = ", ") -> str:
    return by.join(map(part, MANY))


QUERIES = {
    "scalar": f"SELECT {_list(lambda i: f'(SELECT SUM(b) FROM t WHERE a > {i}) AS s{i}')}",
    "scalar_beside_rows": f"SELECT u.a, {_list(lambda i: f'(SELECT SUM(b) FROM t WHERE a > {i}) AS s{i}')} FROM u",
    "scalar_in_where": f"SELECT a FROM u WHERE {_list(lambda i: f'a > (SELECT AVG(b) FROM t WHERE a > {i})', ' AND ')}",
    "first_row": "SELECT u.a, "
    + _list(lambda i: f"(SELECT b FROM t WHERE a > {5 * i} ORDER BY a LIMIT 1) AS s{i}")
    + " FROM u",
    "in_case": "SELECT "
    + _list(lambda i: f"CASE WHEN a > (SELECT COUNT(*) FROM t WHERE b > {i}) THEN (SELECT AVG(a) FROM t) ELSE ", "")
    + f"1.5{' END' * len(MANY)} AS c FROM u",
    "not_in": f"SELECT a FROM u WHERE {_list(lambda i: f'a NOT IN (SELECT a + {i} FROM t WHERE a > 50)', ' AND ')}",
    "groups": "SELECT u.a, s0 FROM u "
    + _list(lambda i: f"JOIN (SELECT a, SUM(b) AS s{i} FROM t GROUP BY a) AS t{i} ON t{i}.a = u.a", " "),
}


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())
def test_twenty_in_one_query_are_kept(query: str) -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE t (a INT, b INT); CREATE TABLE u (a INT, b INT)")
        db.insert("t", [(i, i % 7) for i in range(40)] + [(None, 1)])
        db.insert("u", [(i, i % 5) for i in range(0, 80, 3)] + [(None, 2)])
        db.execute(f"CREATE VIEW v AS {query}")
        for kept in (51, 52):
            with db.transaction():
                db.insert("t", [(kept, 5), (1, kept)])
                db.delete("t", [(kept - 20, (kept - 20) % 7)])
                db.insert("u", [(kept, 5), (kept + 1, None)])
            assert sorted(db["v"].rows, key=repr) == sorted(db.query(query).rows, key=repr)


def test_condition_that_may_fail_waits_for_a_row() -> None:
    """Single rows are joined first; a condition between them is decided only if there is a row beside them."""
    with whence.open() as db:
        db.execute("CREATE TABLE t (a TEXT); CREATE TABLE u (a INT); CREATE TABLE w (x TEXT)")
        db.insert("t", [("none",)])
        db.execute(
            "CREATE VIEW v AS SELECT u.a FROM u, (SELECT MIN(a) AS m FROM t) AS p, (SELECT MAX(a) AS n FROM t) AS q"
            " WHERE CAST(p.m AS INT) = CAST(q.n AS INT)"
        )
        assert db["v"].rows == []
        with pytest.raises(whence.WhenceError, match="none"):
            db.insert("u", [(1,)])
        with db.transaction():
            db.delete("t", [("none",)])
            db.insert("t", [("7",)])
            db.insert("u", [(1,)])
        assert db["v"].rows == [(1,)]
