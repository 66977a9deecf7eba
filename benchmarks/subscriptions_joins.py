"""Figures 4.8, 4.9 and 4.11 of paper 002: selectivities, coverage by hotspots, and the cost of maintenance.

    python -m benchmarks.subscriptions_joins

| figure | what is measured |
|---|---|
| 4.8 (iii) | throughput by the subscriptions whose range of the event's side holds it |
| 4.8 (iv) | throughput by the rows that join an event |
| 4.9 | time per event by the share of 500,000 subscriptions in 500 hotspots, beside selecting first |
| 4.11 | time of an insertion or deletion among 100,000 band joins, 100,000 of them, epsilon = 3 |

Ranges are such that an event affects few subscriptions, so that what is measured is finding them, as in the paper.
Every plan runs on the same index. Times are CPU time of this process.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks import report
from benchmarks.peers.common import installed
from benchmarks.report import Check
from benchmarks.subscriptions_figures import Panel
from benchmarks.subscriptions_load import SPAN, Workload, match, operator
from benchmarks.subscriptions_messages import draw, shown
from benchmarks.subscriptions_peers import Numbers
from whence.engine.core.ordered import Ordered, Rank
from whence.engine.matching.boxes import Boxes
from whence.engine.matching.hotspots import Hotspots
from whence.engine.matching.kernels import pairs
from whence.model.codes import Dictionary

PLANS = {"SJ-SSI": pairs.HOTSPOT, "SJ-S": pairs.SELECT, "SJ-J": pairs.JOIN, "NAIVE": pairs.SCAN}
NARROW = 50  # half the length of a range of the other side, so that few of the selected are affected
SPOTS = 500


def throughput(cases: Sequence[tuple[Workload, Numbers]], events: int) -> dict[str, list[float]]:
    """Events per second of each plan, for workloads with their subscriptions."""
    found: dict[str, list[float]] = {name: [] for name in PLANS}
    for load, parameters in cases:
        made = operator(load.data(), parameters)
        given = load.events(events)
        affected = set()
        for name, plan in PLANS.items():
            some = given if plan in (pairs.HOTSPOT, pairs.SELECT) else given[: max(20, events // 50)]
            match(made, some[:10], plan)
            done = min((match(made, some, plan) for _ in range(3)), key=lambda one: one.seconds)
            affected.add(match(made, given[:20], plan).affected)
            found[name].append(done.events / done.seconds)
        if len(affected) != 1:
            raise AssertionError(f"plans find different subscriptions: {affected}")
    return found


def selected(load: Workload, count: float) -> Numbers:
    """Subscriptions of which `count` hold an event on its own side."""
    out = load.parameters()
    half = max(1, int(SPAN * count / load.subscriptions / 2))
    middle = np.random.default_rng(9).integers(0, SPAN, len(out))
    out[:, 1], out[:, 2] = middle - half, middle + half
    return out


def selectivities(subscriptions: int, events: int) -> list[Panel]:
    """Figure 4.8: both selectivities of an event."""
    counts = [subscriptions * share for share in (0.0001, 0.001, 0.01, 0.1)]
    own = [Workload(subscriptions, 1.0, reach=NARROW) for _ in counts]
    joins = [10, 100, 1_000]
    other = [Workload(subscriptions, 1.0, keys=100_000 // n, reach=NARROW) for n in joins]
    by_own = throughput([(load, selected(load, count)) for load, count in zip(own, counts, strict=True)], events)
    by_rows = throughput([(load, selected(load, subscriptions / 100)) for load in other], events)
    return [
        Panel("4.8 (iii)", "events per second", "subscriptions that the event's side selects", counts, by_own),
        Panel("4.8 (iv)", "events per second", "rows that join", [float(n) for n in joins], by_rows),
    ]


def covered(load: Workload, share: float) -> Numbers:
    """Subscriptions of which a share have ranges around 500 points, the others each in a place of its own between."""
    out = selected(load, 1_000)
    rng, n = np.random.default_rng(4), len(out)
    hot, step = round(share * n), SPAN // SPOTS
    point = rng.integers(0, SPOTS, hot) * step + step // 2
    out[:hot, 3], out[:hot, 4] = point - rng.integers(1, NARROW, hot), point + rng.integers(1, NARROW, hot)
    places = np.arange(0, SPAN, 2)
    places = places[np.abs(places % step - step // 2) > NARROW]
    place = rng.choice(places, n - hot, replace=n - hot > len(places))
    out[hot:, 3], out[hot:, 4] = place, place
    return out


def coverage(subscriptions: int, events: int) -> tuple[Panel, list[int]]:
    """Figure 4.9: time per event by the share of subscriptions in hotspots; and how many hotspots there are."""
    shares = [n / 10 for n in range(1, 11)]
    lines: dict[str, list[float]] = {"HOTSPOT-BASED": [], "TRADITIONAL": []}
    spots = []
    for share in shares:
        load = Workload(subscriptions, 1.0, reach=NARROW)
        made = operator(load.data(), covered(load, share), alpha=min(0.001, share / SPOTS / 2))
        spots.append(made.sides[0].subscriptions.hotspots)
        given = load.events(events)
        for name, plan in (("HOTSPOT-BASED", pairs.HOTSPOT), ("TRADITIONAL", pairs.SELECT)):
            match(made, given[:50], plan)
            lines[name].append(min(match(made, given, plan).seconds for _ in range(3)) / events * 1e6)
    return Panel("4.9", "µs per event", "share in hotspots", shares, lines), spots


def maintenance(subscriptions: int, updates: int) -> tuple[Panel, list[Check]]:
    """Figure 4.11: time of an update, one by one and in batches of 1,000; half of them insertions."""
    rng = np.random.default_rng(6)
    middle = rng.integers(0, 40, subscriptions + updates) * (SPAN // 40) + SPAN // 80
    ends = np.column_stack((middle - rng.integers(1, 5_000, len(middle)), middle + rng.integers(1, 5_000, len(middle))))
    boxes, spots = Boxes(1), Hotspots(1, 0, 0, epsilon=3.0)
    sorted_list = Ordered([Rank(0), Rank(1), Rank(2)], Dictionary())
    lines = boxes.lines(ends[:, :1], ends[:, 1:], np.arange(len(ends)))

    def in_list(some: Numbers, sign: int) -> None:
        sorted_list.add(np.ascontiguousarray(some[:, :3]), np.full(len(some), sign, np.int64))
        sorted_list.commit()

    ways: dict[str, tuple[Callable[[Numbers], object], Callable[[Numbers], object]]] = {
        "BJ-D": (boxes.put, boxes.take),
        "BJ-MJ": (lambda some: in_list(some, 1), lambda some: in_list(some, -1)),
        "BJ-SSI": (spots.put, spots.take),
    }
    sizes = [1, 1_000]
    found: dict[str, list[float]] = {"BJ-Q": [0.0, 0.0]}
    for name, (add, remove) in ways.items():
        found[name] = []
        add(lines[:subscriptions])
        live, fresh = np.arange(subscriptions), subscriptions
        for size in sizes:
            plan = np.random.default_rng(8)
            count = updates // size if size > 1 else updates // 10
            spent, done = 0.0, 0
            for _ in range(count):
                if plan.random() < 0.5 and fresh + size <= len(lines):
                    change, some = add, np.arange(fresh, fresh + size)
                    live, fresh = np.concatenate((live, some)), fresh + size
                else:
                    plan.shuffle(live[-10 * size :])
                    change, some = remove, live[-size:]
                    live = live[:-size]
                given = np.ascontiguousarray(lines[some])
                start = time.process_time()
                change(given)
                spent += time.process_time() - start
                done += size
            found[name].append(spent / done * 1e6)
    more = [ssi / merge for ssi, merge in zip(found["BJ-SSI"], found["BJ-MJ"], strict=True)]
    checks = [
        Check(f"maintenance, {size:,} at a time: times BJ-MJ", ratio, 1.2, at_least=False)
        for size, ratio in zip(sizes, more, strict=True)
    ]
    return Panel("4.11", "µs per update", "updates at a time", [float(n) for n in sizes], found), checks


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--subscriptions", type=int, default=100_000, help="of Figures 4.8 and 4.11")
    parser.add_argument("--covered", type=int, default=500_000, help="subscriptions of Figure 4.9")
    parser.add_argument("--events", type=int, default=2_000)
    parser.add_argument("--json", type=Path, default=report.RESULTS / "subscriptions_joins.json")
    given = parser.parse_args(arguments)
    console = Console()
    panels = selectivities(given.subscriptions, given.events)
    spotted, spots = coverage(given.covered, given.events)
    kept, checks = maintenance(given.subscriptions, given.subscriptions)
    panels += [spotted, kept]
    hot, plain = spotted.lines["HOTSPOT-BASED"], spotted.lines["TRADITIONAL"]
    checks.append(Check("4.9: time at 100 % over that at 10 %", hot[-1] / hot[0], 0.5, at_least=False))
    checks.append(Check("4.9: selecting first over hotspots, all covered", plain[-1] / hot[-1], 1.0))
    own = panels[0].lines["SJ-SSI"]
    checks.append(Check("4.8 (iii): slowest over fastest of SJ-SSI", min(own) / max(own), 0.5))
    for panel in panels:
        console.print(shown(panel))
    console.print(f"hotspots of Figure 4.9: {', '.join(map(str, spots))}")
    report.show_checks(checks, console)
    settings = {k: str(v) for k, v in vars(given).items()}
    report.save(given.json, [], checks, settings, panels=[asdict(panel) for panel in panels], spots=spots)
    if installed("matplotlib"):
        draw(given.json.with_suffix(".png"), panels)
    return 0


if __name__ == "__main__":
    sys.exit(main())
