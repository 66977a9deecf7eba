"""A million standing queries: how fast events find the subscriptions they affect, and tell them.

    python -m benchmarks.subscriptions_scale --sizes 100 10000
    python -m benchmarks.subscriptions_scale --json results/subscriptions_scale.json --plot results/subscriptions.png

| section | what is measured |
|---|---|
| `matching` | matching alone, nobody affected and ten affected, by number of subscriptions; Table 4.1 with 100 keys |
| `bands` | band joins, ten affected, beside BJ-QOuter, BJ-DOuter and BJ-MJ |
| `shapes` | hotspots beside stabbing sets and selecting first, on clustered, Zipf and disjoint ranges |
| `peers` | ten affected, beside NumPy, rtree, STRtree, DuckDB and PostgreSQL, and beside selecting first |
| `whole` | epochs of 1,000 events through the database: events, subscriptions affected, rows delivered |
| | subscriptions in bulk and one an epoch, the worst of these, bytes of each |

Every figure of matching is there twice: subscriptions affected (output excluded, as in the paper) and rows delivered.
Times are CPU time of this process, so that other work on the machine counts little; PostgreSQL's are wall time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from rich.console import Console

import whence
from benchmarks import report, subscriptions_peers
from benchmarks.peers.common import installed
from benchmarks.report import WHENCE
from benchmarks.subscriptions_load import (
    Report,
    Workload,
    affected_alone,
    band_events,
    event_inputs,
    match,
    merge_joined,
    operator,
    spread,
    table_bytes,
    with_earlier,
)
from benchmarks.subscriptions_peers import Numbers
from whence.engine.matching.kernels import pairs

SELECT_FIRST = "select first (ours)"
MICRO, NANO = 1e6, 1e9


def matching(sizes: Sequence[int], out: Report) -> None:
    """Matching alone, by number of subscriptions."""
    for n in sizes:
        for affected in (0.0, 10.0):
            load = Workload(n, affected)
            made = operator(load.data(), load.parameters())
            match(made, load.events(100))
            done = min((match(made, load.events(5_000)) for _ in range(3)), key=lambda one: one.seconds)
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
        match(made, load.events(20))
        many = load.events(max(20, min(200, 20_000_000 // n)))
        done = match(made, many[:20])
        rows = done.rows / done.delivered
        done = affected_alone(made, many)
        out.note(f"{n:,}, Table 4.1 with 100 keys", "affected an event", done.affected / done.events)
        out.note(f"{n:,}, Table 4.1 with 100 keys", "ns an affected one", done.seconds / max(1, done.affected) * NANO)
        out.note(f"{n:,}, Table 4.1 with 100 keys", "events a second", done.events / done.seconds)
        out.note(f"{n:,}, Table 4.1 with 100 keys", "affected a second", done.affected / done.seconds)
        out.note(f"{n:,}, Table 4.1 with 100 keys", "rows delivered a second", rows)
        if n in (100_000, 1_000_000):
            out.check(f"{n:,}: ns an affected one", done.seconds / done.affected * NANO, 20.0, at_least=False)
            least = 8_000 if n == 100_000 else 600
            out.check(f"{n:,}, Table 4.1 with 100 keys: events a second", done.events / done.seconds, least)


BAND_PLANS = {"BJ-QOuter": pairs.SCAN, "BJ-DOuter": pairs.JOIN, "BJ-MJ": None}


def bands(sizes: Sequence[int], out: Report) -> None:
    """Band joins: rows of the right within a distance of the event's, of one key; beside the paper's other ways."""
    for n in sizes:
        load = Workload(n, 10.0)
        parameters = load.parameters()
        made = operator(load.data(), parameters, band=True)
        given = band_events(load.events(5_000))
        match(made, given[:100])
        done = min((match(made, given) for _ in range(3)), key=lambda one: one.seconds)
        what = f"{n:,} band joins, 10 affected"
        out.note(what, "events a second", done.events / done.seconds)
        out.note(what, "affected a second", done.affected / done.seconds)
        out.note(what, "rows delivered a second", done.rows / done.delivered)
        few = given[: max(5, min(2_000, 2_000_000 // n))]
        wanted = match(made, few).affected
        merge = merge_joined(made)
        for name, plan in BAND_PLANS.items():
            if plan is None:
                merge(few[:1])
                start = time.process_time()
                affected, seconds = merge(few), time.process_time() - start
            else:
                one = match(made, few, plan)
                affected, seconds = one.affected, one.seconds
            if affected != wanted:
                raise AssertionError(f"{name} finds {affected} affected subscriptions, not {wanted}")
            out.note(what, "events a second", len(few) / seconds, name)
        if n == 500_000:
            out.check(f"{what}: events a second", done.events / done.seconds, 150_000)
            first = out.figures.get("50 band joins, 10 affected events a second")
            if first is not None:
                slower = first.of(WHENCE) * done.seconds / done.events
                out.check("band joins: times slower at 500,000 than at 50", slower, 3.0, at_least=False)


RANGES = {"clustered": 40, "Zipf": 5_000, "disjoint": 0}


def shapes(n: int, out: Report, groups: int = 5_000) -> None:
    """Hotspots beside stabbing sets for every group and beside selecting first, by how ranges are spread."""
    for shape in RANGES:
        load = Workload(n, 10.0, seed=3)
        data = load.data()
        parameters = spread(load.parameters(), shape, min(groups, n))
        given = load.events(2_000)
        seconds = {}
        for name, alpha, plan in (
            (WHENCE, None, pairs.HOTSPOT),
            ("stabbing sets", 0.0, pairs.HOTSPOT),
            (SELECT_FIRST, None, pairs.SELECT),
        ):
            made = operator(data, parameters, alpha=alpha)
            match(made, given[:100], plan)
            seconds[name] = min(match(made, given, plan).seconds for _ in range(5)) / len(given)
            out.note(f"{n:,} subscriptions, {shape} ranges", "µs an event", seconds[name] * MICRO, name)
        better = min(seconds["stabbing sets"], seconds[SELECT_FIRST])
        out.check(f"{shape} ranges: times the better of both", seconds[WHENCE] / better, 1.2, at_least=False)


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
        done = match(made, load.events(5_000), plan)
        out.note(what, "events a second", done.events / done.seconds, name)
        out.note(what, "affected a second", done.affected / done.seconds, name)
        out.note(what, "rows delivered a second", done.rows / done.delivered, name)
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
    _agree(name, {(int(q), int(id)) for q, id in find(events, False)}, wanted)
    start = clock()
    find(events, False)
    seconds = clock() - start
    out.note(what, "events a second", len(events) / seconds, name)
    out.note(what, "affected a second", len(wanted) / seconds, name)
    start = clock()
    rows = len(find(events, True))
    out.note(what, "rows delivered a second", rows / (clock() - start), name)


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
            ones = load.parameters()[:1_000].tolist()
            times = []
            for id, *ranges in ones:
                start = time.process_time()
                db.insert("deals", (n + id, *ranges))
                times.append(time.process_time() - start)
            single = f"{n:,} subscriptions, one an epoch"
            out.note(single, "subscriptions a second", len(times) / sum(times))
            out.note(single, "µs, median", float(np.median(times)) * MICRO)
            out.note(single, "ms, worst", max(times) * 1e3)
            stored = sum(side.subscriptions.nbytes for side in operator(load.data()[:0], given).sides) / n
            out.note(f"{n:,} subscriptions", "bytes each, indexes of both sides", stored)
            stored += table_bytes(given) / n
            out.note(f"{n:,} subscriptions", "bytes each, with the table", stored)
            if n in (100_000, 1_000_000):
                out.check(f"{what}: events a second", epochs * 1_000 / seconds, 100_000)
                out.check(f"{n:,}, in bulk: subscriptions a second", bulk, 200_000)
                out.check(f"{single}: a second", len(times) / sum(times), 8_000)
                out.check(f"{n:,}: bytes of a subscription", stored, 250, at_least=False)
                first = out.figures.get("100 subscriptions, epochs of 1,000 events a second")
                if first is not None:
                    share = epochs * 1_000 / seconds / first.of(WHENCE)
                    out.check(f"{n:,}: share of the events a second at 100", share, 0.8)


PARTS = ("matching", "bands", "shapes", "peers", "whole")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=[100, 10_000, 100_000, 1_000_000])
    parser.add_argument("--bands", type=int, nargs="+", default=[50, 5_000, 500_000])
    parser.add_argument("--shapes", type=int, default=100_000, help="subscriptions whose ranges are spread in ways")
    parser.add_argument("--peers", type=int, default=100_000, help="subscriptions beside the peers; 0 leaves them out")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="sections; others keep their figures")
    parser.add_argument("--json", type=Path, default=report.RESULTS / "subscriptions_scale.json")
    parser.add_argument("--plot", type=Path, default=report.RESULTS / "subscriptions_scale.png")
    chosen = parser.parse_args(arguments)
    console, out = Console(), Report()
    if "matching" in chosen.parts:
        matching(chosen.sizes, out)
    if "bands" in chosen.parts:
        bands(chosen.bands, out)
    if "shapes" in chosen.parts:
        shapes(chosen.shapes, out)
    if "peers" in chosen.parts and chosen.peers:
        peers(chosen.peers, out)
    if "whole" in chosen.parts:
        whole(chosen.sizes, out)
    figures = list(out.figures.values())
    report.show_figures("subscriptions", figures, console)
    report.show_checks(out.checks, console)
    if installed("matplotlib"):
        report.plot_figures(chosen.plot, figures)
    figures, checks = with_earlier(chosen.json, figures, out.checks)
    settings = {"sizes": chosen.sizes, "bands": chosen.bands, "shapes": chosen.shapes, "peers": chosen.peers}
    told = [vars(f) | {"median": {peer: f.of(peer) for peer in f.samples}} for f in figures]
    report.save(chosen.json, [], checks, settings, figures=told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
