"""Paper 000, section II: heights, imbalance and generations of trees."""

from __future__ import annotations

import random

import pytest

from tests.depth import seeds
from tests.oracle import Row, Twin, assert_rows, drive, every_policy, stream

# A forest stays one under random updates when every node may only hang below a smaller one, and has one parent.
HEIGHT = """
    CREATE TABLE parent (child INT PRIMARY KEY, above INT);
    CREATE VIEW below AS
      SELECT above AS root, child AS node, 1 AS depth FROM parent
      UNION
      SELECT below.root, parent.child, below.depth + 1 FROM below JOIN parent ON parent.above = below.node;
    CREATE VIEW height AS SELECT root, MAX(depth) AS height FROM below GROUP BY root;
    CREATE VIEW leaf AS
      SELECT root, node, depth FROM below WHERE NOT EXISTS (SELECT 1 FROM parent WHERE parent.above = below.node);
    CREATE VIEW imbalance AS SELECT root, MAX(depth) - MIN(depth) AS imbalance FROM leaf GROUP BY root
"""
GENERATION = """
    CREATE TABLE parent (child TEXT, above TEXT);
    CREATE VIEW same_generation(x, y) AS
      SELECT a.child, b.child FROM parent AS a JOIN parent AS b ON a.above = b.above
      UNION
      SELECT a.child, b.child
      FROM parent AS a JOIN same_generation AS g ON a.above = g.x JOIN parent AS b ON b.above = g.y;
    CREATE VIEW cousins AS
      SELECT g.x, g.y FROM same_generation AS g
      WHERE g.x < g.y AND NOT EXISTS (
        SELECT 1 FROM parent AS a JOIN parent AS b ON a.above = b.above WHERE a.child = g.x AND b.child = g.y)
"""
HEIGHT_BY_MAX = """
    CREATE TABLE parent (child INT PRIMARY KEY, above INT);
    CREATE VIEW height AS
      SELECT node, MAX(height) AS height FROM (
        SELECT above AS node, 1 AS height FROM parent
        UNION ALL
        SELECT parent.above, height.height + 1 FROM parent JOIN height ON height.node = parent.child) AS h
      GROUP BY node
"""


def hung(rng: random.Random) -> Row:
    child = rng.randint(2, 9)
    return child, rng.randint(1, child - 1)


@every_policy
def test_height_and_imbalance_written_out(policy: str) -> None:
    twin = Twin(HEIGHT, policy)
    twin.insert("parent", (2, 1), (3, 1), (4, 2), (5, 4))
    assert_rows(twin.db["height"], [(1, 3), (2, 2), (4, 1)])
    assert_rows(twin.db["imbalance"], [(1, 2), (2, 0), (4, 0)])
    twin.insert("parent", (4, 3))  # 4 and what hangs below it move under 3
    assert_rows(twin.db["height"], [(1, 3), (3, 2), (4, 1)])
    assert_rows(twin.db["imbalance"], [(1, 2), (3, 0), (4, 0)])
    twin.delete("parent", (5, 4))
    assert_rows(twin.db["height"], [(1, 2), (3, 1)])
    assert_rows(twin.db["imbalance"], [(1, 1), (3, 0)])


@every_policy
@pytest.mark.parametrize("program", [HEIGHT, HEIGHT_BY_MAX], ids=["depths", "max in recursion"])
@pytest.mark.parametrize("seed", seeds(2))
def test_height_and_imbalance(policy: str, seed: int, program: str) -> None:
    drive(Twin(program, policy), stream(seed, {"parent": hung}, steps=12, start=6))


@every_policy
def test_same_generation_written_out(policy: str) -> None:
    twin = Twin(GENERATION, policy)
    twin.insert("parent", ("b", "a"), ("c", "a"), ("d", "b"), ("e", "c"), ("f", "c"))
    level = {1: "bc", 2: "def"}
    assert_rows(twin.db["same_generation"], [(x, y) for nodes in level.values() for x in nodes for y in nodes])
    assert_rows(twin.db["cousins"], [("d", "e"), ("d", "f")])
    twin.delete("parent", ("b", "a"))
    assert_rows(twin.db["same_generation"], [("c", "c"), ("d", "d"), *((x, y) for x in "ef" for y in "ef")])
    assert_rows(twin.db["cousins"], [])


@every_policy
@pytest.mark.parametrize("seed", seeds(2))
def test_same_generation(policy: str, seed: int) -> None:
    """On any graph, not only on trees."""
    drive(
        Twin(GENERATION, policy),
        stream(seed, {"parent": lambda r: (r.choice("abcdef"), r.choice("abcde"))}, steps=12, start=6),
    )
