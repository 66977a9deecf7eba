"""Time zones and time buckets, against Python's zoneinfo and DuckDB."""

from __future__ import annotations

import datetime as dt
import importlib.resources
import zoneinfo
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

import whence
from whence import EvaluationError, SqlError
from whence.model import zones
from whence.model.zones import Zone, find_zone, zone_names

EPOCH = dt.datetime(1970, 1, 1)
MICRO = dt.timedelta(microseconds=1)
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
ODD = [
    "Europe/Berlin",
    "Europe/Dublin",
    "Africa/Casablanca",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "Pacific/Apia",
]


def local(instant: dt.datetime, zone: str) -> dt.datetime:
    there = zoneinfo.ZoneInfo(zone)
    return there.fromutc(instant.replace(tzinfo=there)).replace(tzinfo=None)


def instant(shown: dt.datetime, zone: str) -> dt.datetime:
    """What PostgreSQL takes: after the clocks went back, and in a gap with the offset before it."""
    there = zoneinfo.ZoneInfo(zone)
    offsets = [shown.replace(tzinfo=there, fold=fold).utcoffset() for fold in (0, 1)]
    return shown - min(offsets)


moments = hs.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 28)) | hs.datetimes(
    dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1)
)


@settings(max_examples=150, deadline=None)
@given(zone=hs.sampled_from(ODD) | hs.sampled_from(zone_names()), data=hs.data())
def test_clocks_are_those_of_zoneinfo(zone, data):
    found = find_zone(zone)
    near = hs.builds(
        lambda at, off: EPOCH + int(at) * MICRO + off,
        hs.sampled_from(found.transitions.tolist() or [0]),
        hs.timedeltas(dt.timedelta(hours=-30), dt.timedelta(hours=30)),
    )
    given = data.draw(hs.lists(moments | near, min_size=1, max_size=20))
    codes = np.array([(moment - EPOCH) // MICRO for moment in given])
    assert [EPOCH + int(m) * MICRO for m in found.to_local(codes)] == [local(m, zone) for m in given]
    assert [EPOCH + int(m) * MICRO for m in found.to_instants(codes)] == [instant(m, zone) for m in given]


def test_every_zone_of_the_package_can_be_read(monkeypatch):
    """Where the system has no data, the package tzdata does."""
    listed = importlib.resources.files("tzdata").joinpath("zones").read_text().split()
    assert "Europe/Berlin" in listed
    there = find_zone("Europe/Berlin").to_local(np.arange(0, 2_000_000_000, 9_999_999) * 1_000_000)
    monkeypatch.setattr(zoneinfo, "TZPATH", ())
    zones.find_zone.cache_clear()
    try:
        assert (find_zone("Europe/Berlin").to_local(np.arange(0, 2_000_000_000, 9_999_999) * 1_000_000) == there).all()
    finally:
        zones.find_zone.cache_clear()


@pytest.fixture
def db():
    with whence.open() as db:
        db.execute("CREATE TABLE t (x TIMESTAMP)")
        yield db


def both(db, expression: str) -> list[dt.datetime]:
    """The values of an expression over t, in a view and in a query."""
    db.execute(f"CREATE OR REPLACE VIEW v AS SELECT x, {expression} AS y FROM t")
    rows = sorted(db["v"].rows)
    assert sorted(db.query(f"SELECT x, {expression} AS y FROM t").rows) == rows
    return [y for _, y in rows]


def test_gaps_and_repeated_hours(db):
    db.insert("t", [(dt.datetime(2024, 3, 31, 2, 30),), (dt.datetime(2024, 10, 27, 2, 30),)])
    assert both(db, "x AT TIME ZONE 'Europe/Berlin'") == [
        dt.datetime(2024, 3, 31, 1, 30),
        dt.datetime(2024, 10, 27, 1, 30),
    ]
    assert both(db, "x AT TIME ZONE 'Europe/Berlin' AT TIME ZONE 'Europe/Berlin'") == [
        dt.datetime(2024, 3, 31, 3, 30),
        dt.datetime(2024, 10, 27, 2, 30),
    ]


def test_the_type_says_which_way(db):
    """As in PostgreSQL: a TIMESTAMP becomes an instant, and an instant the local time, through other operations."""
    db.insert("t", [(dt.datetime(2024, 7, 1, 12),)])
    [instant_, local_] = dt.datetime(2024, 7, 1, 10), dt.datetime(2024, 7, 1, 14)
    for expression, expected in {
        "x AT TIME ZONE 'Europe/Berlin'": instant_,
        "x AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin'": local_,
        "CAST(x AS TIMESTAMPTZ) AT TIME ZONE 'Europe/Berlin'": local_,
        "x::TIMESTAMPTZ::TIMESTAMP AT TIME ZONE 'Europe/Berlin'": instant_,
        "(x AT TIME ZONE 'UTC' + INTERVAL '1 day' - INTERVAL '24 hours') AT TIME ZONE 'Europe/Berlin'": local_,
        "coalesce(NULL, x AT TIME ZONE 'UTC') AT TIME ZONE 'Europe/Berlin'": local_,
        "greatest(x, x AT TIME ZONE 'UTC') AT TIME ZONE 'Europe/Berlin'": local_,
        "CASE WHEN x IS NULL THEN x ELSE x AT TIME ZONE 'UTC' END AT TIME ZONE 'Europe/Berlin'": local_,
        "(SELECT MAX(z) FROM (SELECT x AT TIME ZONE 'UTC' AS z FROM t) AS s) AT TIME ZONE 'Europe/Berlin'": local_,
    }.items():
        assert both(db, expression) == [expected], expression
    db.execute("CREATE VIEW first AS SELECT x AT TIME ZONE 'UTC' AS z FROM t")  # a column of a view is a TIMESTAMP
    db.execute("CREATE VIEW second AS SELECT z AT TIME ZONE 'Europe/Berlin' AS y FROM first")
    assert db["second"].rows == db.query("SELECT z AT TIME ZONE 'Europe/Berlin' AS y FROM first").rows == [(instant_,)]
    assert [row[1] for row in db.describe("first").rows] == ["TIMESTAMP"]
    db.create_table_function("one", lambda x: [(x,)], args=["INT"], returns="(y INT)")
    sql = "SELECT x AT TIME ZONE 'UTC' AS z FROM t, one(1) ORDER BY z DESC LIMIT 1"  # on our own operators
    assert db.query(sql).rows == [(dt.datetime(2024, 7, 1, 12),)]
    assert db.execute("INSERT INTO t SELECT x AT TIME ZONE 'Europe/Berlin' FROM t").count == 1


def test_a_zone_may_be_a_parameter(db):
    db.insert("t", [(dt.datetime(2024, 7, 1, 12),)])
    assert db.query("SELECT x AT TIME ZONE ? AS y FROM t", ["Asia/Tokyo"]).rows == [(dt.datetime(2024, 7, 1, 3),)]
    assert (
        db.delete("t", where="x AT TIME ZONE :z < :t", params={"z": "Asia/Tokyo", "t": dt.datetime(2024, 7, 1, 4)}) == 1
    )


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            "x AT TIME ZONE 'Europe/Brelin'",
            "column 40: unknown time zone 'Europe/Brelin'; did you mean \"Europe/Berlin\"",
        ),
        ("x AT TIME ZONE 'new york'", "unknown time zone 'new york'; did you mean \"America/New_York\""),
        ("x AT TIME ZONE '+02:00'", "unknown time zone"),
        ("x AT TIME ZONE '../../etc/passwd'", "unknown time zone"),
        ("x AT TIME ZONE CAST(x AS TEXT)", "column 45: the time zone must be written out"),
        ("CAST(x AS DATE) AT TIME ZONE 'UTC'", "AT TIME ZONE takes a TIMESTAMP, found DATE"),
        ("'2024-07-01' AT TIME ZONE 'UTC'", "AT TIME ZONE takes a TIMESTAMP, found TEXT"),
    ],
)
def test_refusals_are_the_same_in_both(db, expression, message):
    db.insert("t", [(dt.datetime(2024, 7, 1),)])
    with pytest.raises(SqlError, match=message):
        db.execute(f"CREATE VIEW v AS SELECT {expression} AS y FROM t")
    with pytest.raises(SqlError, match=message):
        db.query(f"SELECT            {' ' * 6}{expression} AS y FROM t")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("time_bucket(INTERVAL '1 day', x, '2024-01-01')", "time_bucket takes an INTERVAL, a DATE or TIMESTAMP"),
        ("time_bucket(INTERVAL '1 day', 5)", "time_bucket takes an INTERVAL, a DATE or TIMESTAMP"),
        ("time_bucket(INTERVAL '1 day', INTERVAL '1 day')", "as its second argument, found INTERVAL"),
        ("time_bucket(x, x)", "expected INTERVAL, found TIMESTAMP"),
        ("time_bucket(x)", "time_bucket takes 2 to 3 arguments, not 1"),
        ("time_bucket(INTERVAL '1 month 1 day', x)", "the width of time_bucket is months, or days and time, not both"),
        ("time_bucket(INTERVAL '-1 day', x)", "the width of time_bucket must be positive"),
    ],
)
def test_wrong_buckets(db, call, message):
    db.insert("t", [(dt.datetime(2024, 7, 1),)])
    with pytest.raises(whence.WhenceError, match=message):
        db.execute(f"CREATE VIEW v AS SELECT {call} AS y FROM t")
    with pytest.raises(whence.WhenceError):
        db.query(f"SELECT {call} AS y FROM t")


