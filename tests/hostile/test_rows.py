"""Rows that do not fit: a wrong value, container or file ends in a DataError that says where, and changes nothing."""

from __future__ import annotations

import datetime as dt
import gzip
import os
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet
import pytest

import whence

TYPES = ["BOOLEAN", "INT", "BIGINT", "DOUBLE", "DECIMAL(9,2)", "TEXT", "DATE", "TIMESTAMP", "INTERVAL"]


def _fails(*_: Any) -> Any:
    raise RuntimeError("on purpose")


class Evil:
    """Whatever is asked of it fails."""

    __str__ = __repr__ = __eq__ = __hash__ = __lt__ = __float__ = __int__ = __index__ = _fails
    __bool__ = __len__ = __iter__ = __sub__ = _fails


class EvilText(str):
    """Text that cannot be compared, hashed or shown."""

    __slots__ = ()
    __str__ = __repr__ = __eq__ = __hash__ = _fails


class EvilNumber:
    """Not the same number to all who ask."""

    def __float__(self) -> float:
        return 3.0

    def __int__(self) -> int:
        return 10**30


NEVER: list[Any] = [  # a value of no type at all
    b"1",
    bytearray(b"1"),
    memoryview(b"1"),
    [1],
    (1,),
    {"a": 1},
    {1},
    1j,
    np.array([1]),
    np.array(5),
    np.array([1, 2]),
    np.void(b"a"),
    dt.time(1),
    object(),
    Exception,
    ...,
    iter([1]),
    range(3),
    Evil(),
    whence.Interval(1.5, 0, 0),  # type: ignore[arg-type]  # on purpose
    whence.Interval("a", None, []),  # type: ignore[arg-type]  # on purpose
    whence.Interval(2**40, 0, 0),
]
NOT_FOR: dict[str, list[Any]] = {
    "BOOLEAN": [0, 1, 1.0, "true", None.__class__],
    "INT": [True, 2**31, -(2**31) - 1, 10**400, 1.5, float("nan"), float("inf"), 1e300, "1", Decimal("NaN")],
    "BIGINT": [2**63, -(2**63), np.uint64(2**64 - 1), Decimal("9007199254740993.5"), Decimal("1e999999"), EvilNumber()],
    "DOUBLE": [True, "1.5", 10**400, Decimal("sNaN")],
    "DECIMAL(9,2)": [True, float("nan"), float("inf"), Decimal("Infinity"), 10**7, "x", "1e999999999", (0, (1,), 0)],
    "TEXT": [1, 1.5, True, dt.date(2020, 1, 1), "\ud800", "a\udfffb"],
    "DATE": [1, "2020-13-01", "99999-01-01", "x" * 1_000_000, dt.timedelta(1)],
    "TIMESTAMP": [1, "2020-01-01T25:00", dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=14)))],
    "INTERVAL": [1, "1 day", dt.date(2020, 1, 1)],
}


def refused(db: whence.Database, act: Callable[[], Any]) -> str:
    """What the DataError says that the act ends in; nothing may have changed."""
    epoch, rows = db.epoch, db["t"].rows
    with pytest.raises(whence.DataError) as error:
        act()
    assert (db.epoch, db["t"].rows) == (epoch, rows)
    assert len(str(error.value)) < 700
    return str(error.value)


@pytest.mark.parametrize("type", TYPES)
def test_a_value_of_a_wrong_type_is_named(type: str) -> None:
    db = whence.open()
    db.execute(f"CREATE TABLE t (k INT, x {type}); CREATE VIEW v AS SELECT x, COUNT(*) AS n FROM t GROUP BY x")
    db.insert("t", [(0, None)])
    for value in NEVER + NOT_FOR[type]:
        for before in (0, 40):  # a few rows and many are encoded in different ways
            rows = [(0, None)] * before + [(1, value)]
            said = refused(db, lambda rows=rows: db.insert("t", rows))
            assert said.startswith(f"table t, row {before + 1}, column x: "), said
        refused(db, lambda value=value: db.insert("t", [{"k": 1, "x": value}]))
        refused(db, lambda value=value: db.delete("t", [(1, value)]))
        refused(db, lambda value=value: db.update("t", {"x": value}, {"k": 0}))
    assert db["v"].rows == [(None, 1)]


def test_text_of_a_class_of_its_own_is_kept_as_text() -> None:
    db = whence.open()
    db.execute("CREATE TABLE t (s TEXT)")
    db.insert("t", [(EvilText("q"),)])
    assert db["t"].rows == [("q",)]
    assert [type(s) for (s,) in db["t"].rows] == [str]
    assert db.delete("t", [("q",)]) == 1


