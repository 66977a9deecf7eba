"""On Spark workers count heavy keys, divide their rows, and follow the plan that says so."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import whence
from tests import inside
from tests.partitioned.test_heavy_keys import PAGES, SCRIPT, check_load, skewed

SETTINGS = {"heavy_rows": 20, "copied_rows": 5, "inline_rows": 3}


def test_heavy_keys_are_divided_by_jobs(spark: Any, tmp_path: Path) -> None:
    hits = skewed(random.Random(6), 240)
    with whence.open(tmp_path / "db", spark=spark, partitions=3, on_spark=SETTINGS) as db:
        inside.run_as(db, "job")
        db.execute(SCRIPT)
        db.insert("page", PAGES)
        db.insert("hit", hits[:200])
        db.insert("hit", spark.createDataFrame(hits[200:], "page int, ms int"))
        assert "heavy keys of the join on page = id: 7 divided on the left" in db.explain("seen")
        check_load(db, hits)
        db.snapshot()
        db.delete("hit", hits[:30])
        check_load(db, hits[30:])
    with whence.open(tmp_path / "db", spark=spark, partitions=3, on_spark=SETTINGS) as db:
        assert "1 heavy key divided" in db.explain("seen")
        check_load(db, hits[30:])
