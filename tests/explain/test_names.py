"""Rows in between go by the names that the author of a query gave them."""

from __future__ import annotations

import pytest

import whence

SQL = """
    CREATE TABLE link (src TEXT, dst TEXT, cost INT);
    CREATE TABLE node (name TEXT, region TEXT);
    CREATE VIEW regions AS SELECT region, COUNT(*) AS n
        FROM (SELECT DISTINCT node.region, link.dst FROM link JOIN node ON node.name = link.src) targets
        GROUP BY region;
    CREATE VIEW cheaper AS
        WITH total AS (SELECT src, SUM(cost) AS cost FROM link GROUP BY src)
        SELECT a.src, b.src AS other FROM total a JOIN total b ON a.cost < b.cost;
    CREATE VIEW twice AS
        WITH sums AS (SELECT src, SUM(cost) AS cost FROM link GROUP BY src)
        SELECT a.src, b.src AS other FROM sums a JOIN sums b ON a.cost < b.cost;
    CREATE VIEW inner_nodes AS SELECT name FROM node WHERE name IN (SELECT src FROM link)
        AND name NOT IN (SELECT dst FROM link WHERE cost > 100);
    CREATE VIEW closed AS SELECT name FROM node WHERE NOT EXISTS (
        SELECT 1 FROM link WHERE link.src = node.name AND NOT EXISTS (SELECT 1 FROM node n WHERE n.name = link.dst));
    CREATE VIEW route AS
        SELECT src, dst, src || dst AS stops FROM link
        UNION SELECT l.src, r.dst, l.src || r.stops FROM link l JOIN route r ON l.dst = r.src;
    CREATE VIEW linked AS
        WITH RECURSIVE step AS (SELECT src, dst FROM link
            UNION SELECT step.src, link.dst FROM step JOIN link ON step.dst = link.src)
        SELECT src, dst FROM step;
"""


@pytest.fixture(scope="module")
def db() -> whence.Database:
    db = whence.open()
    db.execute(SQL)
    db.insert("link", [("A", "B", 1), ("B", "C", 2)])
    db.insert("node", [("A", "eu"), ("B", "eu")])
    return db


@pytest.mark.parametrize(
    ("view", "row", "names"),
    [
        ("regions", ("eu", 2), ["regions(eu, 2)", "targets(eu, B)", "targets(eu, C)"]),
        ("cheaper", ("A", "B"), ["cheaper(A, B)", "total(A, 1)", "total(B, 2)"]),
        ("twice", ("A", "B"), ["sums(A, 1)", "sums(B, 2)", "twice(A, B)"]),
        ("route", ("A", "C", "ABC"), ["route(A, C, ABC)", "route(B, C, BC)"]),
        ("linked", ("A", "C"), ["linked(A, C)", "step(A, B)", "step(A, C)"]),
        ("closed", ("A",), ["closed(A)", "no link(src = A) where node has no match"]),
        (
            "inner_nodes",
            ("A",),
            ["inner_nodes(A)", "no link where cost > 100 AND dst IS NULL", "no link(dst = A) where cost > 100"],
        ),
    ],
)
def test_rows_in_between_have_their_own_names(
    db: whence.Database, view: str, row: tuple[object, ...], names: list[str]
) -> None:
    graph = db.why(view, row=row).graph
    assert sorted(graph.label(n) for n in range(len(graph)) if graph.kind(n) != "base") == names
