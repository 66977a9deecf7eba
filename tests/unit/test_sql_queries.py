"""Every query of queries.sql, bound and optimized, against DuckDB's answer to the text itself."""

from __future__ import annotations

import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.unit.plan_sql import relation
from whence.plan.algebra.program import Program
from whence.plan.rewrite import optimize
from whence.sql.bind import bind_query, bind_table
from whence.sql.parse import parse

_TABLES = """
create table t (a int, b bigint, d date, s text, x decimal(10, 2), f double);
create table u (a int, c int, s text, ts timestamp);
create table w (c int not null, e int not null);
"""
_QUERIES = [
    line.strip().removesuffix(";")
    for line in (Path(__file__).parent / "queries.sql").read_text().splitlines()
    if line.strip() and not line.startswith("--")
]


@pytest.fixture(scope="module")
def program() -> Program:
    found = Program()
    for statement in parse(_TABLES):
        found = bind_table(statement, found)
    return found


@pytest.fixture(scope="module", params=[1, 2])
def duck(request: pytest.FixtureRequest) -> duckdb.DuckDBPyConnection:
    """Small tables with many NULLs and ties."""
    con, rnd = duckdb.connect(), random.Random(request.param)
    con.execute(_TABLES)

    def some(value: Any) -> Any:
        return None if rnd.random() < 0.2 else value

    for _ in range(25):
        month = f"2020-0{rnd.randint(1, 4)}-11"
        row = [some(rnd.randint(0, 5)), some(rnd.randint(0, 5)), some(month), some(rnd.choice(["a", "b", "ab", "C"]))]
        con.execute(
            "insert into t values (?, ?, ?, ?, ?, ?)", [*row, some(rnd.randint(0, 400) / 100), some(rnd.random())]
        )
        row = [some(rnd.randint(0, 6)), some(rnd.randint(0, 6)), some(rnd.choice(["a", "b", "x"]))]
        con.execute("insert into u values (?, ?, ?, ?)", [*row, some(f"{month} 10:00:00")])
    for _ in range(12):
        con.execute("insert into w values (?, ?)", [rnd.randint(0, 7), rnd.randint(0, 4)])
    return con


def _bag(rows: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    return Counter(
        tuple(round(float(v), 9) if isinstance(v, (int, float, Decimal)) else v for v in row) for row in rows
    )


@pytest.mark.parametrize("query", _QUERIES)
def test_a_plan_means_what_its_text_means(query: str, program: Program, duck: duckdb.DuckDBPyConnection) -> None:
    plan = bind_query(parse(query)[0].query, program)
    better = optimize(plan)
    expected = duck.execute(query).fetchall()
    assert _bag(duck.execute(relation(plan)).fetchall()) == _bag(expected)
    assert _bag(duck.execute(relation(better)).fetchall()) == _bag(expected)
    assert better.schema == plan.schema
    assert len(set(plan.schema.names)) == len(plan.schema)
