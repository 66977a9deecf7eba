"""Columns of dicts, frames and files: by name, none unknown, none missing without a word; a named index is a column."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import whence
from whence.cli import app
from whence.model.errors import DataError

RUNTIMES: list[dict[str, Any]] = [{}, {"partitions": 2}]
LACKING = 'no values for column b; give them, or missing="null" to make them NULL'


@pytest.fixture(params=RUNTIMES, ids=["embedded", "partitions"])
def db(request: pytest.FixtureRequest) -> Iterator[whence.Database]:
    with whence.open(**request.param) as database:
        database.execute("CREATE TABLE t (id TEXT PRIMARY KEY, a INT, b INT); CREATE STREAM s (id TEXT, a INT)")
        yield database


def test_named_index_is_a_column(db: whence.Database) -> None:
    frame = pd.DataFrame({"id": ["x", "y"], "a": [1, 2], "b": [3, 4]})
    assert db.insert("t", frame.set_index("id")) == 2
    assert sorted(db["t"].rows) == [("x", 1, 3), ("y", 2, 4)]
    assert db.delete("t", frame.set_index("id")) == 2
    assert db.insert("t", frame.rename(columns={"id": "ID"}).set_index(["ID", "a"])) == 2
    assert sorted(db["t"].rows) == [("x", 1, 3), ("y", 2, 4)]
    assert db.insert("t", frame.set_index(pd.Index([7, 8]))) == 2  # an index without a name is none
    assert db.delete("t", frame.set_index("id")[[]]) == 2  # some columns are a condition
    assert len(db["t"]) == 0
    assert db.insert("s", frame[["id", "a"]].set_index("id")) == 2
    assert db["s"].rows == [("x", 1), ("y", 2)]


def test_index_that_is_no_column_is_told(db: whence.Database) -> None:
    frame = pd.DataFrame({"id": ["x"], "a": [1], "b": [3]}, index=pd.Index([5], name="place"))
    with pytest.raises(DataError, match=r"no column place in .* place is an index of the DataFrame"):
        db.insert("t", frame)
    with pytest.raises(DataError, match="already exists"):
        db.insert("t", frame.rename_axis("id"))
    assert db.insert("t", frame.reset_index(drop=True)) == 1


def rows_of_all_kinds(columns: dict[str, list[Any]], folder: Path) -> dict[str, Any]:
    """The same rows in every shape that `insert` takes by name."""
    frame = pd.DataFrame(columns)
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_parquet(folder / "rows.parquet")
    lines = frame.to_dict("records")
    (folder / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return {
        **{
            "dict": lines[0],
            "dicts": lines,
            "arrow": pa.table(columns),
            "pandas": frame,
            "polars": pl.DataFrame(columns),
        },
        **{kind: folder / f"rows.{kind}" for kind in ("csv", "parquet", "jsonl")},
    }


@pytest.mark.parametrize("kind", ["dict", "dicts", "arrow", "pandas", "polars", "csv", "parquet", "jsonl"])
def test_missing_column_is_an_error_or_null(db: whence.Database, kind: str, tmp_path: Path) -> None:
    given = rows_of_all_kinds({"ID": ["x"], "a": [1]}, tmp_path)[kind]
    with pytest.raises(DataError) as caught:
        db.insert("t", given)
    assert LACKING in str(caught.value)
    assert (str(tmp_path) in str(caught.value)) == isinstance(given, Path)
    with pytest.raises(DataError, match="no values for column b"):
        db.what_if(insert={"t": given})
    assert db.what_if(insert={"t": given}, missing="null").tables["t"].inserted == [("x", 1, None)]
    assert db.insert("t", given, missing="null") == 1
    assert db["t"].rows == [("x", 1, None)]


@pytest.mark.parametrize("kind", ["dict", "dicts", "arrow", "pandas", "polars", "csv", "parquet", "jsonl"])
def test_unknown_column_is_an_error(db: whence.Database, kind: str, tmp_path: Path) -> None:
    given = rows_of_all_kinds({"id": ["x"], "a": [1], "bb": [2]}, tmp_path)[kind]
    for write in (lambda: db.insert("t", given, missing="null"), lambda: db.delete("t", given)):
        with pytest.raises(DataError, match=r'no column bb in .*did you mean "b"'):
            write()
    assert len(db["t"]) == 0


def test_one_dict_of_many_may_not_lack_a_column(db: whence.Database, tmp_path: Path) -> None:
    rows = [{"id": "x", "a": 1, "b": 2}, {"id": "y", "b": 2}]
    with pytest.raises(DataError, match="table t, row 2: no values for column a;"):
        db.insert("t", rows)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(DataError, match="line 2: no values for column a;"):
        db.insert("t", path)
    assert db.insert("t", path, missing="null") == 2
    assert ("y", None, 2) in db["t"]
    with pytest.raises(DataError, match="missing is 'error' or 'null', not 'ignore'"):
        db.insert("t", rows, missing="ignore")  # type: ignore[arg-type]


def test_missing_key_is_an_error_in_any_case(db: whence.Database) -> None:
    with pytest.raises(DataError, match="NULL in a NOT NULL column"):
        db.insert("t", {"a": 1}, missing="null")


def test_membership_of_part_of_a_row_is_an_error(db: whence.Database) -> None:
    db.insert("t", ("x", 1, 2))
    assert {"id": "x", "A": 1, "b": 2} in db["t"]
    assert {"id": "x", "a": 1, "b": 3} not in db["t"]
    with pytest.raises(DataError, match="no values for columns a, b"):
        assert {"id": "x"} in db["t"]


def test_command_line_takes_missing(tmp_path: Path) -> None:
    (tmp_path / "p.sql").write_text("CREATE TABLE t (a INT, b INT); CREATE VIEW v AS SELECT a, b FROM t")
    (tmp_path / "u.jsonl").write_text('{"a": 1}\n')
    (tmp_path / "u.csv").write_text("a\n2\n")
    for name in ("u.jsonl", "u.csv"):
        args = ["run", str(tmp_path / "p.sql"), "-s", f"t={tmp_path / name}", "--format", "jsonl"]
        result = CliRunner().invoke(app, args)
        assert (result.exit_code, "no values for column b" in result.output) == (1, True), result.output
        result = CliRunner().invoke(app, [*args, "--missing", "null"])
        assert (result.exit_code, '"b": null' in result.output) == (0, True), result.output
    args = ["what-if", str(tmp_path / "p.sql"), "-i", 't:{"a": 1}', "--json"]
    assert CliRunner().invoke(app, args).exit_code == 1
    assert '"b": null' in CliRunner().invoke(app, [*args, "--missing", "null"]).output
