"""The TPC-H-like shapes of paper 003, Table 2 (without windows) and the queries it was chosen from, on small data."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal

import pytest

from tests.depth import seeds
from tests.oracle import Row, Twin, Update, assert_rows, drive, stream

TABLES = """
    CREATE TABLE region (r_regionkey INT PRIMARY KEY, r_name TEXT);
    CREATE TABLE nation (n_nationkey INT PRIMARY KEY, n_name TEXT, n_regionkey INT);
    CREATE TABLE supplier (s_suppkey INT PRIMARY KEY, s_name TEXT, s_nationkey INT);
    CREATE TABLE customer (c_custkey INT PRIMARY KEY, c_name TEXT, c_nationkey INT, c_mktsegment TEXT);
    CREATE TABLE part (p_partkey INT PRIMARY KEY, p_name TEXT);
    CREATE TABLE partsupp (ps_partkey INT, ps_suppkey INT, ps_availqty INT, PRIMARY KEY (ps_partkey, ps_suppkey));
    CREATE TABLE orders (o_orderkey INT PRIMARY KEY, o_custkey INT, o_orderdate DATE, o_shippriority INT);
    CREATE TABLE lineitem (l_orderkey INT, l_partkey INT, l_suppkey INT, l_quantity INT, l_extendedprice DECIMAL(12,2),
      l_discount DECIMAL(4,2), l_returnflag TEXT, l_linestatus TEXT, l_shipdate DATE);
