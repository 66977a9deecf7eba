"""Recursive views on Spark: reachable and cheapest cost over a transit-stub network, and how they scale.

| way | what is timed for a deletion |
|---|---|
| inline | the call of `db.delete`, the partitions in the driver |
| as a job | the call of `db.delete`, the epoch one Spark job |
| through foreachBatch | from the moment a file with the deletion is there to the commit of its epoch |
| DataFrames by hand | the loop of joins again (`peers/spark_peer.py`) |

The links are loaded in one epoch, deletions are of single links, each followed by its insertion, and the first pair
warms up. Every other deletion takes a bridge. All ways must have the same rows in the end, and with one link missing.

`scale` loads the network over several numbers of partitions, once with the links copied to all of them and the
recursion local, once with both sides partitioned and rows exchanged, each epoch as a job.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import whence
from benchmarks.peers.common import LINK_TABLE, RECURSIONS, Change, Digest, as_rows, digest
from benchmarks.peers.spark_peer import SparkPeer
from benchmarks.report import Check, Figure
from benchmarks.spark_aggregation import DisagreementError
from benchmarks.transit_stub import Link, Network, network, updates

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INLINE, JOB, STREAM, BY_HAND = "Whence, inline", "Whence, as a job", "Whence, foreachBatch", SparkPeer.name
PROGRAMS = ("reachable", "cheapest")
BROADCAST, EXCHANGE = "broadcast", "exchange"
_PATIENCE = 60.0  # seconds for an epoch of one link


@dataclass(frozen=True)
class Scale:
    """One epoch, the load or the median deletion, over so many partitions."""

    view: str
    way: str
    partitions: int
    epoch: str
    supersteps: float
    rows_shipped: float
    bytes_shipped: float
    seconds: float


@contextmanager
def database(
    spark: SparkSession, folder: Path, program: str, partitions: int, mode: str, **options: str
) -> Iterator[Any]:
    """A database with the table of links and one recursive view."""
    sql = RECURSIONS[program].sql
    if options:
        said = ", ".join(f"{name} = '{value}'" for name, value in options.items())
        sql = sql.replace(f"VIEW {program} AS", f"VIEW {program} WITH ({said}) AS")
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as path:
        db = whence.open(Path(path) / "db", spark=spark, partitions=partitions)
        try:
            db.execute(LINK_TABLE + sql)
            assert db._coordinator.driver is not None
            db._coordinator.driver.runner.mode = mode  # for measuring; else the size of an epoch decides
            yield db
        finally:
            db.close()


def as_arrow(links: Sequence[Link]) -> pa.Table:
    """Links as they are loaded."""
    rows = np.array(links, np.int32)
    return pa.table({name: rows[:, i] for i, name in enumerate(Link._fields)})


def fingerprint(db: Any, view: str) -> Digest:
    """Of the rows of a view."""
    return digest(as_rows([column.to_numpy() for column in db[view].to_arrow().columns]))


def timed(work: Callable[[], Any]) -> float:
    """Seconds."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@dataclass
class Way:
    """What one way took: the load, and each deletion."""

    load: float
    deletions: list[float]
    whole: Digest
    without: Digest  # while the first link is missing
    supersteps: list[int]


def direct(
    spark: SparkSession, folder: Path, program: str, net: Network, partitions: int, mode: str, count: int
) -> Way:
    """Epochs by calls, inline or as jobs."""
    with database(spark, folder, program, partitions, mode) as db:
        way = Way(timed(lambda: db.insert("link", as_arrow(net.links))), [], Digest(0, 0, 0), Digest(0, 0, 0), [])
        for place, update in enumerate(updates(net, count + 1)):
            write = db.insert if update.sign > 0 else db.delete
            seconds = timed(lambda w=write, u=update: w("link", [tuple(u.link)]))  # type: ignore[misc]
            supersteps = db._coordinator.driver.progress()["supersteps"]
            if place == 0:
                way.without = fingerprint(db, program)
            elif update.sign < 0:
                way.deletions.append(seconds)
                way.supersteps.append(supersteps)
        way.whole = fingerprint(db, program)
    return way


def streamed(spark: SparkSession, folder: Path, program: str, net: Network, partitions: int, count: int) -> Way:
    """Epochs from files, one a link, that a stream finds."""
    with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as made:
        source, unseen = Path(made) / "source", Path(made) / "unseen"
        source.mkdir()
        unseen.mkdir()
        with database(spark, folder, program, partitions, "auto") as db:
            way = Way(timed(lambda: db.insert("link", as_arrow(net.links))), [], Digest(0, 0, 0), Digest(0, 0, 0), [])
            stream = spark.readStream.schema("src INT, dst INT, cost INT, op STRING").parquet(str(source))
            db.attach("link", stream, op="op")
            with db.start() as running:
                for place, update in enumerate(updates(net, count + 1)):
                    name = f"{place:05d}.parquet"
                    op = pa.array(["-" if update.sign < 0 else "+"])
                    pq.write_table(as_arrow([update.link]).append_column("op", op), unseen / name)
                    start = time.perf_counter()
                    (unseen / name).rename(source / name)
                    _wait(running, place + 1, start)
                    seconds = time.perf_counter() - start
                    if place == 0:
                        way.without = fingerprint(db, program)
                    elif update.sign < 0:
                        way.deletions.append(seconds)
                        way.supersteps.append(running.recentProgress[-1]["supersteps"])
            way.whole = fingerprint(db, program)
    return way


