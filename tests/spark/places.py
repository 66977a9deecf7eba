"""Where a session of a test leaves its files."""

from __future__ import annotations

from pathlib import Path


def places(folder: Path) -> dict[str, str]:
    """Settings that keep a session's files within `folder`."""
    return {
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.streaming.checkpointLocation": str(folder / "checkpoints"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
