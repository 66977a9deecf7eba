"""The workload of `test_faults.py` over a database on Spark, smaller: followers and publishers are killed and paused,
and the network harms frames. The server is in this process, where the session is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import whence
from tests.depth import examples
from tests.serving.checks import check_run
from tests.serving.faults import LIMITS, FaultyRun, Plan, declare
from tests.serving.processes import ProcessGroup
from whence.server.limits import Limits


class SparkRun(FaultyRun):
    """A run whose server is in this process."""

    faults = (
        "kill follower",
        "kill publisher",
        "pause follower",
        "harm frames",
        "stall",
        "cut",
        "half open",
        "replace view",
        "drop view",
    )

    def __init__(self, plan: Plan, folder: Path, spark: Any) -> None:
        super().__init__(plan, folder)
        self._spark = spark

    @contextmanager
    def _serving(self, group: ProcessGroup) -> Iterator[str]:
        with whence.open(self.database, spark=self._spark, partitions=2, retain="all") as db:
            declare(db)
            tokens, limits = self.folder / "tokens", Limits.read(LIMITS)
            with whence.serve(db, port=0, token_file=tokens, limits=limits) as server:
                yield server.url


def test_faults_on_spark(spark: Any, tmp_path: Path) -> None:
    run = SparkRun(Plan(seed=0, publishers=1, followers=2, faults=examples(4)), tmp_path, spark)
    try:
        run.run()
        updates = check_run(run.database, run.publisher_files, run.follower_files, run.last, sample=6)
    except BaseException:
        print(f"{', '.join(run.happened)}; its files are in {tmp_path}")
        raise
    assert updates > 20
