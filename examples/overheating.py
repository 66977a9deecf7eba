"""Trace the alarms of an overheating machine to sensor readings. Run with `python examples/overheating.py`."""

from pathlib import Path

import whence

FIRST = [(1, 1, 399.0), (2, 1, 80.0), (3, 1, 84.0), (4, 1, 90.0), (5, 1, 94.0), (6, 1, 95.0)]
SECOND = [(1, 2, 97.0), (2, 2, 94.0), (3, 2, 91.0), (4, 2, 94.0), (5, 2, 91.0)]

with whence.open() as db:
    db.execute((Path(__file__).parent / "overheating.sql").read_text())

    db.insert("sensor1", FIRST)
    db.insert("sensor2", SECOND)

    # Both are cool until time 20, then hot.
    for time in range(7, 27):
        temp = 20.0 if time < 20 else 120.0
        db.insert("sensor1", [(time, 1, temp)])
        db.insert("sensor2", [(time, 2, temp)])

    print(db["alarm"])

    print("\nThe readings of the second sensor behind each alarm:")
    print(db.query("SELECT tid, time, sensor2_tid, sensor2_temp FROM provenance(alarm, sensor2) ORDER BY 1, 3"))

    print("\nWhy was there an alarm at 3?")
    print(db.why("alarm", time=3))

    print("\nWhich averages would not count with a higher threshold?")
    print(db["revision"])

    print("\nWhich results did the first sensor's reading of 95 degrees reach?")
    print(db.trace("sensor1", 6))
