"""Writers in partitions that are killed at a write point, whoever of theirs comes to it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tests import inside
from tests.faults import Deadly, done_before_death
from tests.partitioned.pairs import Side, held
from tests.workload import Op
from whence.runtime import partition
from whence.runtime.spark.driver import driver
from whence.state.disk import Disk


def run_on(path: Path, disk: Disk, ops: list[Op], tell: int | None = None, mode: str = "auto", **options: Any) -> None:
    """Carry out operations in partitions, all files by one disk."""
    partition.Disk = driver.Disk = lambda: disk  # type: ignore[assignment,misc]
    try:
        side = Side(path, disk, **options)
        for op in ops:
            inside.run_as(side.db, mode)
            side.perform(op)
            if tell is not None:
                os.write(tell, b".")
        side.db.close()
    finally:
        partition.Disk = driver.Disk = Disk


def killed(path: Path, ops: list[Op], at: int, **options: Any) -> int | None:
    """Let a child carry them out and be killed at a write point; how many it had finished. None if it lived."""
    return done_before_death(lambda tell: run_on(path, Deadly(at), ops, tell, **options))


def seen_by(ops: list[Op]) -> list[tuple[int, object]]:
    """Epoch and contents before the first operation and after each, undisturbed."""
    side = Side()
    found: list[tuple[int, object]] = [(side.db.epoch, held(side.db))]
    for op in ops:
        side.perform(op)
        found.append((side.db.epoch, held(side.db)))
    side.db.close()
    return found
