"""The driver's memory while text comes in by the million: all texts distinct, in a process of its own.

The driver keeps no state (`inline_bytes` 0), so what grows is what it must know of every text. Files come through a
stream, a million rows a batch; after each the driver's resident memory is read. It ends early above a limit.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import whence
from benchmarks.report import Check, Figure
from benchmarks.spark_processes import family

MEGABYTE = 1 << 20
SESSION = {"spark.driver.memory": "2g"}
_LIMIT = 3_000  # MB of the driver
_TARGET = 1.2


def run(folder: Path, **sizes: int) -> tuple[list[Figure], list[Check]]:
    """Figures and promises, measured in a new process."""
    command = [sys.executable, "-m", "benchmarks.spark_driver_memory", str(folder), json.dumps(sizes)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: list[tuple[int, float]] = [tuple(pair) for pair in json.loads(done.stdout.splitlines()[-1])]
    figure = Figure(f"{found[-1][0]:,} distinct texts", "MB of the driver")
    figure.samples = {f"after {rows:,} rows": [used] for rows, used in (found[0], found[len(found) // 2], found[-1])}
    grown = found[-1][1] / found[0][1]
    label = f"driver's memory, {found[-1][0]:,} rows of text against {found[0][0]:,}"
    return [figure], [Check(label, grown, _TARGET, at_least=False)]


def main() -> None:
    """One line of JSON, for `run`: rows and MB, after each batch."""
    folder, sizes = Path(sys.argv[1]), json.loads(sys.argv[2])
    spark = whence.spark_session(master="local[2]", conf=SESSION)
    spark.sparkContext.setLogLevel("OFF")
    found = []
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as here:
        path = Path(here)
        with whence.open(path / "db", spark=spark, on_spark={"inline_bytes": 0}) as db:
            db.execute("""CREATE TABLE note (line TEXT);
                CREATE VIEW notes AS SELECT line, COUNT(*) AS n FROM note GROUP BY line""")
            for batch in range(sizes["rows"] // sizes["each"]):
                rng = np.random.default_rng(batch)
                tails = rng.integers(0, 1 << 62, sizes["each"]).tolist()
                lines = [f"{batch:04d} {n:07d} {tail:020d}" for n, tail in enumerate(tails)]
                file = path / f"{batch:04d}.parquet"
                pq.write_table(pa.table({"line": lines}), file)
                db.insert("note", spark.read.parquet(str(file)))
                file.unlink()
                del lines, tails
                gc.collect()
                used = family()
                own = next(iter(used.values())).resident / MEGABYTE
                found.append(((batch + 1) * sizes["each"], own))
                if own > _LIMIT:
                    break
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