def test_ten_megabytes_of_text_are_a_value_and_no_message() -> None:
    db = whence.open()
    db.execute("CREATE TABLE t (k INT, s TEXT)")
    long = "x" * 10_000_000
    db.insert("t", [(1, long)])
    assert db["t"].rows == [(1, long)]
    assert "(str) is not a value of type INTEGER" in refused(db, lambda: db.insert("t", [(long, "")]))


@pytest.fixture
def db() -> whence.Database:
    found = whence.open()
    found.execute("CREATE TABLE t (a INT NOT NULL, s TEXT)")
    found.insert("t", [(1, "x")])
    return found


def _table(a: Any, s: Any) -> pa.Table:
    return pa.table({"a": a, "s": s})


def _bad_text() -> pa.Array:
    offsets = pa.py_buffer(np.array([0, 1], np.int32).tobytes())
    return pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff")])


CONTAINERS: dict[str, tuple[Any, str]] = {
    "text": ("abc", "expected rows"),
    "nothing": (None, "expected rows"),
    "a number": (5, "expected rows"),
    "no value": ((), "0 values for the 2 columns"),
    "too short": ([(1, "x"), (2,)], "row 2: 1 values for the 2 columns"),
    "too long": ([(1, "x", 3)], "3 values for the 2 columns"),
    "very long": ([tuple(range(100_000))], "100000 values for the 2 columns"),
    "text as a row": ([(1, "x"), "ab"], "row 2: 'ab' is not a row"),
    "None as a row": ([None], "row 1: None is not a row"),
    "a row that fails": ([(1, "x"), Evil()], "row 2: cannot be read"),
    "unknown key": ([{"a": 1, "z": 2}], "row 1: no column z"),
    "many unknown keys": ([{f"c{i}": i for i in range(10_000)}], "and 9995 more"),
    "missing key": ([{"s": "x"}], "row 1: no values for column a"),
    "a key twice": ([{"a": 1, "A": 2}], "row 1: column a is given twice"),
    "keys that are no names": ([{1: 2, None: 3}], "no column"),
    "columns": ({"a": [1, 2], "s": ["x", "y"]}, "column a: [1, 2] (list)"),
    "numpy of no dimension": (np.array(5), "expected rows"),
    "numpy of one dimension": (np.array([1, 2]), "is not a row"),
    "numpy of three dimensions": (np.zeros((2, 2, 2)), "row 1, column a"),
    "records": (np.array([(1, "x")], dtype=[("a", "i4"), ("s", "U1")]), "is not a row"),
    "a NULL in Arrow": (_table([1, None], ["x", "y"]), "row 2, column a: NULL in a NOT NULL column"),
    "Arrow without a column": (pa.table({"s": ["x"]}), "no values for column a"),
    "Arrow rows of no columns": (_table([1], ["x"]).select([]), "no values for columns a, s"),
    "unknown Arrow column": (pa.table({"zz": [1]}), "no column zz"),
    "Arrow of wrong types": (_table(["x"], [1]), "row 1, column a: 'x' (str)"),
    "an Arrow column twice": (pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "A"]), "column a is given twice"),
    "a dictionary of lists": (_table([1], pa.DictionaryArray.from_arrays([0], [[1]])), "row 1, column s"),
    "a dictionary of text": (_table(pa.array(["x"]).dictionary_encode(), ["x"]), "row 1, column a: 'x'"),
    "lists": (_table([[1]], ["x"]), "row 1, column a: [1] (list)"),
    "structs": (_table([1], [{"x": 1}]), "row 1, column s"),
    "a number too large": (_table([1, 2**40], ["x", "y"]), "row 2, column a: 1099511627776"),
    "unsigned": (_table(pa.array([2**64 - 1], pa.uint64()), ["x"]), "row 1, column a"),
    "fractions": (_table([1.0, 1.5], ["x", "y"]), "row 2, column a: 1.5"),
    "NaN": (_table([float("nan")], ["x"]), "row 1, column a: nan"),
    "binary": (_table([1], [b"\xff"]), "row 1, column s"),
    "text that is not UTF-8": (_table([1], _bad_text()), "row 1, column s"),
    "such text in a dictionary": (_table([1], pa.DictionaryArray.from_arrays([0], _bad_text())), "column s"),
    "times": (_table(pa.array([1], pa.time32("s")), ["x"]), "row 1, column a"),
    "unions": (
        _table([1], pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])])),
        "row 1, column s",
    ),
    "an Arrow array": (pa.array([1]), "is not a row"),
    "a pandas column twice": (pandas.DataFrame([[1, 2]], columns=["a", "a"]), "Duplicate column names"),
    "pandas of mixed types": (pandas.DataFrame({"a": [1, "x"], "s": ["x", "y"]}), "mixed types"),
    "pandas without names": (pandas.DataFrame([[1, 2]]), "no column 0, 1"),
    "a pandas column alone": (pandas.Series([1]), "is not a table of named columns"),
    "polars lists": (polars.DataFrame({"a": [[1]], "s": ["x"]}), "row 1, column a"),
    "a polars plan": (polars.LazyFrame({"a": [1], "s": ["x"]}), "expected rows"),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_that_holds_no_rows_of_the_table(db: whence.Database, name: str) -> None:
    data, says = CONTAINERS[name]
    assert says in refused(db, lambda: db.insert("t", data))


