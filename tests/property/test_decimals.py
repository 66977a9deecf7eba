"""Random expressions and sums of DECIMALs of all widths: values, types and errors are DuckDB's, after every epoch."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import whence
from tests.depth import seeds
from whence.model import wide
from whence.model.codes import Dictionary, decode_value, encode_value
from whence.model.types import decimal
from whence.runtime import database

COLUMNS = {"a": (18, 2), "b": (38, 2), "c": (21, 6), "d": (9, 4), "e": (38, 0), "f": (12, 0)}
TABLE = f"CREATE TABLE t (id INT, {', '.join(f'{n} DECIMAL({p},{s})' for n, (p, s) in COLUMNS.items())})"
Row = tuple[Any, ...]


def some_value(r: random.Random, digits: int, scale: int) -> Decimal | None:
    if r.random() < 0.1:
        return None
    size = r.choice((1, 3, min(digits, 19), digits if r.random() < 0.3 else min(digits, 20)))
    edges = (0, 1, 2**62, 2**62 - 1, 2**63, 10**18, 10**19)
    number = r.choice([e for e in edges if e < 10**digits]) if r.random() < 0.3 else r.randrange(10**size)
    return wide.to_decimal(number * r.choice((1, -1)), scale)


def some_row(r: random.Random, at: int) -> Row:
    return (at, *(some_value(r, p, s) for p, s in COLUMNS.values()))


def some_expression(r: random.Random, depth: int = 2) -> str:
    if depth == 0 or r.random() < 0.2:
        return r.choice((*COLUMNS, *COLUMNS, "1.5", "-0.25", "7", "12345678901234567890.5"))
    one, two = some_expression(r, depth - 1), some_expression(r, depth - 1)
    forms = (
        f"({one} + {two})", f"({one} - {two})", f"({one} * {two})", f"(-{one})", f"abs({one})", f"round({one}, 1)",
        f"CAST({one} AS DECIMAL(38,3))", f"CAST({one} AS DECIMAL(30,0))", f"least({one}, {two})",
        f"CASE WHEN {one} > {two} THEN {one} ELSE {two} END", f"coalesce({one}, {two})", f"floor({one})",
    )  # fmt: skip
    return r.choice(forms)


def shown(rows: list[Row]) -> list[str]:
    return sorted(repr(row) for row in rows)


@pytest.fixture
def duck() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        connection.execute(TABLE)
        yield connection


@pytest.mark.parametrize("seed", seeds(4))
def test_expressions_are_those_of_duckdb(seed: int, duck: duckdb.DuckDBPyConnection) -> None:
    r = random.Random(seed)
    rows = [some_row(r, at) for at in range(6)]
    duck.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    db = whence.open()
    db.execute(TABLE)
    db.insert("t", rows)
    answered = 0
    for number in range(60):
        sql = f"SELECT id, {some_expression(r)} AS x FROM t"
        try:
            asked = duck.execute(sql)
            kind, want = str(asked.description[1][1]), asked.fetchall()
        except duckdb.Error:
            kind, want = "", None
        try:
            db.execute(f"CREATE VIEW v{number} AS {sql}")
        except whence.WhenceError:
            assert want is None, sql
            continue
        if want is not None and kind.startswith("DECIMAL"):
            view = db[f"v{number}"]
            assert str(view.schema.types[1]) == kind, sql
            assert shown(view.rows) == shown(want), sql
            answered += 1
    assert answered > 20


VIEWS = """
    CREATE VIEW s AS SELECT f, SUM(a) AS a, SUM(b) AS b, SUM(c) AS c, SUM(DISTINCT b) AS d, MIN(e) AS m, MAX(b) AS x,
        COUNT(DISTINCT e) AS n FROM t GROUP BY f;
    CREATE VIEW j AS SELECT x.id, y.id AS other, x.b FROM t AS x JOIN t AS y ON x.b = y.b AND x.e <= y.e;
    CREATE VIEW top AS SELECT b, id FROM t ORDER BY b DESC NULLS LAST, id LIMIT 4;
