"""Alarms of an overheating machine, and the readings behind them: run with `python examples/overheating.py`."""

from pathlib import Path

import whence

FIRST = [(1, 1, 399.0), (2, 1, 80.0), (3, 1, 84.0), (4, 1, 90.0), (5, 1, 94.0), (6, 1, 95.0)]
SECOND = [(1, 2, 97.0), (2, 2, 94.0), (3, 2, 91.0), (4, 2, 94.0), (5, 2, 91.0)]

with whence.open() as db:
    db.execute((Path(__file__).parent / "overheating.sql").read_text())

    db.insert("sensor1", FIRST)
    db.insert("sensor2", SECOND)

    # All is quiet, until both are really hot.
    for time in range(7, 27):
        temp = 20.0 if time < 20 else 120.0
        db.insert("sensor1", [(time, 1, temp)])
        db.insert("sensor2", [(time, 2, temp)])

    print(db["alarm"])

    print("\nThe readings of the second sensor behind each alarm:")
    print(db.query("SELECT tid, time, sensor2_tid, sensor2_temp FROM provenance(alarm, sensor2) ORDER BY 1, 3"))

    print("\nWhy was there an alarm at 3?")
    print(db.why("alarm", time=3))

    print("\nWhich averages were only just too hot?")
    print(db["revision"])

    print("\nWhat came of the first sensor's reading of 95 degrees?")
    print(db.trace("sensor1", 6))
