"""A million standing queries: how fast events find the subscriptions they affect, and tell them.

    python -m benchmarks.subscriptions_scale --sizes 100 10000
    python -m benchmarks.subscriptions_scale --json results/subscriptions_scale.json --plot results/subscriptions.png

| section | what is measured |
|---|---|
| `matching` | matching alone, nobody affected and ten affected, by number of subscriptions; Table 4.1 with 100 keys |
| `bands` | band joins, ten affected |
| `peers` | ten affected, beside NumPy, rtree, STRtree, DuckDB and PostgreSQL, and beside selecting first |
| `whole` | epochs of 1,000 events through the database: events, subscriptions affected, rows delivered |
| `subscribing` | in bulk, and one an epoch; bytes of each |

Every figure of matching is there twice: subscriptions affected (output excluded, as in the paper) and rows delivered.
Times are CPU time of this process, so that other work on the machine counts little; PostgreSQL's are wall time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console

import whence
from benchmarks import report, subscriptions_peers
from benchmarks.report import WHENCE, Check, Figure
from benchmarks.subscriptions_peers import Numbers
from whence.engine.core.operator import Batch
from whence.engine.matching.kernels import pairs
from whence.engine.matching.match_pairs import EventSide, MatchPairs
from whence.engine.relational.scan import Scan
from whence.model.codes import Dictionary
from whence.model.types import BIGINT, Column, Schema
from whence.plan.algebra import logical
from whence.plan.algebra.expressions import Col

SPAN = 1_000_000  # of every attribute
GROUPS = 40
SELECT_FIRST = "select first (ours)"
MICRO, NANO = 1e6, 1e9
_SIDE = Schema(tuple(Column(name, BIGINT) for name in ("k", "c", "id")))
_PARAMETERS = Schema(tuple(Column(name, BIGINT) for name in ("id", "al", "ah", "cl", "ch")))
_OUT = Schema(tuple(Column(name, BIGINT) for name in ("id", "r", "s")))


@dataclass
class Workload:
    """Rows of the other side, subscriptions whose ranges share `groups` points, and events that affect about so many.

    With `keys` keys, `rows / keys` rows join an event; `reach` is half the length of a range of the other side."""

    subscriptions: int
    affected: float
    rows: int = 100_000
    keys: int = 10_000
    reach: int = 5_000
    groups: int = GROUPS
    seed: int = 0
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def data(self) -> Numbers:
        columns = self._rng.integers(0, self.keys, self.rows), self._rng.integers(0, SPAN, self.rows)
        return np.column_stack((*columns, np.arange(self.rows)))

    def parameters(self) -> Numbers:
        """Ranges of the other side are around the points; those of the event's own side are as long as it takes."""
        n, step = self.subscriptions, SPAN // self.groups
        reach = self.reach if self.affected else 1
        middle = self._rng.integers(0, self.groups, n) * step + step // 2
        low, high = middle - self._rng.integers(1, reach + 1, n), middle + self._rng.integers(1, reach + 1, n)
        share = 1 - (1 - reach / SPAN) ** (self.rows / self.keys)  # of the subscriptions that a run of rows affects
        own = max(1, int(SPAN * min(1.0, self.affected / (n * share)) / 2))
        center = self._rng.integers(0, SPAN, n)
        return np.column_stack((np.arange(n), center - own, center + own, low, high))

    def events(self, count: int) -> Numbers:
        return np.column_stack((self._rng.integers(0, self.keys, count), self._rng.integers(0, SPAN, count)))


def operator(data: Numbers, parameters: Numbers, band: bool = False) -> MatchPairs:
    """Return an operator that holds the rows of the right and the subscriptions."""
    inputs = [Scan("r", _SIDE, ()), Scan("s", _SIDE, ()), Scan("p", _PARAMETERS, (0,))]
    nothing = logical.Values(_SIDE, ())
    own, other = logical.Range(1, 1, 2), logical.Range(1, 3, 4)
    if band:
        sides = logical.Side((), None, (logical.Range(2, 1, 2),)), logical.Side((), None, ())
    else:
        sides = logical.Side((), own, ()), logical.Side((), other, ())
    exprs = Col(BIGINT, 0), Col(BIGINT, 3), Col(BIGINT, 6)
    node = logical.MatchPairs(_OUT, nothing, nothing, nothing, 1, sides, other if band else None, exprs)
    made = MatchPairs(list(inputs), node, Dictionary())
    made.meet([Batch.empty(3), Batch(data, np.ones(len(data), np.int64), True)])
    made.change(parameters[:0], parameters)
    made.commit()
    return made


@dataclass
class Matched:
    """CPU seconds of some events: of finding who is affected, and of the rows that they get."""

    events: int
    affected: int
    rows: int
    seconds: float
    delivered: float


