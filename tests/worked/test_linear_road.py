"""SegTollS of paper 003 (Table 2; examples/linear_road.sql): five windows over a stream, beside DuckDB from scratch."""

from __future__ import annotations

import runpy
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

import whence

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = (EXAMPLES / "linear_road.sql").read_text()
TIME, CAR, EXPWAY, DIR, SEG, XPOS = 0, 1, 3, 4, 5, 6
COLUMNS = "time, carid, speed, expway, dir, seg, xpos"
TOLL = """
    SELECT r5.carid, r2.expway, r2.dir, r2.seg, COUNT(DISTINCT r5.xpos)
    FROM r1, r2, r3, r4, r5
    WHERE r2.expway = r3.expway AND r2.dir = 0 AND r3.dir = 0 AND r2.seg < r3.seg AND r2.seg > r3.seg - 10
      AND r3.carid = r4.carid AND r3.carid = r5.carid
      AND r1.expway = r2.expway AND r1.dir = r2.dir AND r1.seg = r2.seg
    GROUP BY r5.carid, r2.expway, r2.dir, r2.seg"""
Report = tuple[int, ...]


@pytest.fixture(scope="module")
def traffic() -> Callable[..., list[Report]]:
    generate = runpy.run_path(str(EXAMPLES / "linear_road.py"))["traffic"]
    return lambda *sizes, **more: list(generate(*sizes, **more))


def since(reports: Sequence[Report], width: int) -> list[Report]:
    return [r for r in reports if r[TIME] > reports[-1][TIME] - width]


def last(reports: Sequence[Report], count: int, *key: int) -> list[Report]:
    left: Counter[tuple[int, ...]] = Counter()
    found = []
    for report in reversed(reports):
        of = tuple(report[column] for column in key)
        left[of] += 1
        if left[of] <= count:
            found.append(report)
    return found


def windows(reports: Sequence[Report]) -> dict[str, list[Report]]:
    """The five windows of the query by their definitions."""
    return {
        "r1": since(reports, 300),
        "r2": last(reports, 1, EXPWAY, DIR, SEG),
        "r3": last(reports, 1, CAR),
        "r4": since(reports, 30),
        "r5": last(reports, 4, CAR),
    }


def tolls(reports: Sequence[Report]) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        for name, rows in windows(reports).items():
            connection.execute(f"CREATE TABLE {name} ({', '.join(f'{c} INT' for c in COLUMNS.split(', '))})")
            connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        return sorted(connection.execute(TOLL).fetchall())


def test_traffic_is_the_same_every_time(traffic: Callable[..., list[Report]]) -> None:
    reports = traffic(50, 300)
    assert reports == traffic(50, 300) != traffic(50, 300, seed=1)
    assert [r[TIME] for r in reports] == sorted(r[TIME] for r in reports)
    assert {r[EXPWAY] for r in reports} == {r[DIR] for r in reports} == {0, 1}
    assert all(0 <= r[SEG] < 100 and r[SEG] == r[XPOS] // 5280 for r in reports)
    assert set(Counter(r[CAR] for r in reports).values()) == {10}  # one a half minute


def test_tolls_follow_the_windows(traffic: Callable[..., list[Report]]) -> None:
    reports = traffic(40, 480)
    with whence.open() as db:
        db.execute(SCRIPT)
        for start in range(0, len(reports), 100):
            db.insert("car_location", reports[start : start + 100])
            so_far = reports[: start + 100]
            assert sorted(db["segment_toll"]) == tolls(so_far)
            seen = windows(so_far)
            assert Counter(db["recent"]) == Counter((r[3], r[4], r[5], r[1], r[2], r[0]) for r in seen["r1"])
            assert Counter(db["last_of_car"]) == Counter((r[1], r[3], r[4], r[5], r[6]) for r in seen["r3"])
            assert Counter(db["last_four"]) == Counter((r[CAR], r[XPOS]) for r in seen["r5"])
        assert len(db["segment_toll"]) > 0
        stopped = [car for car in range(40) if len({r[XPOS] for r in seen["r5"] if r[CAR] == car}) == 1]
        assert stopped == sorted(car for car, _ in db["stopped"]) != []


def test_the_query_with_its_windows_inside(traffic: Callable[..., list[Report]]) -> None:
    """As Table 2 writes it: the windows stand in FROM."""
    reports = traffic(40, 400)
    froms = """latest(car_location, on => time, width => 300) AS r1,
        latest(car_location, rows => 1, by => (expway, dir, seg)) AS r2,
        latest(car_location, rows => 1, by => carid) AS r3,
        latest(car_location, on => time, width => 30) AS r4, latest(car_location, rows => 4, by => carid) AS r5"""
    with whence.open() as db:
        db.execute(SCRIPT[: SCRIPT.index(";") + 1])
        select = TOLL.replace("COUNT(DISTINCT r5.xpos)", "COUNT(DISTINCT r5.xpos) AS places")
        db.execute(f"CREATE VIEW toll AS {select.replace('FROM r1, r2, r3, r4, r5', 'FROM ' + froms)}")
        for report in range(0, len(reports), 97):
            db.insert("car_location", reports[report : report + 97])
        assert sorted(db["toll"]) == tolls(reports) != []


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / "linear_road.py"), run_name="__main__")
    assert "cars stopped" in capsys.readouterr().out