def test_what_an_iterator_raises_is_the_callers_own_and_nothing_is_kept(db: whence.Database) -> None:
    def rows() -> Iterator[tuple[int, str]]:
        yield (2, "y")
        raise KeyError("half-way")

    with pytest.raises(KeyError, match="half-way"):
        db.insert("t", rows())
    assert (db.epoch, db["t"].rows) == (1, [(1, "x")])


def test_a_reader_whose_batches_differ_is_refused(db: whence.Database) -> None:
    batches = iter([pa.record_batch({"b": [1]})])
    reader = pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int32())]), batches)
    assert "cannot be read" in refused(db, lambda: db.insert("t", reader))


def test_arrow_in_unusual_shapes_is_read(db: whence.Database) -> None:
    chunks = _table(pa.chunked_array([[2], [], [3]]), pa.chunked_array([["y"], [], ["z"]]))
    assert db.insert("t", chunks) == 2
    assert db.insert("t", _table([1, 4, 5], ["x", "w", "x"]).slice(1, 1)) == 1
    assert db.insert("t", _table(pa.array([5]).dictionary_encode(), pa.array(["v"]).dictionary_encode())) == 1
    assert db.insert("t", pa.table({})) == 0
    assert sorted(db["t"].rows) == [(1, "x"), (2, "y"), (3, "z"), (4, "w"), (5, "v")]


def test_decimals_dates_and_time_zones_of_arrow() -> None:
    db = whence.open()
    db.execute("CREATE TABLE t (d DECIMAL(5,2), m TIMESTAMP, e DATE)")
    zoned = pa.array([dt.datetime(2020, 1, 1, 12, tzinfo=dt.UTC)], pa.timestamp("us", "Asia/Tokyo"))
    db.insert("t", pa.table({"m": zoned}), missing="null")
    assert db["t"].rows == [(None, dt.datetime(2020, 1, 1, 12), None)]
    assert "row 2, column d" in refused(
        db, lambda: db.insert("t", pa.table({"d": [Decimal("1.00"), Decimal("1000.00")]}), missing="null")
    )
    for column, type in (("m", pa.timestamp("s")), ("e", pa.date32())):
        late = pa.table(
            {
                column: pa.array(
                    [2**31 - 1 if column == "e" else 2**40], pa.int32() if column == "e" else pa.int64()
                ).cast(type)
            }
        )
        assert f"row 1, column {column}" in refused(db, lambda late=late: db.insert("t", late, missing="null"))


@pytest.mark.parametrize("values", [5, "x", [1], None, {"zz": 1}, {1: 1}, {"a": None}, {"a": "x"}, {"a": 1, "A": 2}])
def test_an_update_that_says_nothing_sensible(db: whence.Database, values: Any) -> None:
    refused(db, lambda: db.update("t", values, {"a": 1}))


# -- files -----------------------------------------------------------------------------------------------------------