"""
SIX_WAY = """FROM customer, orders, lineitem, supplier, nation, region
    WHERE c_custkey = o_custkey and l_orderkey = o_orderkey and l_suppkey = s_suppkey and c_nationkey = s_nationkey
      and s_nationkey = n_nationkey and n_regionkey = r_regionkey and r_name = 'AMERICA'
      and o_orderdate >= '1993-01-01' and o_orderdate < '1994-01-01'"""
QUERIES = {
    "q1": """
        SELECT l_returnflag, l_linestatus, SUM(l_quantity) AS sum_qty, SUM(l_extendedprice) AS sum_base_price,
          SUM(l_extendedprice * (1 - l_discount)) AS sum_disc_price, AVG(l_quantity) AS avg_qty,
          AVG(l_discount) AS avg_disc, COUNT(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE '1998-12-01' - INTERVAL '90' DAY GROUP BY l_returnflag, l_linestatus""",
    "q3": """
        SELECT l_orderkey, SUM(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM customer, orders, lineitem
        WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
          AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1993-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority ORDER BY revenue DESC, o_orderdate, l_orderkey LIMIT 4""",
    "q5": f"SELECT n_name, sum(l_extendedprice * (1 - l_discount)) as revenue {SIX_WAY} GROUP BY n_name",
    "q5s": f"SELECT n_name, l_extendedprice * (1 - l_discount) AS price {SIX_WAY}",
    "q6": """
        SELECT SUM(l_extendedprice * l_discount) AS revenue FROM lineitem
        WHERE l_shipdate >= DATE '1993-01-01' AND l_shipdate < DATE '1993-01-01' + INTERVAL '1' YEAR
          AND l_discount BETWEEN 0.05 - 0.02 AND 0.05 + 0.02 AND l_quantity < 24""",
    "q8join": """
        SELECT c_name, p_name, ps_availqty, s_name, o_custkey, r_name, n_name,
          sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM orders, lineitem, customer, part, partsupp, supplier, nation, region
        WHERE o_orderkey = l_orderkey and c_custkey = o_custkey and p_partkey = l_partkey and ps_partkey = p_partkey
          and s_suppkey = ps_suppkey and r_regionkey = n_regionkey and s_nationkey = n_nationkey
        GROUP BY c_name, p_name, ps_availqty, s_name, o_custkey, r_name, n_name""",
    "q10": """
        SELECT c_custkey, c_name, SUM(l_extendedprice * (1 - l_discount)) AS revenue, n_name
        FROM customer, orders, lineitem, nation
        WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND o_orderdate >= DATE '1993-01-01'
          AND o_orderdate < DATE '1993-01-01' + INTERVAL '6' MONTH AND l_returnflag = 'R' AND c_nationkey = n_nationkey
        GROUP BY c_custkey, c_name, n_name ORDER BY revenue DESC, c_custkey LIMIT 3""",
}
PROGRAM = TABLES + ";\n".join(f"CREATE VIEW {name} AS {query}" for name, query in QUERIES.items())


def a_date(rng: random.Random) -> dt.date:
    return dt.date(rng.choice([1992, 1993, 1993, 1993, 1994]), rng.randint(1, 12), rng.randint(1, 28))


def a_line(rng: random.Random) -> Row:
    price, discount = Decimal(rng.randint(100, 99999)) / 100, Decimal(rng.randint(0, 10)) / 100
    ids = (rng.randrange(8), rng.randrange(3), rng.randrange(3))
    return (*ids, rng.randint(1, 40), price, discount, rng.choice("RAN"), rng.choice("OF"), a_date(rng))


FIXED: list[Update] = [
    *(("region", (i, name), 1) for i, name in enumerate(["AMERICA", "ASIA"])),
    *(("nation", (i, name, i // 2), 1) for i, name in enumerate(["PERU", "CANADA", "JAPAN"])),
]
MAKERS = {
    "supplier": lambda r: (k := r.randrange(3), f"supplier {k}", r.randrange(3)),
    "customer": lambda r: (k := r.randrange(4), f"customer {k}", r.randrange(3), r.choice(["BUILDING", "AUTO"])),
    "part": lambda r: (k := r.randrange(3), f"part {k}"),
    "partsupp": lambda r: (r.randrange(3), r.randrange(3), r.randint(1, 99)),
    "orders": lambda r: (r.randrange(8), r.randrange(4), a_date(r), r.randrange(2)),
    "lineitem": a_line,
}


@pytest.mark.parametrize("seed", seeds(2))
def test_orders(seed: int) -> None:
    twin = Twin(PROGRAM, optimize=True)
    twin.apply(FIXED)
    batches = stream(seed, MAKERS, steps=12, size=8, start=30)
    seen: set[str] = set()
    for batch in batches:
        twin.apply(batch)
        seen |= {name for name in QUERIES if len(twin.db[name])}
    assert seen == set(QUERIES), "the data leaves a query without rows"
    twin.check_splits(batches, FIXED)


def test_orders_written_out() -> None:
    twin = Twin(PROGRAM, optimize=True)
    day, later = dt.date(1993, 5, 1), dt.date(1993, 6, 1)
    twin.apply(
        [
            *FIXED,
            ("supplier", (1, "Acme", 0), 1),
            ("customer", (1, "Ada", 0, "BUILDING"), 1),
            ("part", (1, "bolt"), 1),
            ("partsupp", (1, 1, 7), 1),
            ("orders", (1, 1, day, 0), 1),
            ("lineitem", (1, 1, 1, 10, Decimal("100.00"), Decimal("0.05"), "R", "O", later), 1),
            ("lineitem", (1, 1, 1, 30, Decimal("50.00"), Decimal("0.00"), "R", "O", later), 1),
        ]
    )
    assert_rows(twin.db["q5"], [("PERU", Decimal("145.00"))])
    assert_rows(twin.db["q5s"], [("PERU", Decimal("95.00")), ("PERU", Decimal("50.00"))])
    assert_rows(twin.db["q6"], [(Decimal("5.00"),)])
    assert_rows(twin.db["q8join"], [("Ada", "bolt", 7, "Acme", 1, "AMERICA", "PERU", Decimal("145.00"))])
    assert_rows(twin.db["q10"], [(1, "Ada", Decimal("145.00"), "PERU")])
    twin.insert("supplier", (1, "Acme", 2))  # moves to Japan
    assert_rows(twin.db["q5"], [])
    assert_rows(twin.db["q8join"], [("Ada", "bolt", 7, "Acme", 1, "ASIA", "JAPAN", Decimal("145.00"))])
    twin.delete("lineitem", (1, 1, 1, 10, Decimal("100.00"), Decimal("0.05"), "R", "O", later))
    assert_rows(twin.db["q6"], [(None,)])
    assert_rows(twin.db["q3"], [(1, Decimal("50.00"), day, 0)])


TOLLS = """
    CREATE TABLE carloc (carid INT, expway INT, dir INT, seg INT, xpos INT);
    CREATE VIEW segtolls AS
      SELECT r5.carid, r2.expway, r2.dir, r2.seg, COUNT(DISTINCT r5.xpos) AS places
      FROM carloc AS r1, carloc AS r2, carloc AS r3, carloc AS r4, carloc AS r5
      WHERE r2.expway = r3.expway AND r2.dir = 0 AND r3.dir = 0 AND r2.seg < r3.seg AND r2.seg > r3.seg - 10
        AND r3.carid = r4.carid AND r3.carid = r5.carid
        AND r1.expway = r2.expway AND r1.dir = r2.dir AND r1.seg = r2.seg
      GROUP BY r5.carid, r2.expway, r2.dir, r2.seg
"""


def a_report(rng: random.Random) -> Row:
    seg = rng.randrange(0, 24, 3)
    return rng.randrange(4), rng.randrange(2), rng.choice([0, 0, 1]), seg, seg * 100 + rng.randrange(3)


@pytest.mark.parametrize("seed", seeds(2))
def test_tolls_of_segments(seed: int) -> None:
    drive(Twin(TOLLS, optimize=True), stream(seed, {"carloc": a_report}, steps=10, start=8))


def test_tolls_written_out() -> None:
    twin = Twin(TOLLS, optimize=True)
    twin.insert("carloc", (1, 0, 0, 5, 500), (2, 0, 0, 8, 800), (2, 0, 0, 9, 901), (3, 0, 0, 30, 3000))
    assert_rows(twin.db["segtolls"], [(2, 0, 0, 5, 2), (2, 0, 0, 8, 2)])
    twin.delete("carloc", (2, 0, 0, 9, 901))
    assert_rows(twin.db["segtolls"], [(2, 0, 0, 5, 1)])
