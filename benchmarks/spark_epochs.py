"""An epoch of many supersteps as one Spark job: what it costs beside an empty job, and beside a job per superstep.

    python -m benchmarks.spark_epochs --quick
    python -m benchmarks.spark_epochs --json results/spark_epochs.json

| part | what is timed |
|---|---|
| one link | the deletion and the insertion of one link under reachable by exchange; after each an empty barrier job |
| load | all links of the network of `whence demo pipeline` in one epoch, recursion local and by exchange |

One link is of a transit-stub network; *local* has all links in every partition. The first round warms up, and all ways
must have the same rows in the end. The part `epochs` of `python -m benchmarks.spark_scale` is this one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

import whence
from benchmarks import report
from benchmarks.peers.common import RECURSIONS, installed
from benchmarks.report import Check, Figure
from benchmarks.spark_aggregation import DisagreementError
from benchmarks.spark_recursion import timed
from benchmarks.transit_stub import network, updates
from whence.cli.demo import topology
from whence.runtime.spark.session.session import slots_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL, SOCKETS, JOBS = "local", "exchange, one job", "exchange, a job per superstep"
INLINE = "exchange, inline"
EMPTY = "an empty barrier job"
PROGRAMS = ("reachable", "cheapest")
_TABLES = {
    "INT": "CREATE TABLE link (src INT NOT NULL, dst INT NOT NULL, cost INT NOT NULL);",
    "TEXT": "CREATE TABLE link (src TEXT NOT NULL, dst TEXT NOT NULL, cost INT NOT NULL);",
}


@contextmanager
def database(
    spark: SparkSession, folder: Path, program: str, key: str, way: str, partitions: int
) -> Iterator[tuple[whence.Database, Any]]:
    """A database of one recursive view whose epochs are jobs, and its runner."""
    sql = RECURSIONS[program].sql
    if way != LOCAL:
        sql = sql.replace(f"VIEW {program} AS", f"VIEW {program} WITH (partition = 'exchange') AS")
    mail = "jobs" if way == JOBS else "sockets"
    with (
        tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as path,
        whence.open(Path(path) / "db", spark=spark, partitions=partitions, on_spark={"mail": mail}) as db,
    ):
        db.execute(_TABLES[key] + sql)
        assert db._coordinator.driver is not None
        driver = db._coordinator.driver
        if driver._warming is not None:
            driver._warming.join()  # of the session: its jobs have the slots until then
        runner = driver.runner
        runner.mode = "job"  # for measuring; else the size of an epoch decides
        yield db, runner
        runner.mode = "inline"


def empty_job(spark: SparkSession, tasks: int) -> int:
    """Run a barrier job that does nothing."""
    job = spark.sparkContext.parallelize(range(tasks), tasks).barrier()
    return len(job.mapPartitions(list).collect())


def held(db: whence.Database, runner: Any, view: str) -> int:
    """Return a name for the rows of a view, which are read inline."""
    runner.mode = "inline"
    rows = hash(frozenset(db[view].rows))
    runner.mode = "job"
    return rows


def one_link(
    spark: SparkSession, folder: Path, *, nodes: int, partitions: int, links: int
) -> tuple[list[Figure], dict[str, float]]:
    """Delete single links, and insert them again, by both ways of the exchange; return figures, and jobs per epoch."""
    net, tasks = network(nodes), min(partitions, slots_of(spark.sparkContext))
    rows = [tuple(link) for link in net.links]
    deleted, inserted, steps = (
        Figure(f"reachable by exchange, {nodes} nodes: one link {what}", unit)
        for what, unit in (("deleted", "ms"), ("inserted", "ms"), ("deleted", "supersteps"))
    )
    ended, jobs = set[int](), dict[str, float]()
    for way in (SOCKETS, JOBS, INLINE):
        with database(spark, folder, "reachable", "INT", way, partitions) as (db, runner):
            db.insert("link", rows)
            runner.mode = "inline" if way == INLINE else "job"
            for place, update in enumerate(updates(net, links + 1)):
                write, figure = (db.insert, inserted) if update.sign > 0 else (db.delete, deleted)
                milliseconds = 1e3 * timed(lambda w=write, u=update: w("link", [tuple(u.link)]))  # type: ignore[misc]
                latest = runner.latest
                empty = 1e3 * timed(lambda: empty_job(spark, tasks))
                if place < 2:
                    continue
                figure.samples.setdefault(way, []).append(milliseconds)
                if way == SOCKETS:
                    figure.samples.setdefault(EMPTY, []).append(empty)
                if update.sign < 0:
                    steps.samples.setdefault(way, []).append(float(latest.supersteps))
                    jobs[way] = max(jobs.get(way, 0.0), float(latest.jobs))
            ended.add(held(db, runner, "reachable"))
    if len(ended) > 1:
        raise DisagreementError("one link: a job an epoch and a job per superstep have other rows")
    return [deleted, inserted, steps], jobs


def load(
    spark: SparkSession, folder: Path, program: str, *, partitions: int, domains: int, rounds: int
) -> tuple[Figure, Figure]:
    """Load the demo's network; return times and supersteps."""
    net = topology.network()
    cables = [cable for name in topology.DOMAINS[:domains] for cable in net.inside[name]] + list(
        net.bridges[: domains - 1]
    )
    rows = [link for cable in cables for link in cable.links()]
    figure = Figure(f"{program}, the demo's network, {len(rows)} links: load", "ms")
    steps = Figure(f"{program}, the demo's network, {len(rows)} links: load", "supersteps")
    ended = set[int]()
    for number in range(rounds + 1):
        for way in (LOCAL, SOCKETS, JOBS):
            with database(spark, folder, program, "TEXT", way, partitions) as (db, runner):
                milliseconds = 1e3 * timed(lambda d=db: d.insert("link", rows))  # type: ignore[misc]
                supersteps = float(runner.latest.supersteps)
                if number:
                    figure.samples.setdefault(way, []).append(milliseconds)
                    steps.samples.setdefault(way, []).append(supersteps)
                else:
                    ended.add(held(db, runner, program))
    if len(ended) > 1:
        raise DisagreementError(f"{program}: local and by exchange have other rows")
    return figure, steps


