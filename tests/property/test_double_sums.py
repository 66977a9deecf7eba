"""Sums of DOUBLE are the true sum, rounded once: for all magnitudes, however a transaction orders its writes."""

from __future__ import annotations

import math
import random
from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import whence
from tests.depth import seeds
from whence.engine.relational.kernels.float_sum import DIGITS, add_double, find_range, limbs_for, rounded, widen
from whence.model.codes import floats_to_codes
from whence.runtime import database

VIEWS = """
    CREATE VIEW bad AS SELECT CAST(note AS INT) AS n FROM y;
    CREATE VIEW total AS SELECT SUM(v) AS s, AVG(v) AS a, SUM(DISTINCT v) AS d, SUM(v) FILTER (WHERE w > 0) AS f,
        MIN(v) AS least, MAX(w) AS most FROM x JOIN y ON x.k = y.k;
    CREATE VIEW by_key AS SELECT x.k, SUM(w) AS s, AVG(w) AS a, COUNT(*) AS n
        FROM x LEFT JOIN y ON x.k = y.k GROUP BY x.k;
    CREATE VIEW pairs AS SELECT a.k, SUM(b.v) AS s FROM x AS a JOIN x AS b ON a.k = b.k GROUP BY a.k;
"""
TABLES = "CREATE TABLE x (k INT, v DOUBLE); CREATE TABLE y (k INT, w DOUBLE, note TEXT);"
Rows = Counter[tuple[int, float | None]]


def exact_sum(values: list[float]) -> float | None:
    """The true sum of doubles, rounded once; None of no values."""
    special = sum(v for v in values if not math.isfinite(v))
    if not values or special:
        return special or None
    total = sum(map(Fraction, values))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


def mean(values: list[float]) -> float | None:
    special = sum(v for v in values if not math.isfinite(v))
    return special / len(values) if special else float(sum(map(Fraction, values)) / len(values)) if values else None


def expected(x: Rows, y: Rows) -> dict[str, list[tuple[object, ...]]]:
    xs, ys = list(x.elements()), list(y.elements())
    joined = [(v, w) for k, v in xs for j, w in ys if k == j]
    known = [v for v, _ in joined if v is not None]
    filtered = [v for v, w in joined if v is not None and w is not None and w > 0]
    others = [w for _, w in joined if w is not None]
    total = (
        exact_sum(known), mean(known), exact_sum(list(set(known))), exact_sum(filtered),
        min(known, default=None), max(others, default=None),
    )  # fmt: skip
    by_key, pairs = [], []
    for key in {k for k, _ in xs}:
        mine = [v for k, v in xs if k == key]
        right = [w for k, w in ys if k == key]
        weights = [w for w in right if w is not None] * len(mine)
        by_key.append((key, exact_sum(weights), mean(weights), len(mine) * max(1, len(right))))
        pairs.append((key, exact_sum([v for v in mine if v is not None] * len(mine))))
    return {"total": [total], "by_key": sorted(by_key), "pairs": sorted(pairs)}


def some_double(r: random.Random) -> float | None:
    kind = r.random()
    if kind < 0.1:
        return None
    if kind < 0.15:
        return math.inf
    if kind < 0.6:
        return r.choice((0.1, 3.0, -2.5, 1e16, 0.01, 1.5e308, 1e308, -1.7e308, 5e-324, 1e-300, -1e300))
    return math.ldexp(r.uniform(-1, 1), r.randint(-1073, 1024))


def close(got: object, want: object) -> bool:
    """Averages are rounded twice: the sum, and its share."""
    return got == want or (
        isinstance(got, float) and isinstance(want, float) and math.isclose(got, want, rel_tol=1e-15)
    )


def check(db: whence.Database, x: Rows, y: Rows) -> None:
    for name, want in expected(x, y).items():
        got = sorted(db[name].rows)
        assert len(got) == len(want), name
        for have, should in zip(got, want, strict=True):
            for column, a, b in zip(db[name].columns, have, should, strict=True):
                assert close(a, b) if column == "a" else a == b, (name, have, should)