def test_out_of_range_times_are_errors_in_both(db):
    db.insert("t", [(dt.datetime(1, 1, 1),)])
    for zone in ("AT TIME ZONE 'Asia/Tokyo'", "AT TIME ZONE 'UTC' AT TIME ZONE 'America/New_York'"):
        with pytest.raises(EvaluationError, match="years 1 to 9999"):
            db.execute(f"CREATE VIEW v AS SELECT x {zone} AS y FROM t")
        with pytest.raises(EvaluationError, match="years 1 to 9999"):
            db.query(f"SELECT x {zone} AS y FROM t")


@pytest.mark.parametrize("partitions", [None, 3])
@settings(max_examples=15, deadline=None)
@given(
    changes=hs.lists(
        hs.lists(hs.datetimes(dt.datetime(2024, 3, 30), dt.datetime(2024, 4, 2)), min_size=1, max_size=8), max_size=5
    )
)
def test_days_of_a_zone_are_maintained(partitions, changes):
    with whence.open(partitions=partitions) as db:
        db.execute("CREATE TABLE t (x TIMESTAMP)")
        day = "CAST(x AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin' AS DATE)"
        db.execute(f"CREATE VIEW days AS SELECT {day} AS day, COUNT(*) AS n FROM t GROUP BY {day}")
        rows: Counter[dt.datetime] = Counter()
        for number, change in enumerate(changes):
            if number % 2:
                gone = list((rows & Counter(change)).elements()) + list(rows)[:2]
                db.delete("t", [(x,) for x in set(gone)])
                rows.subtract(set(gone))
                rows = +rows
            else:
                db.insert("t", [(x,) for x in change])
                rows.update(change)
        expected = Counter(local(x, "Europe/Berlin").date() for x in rows.elements())
        assert dict(db["days"].rows) == expected
        assert sorted(db.query(f"SELECT {day}, COUNT(*) FROM t GROUP BY 1").rows) == sorted(expected.items())


