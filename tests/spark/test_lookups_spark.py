"""Relations from outside on Spark: workers say what they need, and the driver fetches it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import whence


def test_rows_are_fetched_by_the_driver_and_replayed(spark: Any, tmp_path: Path) -> None:
    asked: list[str] = []

    def fetch(key: str) -> float | None:
        asked.append(key)
        return None if key == "nok" else float(len(asked))

    with whence.open(tmp_path / "db", spark=spark, on_spark={"inline_rows": 0}) as db:
        db.create_lookup("rate", fetch, memory="2 rows", keep="lru")
        db.execute("CREATE STREAM trade (paid TEXT, n INT)")
        db.execute("CREATE VIEW bought AS SELECT UPPER(paid) AS paid, n, value FROM trade JOIN rate ON paid = key")
        db.insert("trade", [("usd", 1), ("gbp", 2), ("usd", 3)])
        db.insert("trade", [("nok", 4), ("gbp", 5)])
        rows = db["bought"].rows
        assert [row[:2] for row in rows] == [("USD", 1), ("GBP", 2), ("USD", 3), ("NOK", 4), ("GBP", 5)]
        assert sorted(asked) == ["gbp", "nok", "usd"]
        assert rows[0][2] == rows[2][2] != rows[1][2] == rows[4][2]
        assert rows[3][2] is None
    with whence.open(tmp_path / "db", spark=spark) as db:
        assert db["bought"].rows == rows
        assert len(asked) == 3
