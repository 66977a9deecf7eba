"""Paper 000, section VIII: contiguous regions of triggered sensors, their sizes, and the largest.

The paper's text joins `isTriggered` with the near end of a step only, so a region reaches one sensor beyond its last
triggered one; it is kept as it is written there."""

from __future__ import annotations

import math
import random

import pytest

from tests.oracle import Row, ScalarFunction, Twin, assert_rows, drive, every_policy, stream

TABLES = """
    CREATE TABLE sensor (sensorid INT PRIMARY KEY, x DOUBLE, y DOUBLE);
    CREATE TABLE coordSensor (regionid INT, sensorid INT);
    CREATE TABLE isTriggered (sensorid INT);
"""
SIZES = """
    create view regionSizes(regionid, size) as
      (select regionid, count(sensorid) from activeRegion group by regionid);
    create view largestRegion(size) as (select max(size) from regionSizes);
    create view largestRegions (regionid) as
      (select R.regionid from regionSizes R, largestRegion L where R.size = L.size)
"""
REGION = """
    with recursive activeRegion(regionid, sensorid) as
      ( select M.regionid, S.sensorid
        from sensor S, coordSensor M, isTriggered T
       where M.sensorid = S.sensorid
              and S.sensorid = T.sensorid
      union
        select A.regionid, S2.sensorid
        from sensor S1, sensor S2, activeRegion A,
             isTriggered T
        where {near}
              and S1.sensorid = A.sensorid and
              S1.sensorid = T.sensorid );
"""
NEAR = {
    "function": "distance(S1.x, S1.y, S2.x, S2.y) < 20",
    "arithmetic": "(S1.x - S2.x) * (S1.x - S2.x) + (S1.y - S2.y) * (S1.y - S2.y) < 400",
}
# The distance a region has come from its seed: how far news of it had to travel.
SPREAD = """
    CREATE VIEW spread AS
      SELECT regionid, sensorid, MIN(away) AS away FROM (
        SELECT M.regionid, M.sensorid, 0.0 AS away FROM coordSensor M JOIN isTriggered T ON T.sensorid = M.sensorid
        UNION
        SELECT A.regionid, S2.sensorid, A.away + distance(S1.x, S1.y, S2.x, S2.y)
        FROM spread A
        JOIN isTriggered T ON T.sensorid = A.sensorid
        JOIN sensor S1 ON S1.sensorid = A.sensorid
        JOIN sensor S2 ON distance(S1.x, S1.y, S2.x, S2.y) < 20) AS steps
      GROUP BY regionid, sensorid
"""


def distance(ax: float | None, ay: float | None, bx: float | None, by: float | None) -> float | None:
    if ax is None or ay is None or bx is None or by is None:
        return None
    return math.hypot(ax - bx, ay - by)


DISTANCE = ScalarFunction("distance", distance, ["DOUBLE"] * 4, "DOUBLE")


def twin(near: str, policy: str) -> Twin:
    return Twin(TABLES + REGION.format(near=NEAR[near]) + SIZES, policy, functions=[DISTANCE])


def row_of_sensors(count: int) -> list[Row]:
    return [(i, 15.0 * i, 0.0) for i in range(count)]


@every_policy
@pytest.mark.parametrize("near", NEAR)
def test_regions_written_out(policy: str, near: str) -> None:
    regions = twin(near, policy)
    regions.insert("sensor", *row_of_sensors(6), (9, 0.0, 50.0))
    regions.insert("coordsensor", (1, 0), (2, 9), (3, 4))
    regions.insert("istriggered", (0,), (1,), (9,), (4,))
    assert_rows(regions.db["activeRegion"], [(1, 0), (1, 1), (1, 2), (2, 9), (3, 3), (3, 4), (3, 5)])
    assert_rows(regions.db["regionSizes"], [(1, 3), (2, 1), (3, 3)])
    assert_rows(regions.db["largestRegion"], [(3,)])
    assert_rows(regions.db["largestRegions"], [(1,), (3,)])
    regions.insert("istriggered", (2,), (3,))  # the two regions grow together
    assert_rows(regions.db["regionSizes"], [(1, 6), (2, 1), (3, 6)])
    regions.delete("istriggered", (2,))
    assert_rows(regions.db["regionSizes"], [(1, 3), (2, 1), (3, 4)])
    assert_rows(regions.db["largestRegions"], [(3,)])
    regions.delete("istriggered", (0,), (4,), (9,))
    assert_rows(regions.db["activeRegion"], [])
    assert_rows(regions.db["largestRegion"], [(None,)])
    assert_rows(regions.db["largestRegions"], [])


def sensor(rng: random.Random) -> Row:
    number = rng.randrange(8)
    return number, 13.0 * rng.randrange(4), 13.0 * rng.randrange(3)


MAKERS = {
    "sensor": sensor,
    "coordsensor": lambda rng: (rng.randrange(3), rng.randrange(8)),
    "istriggered": lambda rng: (rng.randrange(8),),
}


@every_policy
@pytest.mark.parametrize("near", NEAR)
def test_regions(policy: str, near: str) -> None:
    drive(twin(near, policy), stream(near, MAKERS, steps=12, start=6))


@every_policy
def test_distances_from_the_seed(policy: str) -> None:
    spread = Twin(TABLES + SPREAD, policy, functions=[DISTANCE])
    spread.insert("sensor", *row_of_sensors(5), (7, 30.0, 10.0))
    spread.insert("coordsensor", (1, 0))
    spread.insert("istriggered", (0,), (1,), (2,))
    hop = math.hypot(15.0, 10.0)
    assert_rows(spread.db["spread"], [(1, 0, 0.0), (1, 1, 15.0), (1, 2, 30.0), (1, 3, 45.0), (1, 7, 15.0 + hop)])
    spread.delete("istriggered", (1,))
    assert_rows(spread.db["spread"], [(1, 0, 0.0), (1, 1, 15.0)])
    drive(Twin(TABLES + SPREAD, policy, functions=[DISTANCE]), stream("spread", MAKERS, steps=10, start=6))