FILES: dict[str, tuple[bytes, str]] = {
    "unknown.csv": (b"q,z\n1,2\n", "no column q, z"),
    "short.csv": (b"a,s\n1,x\n2\n", "line 3: Expected 2 columns, got 1"),
    "long.csv": (b"a,s\n1,x,3\n", "line 2: Expected 2 columns, got 3"),
    "type.csv": (b"a,s\n1,x\nzz,y\n", "line 3, column a: 'zz' is not a value of type INTEGER"),
    "large.csv": (b"a,s\n99999999999,x\n", "line 2, column a: '99999999999' is not a value of type INTEGER"),
    "null.csv": (b"a,s\n2,y\n,x\n", "row 2, column a: NULL in a NOT NULL column"),
    "twice.csv": (b"a,A\n1,2\n", "a column is named twice"),
    "nul.csv": (b"a,s\n1,x\n\0,y\n", "line 3, column a"),
    "latin.csv": (b"a,s\n1,\xe9\n", "line 2, column s"),
    "utf16.csv": ("a,s\n1,x\n".encode("utf-16"), "no column"),
    "zipped.csv": (gzip.compress(b"a,s\n1,x\n", mtime=0), "no column"),
    "noise.csv": (random.Random(1).randbytes(5_000), "noise.csv"),
    "wide.csv": (b",".join(b"c%d" % i for i in range(50_000)) + b"\n", "and 49995 more"),
    "name.csv": (b"a" * 1_000_000 + b",s\n1,x\n", "name.csv"),
    "names.csv": (b'a,"s\n"\n1,x\n', "names.csv"),
    "torn.parquet": (b"", "torn.parquet"),
    "cut.parquet": (b"", "cut.parquet"),
    "zeros.parquet": (b"", "zeros.parquet"),
    "empty.parquet": (b"", "empty.parquet"),
    "noise.parquet": (random.Random(2).randbytes(5_000), "noise.parquet"),
    "footer.parquet": (b"PAR1\xff\xff\xff\x7fPAR1", "footer.parquet"),
    "middle.jsonl": (b'{"a":1,"s":"x"}\n{"a":2,\n{"a":3,"s":"z"}\n', "line 2: not JSON"),
    "list.jsonl": (b"[1,2]\n", "line 1: expected an object"),
    "deep.jsonl": (b"[" * 200_000, "line 1: not JSON"),
    "digits.jsonl": (b'{"a":' + b"1" * 10_000 + b"}", "line 1: not JSON"),
    "exponent.jsonl": (b'{"a":1e999999999,"s":"x"}', "line 1: column a"),
    "nan.jsonl": (b'{"a":NaN,"s":"x"}', "line 1: column a: nan"),
    "half.jsonl": (b'{"a":1,"s":"\\ud800"}', "line 1: column s"),
    "twice.jsonl": (b'{"a":1,"A":2}', "line 1: column a is given twice"),
    "unknown.jsonl": (b'{"a":1,"s":"x"}\n{"q":1}', "line 2: no column q"),
    "type.jsonl": (b'{"a":"x","s":"x"}', "line 1: column a: 'x' (str)"),
    "noise.jsonl": (random.Random(3).randbytes(5_000), "noise.jsonl"),
    "zipped.jsonl": (gzip.compress(b'{"a":1}', mtime=0), "zipped.jsonl"),
    "rows.txt": (b"a\n1\n", "a file's name must end in"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_not_what_its_name_says(db: whence.Database, name: str, tmp_path: Path) -> None:
    content, says = FILES[name]
    if name in ("torn.parquet", "cut.parquet", "zeros.parquet"):
        pyarrow.parquet.write_table(_table(list(range(1_000)), ["x"] * 1_000), tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        torn, cut, zeros = whole[: len(whole) // 2], whole[:-4], whole[:200] + bytes(300) + whole[500:]
        content = {"torn.parquet": torn, "cut.parquet": cut, "zeros.parquet": zeros}[name]
    (tmp_path / name).write_bytes(content)
    assert says in refused(db, lambda: db.insert("t", tmp_path / name))


def test_what_is_no_file(db: whence.Database, tmp_path: Path) -> None:
    (tmp_path / "folder.csv").mkdir()
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    assert "not a file of rows but a directory" in refused(db, lambda: db.insert("t", tmp_path / "folder.csv"))
    assert "a device or a pipe" in refused(db, lambda: db.insert("t", tmp_path / "pipe.csv"))
    assert "cannot be read" in refused(db, lambda: db.insert("t", tmp_path / "loop.csv"))
    for name in ("none.csv", "nul\0.csv", "\ud800.csv"):
        assert "no such file" in refused(db, lambda name=name: db.insert("t", tmp_path / name))
    refused(db, lambda: db.insert("t", Path("x" * 5_000 + ".csv")))


def test_a_long_field_of_a_csv_is_read(db: whence.Database, tmp_path: Path) -> None:
    (tmp_path / "long.csv").write_bytes(b"a,s\n2," + b"x" * 5_000_000 + b"\n")
    assert db.insert("t", tmp_path / "long.csv") == 1
