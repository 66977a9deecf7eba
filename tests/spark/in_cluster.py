"""What tests/spark/test_cluster.py runs in another process."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

from tests import inside
from tests.depth import DEEP
from tests.oracle import assert_rows
from tests.partitioned.pairs import Pair, busy
from tests.spark.places import places
from tests.spark.test_faults_spark import LINKS, PROGRAM, expected
from whence.runtime import database
from whence.runtime.spark.session.session import session

ROOT = Path(__file__).parents[2]


def main(folder: str) -> None:
    conf = places(Path(folder) / "spark") | {"spark.executorEnv.PYTHONPATH": str(ROOT)}
    conf |= {"spark.executor.memory": "512m", "spark.driver.memory": "512m"}
    spark = session("local-cluster[2,1,1024]", app="cluster", conf=conf)
    mixed(spark, Path(folder) / "mixed")
    print("mixed", flush=True)
    killed(spark, Path(folder))
    print("killed", flush=True)
    spark.stop()
    print("done", flush=True)


def mixed(spark: Any, path: Path) -> None:
    rng = random.Random("cluster")
    pair = Pair(path, spark=spark, partitions=5, on_spark={"inline_rows": 3})
    operations = busy(21, 5 if DEEP else 2, snapshots=2)
    for number, op in enumerate(operations):
        inside.run_as(pair.other.db, rng.choice(("job", "job", "inline", "auto")))
        pair.perform(op)
        if number == len(operations) - 2:
            pair.reopen(spark=spark, partitions=2, on_spark={"inline_rows": 3})
    assert pair.other.db.metrics()["runs"]["jobs"] > 0
    pair.close()


def killed(spark: Any, folder: Path) -> None:
    driver, armed, died = os.getpid(), folder / "armed", folder / "died"

    def touch(x: int) -> int:
        if os.getpid() != driver and armed.exists():
            armed.unlink(missing_ok=True)
            up = os.getpid()
            for _ in range(10):  # worker, daemon, …: up to the executor's Java
                up = int(Path(f"/proc/{up}/stat").read_text().rpartition(")")[2].split()[1])
                name = Path(f"/proc/{up}/cmdline").read_bytes()
                if b"CoarseGrainedExecutorBackend" in name:
                    died.write_text(str(up))
                    os.kill(up, signal.SIGKILL)
                    break
        return x

    db = database.open(folder / "killed", spark=spark, partitions=3, durability="none")
    inside.run_as(db, "job")
    db.create_function("touch", touch, args=["INT"], returns="INT")
    db.execute(PROGRAM)
    db.insert("link", LINKS)
    armed.touch()
    db.delete("link", LINKS[::2])
    assert died.exists(), "no executor was killed"
    for name, rows in expected(LINKS[1::2]).items():
        assert_rows(db[name], rows, name)
    db.insert("link", LINKS[::2])
    db.snapshot()
    for name, rows in expected(LINKS).items():
        assert_rows(db[name], rows, name)
    db.close()
