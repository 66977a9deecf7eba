"""Past this machine, by simulation: the same operators over 1 to 256 partitions in one process, and a model of time.

Nothing is simulated but the clock. Every partition runs in this process, superstep by superstep, and what it takes in,
sends and is sent is counted. The model then says how long executors with one core each, and one partition each, would
take for the same run:

    seconds = job + sum over supersteps of the slowest executor's (step + rows * row + frames * frame + bytes * byte)

`row` and `step` are fitted to the seconds that partitions took here, per row that their operators took in or looked up,
and per superstep. `frame` and `byte` are measured on a socket of this machine, where `byte` is at least that of a
network of 10 Gbit/s; `job` is an empty barrier job of the session. A run is one job, and its tasks exchange frames
directly (`docs/spark.md`).

| workload | what runs |
|---|---|
| reachable, cheapest | recursion by exchange over a transit-stub network: the load, and one link deleted |
| q3, q5, Q8JoinS | joins of TPC-H, loaded at once, then a refresh of a thousandth |
| zipf | a join on keys of which one has half of the rows, divided and not |
"""

from __future__ import annotations

import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import whence
from benchmarks.peers.common import LINK_TABLE, RECURSIONS
from benchmarks.report import Check
from benchmarks.spark_recursion import as_arrow
from benchmarks.tpch_data import SCRIPT, Tpch
from benchmarks.tpch_queries import PAPER, queries
from benchmarks.transit_stub import network, updates
from whence.engine.exchange.messages import EVERYWHERE
from whence.runtime.spark.worker.replica import Replica

_WIRE = 8 / 10e9  # seconds per byte at 10 Gbit/s
_DEFAULTS = {"job": 0.2, "step": 2e-4, "row": 2e-7, "frame": 5e-5, "byte": _WIRE}
_FRAMES, _FRAME, _MEGABYTES = 500, 1_000, 64


@dataclass
class Load:
    """What one partition does in one superstep."""

    rows: int = 0  # received, and taken in or looked up by its operators
    seconds: float = 0.0  # in this process
    frames: int = 0  # to and from others: each destination's messages of a superstep travel together
    bytes: int = 0


@dataclass
class Trace:
    """The supersteps of one run, each with what every partition did."""

    supersteps: list[dict[int, Load]] = field(default_factory=list)

    def rows(self, partitions: int) -> list[int]:
        """The rows of each partition."""
        return [sum(step[p].rows for step in self.supersteps if p in step) for p in range(partitions)]


@dataclass(frozen=True)
class Prediction:
    """One run over so many partitions: what was counted, and what the model says of as many executors."""

    workload: str
    epoch: str
    partitions: int
    supersteps: int
    messages: int
    bytes: int
    rows: int  # of all partitions
    busiest: float  # rows of the busiest partition, against an even share
    seconds: float  # the model's
    waiting: float  # the part of them that is not rows: job, supersteps, frames, bytes


@contextmanager
def traced(partitions: int) -> Iterator[list[Trace]]:
    """Note what every partition does, run by run; the last trace is that of the last run."""
    traces: list[Trace] = []
    plain, last = Replica.do, [-1, -1]

    def work_of(replica: Replica) -> int:
        return sum(op.rows_in + op.probes for op in replica.partition.flow.order)

    def do(self: Replica, command: Any, wanted: Any = ()) -> Any:
        before, start = work_of(self), time.perf_counter()
        result = plain(self, command, wanted)
        seconds = time.perf_counter() - start
        if command.run != last[0]:
            traces.append(Trace())
        trace = traces[-1]
        if command.run != last[0] or self.number <= last[1]:  # partitions work in the order of their numbers
            trace.supersteps.append({})
        last[:] = command.run, self.number
        step = trace.supersteps[-1]
        own = step.setdefault(self.number, Load())
        received = sum(len(batch) for _, batch in command.received)
        own.rows, own.seconds = own.rows + work_of(self) - before + received, own.seconds + seconds
        sent: dict[int, int] = {}
        for message in result.messages:
            others = range(partitions) if message.to == EVERYWHERE else (message.to,)
            for to in others:
                if to != self.number:
                    sent[to] = sent.get(to, 0) + message.bytes
        for to, size in sent.items():
            own.frames, own.bytes = own.frames + 1, own.bytes + size
            there = step.setdefault(to, Load())
            there.frames, there.bytes = there.frames + 1, there.bytes + size
        return result

    Replica.do = do  # type: ignore[method-assign]
    try:
        yield traces
    finally:
        Replica.do = plain  # type: ignore[method-assign]


# -- workloads ---------------------------------------------------------------------------------------------------------

Work = Callable[[int], Iterator[tuple[str, Trace, Any]]]
"""The runs of a workload over so many partitions: what each is, what was done, and the counters of the database."""


def _last(db: Any, traces: list[Trace]) -> tuple[Trace, Any]:
    return traces[-1], db.metrics()["last_run"]