def run(
    spark: SparkSession,
    folder: Path,
    *,
    nodes: int = 100,
    partitions: int = 4,
    links: int = 15,
    domains: int = 3,
    rounds: int = 3,
) -> tuple[list[Figure], list[Check]]:
    """Figures, and what is promised of them."""
    figures, jobs = one_link(spark, folder, nodes=nodes, partitions=partitions, links=links)
    deleted, inserted, _ = figures
    checks = [
        Check("one link deleted under exchange: jobs", jobs[SOCKETS], 1.0, at_least=False),
        Check(
            "one link deleted under exchange: times an empty job", deleted.times(SOCKETS, EMPTY), 1.5, at_least=False
        ),
        Check(
            "one link inserted under exchange: times an empty job", inserted.times(SOCKETS, EMPTY), 1.5, at_least=False
        ),
    ]
    for program in PROGRAMS:
        times, steps = load(spark, folder, program, partitions=partitions, domains=domains, rounds=rounds)
        figures += [times, steps]
        checks.append(
            Check(f"{program} by exchange, load: times local", times.times(SOCKETS, LOCAL), 3.0, at_least=False)
        )
    return figures, checks


QUICK = {"nodes": 100, "partitions": 3, "links": 1, "domains": 1, "rounds": 1}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, save; 1 if ways disagree."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark_epochs", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--quick", action="store_true", help="one domain, one link: a check that all of it runs")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--plot", type=Path, help=f"draw to this file (default {report.RESULTS}/spark_epochs.png)")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    sizes = QUICK if options.quick else {}
    spark = whence.spark_session(master="local[2]")
    spark.sparkContext.setLogLevel("OFF")
    with tempfile.TemporaryDirectory(prefix="spark-", dir=Path.cwd(), ignore_cleanup_errors=True) as folder:
        try:
            figures, checks = run(spark, Path(folder), **sizes)
        except DisagreementError as difference:
            console.print(f"[red]{difference}")
            return 1
        finally:
            spark.stop()
    report.show_figures("epochs as jobs", figures, console)
    report.show_checks(checks, console)
    if installed("matplotlib"):
        report.plot_figures(options.plot or report.RESULTS / "spark_epochs.png", figures)
    if options.json:
        found = [asdict(f) | {"median": {peer: f.of(peer) for peer in f.samples}} for f in figures]
        report.save(options.json, [], checks, sizes | {"quick": options.quick}, figures=found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
