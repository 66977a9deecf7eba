"""Files go round in every format; files of updates are read in both spellings; errors name file and line."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

from whence.io.files import duration, read, write
from whence.io.reading import parse_duration
from whence.io.rows import encode, to_arrow, to_tuples
from whence.model.codes import Dictionary, Interval
from whence.model.errors import DataError
from whence.model.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    TEXT,
    TIMESTAMP,
    Column,
    Schema,
    decimal,
)

TYPES = (BOOLEAN, INTEGER, DOUBLE, decimal(9, 2), TEXT, DATE, TIMESTAMP, INTERVAL)
ALL = Schema(tuple(Column(f"c{i}", type) for i, type in enumerate(TYPES)))
ROWS = [
    (
        True,
        1,
        0.1,
        Decimal("1.10"),
        'a,"b"\n',
        dt.date(2024, 2, 29),
        dt.datetime(2024, 1, 1, 2, 3, 4, 5),
        Interval(13, 2, 3_500_000),
    ),
    (None,) * 8,
    (False, -1, -2.5e300, Decimal("-0.01"), "", dt.date(1969, 1, 1), dt.datetime(1969, 1, 1), Interval(0, 0, 0)),
]
LINK = Schema((Column("src", TEXT), Column("cost", INTEGER)))


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_table_goes_round(tmp_path: Path, suffix: str) -> None:
    words = Dictionary()
    table = to_arrow(encode(ROWS, ALL, words, "t"), np.ones(3, np.int64), ALL, words)
    write(table, tmp_path / f"t.{suffix}")
    back = [
        row
        for part in read(tmp_path / f"t.{suffix}", ALL)
        for row in to_tuples(encode(part, ALL, words, "t"), ALL, words)
    ]
    assert back == ROWS


def test_columns_are_found_by_name_and_missing_ones_are_an_error_or_null(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("COST\n3\n")
    (part,) = read(tmp_path / "a.csv", LINK, missing="null")
    words = Dictionary()
    assert to_tuples(encode(part, LINK, words, "link", missing="null"), LINK, words) == [(None, 3)]
    with pytest.raises(DataError, match=r"a\.csv: no values for column src"):
        list(read(tmp_path / "a.csv", LINK))


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.csv", "src,cost\nA,x\n", "a.csv, line 2, column cost: 'x' is not a value of type INTEGER"),
        ("a.csv", "src,metric\nA,1\n", "no column metric"),
        (
            "a.jsonl",
            '{"src": "A", "cost": 1}\n\n{"src": 3, "cost": 1}\n',
            "a.jsonl, line 3: column src: 3 (int) is not a value of type TEXT",
        ),
        ("a.jsonl", '{"src": "A", "cost": 1}\n{"metric": 3}\n', "a.jsonl, line 2: no column metric"),
        ("a.jsonl", '{"src": "A"\n', "a.jsonl, line 1: not JSON"),
        ("a.jsonl", "[1]\n", "a.jsonl, line 1: expected an object"),
        ("a.parquet", "nonsense", "a.parquet: "),
        ("a.txt", "", "must end in one of"),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, name: str, text: str, says: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as error:
        list(read(tmp_path / name, LINK))
    assert says in str(error.value)


def test_a_missing_file_is_our_error(tmp_path: Path) -> None:
    for name in ("no.csv", "no.jsonl"):
        with pytest.raises(DataError, match="no such file"):
            list(read(tmp_path / name, LINK))


@pytest.mark.parametrize("span", [Interval(0, 0, 0), Interval(-1, 2, -3), Interval(14, 0, 3_600_000_001)])
def test_durations_go_round(span: Interval) -> None:
    assert parse_duration(duration(span)) == span


@pytest.mark.parametrize("text", ["", "P", "1 day", "PT"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    with pytest.raises(DataError):
        parse_duration(text)
