"""Sinks of views that are redefined: what they were handed is the view, before and after, restarted or not."""

from __future__ import annotations

import json
import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import whence
from whence.model.errors import SparkError, WhenceError

SQL = """
    CREATE TABLE t (k INT, x INT);
    CREATE VIEW v AS SELECT k, SUM(x) AS x FROM t GROUP BY k;
    CREATE VIEW w AS SELECT x FROM v;
    INSERT INTO t VALUES (1, 1), (1, 2)
"""
MAX = "CREATE OR REPLACE VIEW v AS SELECT k, CAST(MAX(x) AS BIGINT) AS x FROM t GROUP BY k"
COUNT = "CREATE OR REPLACE VIEW v AS SELECT k, COUNT(*) AS x FROM t GROUP BY k"
OTHER = "CREATE OR REPLACE VIEW v AS SELECT k, COUNT(*) AS x, MIN(x) AS least FROM t GROUP BY k"


class Kept:
    """The rows that a sink was handed, as a store that passes over epochs it has seen would have them."""

    def __init__(self) -> None:
        self.rows, self.epochs, self.broken = Counter[tuple[Any, ...]](), list[int](), False

    def __call__(self, df: Any, epoch: int) -> None:
        if self.broken:
            raise OSError("no space")
        if epoch in self.epochs:
            return
        self.epochs.append(epoch)
        for *row, op, count, _ in df.collect():
            self.rows[tuple(row)] += count if op == "+" else -count
        assert min(self.rows.values()) >= 0, self.rows

    def equals(self, handle: Any) -> bool:
        return +self.rows == Counter(handle.rows)


def test_sinks_follow_a_redefinition(spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, v, w = tmp_path / "db", Kept(), Kept()
    with whence.open(path, spark=spark, partitions=2, retain=5) as db:
        db.execute(SQL)
        sink = db.changes_to("v", v, start="snapshot")
        db.changes_to("w", w, start="snapshot")
        db.execute(MAX)
        assert (v.equals(db["v"]), w.equals(db["w"]), v.epochs) == (True, True, [1, 2])
        db.insert("t", (1, 9))
        assert (v.equals(db["v"]), w.equals(db["w"]), sink.delivered) == (True, True, 3)
        v.broken = True
        with pytest.raises(SparkError, match="epoch 4 is committed, but the sink v did not take its changes"):
            db.execute(COUNT)
        assert sorted(db["v"].rows) == [(1, 3)]
        assert w.equals(db["w"])  # another sink's failure is not its own
        v.broken = False
        db.insert("t", (2, 2))
        assert (v.equals(db["v"]), v.epochs) == (True, [1, 2, 3, 4, 5])
        sink.stop()
        db.execute(MAX)  # without the sink
        db.insert("t", (2, 3))
    with whence.open(path, spark=spark, partitions=2) as db:
        sink = db.changes_to("v", v)
        assert (v.equals(db["v"]), sink.delivered) == (True, 7)
        with caplog.at_level(logging.ERROR, "whence"):
            db.execute("DROP VIEW w")
            db.execute(OTHER)
        assert 'sink v: "v" was replaced and has other columns' in str(sink.error)
        assert str(sink.error) in caplog.messages
        db.insert("t", (3, 3))
        assert v.epochs[-1] == 7  # nothing more
        with pytest.raises(WhenceError, match=r"sink v: v has other columns, .* another name="):
            db.changes_to("v", v)
        again = db.changes_to("v", fresh := Kept(), name="again", start="snapshot")
        db.execute("DROP VIEW v")
        assert "was dropped" in str(again.error)
        db.execute(OTHER.replace("MIN", "MAX"))
        db.changes_to("v", fresh, name="again")  # dropping is an epoch: the difference to what was dropped is known
        assert fresh.equals(db["v"])
        db.insert("t", (4, 4))
        assert fresh.equals(db["v"])


def test_sink_killed_before_it_was_told_of_a_redefinition(spark: Any, tmp_path: Path) -> None:
    path, v = tmp_path / "db", Kept()
    with whence.open(path, spark=spark, partitions=2, retain=5) as db:
        db.execute(SQL)
        db.changes_to("v", v, start="snapshot")
        v.broken = True
        with pytest.raises(SparkError, match="is committed, but the sink v did not take"):
            db.execute(MAX)  # and then nothing more happens: the driver dies
    assert json.loads((path / "streams" / "v.sink").read_text())["epoch"] == 1
    v.broken = False
    with whence.open(path, spark=spark, partitions=2) as db:
        db.changes_to("v", v)
        assert (v.equals(db["v"]), v.epochs) == (True, [1, 2])
