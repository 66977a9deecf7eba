"""Shapes of recursion beyond the papers' examples: non-linear, mutual, several branches, functions, MIN and MAX."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

import whence
from tests.oracle import Row, Tables, Twin, assert_rows, drive, every_policy, stream


def pair(rng: random.Random) -> Row:
    return rng.randrange(6), rng.randrange(6)


def pair_or_null(rng: random.Random) -> Row:
    return rng.choice([None, *range(5)]), rng.choice([None, *range(5)])


LINKS = "CREATE TABLE link (src INT, dst INT);"
PROGRAMS = {
    "non-linear closure": f"""{LINKS}
        CREATE VIEW tc(a, b) AS
          SELECT src, dst FROM link UNION SELECT x.a, y.b FROM tc AS x JOIN tc AS y ON x.b = y.a""",
    "three recursive rows in a body": f"""{LINKS}
        CREATE VIEW odd(a, b) AS
          SELECT src, dst FROM link
          UNION
          SELECT x.a, z.b FROM odd AS x JOIN odd AS y ON x.b = y.a JOIN odd AS z ON y.b = z.a""",
    "mutual, even and odd paths": f"""{LINKS}
        CREATE VIEW odd(a, b) AS
          SELECT src, dst FROM link UNION SELECT l.src, e.b FROM link AS l JOIN even AS e ON l.dst = e.a;
        CREATE VIEW even(a, b) AS SELECT l.src, o.b FROM link AS l JOIN odd AS o ON l.dst = o.a;
        CREATE VIEW both_ways AS SELECT a, b FROM odd INTERSECT SELECT a, b FROM even""",
    "three views in a ring": f"""{LINKS}
        CREATE VIEW ones(a) AS
          SELECT src FROM link WHERE dst = 0 UNION SELECT l.src FROM link l, threes t WHERE l.dst = t.a;
        CREATE VIEW twos(a) AS SELECT l.src FROM link l, ones o WHERE l.dst = o.a;
        CREATE VIEW threes(a) AS SELECT l.src FROM link l, twos w WHERE l.dst = w.a""",
    "several base and recursive branches": """
        CREATE TABLE link (src INT, dst INT);
        CREATE TABLE ferry (src INT, dst INT);
        CREATE VIEW go(a, b) AS
          SELECT src, dst FROM link
          UNION SELECT src, dst FROM ferry
          UNION SELECT dst, src FROM ferry
          UNION SELECT g.a, l.dst FROM go AS g JOIN link AS l ON g.b = l.src
          UNION SELECT g.a, f.dst FROM go AS g JOIN ferry AS f ON g.b = f.src
          UNION SELECT f.src, g.b FROM ferry AS f JOIN go AS g ON f.dst = g.a""",
    "min-label components": f"""{LINKS}
        CREATE VIEW edge(a, b) AS SELECT src, dst FROM link UNION SELECT dst, src FROM link;
        CREATE VIEW component AS
          SELECT node, MIN(label) AS label FROM (
            SELECT a AS node, a AS label FROM edge
            UNION SELECT edge.a, c.label FROM edge JOIN component AS c ON c.node = edge.b) AS l
          GROUP BY node;
        CREATE VIEW sizes AS SELECT label, COUNT(*) AS size FROM component GROUP BY label""",
    "MIN and MAX at once": f"""{LINKS}
        CREATE VIEW extremes AS
          SELECT node, MIN(lo) AS lo, MAX(hi) AS hi FROM (
            SELECT src AS node, src AS lo, src AS hi FROM link
            UNION SELECT link.src, link.dst, link.dst FROM link
            UNION SELECT link.src, e.lo, e.hi FROM link JOIN extremes AS e ON e.node = link.dst) AS seen
          GROUP BY node""",
    "MIN in one view, MAX in another, mutually": f"""{LINKS}
        CREATE VIEW low AS
          SELECT node, MIN(v) AS v FROM (
            SELECT src AS node, dst AS v FROM link
            UNION SELECT link.src, low.v FROM link JOIN low ON low.node = link.dst
            UNION SELECT high.node, 0 - high.v FROM high) AS a GROUP BY node;
        CREATE VIEW high AS
          SELECT node, MAX(v) AS v FROM (
            SELECT src AS node, dst - 3 AS v FROM link
            UNION SELECT link.src, 0 - low.v FROM link JOIN low ON low.node = link.dst) AS b GROUP BY node""",
    "WITH RECURSIVE inside a view": f"""{LINKS}
        CREATE VIEW from_zero AS
          WITH RECURSIVE seen(node) AS (
            SELECT dst FROM link WHERE src = 0
            UNION SELECT link.dst FROM link JOIN seen ON seen.node = link.src)
          SELECT node, node * 10 AS tens FROM seen WHERE node <> 0""",
    "filters and computed columns": f"""{LINKS}
        CREATE VIEW climb(a, b, steps) AS
          SELECT src, dst, 1 FROM link WHERE src < dst
          UNION
          SELECT c.a, l.dst, c.steps + 1 FROM climb AS c JOIN link AS l ON l.src = c.b
          WHERE l.dst > l.src AND c.steps < 4 AND l.dst - c.a <= 4""",
    "negation of base rows inside": """
        CREATE TABLE link (src INT, dst INT);
        CREATE TABLE closed (node INT);
        CREATE VIEW open_way(a, b) AS
          SELECT src, dst FROM link WHERE NOT EXISTS (SELECT 1 FROM closed AS c WHERE c.node = link.dst)
          UNION
          SELECT w.a, l.dst FROM open_way AS w JOIN link AS l ON l.src = w.b
          WHERE NOT EXISTS (SELECT 1 FROM closed AS c WHERE c.node = l.dst)""",
    "negation between strata": f"""{LINKS}
        CREATE VIEW node(n) AS SELECT src FROM link UNION SELECT dst FROM link;
        CREATE VIEW tc(a, b) AS SELECT src, dst FROM link UNION SELECT t.a, l.dst FROM tc t JOIN link l ON l.src = t.b;
        CREATE VIEW apart(a, b) AS
          SELECT x.n, y.n FROM node x, node y WHERE NOT EXISTS (SELECT 1 FROM tc WHERE tc.a = x.n AND tc.b = y.n);
        CREATE VIEW chain(a, b) AS
          SELECT a, b FROM apart UNION SELECT c.a, p.b FROM chain c JOIN apart p ON c.b = p.a""",
    "an aggregate below and above": f"""{LINKS}
        CREATE VIEW degree(node, n) AS SELECT src, COUNT(*) FROM link GROUP BY src;
        CREATE VIEW via(a, b) AS
          SELECT src, dst FROM link
          UNION
          SELECT v.a, l.dst FROM via AS v JOIN degree AS d ON d.node = v.b AND d.n >= 2 JOIN link AS l ON l.src = v.b;
        CREATE VIEW totals AS SELECT a, COUNT(*) AS n, SUM(b) AS total FROM via GROUP BY a HAVING COUNT(*) > 1""",
    "a cross product in the body": f"""{LINKS}
        CREATE VIEW seen(a) AS
          SELECT src FROM link WHERE src = dst UNION SELECT l.dst FROM seen AS s, link AS l WHERE l.src >= s.a + 2""",
    "IN and set operations inside": """
        CREATE TABLE link (src INT, dst INT);
        CREATE TABLE closed (node INT);
        CREATE VIEW hop(a, b) AS
          SELECT src, dst FROM link
          UNION
          SELECT h.a, l.dst FROM hop AS h JOIN link AS l ON l.src = h.b WHERE l.dst IN (SELECT node FROM closed)
          UNION
          (SELECT b, a FROM hop EXCEPT SELECT node, node FROM closed)""",
}
WITH_NULLS = ["non-linear closure", "negation of base rows inside", "filters and computed columns"]
MAKERS = {"link": pair, "ferry": pair, "closed": lambda rng: (rng.randrange(6),)}


@every_policy
@pytest.mark.parametrize("shape", PROGRAMS)
def test_shapes(shape: str, policy: str) -> None:
    twin = Twin(PROGRAMS[shape], policy)
    makers = {name: make for name, make in MAKERS.items() if f"TABLE {name} " in PROGRAMS[shape]}
    drive(twin, stream(shape, makers, steps=10, start=5))


@every_policy
@pytest.mark.parametrize(
    "shape", ["non-linear closure", "negation of base rows inside", "filters and computed columns"]
)
def test_shapes_with_nulls(shape: str, policy: str) -> None:
    makers = {"link": pair_or_null, "closed": lambda rng: (rng.choice([None, *range(4)]),)}
    makers = {name: make for name, make in makers.items() if f"TABLE {name} " in PROGRAMS[shape]}
    drive(Twin(PROGRAMS[shape], policy), stream(shape, makers, steps=10, start=5))


@every_policy
def test_even_and_odd_written_out(policy: str) -> None:
    twin = Twin(PROGRAMS["mutual, even and odd paths"], policy)
    twin.insert("link", (1, 2), (2, 3), (3, 1))  # a ring of three: every pair both ways
    everything = [(a, b) for a in (1, 2, 3) for b in (1, 2, 3)]
    assert_rows(twin.db["both_ways"], everything)
    twin.delete("link", (3, 1))
    assert_rows(twin.db["odd"], [(1, 2), (2, 3)])
    assert_rows(twin.db["even"], [(1, 3)])
    assert_rows(twin.db["both_ways"], [])


@every_policy
def test_components_written_out(policy: str) -> None:
    twin = Twin(PROGRAMS["min-label components"], policy)
    twin.insert("link", (3, 4), (4, 5), (1, 3), (7, 8))
    assert_rows(twin.db["component"], [(1, 1), (3, 1), (4, 1), (5, 1), (7, 7), (8, 7)])
    twin.delete("link", (1, 3))
    assert_rows(twin.db["component"], [(3, 3), (4, 3), (5, 3), (7, 7), (8, 7)])
    assert_rows(twin.db["sizes"], [(3, 3), (7, 2)])


# -- functions in recursion --------------------------------------------------------------------------------------------

DIVISORS = """
    CREATE TABLE start (n INT);
    CREATE VIEW divided(n) AS
      SELECT n FROM start UNION SELECT d.divisor FROM divided AS x, divisors(x.n) AS d WHERE d.divisor > 1
