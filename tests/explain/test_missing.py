"""A row that is not in a view: what is said about it is the condition that fails first."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

import whence
from tests.property.test_random_programs import Case, cases, profile
from whence.model.errors import WhenceError

SQL = """
    CREATE TABLE link (src TEXT, dst TEXT, cost INT);
    CREATE TABLE node (name TEXT, region TEXT);
    CREATE TABLE down (name TEXT);
    CREATE VIEW reachable AS
        SELECT src, dst FROM link
        UNION SELECT link.src, reachable.dst FROM link JOIN reachable ON link.dst = reachable.src;
    CREATE VIEW cheap AS
        SELECT l.src, l.dst, n.region FROM link l JOIN node n ON n.name = l.dst
        WHERE l.cost < 5 AND NOT EXISTS (SELECT 1 FROM down WHERE down.name = l.src);
    CREATE VIEW hubs AS SELECT src, COUNT(*) AS n FROM link GROUP BY src HAVING COUNT(*) > 1;
    CREATE VIEW first AS SELECT src, dst, cost FROM link ORDER BY cost LIMIT 1;
    CREATE VIEW far AS SELECT src, dst, MIN(cost) AS cost FROM (
        SELECT src, dst, cost FROM link
        UNION SELECT link.src, far.dst, link.cost + far.cost FROM link JOIN far ON link.dst = far.src
    ) q GROUP BY src, dst;
    CREATE VIEW twice AS SELECT src, cost * 2 AS c FROM link;
    CREATE VIEW up AS SELECT name FROM node EXCEPT SELECT name FROM down;
    CREATE VIEW both AS SELECT src AS name FROM link INTERSECT SELECT name FROM node;
    CREATE VIEW pairs AS SELECT a.region AS one, b.region AS two FROM link JOIN node a ON a.name = link.src
        JOIN node b ON b.name = link.dst
"""


@pytest.fixture(scope="module")
def db() -> whence.Database:
    db = whence.open()
    db.execute(SQL)
    db.insert("link", [("A", "B", 1), ("B", "C", 2), ("A", "C", 9), ("D", "C", 1)])
    db.insert("node", [("B", "eu"), ("C", "us"), ("D", "eu")])
    db.insert("down", [("D",)])
    return db


@pytest.mark.parametrize(
    ("view", "row", "reasons"),
    [
        ("link", {"src": "A", "dst": "Z"}, ["link has 2 rows with src = 'A', but none with dst = 'Z'"]),
        ("link", {"src": "Z"}, ["link has no row with src = 'Z'"]),
        (
            "reachable",
            {"src": "B", "dst": "A"},
            [
                "way 1 of 2, by link: link has a row with src = 'B', but none with dst = 'A'",
                "way 2 of 2, by link, reachable: link has a row with src = 'B', but reachable has no row with "
                "dst = 'A'",
            ],
        ),
        (
            "reachable",
            {"src": "B", "dst": "B"},
            [
                "way 1 of 2, by link: link has a row with src = 'B', but none with dst = 'B'",
                "way 2 of 2, by link, reachable: link has a row with src = 'B', but none of those joins a row of "
                "reachable with dst = 'B' (reachable.src = link.dst)",
            ],
        ),
        (
            "cheap",
            {"src": "A", "dst": "C"},
            ["link has a row with src = 'A', dst = 'C', but link.cost < 5 is not true (link.cost = 9)"],
        ),
        (
            "cheap",
            {"src": "D", "dst": "C"},
            [
                "link has a row with src = 'D', dst = 'C', joined with node with name = 'C', but down has a row that "
                "excludes it"
            ],
        ),
        ("hubs", {"src": "B"}, ["its group is (src = 'B', n = 1), for which n > 1 is not true"]),
        ("hubs", {"src": "A", "n": 5}, ["its group is there with other values: src = 'A', n = 2"]),
        ("hubs", {"src": "Z"}, ["link has no row with src = 'Z'"]),
        ("first", {"src": "B"}, ["the row is there, but outside the first 1 rows that first keeps"]),
        (
            "far",
            {"src": "A", "dst": "C", "cost": 7},
            ["its group is there with other values: src = 'A', dst = 'C', cost = 3"],
        ),
        ("twice", {"src": "B", "c": 3}, ["link has a row with src = 'B', but then c is 4"]),
        ("up", {"name": "D"}, ["node has a row with name = 'D', but down has a row that excludes it"]),
        ("both", {"name": "A"}, ["link has 2 rows with src = 'A', but node has no row with name = 'A'"]),
    ],
)
def test_the_condition_that_fails_first(
    db: whence.Database, view: str, row: dict[str, Any], reasons: list[str]
) -> None:
    why = db.why(view, row=row)
    assert not why.holds
    assert why.reasons == reasons


def test_an_empty_table_says_so() -> None:
    db = whence.open()
    db.execute("CREATE TABLE a (x INT); CREATE VIEW b AS SELECT x FROM a")
    assert db.why("b", x=1).reasons == ["a is empty"]


@profile(60)
@given(cases(recursive=True))
def test_whatever_the_view_there_is_an_answer(case: Case) -> None:
    db = whence.open()
    try:
        db.execute(case.sql)
        with db.transaction():
            for table, row, sign in case.batches[0]:
                if sign > 0:
                    db.insert(table, [row])
    except WhenceError:
        return
    for view in db.views:
        width = len(db[view].columns)
        for row in [(None,) * width, *[(*r[:-1], None) for r in db[view].rows[:2]]]:
            if tuple(row) not in db[view]:
                why = db.why(view, row=row)
                assert not why.holds
                assert why.reasons
                assert all(isinstance(reason, str) and reason for reason in why.reasons)