def match(made: MatchPairs, events: Numbers, plan: int = pairs.HOTSPOT) -> Matched:
    """Match events of the left."""
    side, other = made.sides
    given = event_inputs(side, events)
    plans = np.full(len(events), plan, np.int64)
    start = time.process_time()
    found = side.affected(other, *given, plans)
    middle = time.process_time()
    rows = side.expand(other, side.subscriptions.boxes.entries, found, *given[1:])
    other.rows.rows_at(rows[:, 1])
    return Matched(len(events), len(found), len(rows), middle - start, time.process_time() - start)


def event_inputs(side: EventSide, events: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Points, keys and leads of events, given as (key, a) or, for bands, (key, b, a)."""
    rows = np.column_stack((events, np.zeros((len(events), 3 - events.shape[1]), np.int64)))
    _, points, keys, leads = side.events(Batch(rows, np.ones(len(rows), np.int64)))
    return points, keys, leads


class Report:
    """Figures and targets as they come."""

    def __init__(self) -> None:
        self.figures: dict[str, Figure] = {}
        self.checks: list[Check] = []

    def note(self, what: str, unit: str, value: float, peer: str = WHENCE) -> None:
        self.figures.setdefault(f"{what} {unit}", Figure(what, unit)).samples.setdefault(peer, []).append(value)

    def check(self, what: str, measured: float, wanted: float, at_least: bool = True) -> None:
        self.checks.append(Check(what, measured, wanted, at_least))


def matching(sizes: Sequence[int], out: Report) -> None:
    """Matching alone, by number of subscriptions."""
    for n in sizes:
        for affected in (0.0, 10.0):
            load = Workload(n, affected)
            made = operator(load.data(), load.parameters())
            match(made, load.events(100))
            done = match(made, load.events(5_000))
            what = f"{n:,} subscriptions, {affected:g} affected"
            out.note(what, "µs an event", done.seconds / done.events * MICRO)
            out.note(what, "events a second", done.events / done.seconds)
            if affected:
                out.note(what, "affected a second", done.affected / done.seconds)
                out.note(what, "rows delivered a second", done.rows / done.delivered)
            else:
                out.check(f"{what}: µs an event", done.seconds / done.events * MICRO, 2.0, at_least=False)
        load = Workload(n, n * 0.1, keys=100, reach=20_000, groups=25)
        made = operator(load.data(), load.parameters())
        done = match(made, load.events(50))
        out.note(f"{n:,}, Table 4.1 with 100 keys", "affected an event", done.affected / done.events)
        out.note(f"{n:,}, Table 4.1 with 100 keys", "ns an affected one", done.seconds / max(1, done.affected) * NANO)
        out.note(f"{n:,}, Table 4.1 with 100 keys", "events a second", done.events / done.seconds)
        if n in (100_000, 1_000_000):
            least = 8_000 if n == 100_000 else 600
            out.check(f"{n:,}, Table 4.1 with 100 keys: events a second", done.events / done.seconds, least)


def bands(sizes: Sequence[int], out: Report) -> None:
    """Band joins: rows of the right within a distance of the event's, of one key."""
    for n in sizes:
        load = Workload(n, 10.0)
        made = operator(load.data(), load.parameters(), band=True)
        events = load.events(5_000)
        given = np.column_stack((events[:, 0], np.zeros(len(events), np.int64), events[:, 1]))
        match(made, given[:100])
        done = match(made, given)
        out.note(f"{n:,} bands", "events a second", done.events / done.seconds)
        out.note(f"{n:,} bands", "affected an event", done.affected / done.events)


def peers(n: int, out: Report, events: int = 200) -> None:
    """Ours beside others, with ten affected."""
    load = Workload(n, 10.0)
    data, parameters = load.data(), load.parameters()
    made, given = operator(data, parameters), load.events(events)
    what = f"{n:,} subscriptions, 10 affected, beside peers"
    side, other = made.sides
    ids = side.subscriptions.boxes.entries[:, -2]
    points = event_inputs(side, given)
    for name, plan in ((WHENCE, pairs.HOTSPOT), (SELECT_FIRST, pairs.SELECT)):
        found = side.affected(other, *points, np.full(events, plan, np.int64))
        answer = {(int(q), int(ids[i])) for q, i in found}
        if name == WHENCE:
            wanted = answer
        _agree(name, answer, wanted)
        more = load.events(5_000)
        out.note(what, "events a second", len(more) / match(made, more, plan).seconds, name)
    found_peers: dict[str, subscriptions_peers.Find | None] = {
        "NumPy": subscriptions_peers.numpy_peer(data, parameters),
        "rtree": subscriptions_peers.rtree_peer(data, parameters),
        "STRtree": subscriptions_peers.strtree_peer(data, parameters),
        "DuckDB": subscriptions_peers.duckdb_peer(data, parameters),
    }
    for name, find in found_peers.items():
        if find is not None:
            _time_peer(out, what, name, find, given, wanted, time.process_time)
    server = subscriptions_peers.postgres_peer(data, parameters)
    if server is not None:
        find, stop = server
        try:
            _time_peer(out, what, "PostgreSQL", find, given, wanted, time.perf_counter)
        finally:
            stop()
    least = {"NumPy": 100, "DuckDB": 100, "PostgreSQL": 100, "rtree": 50, "STRtree": 10}
    figure = out.figures[f"{what} events a second"]
    for name in figure.samples:
        if name in least and n == 100_000:
            out.check(f"times {name}", figure.times(WHENCE, name), least[name])


def _time_peer(
    out: Report,
    what: str,
    name: str,
    find: subscriptions_peers.Find,
    events: Numbers,
    wanted: set[tuple[int, int]],
    clock: Callable[[], float],
) -> None:
    _agree(name, find(events), wanted)
    start = clock()
    find(events)
    out.note(what, "events a second", len(events) / (clock() - start), name)


def _agree(name: str, answer: set[tuple[int, int]], wanted: set[tuple[int, int]]) -> None:
    if answer != wanted:
        raise AssertionError(f"{name} finds {len(answer)} affected subscriptions, not {len(wanted)}, or others")


_SCRIPT = """
CREATE TABLE r (k BIGINT, a BIGINT, id BIGINT); CREATE TABLE s (k BIGINT, c BIGINT, id BIGINT);
CREATE TEMPLATE deals AS SELECT r.id AS r, s.id AS s FROM r JOIN s ON r.k = s.k
  WHERE r.a BETWEEN :al AND :ah AND s.c BETWEEN :cl AND :ch;
"""


def whole(sizes: Sequence[int], out: Report, epochs: int = 5) -> None:
    """Through the database: tables, epochs, netting and notifications."""
    for n in sizes:
        load = Workload(n, 10.0)
        with whence.open() as db:
            db.execute(_SCRIPT)
            db.insert("s", pa.table(dict(zip(("k", "c", "id"), load.data().T.copy(), strict=True))))
            given = load.parameters()
            start = time.process_time()
            db.insert("deals", pa.table(dict(zip(("id", "al", "ah", "cl", "ch"), given.T.copy(), strict=True))))
            bulk = n / (time.process_time() - start)
            news = db.notifications("deals")
            told = 0
            seconds = 0.0
            for number in range(epochs + 1):
                events = load.events(1_000)
                rows = np.column_stack((events, np.arange(1_000) + 1_000 * number))
                batch = pa.table(dict(zip(("k", "a", "id"), rows.T.copy(), strict=True)))
                start = time.process_time()
                db.insert("r", batch)
                got = sum(len(one) for one in news.batches())
                if number:
                    seconds += time.process_time() - start
                    told += got
            what = f"{n:,} subscriptions, epochs of 1,000"
            out.note(what, "events a second", epochs * 1_000 / seconds)
            out.note(what, "rows delivered a second", told / seconds)
            out.note(f"{n:,} subscriptions, in bulk", "subscriptions a second", bulk)
            ones = load.parameters()[:200].tolist()
            start = time.process_time()
            for id, *ranges in ones:
                db.insert("deals", (n + id, *ranges))
            out.note(
                f"{n:,} subscriptions, one an epoch", "subscriptions a second", 200 / (time.process_time() - start)
            )
            if n in (100_000, 1_000_000):
                out.check(f"{what}: events a second", epochs * 1_000 / seconds, 100_000)
                out.check(f"{n:,}, in bulk: subscriptions a second", bulk, 200_000)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 10_000, 100_000, 1_000_000])
    parser.add_argument("--peers", type=int, default=100_000, help="subscriptions beside the peers; 0 leaves them out")
    parser.add_argument("--json", type=Path, default=report.RESULTS / "subscriptions_scale.json")
    parser.add_argument("--plot", type=Path)
    chosen = parser.parse_args(arguments)
    console, out = Console(), Report()
    matching(chosen.sizes, out)
    bands(chosen.sizes, out)
    if chosen.peers:
        peers(chosen.peers, out)
    whole(chosen.sizes, out)
    figures = list(out.figures.values())
    report.show_figures("subscriptions", figures, console)
    report.show_checks(out.checks, console)
    settings = {"sizes": chosen.sizes, "peers": chosen.peers}
    report.save(chosen.json, [], out.checks, settings, figures=[vars(figure) for figure in figures])
    if chosen.plot:
        report.plot_figures(chosen.plot, figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
