"""Pathway (differential dataflow in Rust) maintaining the same views with `pw.iterate`.

Pathway runs a dataflow to its end in `pw.run()`, so it lives in a process of its own; a Python connector commits one
batch at a time and waits until the output of that time is closed, which makes each figure the latency of one update and
not the throughput of many. Timing is done inside that process: sending rows to it is not counted.

What is subscribed to is a digest of the view together with the number of input rows. The digest is kept inside the
dataflow, so Pathway is not charged for calling Python once a changed row; the input count makes an output appear even
if the view does not change, and one reduction over both closes a time only when the recursion has closed it.
"""

from __future__ import annotations

import logging
import multiprocessing
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from benchmarks import small_programs
from benchmarks.peers.common import HASH_MODULUS, HASH_PRIMES, RECURSIONS, SQUARE_MODULUS, Change, Digest, Rows

CLOSE_TIMEOUT = 1200.0
"""Seconds to wait for one time to close before giving up on the peer."""


class PathwayProcess:
    """A dataflow in its own process that takes signed rows of one input and answers with times, digests and rows."""

    name = "Pathway"

    def __init__(self, graph: str, columns: Sequence[str], keep_rows: bool = False) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, child = context.Pipe()
        self._process = context.Process(target=_serve, args=(child, graph, tuple(columns), keep_rows), daemon=True)
        self._process.start()
        child.close()
        self._keep_rows = keep_rows
        self._digest = Digest(0, 0, 0)
        self._since_commit = 0.0
        """Seconds of the last batch that passed after its rows were handed to the connector."""

    def apply(self, signs: Rows, rows: Rows) -> float:
        """Commit signed rows as one time; seconds from the first row handed over until the output is closed."""
        seconds, self._since_commit, self._digest = self._ask(("apply", signs, rows))
        return float(seconds)

    def digest(self) -> Digest:
        """The digest that came with the last time."""
        return self._digest

    def rows(self) -> Rows | None:
        """The view, if rows are kept."""
        return self._ask(("rows",)) if self._keep_rows else None

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):
            self._pipe.send(("stop",))
        self._process.join(timeout=30)
        if self._process.is_alive():
            self._process.terminate()
        self._pipe.close()

    def _ask(self, message: tuple[Any, ...]) -> Any:
        self._pipe.send(message)
        while not self._pipe.poll(1.0):
            if not self._process.is_alive():
                raise RuntimeError(f"the Pathway process ended with exit code {self._process.exitcode}")
        return self._pipe.recv()


class PathwayPeer(PathwayProcess):
    """A recursive view over link(src, dst, cost)."""

    def __init__(self, program: str, nodes: int, keep_rows: bool = False) -> None:
        super().__init__(program, ("src", "dst", "cost"), keep_rows)

    def load(self, tables: dict[str, Rows]) -> float:
        """Time the first commit."""
        return self.update([Change("link", +1, tables["link"])])

    def update(self, batch: Sequence[Change]) -> float:
        """Time one commit."""
        signs = np.concatenate([np.full(len(change.rows), change.sign) for change in batch])
        return self.apply(signs, np.concatenate([change.rows for change in batch]))


def _serve(pipe: Connection, graph: str, columns: tuple[str, ...], keep_rows: bool) -> None:
    """Build the dataflow and run it; the connector's thread serves the pipe. Runs in the child process."""
    logging.disable(logging.CRITICAL)
    warnings.filterwarnings("ignore")
    import pathway as pw  # imported here: only the child process pays for it

    closed = threading.Event()
    latest = Digest(0, 0, 0)
    kept: dict[Any, tuple[int, ...]] = {}

    class Feed(pw.io.python.ConnectorSubject):
        """Turns messages into commits."""

        @property
        def _deletions_enabled(self) -> bool:
            return True

        def run(self) -> None:
            while (message := pipe.recv())[0] != "stop":
                if message[0] == "rows":
                    pipe.send(np.array(list(kept.values()), dtype=np.int64).reshape(len(kept), -1))
                else:
                    pipe.send((*self._apply(message[1].tolist(), message[2].tolist()), latest))

        def _apply(self, signs: list[int], rows: list[list[int]]) -> tuple[float, float]:
            closed.clear()
            started = time.perf_counter()
            for sign, row in zip(signs, rows, strict=True):
                send = self.next if sign > 0 else self.delete
                send(**dict(zip(columns, row, strict=True)))
            self.commit()
            committed = time.perf_counter()
            if not closed.wait(CLOSE_TIMEOUT):
                raise TimeoutError("Pathway did not close the time of a commit")
            ended = time.perf_counter()
            return ended - started, ended - committed

    schema = pw.schema_from_dict({column: {"dtype": int, "primary_key": True} for column in columns})
    source = pw.io.python.read(Feed(), schema=schema, autocommit_duration_ms=None)
    view, view_columns = GRAPHS[graph](pw, source)

    def on_digest(key: Any, row: dict[str, int], time: int, is_addition: bool) -> None:
        nonlocal latest
        if is_addition:
            latest = Digest(row["rows"], row["hash_sum"], row["square_sum"])

    def on_row(key: Any, row: dict[str, int], time: int, is_addition: bool) -> None:
        if is_addition:
            kept[key, tuple(row.values())] = tuple(row[column] for column in view_columns)
        else:
            del kept[key, tuple(row.values())]

    pw.io.subscribe(_digest(pw, view, view_columns, source), on_digest, on_time_end=lambda time: closed.set())
    if keep_rows:
        pw.io.subscribe(view, on_row)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, default_logging=False)