@settings(max_examples=40, deadline=None)
@given(
    times=hs.lists(moments, min_size=1, max_size=30),
    width=hs.builds(whence.Interval, hs.integers(1, 50), hs.just(0), hs.just(0))
    | hs.builds(whence.Interval, hs.just(0), hs.integers(0, 40), hs.integers(1, 10**11)),
    origin=hs.none()
    | hs.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))
    | hs.timedeltas(-dt.timedelta(9), dt.timedelta(9)),
)
def test_buckets_are_those_of_duckdb(times, width, origin):
    with whence.open() as db:
        db.execute("CREATE TABLE t (x TIMESTAMP)")
        db.create_table_function("one", lambda x: [(x,)], args=["INT"], returns="(y INT)")
        db.insert("t", [(x,) for x in times if dt.datetime(300, 1, 1) < x < dt.datetime(9900, 1, 1)])
        more = "" if origin is None else ", :origin"
        params = {"width": width} if origin is None else {"width": width, "origin": origin}
        ours, theirs = (
            sorted(db.query(f"SELECT x, time_bucket(:width, x{more}) AS y FROM t{source}", params).rows)
            for source in (", one(1)", "")
        )
        assert ours == theirs


def test_a_view_follows_new_data_of_its_zone(tmp_path, monkeypatch):
    """A release of the data that moves an old hour must not leave rows behind that no deletion finds."""
    rows = [(EPOCH + dt.timedelta(hours=hours),) for hours in range(100)]
    day = "CAST(x AT TIME ZONE 'UTC' AT TIME ZONE 'Europe/Berlin' AS DATE)"
    with whence.open(tmp_path / "db") as db:
        db.execute("CREATE TABLE t (x TIMESTAMP)")
        db.execute(f"CREATE VIEW days AS SELECT {day} AS day, COUNT(*) AS n FROM t GROUP BY {day}")
        db.insert("t", rows)
        before = sorted(db["days"].rows)

    def moved(name: str) -> Zone:
        old = find_zone(name)
        return replace(old, offsets=old.offsets + 7_200_000_000 * (name == "Europe/Berlin"), digest="other")

    for module in ("whence.sql.zones", "whence.engine.expressions.functions.dates"):
        monkeypatch.setattr(f"{module}.find_zone", moved)
    with whence.open(tmp_path / "db") as db:
        assert sorted(db["days"].rows) != before
        assert sum(n for _, n in db["days"].rows) == 100
        db.delete("t", rows)
        assert not db["days"].rows


def test_data_that_differs_between_processes_is_refused(db, monkeypatch):
    db.insert("t", [(EPOCH,)])
    real = find_zone("Europe/Berlin")
    monkeypatch.setattr("whence.sql.zones.find_zone", lambda name: replace(real, digest="other"))
    with pytest.raises(EvaluationError, match="the data of time zone Europe/Berlin is not the same everywhere"):
        db.execute("CREATE VIEW v AS SELECT x AT TIME ZONE 'Europe/Berlin' AS y FROM t")
