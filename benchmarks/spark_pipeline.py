"""The pipeline on Spark, in `local[2]`: Whence beside what Spark's own users have, and how it scales.

    python -m benchmarks.spark_pipeline --quick
    python -m benchmarks.spark_pipeline --dir /mnt/disk --json results/spark_pipeline.json

| part | what is done |
|---|---|
| aggregation | COUNT, SUM, AVG by 100,000 keys over 5 million updates from Parquet (`spark_aggregation`) |
| recursion | reachable and cheapest cost of 400 nodes: a load, then single links (`spark_recursion`) |
| scale | the same over 1 to 12 partitions: supersteps, what is shipped, time (`spark_recursion`) |
| memory | 10 million rows in workers of bounded memory (`spark_memory`) |

Figures are of warm runs; peers take turns. Their rows are compared, and a difference ends the run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import report, spark_aggregation, spark_memory, spark_recursion
from benchmarks.peers.common import installed
from benchmarks.report import Check, Figure
from benchmarks.spark_recursion import Scale

PARTS = ("aggregation", "recursion", "scale", "memory")
MASTER = "local[2]"


@dataclass(frozen=True)
class Sizes:
    """How much is done; the sizes of each part."""

    aggregation: dict[str, int] = field(
        default_factory=lambda: {"rows": 5_000_000, "files": 20, "per_batch": 10, "keys": 100_000, "rounds": 5}
    )
    recursion: dict[str, int] = field(
        default_factory=lambda: {"nodes": 400, "inline": 20, "jobs": 20, "streams": 10, "hands": 2}
    )
    scale: dict[str, int] = field(default_factory=lambda: {"nodes": 200, "deletions": 4})
    partitions: tuple[int, ...] = (1, 2, 4, 8, 12)
    memory: dict[str, int] = field(
        default_factory=lambda: {
            "rows": 10_000_000,
            "files": 20,
            "per_batch": 5,
            "keys": 1_000_000,
            "partitions": 32,
            "memory": 128,  # MB
            "too_few": 2,
        }
    )


QUICK = Sizes(
    {"rows": 100_000, "files": 4, "per_batch": 2, "keys": 1_000, "rounds": 1},
    {"nodes": 100, "inline": 2, "jobs": 2, "streams": 2, "hands": 1},
    {"nodes": 100, "deletions": 1},
    (1, 3),
    {"rows": 100_000, "files": 4, "per_batch": 2, "keys": 10_000, "partitions": 8, "memory": 2, "too_few": 1},
)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    about = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_pipeline", description=about)
    parser.add_argument("--quick", action="store_true", help="100,000 rows, 100 nodes: a check that all of it runs")
    parser.add_argument("--parts", type=lambda t: t.split(","), default=list(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--dir", type=Path, help="where files and databases are made (default: here)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help=f"draw to this file (default {report.RESULTS}/spark_pipeline.png)")
    options = parser.parse_args(arguments)
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"--parts: {part!r} is not one of {', '.join(PARTS)}")
    return options


@dataclass
class Found:
    """Everything that was measured."""

    figures: list[Figure] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    scale: list[Scale] = field(default_factory=list)
    where: dict[str, Any] = field(default_factory=dict)  # Whence's time went

    def add(self, figures: Sequence[Figure], checks: Sequence[Check]) -> None:
        self.figures += figures
        self.checks += checks


def measure(spark: Any, folder: Path, sizes: Sizes, parts: Sequence[str], console: Console) -> Found:
    """All figures and promises."""
    found = Found()
    if "aggregation" in parts:
        with console.status("aggregation"):
            figures, checks, found.where = spark_aggregation.run(spark, folder, **sizes.aggregation)
            found.add(figures, checks)
    if "recursion" in parts:
        with console.status("recursion"):
            found.add(*spark_recursion.run(spark, folder, **sizes.recursion))
    if "scale" in parts:
        with console.status("scale"):
            found.scale = spark_recursion.scale(spark, folder, partitions=sizes.partitions, **sizes.scale)
    if "memory" in parts:
        with console.status("memory"):
            found.add(*spark_memory.run(folder, **sizes.memory))
    return found


def show_scale(lines: Sequence[Scale], console: Console) -> None:
    """Print one line a number of partitions, the load beside the median deletion."""
    if not lines:
        return
    table = Table(title="scale: every epoch a job", title_justify="left")
    for column in ("view", "way", "epoch"):
        table.add_column(column)
    for column in ("partitions", "supersteps", "rows shipped", "bytes shipped", "ms"):
        table.add_column(column, justify="right")
    before = None
    for line in sorted(lines, key=lambda s: (s.view, s.way, s.epoch != "load", s.partitions)):
        label = (line.view, line.way, line.epoch)
        if label != before:
            table.add_section()
        counts = (f"{n:,.0f}" for n in (line.supersteps, line.rows_shipped, line.bytes_shipped, 1e3 * line.seconds))
        table.add_row(*(label if label != before else ("", "", "")), str(line.partitions), *counts)
        before = label
    console.print(table)


def plot_scale(path: Path, lines: Sequence[Scale]) -> None:
    """Draw supersteps, bytes and time over partitions; one line a view, way and kind of epoch."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    picture, panels = plt.subplots(1, 3, figsize=(13, 4.2))
    for panel, (title, value) in zip(
        panels, (("supersteps", "supersteps"), ("bytes shipped", "bytes_shipped"), ("ms", "seconds")), strict=True
    ):
        for label in dict.fromkeys((s.view, s.way, s.epoch) for s in lines):
            mine = [s for s in lines if (s.view, s.way, s.epoch) == label]
            factor = 1e3 if value == "seconds" else 1
            panel.plot(
                [s.partitions for s in mine],
                [factor * getattr(s, value) for s in mine],
                marker="o",
                label=", ".join(label),
            )
        panel.set_yscale("symlog" if value == "bytes_shipped" else "log")
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("partitions")
        panel.grid(alpha=0.3)
    panels[0].legend(fontsize=6)
    picture.tight_layout()
    picture.savefig(path, dpi=130)
    plt.close(picture)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if the peers disagree."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    for package in ("pyspark", "duckdb"):
        if not installed(package):
            console.print(f"[red]{package} is not installed: pip install -e '.[spark,bench]'")
            return 2
    import whence

    sizes = QUICK if options.quick else Sizes()
    spark = whence.spark_session(master=MASTER, conf={"spark.driver.memory": "4g"})
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory(
        prefix="spark-", dir=options.dir or Path.cwd(), ignore_cleanup_errors=True
    ) as folder:
        try:
            found = measure(spark, Path(folder), sizes, options.parts, console)
        except spark_aggregation.DisagreementError as difference:
            console.print(f"[red]{difference}")
            return 1
        finally:
            spark.stop()
    report.show_figures("the pipeline on Spark", found.figures, console)
    show_scale(found.scale, console)
    report.show_checks(found.checks, console)
    if installed("matplotlib"):
        path = options.plot or report.RESULTS / "spark_pipeline.png"
        if found.figures:
            report.plot_figures(path, found.figures)
        if found.scale:
            plot_scale(path.with_name(f"{path.stem}-scale{path.suffix}"), found.scale)
    if options.json:
        figures = [asdict(f) | {"median": {peer: f.of(peer) for peer in f.samples}} for f in found.figures]
        settings = asdict(sizes) | {"quick": options.quick, "parts": options.parts, "master": MASTER}
        lines = [asdict(line) for line in found.scale]
        report.save(options.json, [], found.checks, settings, figures=figures, scale=lines, where=found.where)
    return 0


if __name__ == "__main__":
    sys.exit(main())