def _digest(pw: Any, view: Any, columns: Sequence[str], source: Any) -> Any:
    """One row: the digest of the view and the number of input rows, so that it changes with every commit."""
    total = view[columns[0]] * HASH_PRIMES[0]
    for column, prime in zip(columns[1:], HASH_PRIMES[1:], strict=False):
        total += view[column] * prime
    hashed = view.select(hashed=total % HASH_MODULUS, seen=1, fed=0)
    both = hashed.concat_reindex(source.select(hashed=0, seen=0, fed=1))
    return both.reduce(
        rows=pw.reducers.sum(both.seen),
        fed=pw.reducers.sum(both.fed),
        hash_sum=pw.reducers.sum(both.hashed),
        square_sum=pw.reducers.sum((both.hashed * both.hashed) % SQUARE_MODULUS),
    )


def _reachable(pw: Any, link: Any) -> tuple[Any, Sequence[str]]:
    def step(reach: Any, link: Any) -> dict[str, Any]:
        further = link.join(reach, link.dst == reach.src).select(src=link.src, dst=reach.dst)
        every = link.select(pw.this.src, pw.this.dst).concat_reindex(further)
        return {"reach": every.groupby(every.src, every.dst).reduce(every.src, every.dst)}

    base = link.groupby(link.src, link.dst).reduce(link.src, link.dst)
    return pw.iterate(step, reach=pw.iterate_universe(base), link=link).reach, RECURSIONS["reachable"].columns


def _reachable_nonlinear(pw: Any, link: Any) -> tuple[Any, Sequence[str]]:
    def step(reach: Any, link: Any) -> dict[str, Any]:
        after = reach.copy()
        further = reach.join(after, reach.dst == after.src).select(src=reach.src, dst=after.dst)
        every = link.select(pw.this.src, pw.this.dst).concat_reindex(further)
        return {"reach": every.groupby(every.src, every.dst).reduce(every.src, every.dst)}

    base = link.groupby(link.src, link.dst).reduce(link.src, link.dst)
    return pw.iterate(step, reach=pw.iterate_universe(base), link=link).reach, RECURSIONS["reachable"].columns


def _cheapest(pw: Any, link: Any) -> tuple[Any, Sequence[str]]:
    def step(best: Any, link: Any) -> dict[str, Any]:
        further = link.join(best, link.dst == best.src).select(src=link.src, dst=best.dst, cost=link.cost + best.cost)
        every = link.select(pw.this.src, pw.this.dst, pw.this.cost).concat_reindex(further)
        grouped = every.groupby(every.src, every.dst)
        return {"best": grouped.reduce(every.src, every.dst, cost=pw.reducers.min(every.cost))}

    base = link.groupby(link.src, link.dst).reduce(link.src, link.dst, cost=pw.reducers.min(link.cost))
    return pw.iterate(step, best=pw.iterate_universe(base), link=link).best, RECURSIONS["cheapest"].columns


def _same_generation(pw: Any, link: Any) -> tuple[Any, Sequence[str]]:
    def siblings(link: Any) -> Any:
        other = link.copy()
        return link.join(other, link.src == other.src).select(x=link.dst, y=other.dst)

    def step(pairs: Any, link: Any) -> dict[str, Any]:
        other = link.copy()
        left = link.join(pairs, link.src == pairs.x).select(x=link.dst, y=pairs.y)
        below = left.join(other, left.y == other.src).select(x=left.x, y=other.dst)
        every = siblings(link).concat_reindex(below)
        return {"pairs": every.groupby(every.x, every.y).reduce(every.x, every.y)}

    first = siblings(link)
    base = first.groupby(first.x, first.y).reduce(first.x, first.y)
    pairs = pw.iterate(step, pairs=pw.iterate_universe(base), link=link).pairs
    return pairs, RECURSIONS["same_generation"].columns


def _star(pw: Any, source: Any) -> tuple[Any, Sequence[str]]:
    """The join benchmark's view; `source` carries three tables, told apart by `kind`: one commit, one time."""
    this = pw.this
    customer = source.filter(this.kind == 0).select(customer=this.a, region=this.b)
    orders = source.filter(this.kind == 1).select(order_id=this.a, customer=this.b)
    item = source.filter(this.kind == 2).select(order_id=this.b, quantity=this.c, price=this.d)
    ordered = item.join(orders, item.order_id == orders.order_id).select(
        customer=orders.customer, amount=item.quantity * item.price
    )
    placed = ordered.join(customer, ordered.customer == customer.customer).select(
        region=customer.region, amount=ordered.amount
    )
    view = placed.groupby(placed.region).reduce(
        placed.region, items=pw.reducers.count(), revenue=pw.reducers.sum(placed.amount)
    )
    return view, ("region", "items", "revenue")


GRAPHS: dict[str, Callable[[Any, Any], tuple[Any, Sequence[str]]]] = {
    "reachable": _reachable,
    "reachable_nonlinear": _reachable_nonlinear,
    "cheapest": _cheapest,
    "same_generation": _same_generation,
    "star": _star,
    **small_programs.GRAPHS,
}