"""
WORDS = """
    CREATE TABLE word (w TEXT);
    CREATE VIEW tail(w) AS
      SELECT w FROM word UNION SELECT SUBSTRING(t.w, 2) FROM tail AS t WHERE LENGTH(t.w) > 1;
    CREATE VIEW shouted(w) AS SELECT UPPER(w) FROM tail
"""


def divisors(n: int | None) -> Iterator[Row]:
    yield from ((d,) for d in range(1, n or 0) if (n or 1) % d == 0)


def all_divisors(tables: Tables) -> set[Row]:
    found = {n for (n,) in tables["start"]}
    return {(n,) for n in found} | {(d,) for n in found for d in range(2, n) if n % d == 0}


def with_divisors(db: whence.Database) -> None:
    db.create_table_function("divisors", divisors, args=["INT"], returns="(divisor INT)")


@every_policy
def test_a_table_function_in_recursion(policy: str) -> None:
    twin = Twin(DIVISORS, policy, brute={"divided": all_divisors}, setup=with_divisors)
    twin.insert("start", (12,), (9,))
    assert_rows(twin.db["divided"], [(12,), (9,), (2,), (3,), (4,), (6,)])
    twin.delete("start", (12,))
    assert_rows(twin.db["divided"], [(9,), (3,)])
    twin = Twin(DIVISORS, policy, brute={"divided": all_divisors}, setup=with_divisors)
    drive(twin, stream("divisors", {"start": lambda r: (r.randint(2, 60),)}, steps=12))


@every_policy
def test_text_functions_in_recursion(policy: str) -> None:
    twin = Twin(WORDS, policy)
    twin.insert("word", ("abc",), ("xbc",))
    assert_rows(twin.db["tail"], [("abc",), ("xbc",), ("bc",), ("c",)])
    twin.delete("word", ("abc",))
    assert_rows(twin.db["shouted"], [("XBC",), ("BC",), ("C",)])
    makers = {"word": lambda r: ("".join(r.choices("ab", k=r.randint(1, 5))),)}
    drive(Twin(WORDS, policy), stream("words", makers, steps=10))
