"""Settings of `whence.open` that cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

import whence


def test_unknown_setting_of_on_spark_is_refused(tmp_path: Path) -> None:
    with pytest.raises(whence.WhenceError, match="on_spark has no setting 'inline_row'; did you mean \"inline_rows\""):
        whence.open(tmp_path / "db", partitions=2, on_spark={"inline_row": 5})
    with pytest.raises(whence.WhenceError, match="'zeal': there are inline_rows, inline_bytes"):
        whence.open(tmp_path / "db", partitions=2, on_spark={"zeal": 5})


def test_read_only_with_partitions_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(whence.WhenceError, match="use read_only without spark and partitions"):
        whence.open(tmp_path / "db", read_only=True, partitions=2)


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.parquet"])
def test_export_that_cannot_be_written_names_the_file(tmp_path: Path, name: str) -> None:
    with whence.open() as db:
        db.execute("CREATE TABLE t (a INT)")
        with pytest.raises(whence.StorageError, match=f"{name}: cannot write: "):
            db["t"].write(tmp_path / "nowhere" / name)
