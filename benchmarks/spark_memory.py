"""Rows by the million in partitions, and how much memory the Python workers of Spark take for them.

The rows come from Parquet as a stream into a table with an aggregate view, in a process of its own so that its workers
are new. `worker_memory` bounds the state that a worker holds: partitions beyond it are let go of and loaded again when
they are needed. A worker's memory is that state, the rows of the step under way, and the libraries; it is looked at
from outside, twenty times a second. With too few partitions for the bound there is an error that says how many do.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import whence
from benchmarks.report import Check, Figure
from benchmarks.spark_aggregation import PROGRAM, Files, agree, write_files
from benchmarks.spark_processes import Memory

MEGABYTE = 1 << 20
SESSION = {"spark.driver.memory": "2g"}


def run(folder: Path, **sizes: int) -> tuple[list[Figure], list[Check]]:
    """Figures and promises, measured in a new process."""
    command = [sys.executable, "-m", "benchmarks.spark_memory", str(folder), json.dumps(sizes)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    figure = Figure(f"{found['rows']:,} rows in {sizes['partitions']} partitions", "MB")
    figure.samples = {
        "worker_memory, the bound": [sizes["memory"]],
        "state, all partitions": [found["state"]],
        "largest partition": [found["largest"]],
        "largest worker, beyond the libraries": [found["growth"]],
        "largest worker": [found["peak"]],
    }
    taken = Figure(figure.what, "rows/s", {"Whence, bounded": [found["rows"] / found["seconds"]]})
    checks = [
        Check("bounded: state, times what a worker may hold", found["state"] / sizes["memory"], 2.0),
        Check(
            "bounded: MB of the largest worker, against twice worker_memory",
            found["growth"],
            2.0 * sizes["memory"],
            False,
        ),
        Check(f"too few partitions: an error that says to use {found['advice']}", float(found["advice"] > 1), 1.0),
    ]
    return [figure, taken], checks


def load(spark: Any, files: Files, folder: Path, partitions: int, memory: int) -> dict[str, float]:
    """Take all rows in; what that took."""
    db = whence.open(
        folder / f"db-{partitions}", spark=spark, partitions=partitions, on_spark={"worker_memory": memory}
    )
    try:
        db.execute(PROGRAM)
        db.attach("updates", files.stream(spark))
        start = time.perf_counter()
        with Memory() as used:
            db.start(trigger="availableNow").awaitTermination()
        seconds = time.perf_counter() - start
        agree("Whence", db["totals"].to_arrow(), files.expected())
        each = db.metrics()["partition_bytes"]
    finally:
        db.close()
    size = {"state": sum(each), "largest": max(each), "growth": used.growth, "peak": used.peak}
    return {"seconds": seconds, "rows": files.rows, **{what: n / MEGABYTE for what, n in size.items()}}


def main() -> None:
    """One line of JSON, for `run`."""
    folder, sizes = Path(sys.argv[1]), json.loads(sys.argv[2])
    spark = whence.spark_session(master="local[2]", conf=SESSION)
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as here:
        made = write_files(Path(here) / "stream", sizes["rows"], sizes["files"], sizes["per_batch"], sizes["keys"])
        found = load(spark, made, Path(here), sizes["partitions"], sizes["memory"] * MEGABYTE)
        found["advice"] = 0
        try:
            load(spark, made, Path(here), sizes["too_few"], sizes["memory"] * MEGABYTE)
        except whence.WhenceError as error:
            said = re.search(r"use partitions=(\d+) or more", str(error))
            found["advice"] = int(said[1]) if said else 0
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
