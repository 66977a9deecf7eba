"""An average over the last 100 rows every 10: Whence beside Pathway, polars, DuckDB and Spark; and its memory.

    python -m benchmarks.window_peers --quick
    python -m benchmarks.window_peers --memory --json results/window_peers.json

Rows a second over a million rows; the peers are `peers/windows.py` and `window_spark.py`, and take turns. Whence gets
batches of Arrow and keeps its view after each; polars and DuckDB have all rows at once. Pathway is given fewer rows,
and its rate is of those: it falls with more. What all of them give is compared with running sums, and a difference
ends the run.

`--memory` sends 50 million rows through the same view, without provenance and with, and notes the resident memory of a
process for that alone. Stream and view keep 16 MB each, so that both are full long before the first third is over.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from benchmarks import report
from benchmarks.peers import windows as peers
from benchmarks.peers.common import installed
from benchmarks.peers.windows import Windows
from benchmarks.report import WHENCE, Check, Figure

ADAPTIVE, COVERING = "Whence, lineage", "Whence, covering"
PATHWAY, DUCKDB, DYNAMIC, ROLLING = "Pathway", "DuckDB, all at once", "polars, group_by_dynamic", "polars, rolling_mean"
PARTS = ("embedded", "spark")
MICRO_BATCH = 250_000  # rows that Spark takes at a time: half a second of each is its own work
WINDOWS = Windows()


def embedded(rows: int, fewer: int, batch: int, rounds: int, console: Console) -> tuple[list[Figure], list[Check]]:
    """Rows a second of everyone in this process, and Pathway."""
    data, few = peers.rows(rows), peers.rows(fewer)
    runs: dict[str, Callable[[pa.Table], peers.Measured]] = {
        WHENCE: lambda d: peers.whence(d, WINDOWS, batch),
        ADAPTIVE: lambda d: peers.whence(d, WINDOWS, batch, "provenance = 'lineage'"),
        COVERING: lambda d: peers.whence(d, WINDOWS, batch, "provenance = 'covering'"),
    }
    optional: dict[str, tuple[str, Callable[[pa.Table], peers.Measured]]] = {
        PATHWAY: ("pathway", lambda d: peers.pathway(d, WINDOWS)),
        DUCKDB: ("duckdb", lambda d: peers.duckdb(d, WINDOWS)),
        DYNAMIC: ("polars", lambda d: peers.polars(d, WINDOWS)),
        ROLLING: ("polars", lambda d: peers.polars_rolling(d, WINDOWS)),
    }
    runs |= {name: run for name, (package, run) in optional.items() if installed(package)}
    figure = Figure(f"average of the last 100 rows every 10, {rows:,} rows (Pathway: {fewer:,})", "rows/s")
    wanted = {len(d): peers.expected(d, WINDOWS) for d in (data, few)}
    for turn in range(rounds + 1):
        for name, run in runs.items():
            given = few if name == PATHWAY else data
            if name == PATHWAY and not turn:
                continue  # a process of its own each time: nothing to warm up
            with console.status(f"{name}, round {turn}"):
                seconds, found = run(given)
            peers.agree(name, found, wanted[len(given)])
            if turn:
                figure.samples.setdefault(name, []).append(len(given) / seconds)
    best = {name: max(samples) for name, samples in figure.samples.items()}
    checks = [Check("embedded, no provenance: million rows per second, best", best[WHENCE] / 1e6, 5.0)]
    if PATHWAY in best:
        checks.append(
            Check("embedded, no provenance: times Pathway, best of each", best[WHENCE] / best[PATHWAY], 100.0)
        )
    return [figure], checks


def spark(folder: Path, rows: int, files: int, rounds: int) -> tuple[list[Figure], list[Check]]:
    """Whence on Spark, beside Spark."""
    import whence
    from benchmarks import window_spark

    session = whence.spark_session(master="local[2]", conf={"spark.driver.memory": "4g"})
    session.sparkContext.setLogLevel("OFF")
    try:
        return window_spark.run(session, folder, peers.rows(rows), WINDOWS, files, rounds)
    finally:
        session.stop()


MEMORY_SCRIPT = """
import json, resource
import numpy as np, pyarrow as pa
import whence

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 1e6

rng = np.random.default_rng(0)
values = [rng.integers(0, 1000, {batch}) for _ in range(8)]
db = whence.open()
db.execute('''CREATE STREAM reading (time BIGINT NOT NULL, value BIGINT NOT NULL) WITH (retain = '16 MB');
    CREATE VIEW average WITH ({options}, retain = '16 MB') AS
      SELECT MIN(time) AS start, AVG(value) AS mean FROM slide(reading, rows => 100, every => 10);''')