def run(db: whence.Database, seed: int, epochs: int) -> tuple[Rows, Rows]:
    """Random transactions over both tables; every third one fails and is undone."""
    r = random.Random(seed)
    x, y = Counter[tuple[int, float | None]](), Counter[tuple[int, float | None]]()
    for _ in range(epochs):
        new = {"x": x.copy(), "y": y.copy()}
        failing = r.random() < 0.3
        try:
            with db.transaction():
                for _ in range(r.randint(1, 8)):
                    name = r.choice(("x", "y"))
                    rows = new[name]
                    held = list(rows.elements())
                    if held and r.random() < 0.5:
                        row = r.choice(held)
                        db.delete(name, row if name == "x" else (*row, "1"))
                        rows[row] -= 1
                    else:
                        row = (r.randint(1, 2), some_double(r))
                        db.insert(name, row if name == "x" else (*row, "1"))
                        rows[row] += 1
                if failing:
                    db.insert("y", (1, 1e308, "no number"))
        except whence.EvaluationError:
            assert failing
        else:
            assert not failing
            x, y = +new["x"], +new["y"]
        check(db, x, y)
    return x, y


@pytest.mark.parametrize("seed", seeds(6))
def test_sums_are_exact_after_every_epoch(seed: int) -> None:
    db = whence.open()
    db.execute(TABLES + VIEWS)
    x, _ = run(db, seed, 40)
    db.execute("CREATE VIEW later AS SELECT SUM(v) AS s FROM x")
    assert db["later"].rows == [(exact_sum([v for _, v in x.elements() if v is not None]),)]


def test_sums_in_partitions_are_the_same_to_the_last_bit() -> None:
    db = database.open(partitions=3, durability="none")
    db.execute(TABLES + VIEWS)
    run(db, 7, 20)


def test_sums_are_exact_after_reopening(tmp_path: Path) -> None:
    with whence.open(tmp_path / "d.db") as db:
        db.execute(TABLES + VIEWS)
        x, y = run(db, 11, 15)
        db.snapshot()
    with whence.open(tmp_path / "d.db") as db:
        check(db, x, y)
        db.insert("x", [(1, 1e308), (1, 1e-310)])
        x[1, 1e308] += 1
        x[1, 1e-310] += 1
        check(db, x, y)


def test_order_of_writes_in_a_transaction_does_not_matter() -> None:
    db = whence.open()
    db.execute("CREATE TABLE x (v DOUBLE); CREATE TABLE y (k INT); CREATE VIEW s AS SELECT SUM(v) AS s FROM x, y")
    db.insert("x", (3.0,))
    db.insert("y", (1,))
    with db.transaction():
        db.delete("x", (3.0,))
        db.insert("x", (4.0,))
        db.insert("y", (2,))
        db.delete("y", (1,))
    assert db["s"].rows == [(4.0,)]
    db.insert("x", (1.5e308,))
    with db.transaction():
        db.insert("x", (1e308,))
        db.delete("x", (1.5e308,))
    assert db["s"].rows == [(1e308,)]


def test_fixed_point_sums_against_fractions() -> None:
    r = random.Random(3)
    for _ in range(200):
        values = [math.ldexp(r.uniform(-1, 1), r.randint(*r.choice(((-1073, 1024), (-9, 20))))) for _ in range(12)]
        times = [r.choice((1, 1, -1, 2, -7, 2**31, -(2**40))) for _ in values]
        low = limbs = 0
        acc = np.zeros((1, 0), np.int64)
        for value, m in zip(values, times, strict=True):
            codes, bits = floats_to_codes(np.array([[value]])), np.empty(2, np.int64)
            find_range(codes, 0, bits)
            new_low, new_limbs = limbs_for(low, limbs, *bits.tolist())
            wider = np.zeros((1, new_limbs), np.int64)
            widen(acc, low, wider, new_low)
            acc, low, limbs = wider, new_low, new_limbs
            add_double(acc, 0, 0, low, limbs, int(codes[0, 0]), m)
        x, exponent = rounded(acc, 0, 0, low, limbs, np.empty(DIGITS, np.int64))
        true = sum(Fraction(v) * m for v, m in zip(values, times, strict=True))
        scaled = true / Fraction(2) ** exponent
        assert x == float(scaled)
