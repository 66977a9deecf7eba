"""Rows of every kind come in as the same codes, go out as the same values, and misfits are named."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import whence
from whence.io.rows import check_not_null, encode, to_arrow, to_dicts, to_pandas, to_polars, to_tuples
from whence.model.codes import Dictionary, Interval
from whence.model.errors import DataError, EvaluationError
from whence.model.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    INTERVAL,
    TEXT,
    TIMESTAMP,
    Column,
    Schema,
    Type,
    decimal,
)

LINK = Schema((Column("src", TEXT), Column("dst", TEXT), Column("cost", INTEGER)))
ALL = Schema(
    (
        Column("b", BOOLEAN),
        Column("i", INTEGER),
        Column("n", BIGINT),
        Column("x", DOUBLE),
        Column("d", decimal(9, 2)),
        Column("t", TEXT),
        Column("day", DATE),
        Column("at", TIMESTAMP),
        Column("span", INTERVAL),
    )
)
ROWS = [
    (
        True,
        -5,
        2**62,
        -1.5,
        Decimal("-12.34"),
        "é",
        dt.date(1969, 12, 31),
        dt.datetime(2024, 2, 29, 1, 2, 3, 4),
        Interval(1, -2, 3),
    ),
    (None,) * 9,
    (
        False,
        2**31 - 1,
        -(2**53),
        0.0,
        Decimal("0.00"),
        "",
        dt.date(2024, 1, 1),
        dt.datetime(1960, 1, 1),
        Interval(0, 0, 0),
    ),
]


def of(type: Type) -> Schema:
    return Schema((Column("a", type),))


def ones(n: int) -> np.ndarray:
    return np.ones(n, np.int64)


@pytest.mark.parametrize("copies", [1, 20])  # a value at a time, and a column at a time
def test_every_type_goes_round_as_tuples(copies: int) -> None:
    words = Dictionary()
    codes = encode(ROWS * copies, ALL, words, "t")
    assert to_tuples(codes, ALL, words) == ROWS * copies
    assert codes[: len(ROWS)].tolist() == encode(ROWS, ALL, words, "t").tolist()


@pytest.mark.parametrize(
    "kind", ["tuples", "dicts", "table", "batch", "reader", "pandas", "polars", "generator", "chunks"]
)
def test_every_container_gives_the_same_codes(kind: str) -> None:
    words = Dictionary()
    codes = encode(ROWS, ALL, words, "t")
    table = to_arrow(codes, ones(3), ALL, words)
    no_span = Schema(ALL.columns[:-1])
    given = {
        "tuples": lambda: ROWS,
        "dicts": lambda: to_dicts(ROWS, ALL),
        "table": lambda: table,
        "batch": lambda: table.to_batches()[0],
        "reader": lambda: table.to_reader(),
        "generator": lambda: (row for row in ROWS),
        "chunks": lambda: pa.concat_tables([table.slice(0, 1), table.slice(1)]),
        "pandas": lambda: table.drop(["span"]).to_pandas(),
        "polars": lambda: pl.from_arrow(table.drop(["span"])),
    }[kind]()
    schema = no_span if kind in ("pandas", "polars") else ALL
    assert encode(given, schema, words, "t").tolist() == codes[:, : len(schema)].tolist()


def test_one_row_alone_and_none_at_all() -> None:
    words = Dictionary()
    assert encode(("a", "b", 1), LINK, words, "link").tolist() == [[0, 1, 1]]
    assert encode({"SRC": "a", "dst": "b", "cost": 1}, LINK, words, "link").tolist() == [[0, 1, 1]]
    assert encode([["a", "b", 1]], LINK, words, "link").tolist() == [[0, 1, 1]]
    assert encode((("a", "b", 1), ("b", "a", 2)), LINK, words, "link").tolist() == [[0, 1, 1], [1, 0, 2]]
    assert encode([], LINK, words, "link").shape == (0, 3)
    assert encode(pa.table({"src": pa.array([], pa.string())}), LINK, words, "link").shape == (0, 3)
    assert to_tuples(encode({"src": "a"}, LINK, words, "link", missing="null"), LINK, words) == [("a", None, None)]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([("a", "b", "x")], "table link, row 1, column cost: 'x' (str) is not a value of type INTEGER"),
        ([("a", "b", 1)] * 30 + [("a", 7, 1)], "table link, row 31, column dst: 7 (int) is not a value of type TEXT"),
        ([("a", "b", 1)] * 30 + [("a", "b", 2**31)], "row 31, column cost: 2147483648"),
        ([("a", "b", True)], "row 1, column cost: True (bool)"),
        ([("a", "b", 1), ("a", "b")], "table link, row 2: 2 values for the 3 columns"),
        ([("a", "b", 1), {"src": "a", "metric": 1}], "table link, row 2: no column metric"),
        ([3], "table link, row 1: 3 is not a row"),
        ("abc", "table link: expected rows"),
        (7, "table link: expected rows"),
        (pa.table({"src": ["a"], "dst": ["b"], "cost": [2**40]}), "row 1, column cost: 1099511627776"),
        (pa.table({"src": ["a", "b"], "dst": ["b", "c"], "cost": [1.0, 1.5]}), "row 2, column cost: 1.5"),
        (pa.table({"src": [1], "dst": ["b"], "cost": [2]}), "row 1, column src: 1 (int)"),
        (pa.table({"source": ["a"]}), "table link: no column source"),
        (pd.DataFrame({"src": ["a", 3]}), "mixed types"),
    ],
)
def test_misfits_are_named(rows: object, says: str) -> None:
    with pytest.raises(DataError) as error:
        encode(rows, LINK, Dictionary(), "link")
    assert says in str(error.value)


def test_the_smallest_bigint_is_refused_because_it_is_null() -> None:
    for rows in ([(-(2**63),)], [(-(2**63),)] * 30, pa.table({"a": [-(2**63)]})):
        with pytest.raises(DataError):
            encode(rows, of(BIGINT), Dictionary(), "t")


def test_floats_that_are_one_value_have_one_code() -> None:
    for copies in (1, 30):
        codes = encode([(0.0,), (-0.0,), (math.nan,), (-math.nan,), (3,)] * copies, of(DOUBLE), Dictionary(), "t")
        assert codes[0] == codes[1]
        assert codes[2] == codes[3]
        assert to_tuples(codes[4:5], of(DOUBLE), Dictionary()) == [(3.0,)]
    table = pa.table({"a": pa.array([math.nan, None, 1.0])})
    assert (
        to_arrow(encode(table, of(DOUBLE), Dictionary(), "t"), ones(3), of(DOUBLE), Dictionary())["a"].null_count == 1
    )


def test_decimals_are_exact_rounded_half_up_and_bounded() -> None:
    schema, words = of(decimal(18, 3)), Dictionary()
    exact = [Decimal("999999999999999.999"), Decimal("-0.001"), Decimal("1.0005"), 2, 0.1]
    wanted = [
        (Decimal("999999999999999.999"),),
        (Decimal("-0.001"),),
        (Decimal("1.001"),),
        (Decimal("2.000"),),
        (Decimal("0.100"),),
    ]
    assert to_tuples(encode([(v,) for v in exact], schema, words, "t"), schema, words) == wanted
    arrow = pa.table({"a": pa.array([Decimal("1.0005"), None], pa.decimal128(20, 4))})
    assert to_tuples(encode(arrow, schema, words, "t"), schema, words) == [(Decimal("1.001"),), (None,)]
    with pytest.raises(DataError):
        encode(pa.table({"a": pa.array([Decimal(10**15)], pa.decimal128(30, 0))}), schema, words, "t")


def test_arrow_relatives_of_a_type_are_taken() -> None:
    words = Dictionary()
    texts = pa.table({"a": pa.array(["x", None, "x"]).dictionary_encode()})
    assert to_tuples(encode(texts, of(TEXT), words, "t"), of(TEXT), words) == [("x",), (None,), ("x",)]
    large = pa.table({"a": pa.array(["x"], pa.large_string())})
    assert to_tuples(encode(large, of(TEXT), words, "t"), of(TEXT), words) == [("x",)]
    nanos = pa.table({"a": pa.array([-1, 1_500, None], pa.timestamp("ns"))})
    assert encode(nanos, of(TIMESTAMP), words, "t")[:2].tolist() == [[-1], [1]]
    zoned = pa.table({"a": pa.array([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)], pa.timestamp("s", "Europe/Paris"))})
    assert to_tuples(encode(zoned, of(TIMESTAMP), words, "t"), of(TIMESTAMP), words) == [(dt.datetime(2024, 1, 1),)]
    assert to_tuples(encode(pa.table({"a": pa.nulls(1)}), of(TEXT), words, "t"), of(TEXT), words) == [(None,)]
    dates = pa.table({"a": ["2024-02-29"]})
    assert to_tuples(encode(dates, of(DATE), words, "t"), of(DATE), words) == [(dt.date(2024, 2, 29),)]
    spans = pa.table({"a": pa.array([dt.timedelta(days=1, seconds=2)])})
    assert to_tuples(encode(spans, of(INTERVAL), words, "t"), of(INTERVAL), words) == [(Interval(0, 1, 2_000_000),)]


def test_a_pandas_integer_column_with_holes_is_still_integers() -> None:
    frame = pd.DataFrame({"src": ["a", None], "dst": ["b", "c"], "cost": [1.0, math.nan]})
    words = Dictionary()
    assert to_tuples(encode(frame, LINK, words, "link"), LINK, words) == [("a", "b", 1), (None, "c", None)]


def test_rows_out_repeat_by_multiplicity() -> None:
    words = Dictionary()
    codes = encode([("a", "b", 1), ("c", "d", None)], LINK, words, "link")
    table = to_arrow(codes, np.array([2, 1]), LINK, words)
    assert table.to_pylist() == [{"src": "a", "dst": "b", "cost": 1}] * 2 + [{"src": "c", "dst": "d", "cost": None}]
    assert to_pandas(table).shape == (3, 3)
    assert to_polars(table).rows() == [("a", "b", 1), ("a", "b", 1), ("c", "d", None)]
    assert to_arrow(codes[:0], ones(0), LINK, words).schema == table.schema


def test_polars_gets_intervals_as_structs() -> None:
    words = Dictionary()
    table = to_arrow(encode([(Interval(1, 2, 3),)], of(INTERVAL), words, "t"), ones(1), of(INTERVAL), words)
    assert to_polars(table).rows() == [({"months": 1, "days": 2, "micros": 3},)]


def test_not_null_names_the_first_offender() -> None:
    schema = Schema((Column("a", TEXT, nullable=False), Column("b", TEXT)))
    words = Dictionary()
    check_not_null(encode([("x", None)], schema, words, "t"), schema, "t")
    with pytest.raises(DataError, match="table t, row 2, column a: NULL in a NOT NULL column"):
        check_not_null(encode([("x", None), (None, "y")], schema, words, "t"), schema, "t")


@pytest.mark.parametrize(
    ("type", "values"),
    [
        (DATE, pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())),
        (DATE, pa.array([0, -800_000], pa.int32()).cast(pa.date32())),
        (DATE, pa.array([0, 10**15], pa.date64())),
        (DATE, pa.array([0, 10**18], pa.timestamp("us"))),
        (TIMESTAMP, pa.array([0, 10**18], pa.timestamp("us"))),
        (TIMESTAMP, pa.array([0, 10**18], pa.timestamp("s"))),
        (TIMESTAMP, pa.array([0, 10**17], pa.timestamp("ms", "UTC"))),
        (TIMESTAMP, pa.array([0, 2**31 - 1], pa.int32()).cast(pa.date32())),
    ],
    ids=str,
)
def test_arrow_dates_outside_the_years_1_to_9999_are_refused(type: Type, values: pa.Array) -> None:
    with pytest.raises(DataError, match=r"table t, row 2, column d: .*years 1 to 9999"):
        encode(pa.table({"d": values}), Schema((Column("d", type),)), Dictionary(), "t")


def test_the_first_and_the_last_moment_go_round() -> None:
    schema = Schema((Column("d", DATE), Column("s", TIMESTAMP)))
    rows = [(dt.date.min, dt.datetime.min), (dt.date.max, dt.datetime.max), (None, None)]
    for given in (rows, rows * 10, pa.table({"d": [r[0] for r in rows], "s": [r[1] for r in rows]})):
        words = Dictionary()
        assert to_tuples(encode(given, schema, words, "t"), schema, words)[:3] == rows


def test_codes_of_no_date_are_an_error_of_ours() -> None:
    for type in (DATE, TIMESTAMP):
        with pytest.raises(EvaluationError, match="outside the years 1 to 9999"):
            to_tuples(np.array([[2**62]]), Schema((Column("d", type),)), Dictionary())


@pytest.mark.parametrize("name", ["x.csv", "data/x.JSONL", "./rows", "~/x.parquet", "C:\\x.csv", "x.csv.gz"])
def test_the_name_of_a_file_is_not_rows(name):
    with whence.open() as db:
        db.execute("CREATE TABLE t (x INT)")
        for call in (
            lambda: db.insert("t", name),
            lambda: db.insert("t", [name]),
            lambda: db.insert("t", name, on_error="skip"),
            lambda: db.insert("t", name, op="op"),
            lambda: db.delete("t", name),
            lambda: db.what_if(insert={"t": name}),
        ):
            with pytest.raises(DataError) as refused:
                call()
            assert str(refused.value).endswith(f"; for the rows of a file, give its Path: pathlib.Path({name!r})")


@pytest.mark.parametrize("text", ["x", "tea", "3.50", "a b", "", b"x.csv", "see v1.2"])
def test_other_text_gets_no_hint_of_files(text):
    with whence.open() as db:
        db.execute("CREATE TABLE t (x INT)")
        with pytest.raises(DataError) as refused:
            db.insert("t", text)
        assert "Path" not in str(refused.value)
