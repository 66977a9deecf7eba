"""Whence on Spark beside Spark's own, in `local[2]`: what those who outgrow one machine do all day.

    python -m benchmarks.spark_scale --quick
    python -m benchmarks.spark_scale --parts aggregation,backfill --json results/spark_scale.json

| part | what is done |
|---|---|
| aggregation | a keyed aggregate of 5 million updates, with and without deletions (`spark_aggregation`) |
| backfill | a keyed aggregate over 10 million rows, BIGINT and TEXT keys (`spark_backfill`) |
| latency | a file of 100 rows through a stream, to the committed epoch (`spark_latency`) |
| epochs | an epoch with many supersteps as one job (`spark_epochs`) |
| memory | the driver's memory, from 1 to 20 million texts (`spark_driver_memory`) |
| simulation | the same operators over 1 to 256 partitions, and a model of executors (`spark_simulation`) |

Peers take turns in one session, the first round warms up, and their rows are compared: a difference ends the run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import report, spark_aggregation, spark_backfill, spark_driver_memory, spark_latency, spark_simulation
from benchmarks.peers.common import installed
from benchmarks.report import Check, Figure
from benchmarks.spark_simulation import Prediction

PARTS = ("aggregation", "backfill", "latency", "epochs", "memory", "simulation")
MASTER = "local[2]"


@dataclass(frozen=True)
class Sizes:
    """How much each part does."""

    aggregation: dict[str, int] = field(
        default_factory=lambda: {"rows": 5_000_000, "files": 20, "per_batch": 10, "keys": 100_000, "rounds": 5}
    )
    backfill: dict[str, int] = field(default_factory=lambda: {"rows": 10_000_000, "files": 20, "rounds": 2})
    latency: dict[str, int] = field(default_factory=lambda: {"rows": 100, "files": 20})
    epochs: dict[str, int] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=lambda: {"rows": 20_000_000, "each": 1_000_000})
    simulation: dict[str, int] = field(default_factory=lambda: {"most": 256, "nodes": 200, "rows": 200_000})


QUICK = Sizes(
    {"rows": 100_000, "files": 4, "per_batch": 2, "keys": 1_000, "rounds": 1},
    {"rows": 100_000, "files": 4, "rounds": 1},
    {"rows": 100, "files": 2},
    {},
    {"rows": 60_000, "each": 20_000},
    {"most": 16, "nodes": 50, "rows": 5_000},
)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    about = (__doc__ or "").split("\n")[0]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_scale", description=about)
    parser.add_argument("--quick", action="store_true", help="100,000 rows: a check that all of it runs")
    parser.add_argument("--parts", type=lambda t: t.split(","), default=list(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--rounds", type=int, help="rounds of each comparison, in place of those of each part")
    parser.add_argument("--dir", type=Path, help="where files and databases are made (default: here)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help=f"draw to this file (default {report.RESULTS}/spark_scale.png)")
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
    predictions: list[Prediction] = field(default_factory=list)
    costs: dict[str, float] = field(default_factory=dict)
    where: dict[str, Any] = field(default_factory=dict)  # Whence's time went


def _aggregation(spark: Any, folder: Path, sizes: dict[str, int], found: Found) -> None:
    figures, _, found.where = spark_aggregation.run(spark, folder, **sizes)
    rate = dict(zip((spark_aggregation.INSERTIONS, spark_aggregation.DELETIONS), figures, strict=False))
    found.figures += figures
    found.checks += [
        Check(
            f"aggregation, {what}: times {spark_aggregation.DEFAULT} (of insertions)",
            spark_aggregation.times(rate, what, spark_aggregation.DEFAULT),
            1.0,
        )
        for what in rate
    ]


def _epochs(spark: Any, folder: Path, sizes: dict[str, int], found: Found) -> None:
    try:
        part = import_module("benchmarks.spark_epochs")
    except ModuleNotFoundError as error:
        if error.name != "benchmarks.spark_epochs":
            raise
        return
    figures, checks = part.run(spark, folder, **sizes)
    found.figures += figures
    found.checks += checks


def _simulation(spark: Any, folder: Path, sizes: dict[str, int], found: Found) -> None:
    found.costs = spark_simulation.calibrate(spark)
    found.predictions, checks = spark_simulation.run(found.costs, **sizes)
    found.checks += checks


def _plain(part: Callable[..., tuple[list[Figure], list[Check]]]) -> Callable[[Any, Path, dict[str, int], Found], None]:
    def work(spark: Any, folder: Path, sizes: dict[str, int], found: Found) -> None:
        figures, checks = part(spark, folder, **sizes)
        found.figures += figures
        found.checks += checks

    return work


_WORK: dict[str, Callable[[Any, Path, dict[str, int], Found], None]] = {
    "aggregation": _aggregation,
    "backfill": _plain(spark_backfill.run),
    "latency": _plain(spark_latency.run),
    "epochs": _epochs,
    "memory": _plain(lambda spark, folder, **sizes: spark_driver_memory.run(folder, **sizes)),
    "simulation": _simulation,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if the peers disagree."""
    options = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    for package in ("pyspark", "duckdb"):
        if not installed(package):
            console.print(f"[red]{package} is not installed: pip install -e '.[spark,bench]'")
            return 2
    import whence

    sizes = asdict(QUICK if options.quick else Sizes())
    if options.rounds:
        sizes = {
            part: {**some, **({"rounds": options.rounds} if "rounds" in some else {})} for part, some in sizes.items()
        }
    spark = whence.spark_session(master=MASTER, conf={"spark.driver.memory": "4g"})
    spark.sparkContext.setLogLevel("OFF")
    found = Found()
    with tempfile.TemporaryDirectory(
        prefix="spark-", dir=options.dir or Path.cwd(), ignore_cleanup_errors=True
    ) as folder:
        try:
            for part in PARTS:
                if part in options.parts:
                    with console.status(part):
                        _WORK[part](spark, Path(folder), sizes[part], found)
        except spark_aggregation.DisagreementError as difference:
            console.print(f"[red]{difference}")
            return 1
        finally:
            spark.stop()
    report.show_figures("Spark's own in the same run", found.figures, console)
    spark_simulation.show(found.predictions, found.costs, console)
    report.show_checks(found.checks, console)
    if installed("matplotlib"):
        path = options.plot or report.RESULTS / "spark_scale.png"
        if found.figures:
            report.plot_figures(path, found.figures)
        if found.predictions:
            spark_simulation.plot(path.with_name(f"{path.stem}-executors{path.suffix}"), found.predictions)
    if options.json:
        figures = [asdict(f) | {"median": {peer: f.of(peer) for peer in f.samples}} for f in found.figures]
        settings = sizes | {"quick": options.quick, "parts": options.parts, "master": MASTER}
        more = {"predictions": [asdict(line) for line in found.predictions], "costs": found.costs}
        report.save(options.json, [], found.checks, settings, figures=figures, where=found.where, **more)
    return 0


if __name__ == "__main__":
    sys.exit(main())
