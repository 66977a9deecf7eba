"""The write queue over a database on Spark: rows of a transaction come to the driver, and each write is done once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import whence
from tests.server.test_write_queue import Replies, gathered, queue_of
from whence.model.errors import EvaluationError
from whence.server.writing.write_queue import TableInsert


def test_writes_of_a_queue_on_spark(spark: Any, tmp_path: Path) -> None:
    replies = Replies()
    with whence.open(tmp_path / "db", spark=spark, on_spark={"inline_rows": 0}) as db:
        db.execute("CREATE TABLE t (k INT PRIMARY KEY, v TEXT)")
        db.execute("CREATE VIEW total AS SELECT SUM(CAST(v AS INT)) AS s, COUNT(*) AS n FROM t")
        with queue_of(db) as queue:
            with gathered(queue):
                for number in range(12):
                    row = (number % 5, str(number)) if number != 7 else (70, "not a number")
                    queue.submit(TableInsert("t", [row]), replies(number), publisher="p", number=number)
                queue.submit(lambda db: db.delete("t", key=4), replies("gone"))
                queue.submit(TableInsert("t", [(3, "0")]), replies("again"), publisher="p", number=3)
            outcomes = {name: replies.wait(name)[0] for name in (*range(12), "gone", "again")}
        assert {name for name, outcome in outcomes.items() if outcome.error is not None} == {7}
        assert isinstance(outcomes[7].error, EvaluationError)
        assert outcomes["gone"].count == 1
        assert outcomes["again"].repeated
        assert sorted(db["t"]) == [(0, "10"), (1, "11"), (2, "2"), (3, "8")]
        assert db["total"].rows == [(31, 4)]
        assert db["publishers"].rows == [("p", 11, "7")]
    with whence.open(tmp_path / "db", partitions=2) as db, queue_of(db) as queue:
        queue.submit(TableInsert("t", [(3, "0")]), replies("later"), publisher="p", number=11)
        assert replies.wait("later")[0].repeated
