"""On Spark a table that outgrows being copied gets another place, also when its rows come in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import whence
from tests.partitioned.test_outgrown import SCRIPT, check, closure
from tests.runtime.test_placement import rows_in

SETTINGS = {"copied_rows": 20, "inline_rows": 3}


def test_load_of_a_frame_plans_views_again(spark: Any, tmp_path: Path) -> None:
    links = {(i, (i * 5) % 31) for i in range(31)}
    with whence.open(tmp_path / "db", spark=spark, partitions=3, on_spark=SETTINGS) as db:
        db.execute(SCRIPT)
        db.insert("name", [(i, f"node {i}") for i in range(10)])
        assert "table link in every partition" in db.explain("reachable")
        db.insert("link", spark.createDataFrame(sorted(links)[:15], "src int, dst int"))
        assert "table link in every partition" in db.explain("reachable")
        db.insert("link", spark.createDataFrame(sorted(links)[15:], "src int, dst int"))
        assert "table link in every partition" not in db.explain("reachable")
        assert sum(rows_in(db, "link")) == len(links)
        check(db, links)
        db.delete("link", sorted(links)[:3])
        links -= {*sorted(links)[:3]}
        check(db, links)
    with whence.open(tmp_path / "db", spark=spark, partitions=3, on_spark=SETTINGS) as db:
        check(db, links)
        assert set(db["reachable"]) == closure(links)
