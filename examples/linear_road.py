"""Compute tolls from generated traffic, as in the Linear Road benchmark. Run with `python examples/linear_road.py`.

Cars drive along expressways of 100 segments of a mile each, and report every 30 seconds: (time, carid, speed, expway,
dir, seg, xpos), with `xpos` in feet. Some stop for a while. The same seed gives the same traffic.
"""

import random
from collections.abc import Iterator
from pathlib import Path

import whence

SEGMENT, SEGMENTS, EVERY = 5280, 100, 30
Report = tuple[int, int, int, int, int, int, int]


def traffic(cars: int, seconds: int, expways: int = 2, seed: int = 0) -> Iterator[Report]:
    """Generate reports in order of time."""
    rng = random.Random(seed)
    places = []
    for _ in range(cars):
        start = rng.randrange(SEGMENT * SEGMENTS)
        places.append([rng.randrange(EVERY), rng.randrange(expways), rng.randrange(2), start, rng.randint(40, 100), 0])
    for time in range(seconds):
        for carid, place in enumerate(places):
            first, expway, direction, xpos, speed, halted = place
            if time % EVERY != first:
                continue
            if halted or rng.random() < 0.02:  # an accident: five reports from the same place
                place[5] = (halted or 5) - 1
                speed = 0
            else:
                feet = speed * SEGMENT * EVERY // 3600
                xpos = (xpos + (feet if direction == 0 else -feet)) % (SEGMENT * SEGMENTS)
                place[3], place[4] = xpos, min(max(speed + rng.randint(-5, 5), 10), 100)
            yield time, carid, speed, expway, direction, xpos // SEGMENT, xpos


def main() -> None:
    with whence.open() as db:
        db.execute((Path(__file__).parent / "linear_road.sql").read_text())
        reports = list(traffic(cars=100, seconds=900))
        for start in range(0, len(reports), 250):
            db.insert("car_location", reports[start : start + 250])
            print(
                f"{reports[min(start + 250, len(reports)) - 1][0]:4} s: {len(db['recent']):5} recent reports,"
                f" {len(db['segment_toll']):4} tolls, {len(db['stopped']):2} cars stopped"
            )
        busiest = "SELECT * FROM congestion ORDER BY cars DESC, speed, expway, dir, seg LIMIT 5"
        print(db.query(busiest))


if __name__ == "__main__":
    main()
