"""Equalities between the sides of a join become its keys, whatever types meet, if computing them cannot fail."""

from __future__ import annotations

import pytest

import whence

TABLES = """
CREATE TABLE l (i INT, d DATE, m DECIMAL(6, 2), x DOUBLE);
CREATE TABLE r (b BIGINT, f DOUBLE, at TIMESTAMP, n DECIMAL(10, 4), c TEXT, z INT);
INSERT INTO l VALUES (1, '2024-01-01', 1.00, 1.0), (12, '2024-01-02', 1.50, 0.5), (NULL, NULL, NULL, NULL);
INSERT INTO r VALUES (1, 1.0, '2024-01-01', 1.0000, '1', 1), (2, 1.5, '2024-01-02 12:00:00', 1.5000, '12', 0),
  (NULL, NULL, NULL, NULL, NULL, NULL);
"""


def joined(condition: str) -> tuple[str, list[tuple[object, ...]]]:
    """Return how a join is carried out, and its rows."""
    with whence.open() as db:
        db.execute(TABLES)
        db.execute(f"CREATE VIEW v AS SELECT l.i, r.b FROM l JOIN r ON {condition}")
        plan = [str(row[0]) for row in db.execute("EXPLAIN v").rows]
        assert sorted(db["v"].rows, key=str) == sorted(
            db.query(f"SELECT l.i, r.b FROM l JOIN r ON {condition}").rows, key=str
        )
        return next(line for line in plan if "join of 2" in line), db["v"].rows


@pytest.mark.parametrize(
    "condition",
    [
        "l.i = r.b",
        "l.i = r.f",
        "l.d = r.at",
        "l.m = r.n",
        "l.m = r.b",
        "l.i = r.n",
        "l.m = r.f",
        "CAST(l.i AS TEXT) = r.c",
        "l.i % 10 = r.b",
        "l.i // 6 = r.b",
        "CAST(r.at AS DATE) = l.d",
        "r.z = l.x",
    ],
)
def test_equality_that_cannot_fail_is_a_key(condition: str) -> None:
    plan, rows = joined(condition)
    assert "every pair" not in plan
    assert rows


@pytest.mark.parametrize("condition", ["l.i = CAST(r.c AS INT)", "l.i % (r.z + 1) = r.b"])
def test_equality_that_may_fail_is_decided_on_pairs(condition: str) -> None:
    plan, rows = joined(condition)
    assert "every pair" in plan
    assert rows