def _wait(running: Any, epochs: int, start: float) -> None:
    while len(running.recentProgress) < epochs:
        if time.perf_counter() - start > _PATIENCE or not running.isActive:
            running.awaitTermination(0)
            raise TimeoutError("a link was not taken in")
        time.sleep(0.001)


def by_hand(spark: SparkSession, program: str, net: Network, count: int) -> Way:
    """The loop of joins; the load warms it up."""
    peer = SparkPeer(program, spark)
    way = Way(peer.load({"link": np.array(net.links, np.int64)}), [], peer.digest(), Digest(0, 0, 0), [])
    restored: list[Change] = []
    for update in updates(net, max(count, 1)):
        change = Change("link", update.sign, np.array([update.link], np.int64))
        if update.sign > 0:
            restored = [change]  # together with the next one
            continue
        way.deletions.append(peer.update([*restored, change]))
        way.supersteps.append(peer.rounds)
        if not restored:
            way.without = peer.digest()
    peer.close()
    return way


def run(
    spark: SparkSession, folder: Path, *, nodes: int, inline: int, jobs: int, streams: int, hands: int
) -> tuple[list[Figure], list[Check]]:
    """Figures of both views, and what is promised; so many deletions each way."""
    net, partitions = network(nodes), spark.sparkContext.defaultParallelism
    figures, checks = [], []
    for program in PROGRAMS:
        direct(spark, folder, program, net, partitions, "job", 1)  # the workers compile and load
        ways = {
            INLINE: direct(spark, folder, program, net, partitions, "inline", inline),
            JOB: direct(spark, folder, program, net, partitions, "job", jobs),
            STREAM: streamed(spark, folder, program, net, partitions, streams),
            BY_HAND: by_hand(spark, program, net, hands),
        }
        for name, way in ways.items():
            if (way.whole, way.without) != (ways[INLINE].whole, ways[INLINE].without):
                raise DisagreementError(f"{program}: {name} has other rows than {INLINE}")
        loads = Figure(f"{program}, {nodes} nodes: load", "ms", {n: [1e3 * w.load] for n, w in ways.items()})
        single = Figure(
            f"{program}, {nodes} nodes: one deletion",
            "ms",
            {n: [1e3 * s for s in w.deletions] for n, w in ways.items()},
        )
        steps = Figure(
            f"{program}, {nodes} nodes: one deletion",
            "supersteps, rounds",
            {n: [float(s) for s in w.supersteps] for n, w in ways.items()},
        )
        figures += [loads, single, steps]
        most = max(max(way.supersteps) for name, way in ways.items() if name != BY_HAND)
        checks += [
            Check(f"{program}: load inline, times faster than by hand", loads.of(BY_HAND) / loads.of(INLINE), 10.0),
            Check(f"{program}: load as jobs, times faster than by hand", loads.of(BY_HAND) / loads.of(JOB), 10.0),
            *(
                Check(
                    f"{program}: deletion, {way}, times faster than by hand", single.of(BY_HAND) / single.of(way), 10.0
                )
                for way in (INLINE, JOB, STREAM)
            ),
            *(
                Check(f"{program}: deletion, {way}, ms", single.of(way), limit, at_least=False)
                for way, limit in ((INLINE, 20.0), (JOB, 250.0), (STREAM, 400.0))
            ),
            Check(f"{program}: supersteps of a deletion", float(most), 2.0, at_least=False),
        ]
    return figures, checks


def scale(spark: SparkSession, folder: Path, *, nodes: int, partitions: Sequence[int], deletions: int) -> list[Scale]:
    """Over several numbers of partitions, both ways, every epoch a job."""
    net, lines = network(nodes), []
    stream = updates(net, deletions + 1)
    for view, way in ((view, way) for view in PROGRAMS for way in (BROADCAST, EXCHANGE)):
        options = {"partition": "exchange"} if way == EXCHANGE else {}
        whole: Digest | None = None
        for count in partitions:
            with database(spark, folder, view, count, "job", **options) as db:
                found = [_last_run(db, timed(lambda d=db: d.insert("link", as_arrow(net.links))))]  # type: ignore[misc]
                for update in stream:
                    write = db.insert if update.sign > 0 else db.delete
                    seconds = timed(lambda w=write, u=update: w("link", [tuple(u.link)]))  # type: ignore[misc]
                    if update.sign < 0:
                        found.append(_last_run(db, seconds))
                if whole is None:
                    whole = fingerprint(db, view)
                elif whole != fingerprint(db, view):
                    raise DisagreementError(f"{view}, {way}: {count} partitions have other rows than {partitions[0]}")
            middle = [statistics.median(column) for column in zip(*found[2:], strict=True)]  # without the first
            lines.append(Scale(view, way, count, "load", *found[0]))
            lines.append(Scale(view, way, count, "deletion", *middle))  # type: ignore[arg-type]  # four of them
    return lines


def _last_run(db: Any, seconds: float) -> tuple[float, float, float, float]:
    last = db._coordinator.driver.progress()  # metrics() asks the partitions, which would be another job
    return float(last["supersteps"]), float(last["rows_shipped"]), float(last["bytes_shipped"]), seconds