def _recursion(name: str, nodes: int) -> Work:
    def work(partitions: int) -> Iterator[tuple[str, Trace, Any]]:
        net = network(max(nodes // 100, 1) * 100)
        sql = RECURSIONS[name].sql.replace(f"VIEW {name} AS", f"VIEW {name} WITH (partition = 'exchange') AS")
        with traced(partitions) as traces, whence.open(partitions=partitions) as db:
            db.execute(LINK_TABLE + sql)
            db.insert("link", as_arrow(net.links))
            yield "load", *_last(db, traces)
            gone = next(update.link for update in updates(net, 3) if update.sign < 0)
            db.delete("link", [tuple(gone)])
            yield "deletion", *_last(db, traces)

    return work


def _tpch(name: str, rows: int) -> Work:
    def work(partitions: int) -> Iterator[tuple[str, Trace, Any]]:
        scale = rows / 6_000_000
        data, query = Tpch(scale), (queries(scale) | PAPER)[name]
        with traced(partitions) as traces, whence.open(partitions=partitions, on_spark={"copied_rows": 0}) as db:
            db.execute(f"{SCRIPT} CREATE VIEW answer AS {query.strip().rstrip(';')}")
            with db.transaction():
                for table, loaded in data.tables.items():
                    db.insert(table, loaded)
            yield "load", *_last(db, traces)
            for changes in data.refreshes(1):
                with db.transaction():
                    for change in changes:
                        (db.insert if change.sign > 0 else db.delete)(change.table, change.rows)
            yield "refresh", *_last(db, traces)

    return work


def _zipf(rows: int, divides: bool) -> Work:
    def work(partitions: int) -> Iterator[tuple[str, Trace, Any]]:
        rng = np.random.default_rng(rows)
        settings = {"copied_rows": 0, "heavy_rows": rows // 1000 if divides else 10 * rows}
        with traced(partitions) as traces, whence.open(partitions=partitions, on_spark=settings) as db:
            db.execute("""CREATE TABLE hit (page BIGINT, ms BIGINT); CREATE TABLE page (id BIGINT, site BIGINT);
                CREATE VIEW sites AS SELECT site, COUNT(*) AS n, MAX(ms) AS worst
                  FROM hit JOIN page ON hit.page = page.id GROUP BY site""")
            pages = np.arange(1000)
            db.insert("page", np_table(id=pages, site=pages % 50))
            half = np.where(rng.random(2 * rows) < 0.5, 7, rng.zipf(1.3, 2 * rows) % 1000)
            hits = np_table(page=half, ms=np.arange(2 * rows))
            db.insert("hit", hits.slice(0, rows))
            db.insert("hit", hits.slice(rows, 1))  # before it, partitions are asked
            db.insert("hit", hits.slice(rows + 1))
            yield "load", *_last(db, traces)

    return work


def np_table(**columns: Any) -> Any:
    """Arrays as an Arrow table."""
    import pyarrow as pa

    return pa.table({name: pa.array(values, pa.int64()) for name, values in columns.items()})


# -- the model ---------------------------------------------------------------------------------------------------------


def calibrate(spark: Any = None) -> dict[str, float]:
    """Measure a job, if there is a session, and a frame and a byte on a socket of this machine."""
    costs = dict(_DEFAULTS)
    if spark is not None:
        context = spark.sparkContext

        def job() -> float:
            start = time.perf_counter()
            context.parallelize(range(2), 2).barrier().mapPartitions(lambda part: part).collect()
            return time.perf_counter() - start

        costs["job"] = statistics.median([job() for _ in range(9)][2:])
    costs["frame"], costs["byte"] = _socket_costs()
    return costs


def _socket_costs() -> tuple[float, float]:
    """Seconds for a small frame there and back, halved; seconds for a byte of large ones, or of the network."""
    here, there = socket.socketpair()

    def answer() -> None:
        for _ in range(_FRAMES):
            left = _FRAME
            while left:
                left -= len(there.recv(left))
            there.sendall(b"\0" * _FRAME)
        left = _MEGABYTES << 20
        while left:
            left -= len(there.recv(min(left, 1 << 20)))
        there.sendall(b"\0")

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    start = time.perf_counter()
    for _ in range(_FRAMES):
        here.sendall(b"\0" * _FRAME)
        left = _FRAME
        while left:
            left -= len(here.recv(left))
    frame = (time.perf_counter() - start) / _FRAMES / 2
    block, start = b"\0" * (1 << 20), time.perf_counter()
    for _ in range(_MEGABYTES):
        here.sendall(block)
    here.recv(1)
    byte = (time.perf_counter() - start) / (_MEGABYTES << 20)
    thread.join()
    here.close()
    there.close()
    return frame, max(byte, _WIRE)


def fit(traces: Sequence[Trace]) -> tuple[float, float]:
    """Return seconds per superstep and per row, as partitions took them: the median of small supersteps, then what is
    left of large ones by their rows."""
    loads = [load for trace in traces for step in trace.supersteps for load in step.values() if load.seconds]
    small = [load.seconds for load in loads if load.rows <= 20]
    step = statistics.median(small) if small else _DEFAULTS["step"]
    large = [load for load in loads if load.rows > 1000]
    rows = sum(load.rows for load in large)
    row = sum(max(load.seconds - step, 0.0) for load in large) / rows if rows else _DEFAULTS["row"]
    return step, row


def predict(trace: Trace, costs: dict[str, float]) -> tuple[float, float]:
    """Return the seconds of a run with an executor a partition, and of these what is not rows."""
    seconds = waiting = costs["job"]
    for step in trace.supersteps:
        times = [
            (load.rows * costs["row"], costs["step"] + load.frames * costs["frame"] + load.bytes * costs["byte"])
            for load in step.values()
        ]
        rows, rest = max(times, key=sum)
        seconds, waiting = seconds + rows + rest, waiting + rest
    return seconds, waiting


def run(costs: dict[str, float], *, most: int, nodes: int, rows: int) -> tuple[list[Prediction], list[Check]]:
    """Run every workload over 1, 4, 16 … `most` partitions; the fitted costs are added to `costs`."""
    works: dict[str, Work] = {name: _recursion(name, nodes) for name in ("reachable", "cheapest")}
    works |= {name: _tpch(name, rows) for name in ("q3", "q5", "Q8JoinS")}
    works |= {"zipf, one home a key": _zipf(rows, False), "zipf, heavy keys divided": _zipf(rows, True)}
    counts = [count for count in (1, 4, 16, 64, 256) if count <= most]
    found: list[tuple[str, str, int, Trace, Any]] = []
    for name, work in works.items():
        for partitions in counts:
            found += [(name, epoch, partitions, trace, last) for epoch, trace, last in work(partitions)]
    costs["step"], costs["row"] = fit([trace for _, _, _, trace, _ in found])
    lines = []
    for name, epoch, partitions, trace, last in found:
        each = trace.rows(partitions)
        seconds, waiting = predict(trace, costs)
        lines.append(
            Prediction(
                name,
                epoch,
                partitions,
                len(trace.supersteps),
                last["messages"],
                last["bytes_shipped"],
                sum(each),
                max(each) * partitions / max(sum(each), 1),
                seconds,
                waiting,
            )
        )
    last_count = counts[-1]
    busiest = {line.workload: line.busiest for line in lines if line.partitions == last_count and line.epoch == "load"}
    check = Check(
        f"simulation: {last_count} partitions, busiest of a key with half of the rows, times an even share",
        busiest["zipf, heavy keys divided"],
        4.0,
        at_least=False,
    )
    return lines, [check]


# -- what is shown -----------------------------------------------------------------------------------------------------


def show(lines: Sequence[Prediction], costs: dict[str, float], console: Console) -> None:
    """Print a line for each number of partitions."""
    if not lines:
        return
    told = ", ".join(f"{what} {1e6 * cost:.3g} µs" for what, cost in costs.items())
    table = Table(title=f"as many executors as partitions; {told}", title_justify="left")
    for column in ("workload", "epoch"):
        table.add_column(column)
    for column in ("partitions", "supersteps", "messages", "bytes", "rows", "busiest, times even", "ms", "not rows, %"):
        table.add_column(column, justify="right")
    before = None
    for line in sorted(lines, key=lambda each: (each.workload, each.epoch != "load", each.partitions)):
        label = (line.workload, line.epoch)
        if label != before:
            table.add_section()
        counts = (f"{n:,}" for n in (line.partitions, line.supersteps, line.messages, line.bytes, line.rows))
        share = 100 * line.waiting / line.seconds
        table.add_row(
            *(label if label != before else ("", "")),
            *counts,
            f"{line.busiest:.2f}",
            f"{1e3 * line.seconds:,.0f}",
            f"{share:.0f}",
        )
        before = label
    console.print(table)


def plot(path: Path, lines: Sequence[Prediction]) -> None:
    """Draw the predicted time, and the busiest partition, over the number of executors."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    picture, panels = plt.subplots(1, 2, figsize=(11, 4.4))
    for panel, (title, value) in zip(panels, (("seconds", "seconds"), ("busiest, times even", "busiest")), strict=True):
        for label in dict.fromkeys((line.workload, line.epoch) for line in lines):
            mine = [line for line in lines if (line.workload, line.epoch) == label]
            x, y = [line.partitions for line in mine], [getattr(line, value) for line in mine]
            panel.plot(x, y, marker="o", label=", ".join(label))
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        panel.set_title(title, fontsize=9)
        panel.set_xlabel("executors")
        panel.grid(alpha=0.3)
    panels[0].legend(fontsize=6)
    picture.tight_layout()
    picture.savefig(path, dpi=130)
    plt.close(picture)