seen = []
for number in range({rows} // {batch}):
    times = np.arange(number * {batch}, (number + 1) * {batch})
    db.insert("reading", pa.table({{"time": times, "value": values[number % 8]}}))
    if (number + 1) % max({rows} // {batch} // 100, 1) == 0:
        seen.append([(number + 1) * {batch}, resident()])
print(json.dumps(seen))
"""


def memory(rows: int, batch: int, console: Console) -> tuple[dict[str, list[list[float]]], list[Check]]:
    """Megabytes after so many rows, the last third against the first: what is kept is full long before its end."""
    found, checks = {}, []
    for name, options in (
        ("no provenance", "provenance = 'none'"),
        ("lineage", "provenance = 'lineage'"),
        ("covering", "provenance = 'covering'"),
    ):
        with console.status(f"memory, {name}, {rows:,} rows"):
            script = MEMORY_SCRIPT.format(rows=rows, batch=batch, options=options)
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"a measuring process failed:\n{done.stderr[-2000:]}")
        found[name] = seen = json.loads(done.stdout.strip().splitlines()[-1])
        early = max(size for count, size in seen if count <= 0.3 * rows)
        late = max(size for count, size in seen if count > 0.7 * rows)
        text = f"memory, {name}: most in the last third of {rows:,} rows, times the first third's most"
        checks.append(Check(text, late / early, 1.1, at_least=False))
    return found, checks


def plot_memory(path: Path, found: Mapping[str, Sequence[Sequence[float]]]) -> None:
    """Resident megabytes over rows."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    picture, panel = plt.subplots(figsize=(7, 4))
    for name, seen in found.items():
        panel.plot([count / 1e6 for count, _ in seen], [size for _, size in seen], label=name)
    panel.set_xlabel("million rows")
    panel.set_ylabel("MB resident")
    panel.set_ylim(bottom=0)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)
    picture.tight_layout()
    picture.savefig(path, dpi=130)
    plt.close(picture)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    about = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.window_peers", description=about)
    parser.add_argument("--quick", action="store_true", help="50,000 rows, one round: a check that all of it runs")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--pathway-rows", type=int, default=100_000, help="as many as Pathway is given")
    parser.add_argument("--batch", type=int, default=100_000, help="rows an epoch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--parts", type=lambda t: t.split(","), default=list(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--memory", action="store_true", help="50 million rows, and the memory they need")
    parser.add_argument("--memory-rows", type=int, default=50_000_000)
    parser.add_argument("--dir", type=Path, help="where files and databases are made (default: here)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help=f"draw to this file (default {report.RESULTS}/window_peers.png)")
    options = parser.parse_args(arguments)
    for part in options.parts:
        if part not in (*PARTS, "none"):
            parser.error(f"--parts: {part!r} is not one of {', '.join(PARTS)}")
    if options.quick:
        options.rows, options.pathway_rows, options.batch, options.rounds = 50_000, 5_000, 10_000, 1
        options.memory_rows = 1_000_000
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if a peer gives other means."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    missing = [package for package in ("pathway", "polars", "duckdb", "pyspark") if not installed(package)]
    if missing:
        console.print(f"[yellow]not installed, left out: {', '.join(missing)}")
    figures: list[Figure] = []
    checks: list[Check] = []
    seen: dict[str, list[list[float]]] = {}
    try:
        if "embedded" in options.parts:
            made, kept = embedded(options.rows, options.pathway_rows, options.batch, options.rounds, console)
            figures, checks = figures + made, checks + kept
        if "spark" in options.parts and "pyspark" not in missing:
            here = options.dir or Path.cwd()
            with (
                tempfile.TemporaryDirectory(prefix="windows-", dir=here, ignore_cleanup_errors=True) as folder,
                console.status("spark"),
            ):
                made, kept = spark(Path(folder), options.rows, max(options.rows // MICRO_BATCH, 1), options.rounds)
            figures, checks = figures + made, checks + kept
        if options.memory:
            seen, kept = memory(options.memory_rows, options.batch, console)
            checks += kept
    except peers.DisagreementError as wrong:
        console.print(f"[red]{wrong}")
        return 1
    if figures:
        report.show_figures("windows", figures, console)
    checks = [] if options.quick else checks  # they are about a million rows
    report.show_checks(checks, console)
    path = options.plot or report.RESULTS / "window_peers.png"
    if installed("matplotlib"):
        if figures:
            report.plot_figures(path, figures)
        if seen:
            plot_memory(path.with_name(f"{path.stem}-memory{path.suffix}"), seen)
    if options.json:
        told = [asdict(f) | {"median": {peer: f.of(peer) for peer in f.samples}} for f in figures]
        settings = {key: value for key, value in vars(options).items() if key not in ("json", "plot", "dir")}
        report.save(options.json, [], checks, settings, figures=told, memory=seen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
