from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import whence
from whence.io.reading import UnreadableError, read_column, read_value
from whence.model.codes import Interval
from whence.model.errors import DataError
from whence.model.types import BIGINT, BOOLEAN, DATE, DOUBLE, INTEGER, INTERVAL, TIMESTAMP, Type, decimal

EIGHT = dt.datetime(2026, 7, 1, 8)


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (TIMESTAMP, "2026-07-01T08:00:00Z", EIGHT),
        (TIMESTAMP, "2026-07-01T10:00:00+02:00", EIGHT),
        (TIMESTAMP, "2026-07-01 10:00:00 +0200", EIGHT),
        (TIMESTAMP, " 2026-07-01 08:00:00 UTC ", EIGHT),
        (TIMESTAMP, "2026-07-01 08:00", EIGHT),
        (TIMESTAMP, "2026-07-01T08:00:00.0000009", EIGHT),
        (INTEGER, "+12", 12),
        (INTEGER, "1.2e1", 12),
        (BIGINT, "9223372036854775807", 2**63 - 1),
        (DOUBLE, "-Infinity", float("-inf")),
        (decimal(5, 2), "1.005", Decimal("1.01")),
        (BOOLEAN, "YES", True),
        (DATE, "2026-07-01", dt.date(2026, 7, 1)),
        (INTERVAL, "P1DT2H", Interval(0, 1, 7_200_000_000)),
        (INTERVAL, "1 day 02:00:00", Interval(0, 1, 7_200_000_000)),
    ],
)
def test_text_is_read_as_a_value(type: Type, text: str, value: Any) -> None:
    assert read_value(text, type) == value


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (INTEGER, "1.5"),
        (INTEGER, ""),
        (INTEGER, "1_0"),
        (INTEGER, "2147483648"),
        (DOUBLE, "1d"),
        (BOOLEAN, "2"),
        (TIMESTAMP, "2026-07-01T25:00:00Z"),
        (TIMESTAMP, "0001-01-01T00:00:00+02:00"),
        (DATE, "2026-02-30"),
        (decimal(3, 1), "100"),
        (decimal(3, 1), "nan"),
        (INTERVAL, "P"),
    ],
)
def test_other_text_is_refused(type: Type, text: str) -> None:
    with pytest.raises(DataError, match="is not a value of type"):
        read_value(text, type)
    with pytest.raises(UnreadableError) as error:
        read_column(pa.chunked_array([[None, text]]), type)
    assert error.value.row == 1


@given(st.lists(st.none() | st.sampled_from(["1", "-2", "+3", "4.0", " 5"]), max_size=6))
def test_column_is_read_as_its_values(texts: list[str | None]) -> None:
    found = read_column(pa.chunked_array([pa.array(texts[:3], pa.string()), pa.array(texts[3:], pa.string())]), INTEGER)
    assert found.to_pylist() == [None if text is None else read_value(text, INTEGER) for text in texts]


def test_csv_file_may_have_zones_late_in_it(tmp_path: Path) -> None:
    lines = ["2026-07-01 08:00:00,1"] * 3 + ["2026-07-01T10:00:00+02:00,+1", ""]
    (tmp_path / "a.csv").write_text("\n".join(["at,n", *lines]))
    with whence.open() as db:
        db.execute("CREATE TABLE t (at TIMESTAMP, n INT)")
        assert db.insert("t", tmp_path / "a.csv") == 4
        assert set(db["t"].rows) == {(EIGHT, 1)}


def test_line_of_an_unreadable_value_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('at,s\n2026-07-01,"x, y"\n\n2026-07-01Z,z\n')
    with whence.open() as db:
        db.execute("CREATE TABLE t (at TIMESTAMP, s TEXT)")
        with pytest.raises(DataError, match=r"a.csv, line 4, column at: '2026-07-01Z' is not"):
            db.insert("t", tmp_path / "a.csv")