"""


def changed(db: whence.Database, duck: duckdb.DuckDBPyConnection, seed: int, epochs: int) -> None:
    """Random transactions, after each of which all views are what DuckDB computes."""
    r = random.Random(seed)
    rows: list[Row] = []
    queries = [v.split(" AS ", 1) for v in VIEWS.strip().split(";")[:-1]]
    for at in range(epochs):
        with db.transaction():
            for n in range(r.randint(1, 4)):
                if rows and r.random() < 0.4:
                    gone = rows.pop(r.randrange(len(rows)))
                    db.delete("t", [gone])
                    duck.execute("DELETE FROM t WHERE id = ?", [gone[0]])
                else:
                    twin = r.choice(rows)[1:] if rows and r.random() < 0.4 else some_row(r, 0)[1:]
                    row = (at * 10 + n, *twin[:-1], Decimal(r.randint(1, 3)))
                    rows.append(row)
                    db.insert("t", [row])
                    duck.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        for create, sql in queries:
            name = create.split()[-1]
            assert shown(db[name].rows) == shown(duck.execute(sql).fetchall()), name


def test_views_are_exact_after_every_epoch(duck: duckdb.DuckDBPyConnection) -> None:
    db = whence.open()
    db.execute(TABLE + ";" + VIEWS)
    changed(db, duck, 1, 25)


def test_views_in_partitions_are_exact(duck: duckdb.DuckDBPyConnection) -> None:
    db = database.open(partitions=3, durability="none")
    db.execute(TABLE + ";" + VIEWS)
    changed(db, duck, 2, 12)


def test_wide_decimals_last(tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> None:
    with whence.open(tmp_path / "d.db") as db:
        db.execute(TABLE + ";" + VIEWS)
        changed(db, duck, 3, 8)
        db.snapshot()
        db.insert("t", [(1000, None, 10**35, None, None, 10**37, 1)])
        held = {name: shown(db[name].rows) for name in ("t", "s", "j", "top")}
    with whence.open(tmp_path / "d.db") as db:
        assert {name: shown(db[name].rows) for name in held} == held
        db.delete("t", [(1000, None, 10**35, None, None, 10**37, 1)])
        assert shown(db["s"].rows) == shown(duck.execute(VIEWS.split(" AS ", 1)[1].split(";")[0]).fetchall())


def test_codes_are_equal_and_ordered_as_the_values() -> None:
    r, dictionary, type = random.Random(5), Dictionary(), decimal(38, 4)
    values = [v for v in (some_value(r, 38, 4) for _ in range(300)) if v is not None]
    values += [v.copy_negate() for v in values[:20]]
    codes = np.array([encode_value(v, type, dictionary) for v in values])
    assert [decode_value(int(c), type, dictionary) for c in codes] == values
    ranks = dictionary.ranks(codes, type).tolist()
    for _ in range(2000):
        i, j = r.randrange(len(values)), r.randrange(len(values))
        assert (ranks[i] < ranks[j]) == (values[i] < values[j])
        assert (codes[i] == codes[j]) == (values[i] == values[j])


def test_arrow_tables_in_and_out() -> None:
    r = random.Random(6)
    values = [some_value(r, 38, 10) for _ in range(200)]
    table = pa.table({"v": pa.array(values, pa.decimal128(38, 10))})
    db = whence.open()
    db.execute("CREATE TABLE w (v DECIMAL(38,10)); CREATE TABLE n (v DECIMAL(20,2))")
    db.insert("w", table)
    assert sorted(map(str, db["w"].to_arrow()["v"].to_pylist())) == sorted(map(str, values))
    with pytest.raises(whence.DataError):
        db.insert("n", pa.table({"v": pa.array([Decimal(10) ** 19], pa.decimal128(38, 0))}))
    db.insert("n", pa.table({"v": pa.array([10**15], pa.int64())}))
    assert db["n"].rows == [(Decimal("1000000000000000.00"),)]
