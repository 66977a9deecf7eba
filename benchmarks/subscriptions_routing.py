"""Routing events of a join among plans by their cost, and the histograms behind it (paper 002, 4.4, 4.5, 4.6.6, 4.6.7).

    python -m benchmarks.subscriptions_routing --sizes 100000 --events 300
    python -m benchmarks.subscriptions_routing --plot results/subscriptions_routing.png

| section | what is measured |
|---|---|
| `histogram` | mean error of estimates by number of buckets (Figure 4.12), the paper's intervals and clustered ones |
| `coefficients` | what is fitted for the costs of plans, with 95 % intervals (Table 4.2) |
| `routing` | each plan for all events, DYNAMIC (each event by the plan that seems cheapest) and OPT (by the one that |
| | is), the share of each plan and of optimal decisions (Figures 4.13 to 4.15); at the largest size also by rows that |
| | join and by subscriptions whose local ranges hold the event (Figures 4.16 to 4.21) |

Each event is timed alone, in the kernel, by the clock of the machine: the best of some rounds. Who is affected is
written down under every plan. OPT is the sum over events of the least time under any plan, so it has no cost of
choosing; DYNAMIC has. "as printed" chooses by equal-width histograms of 100 buckets for both numbers, as the paper
does.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.interval_histograms import PAPER_INTERVALS, HistogramError, histogram_errors
from benchmarks.peers.common import installed
from benchmarks.report import Check
from whence.engine import calibration
from whence.engine.core.operator import Batch
from whence.engine.matching.kernels import pairs
from whence.engine.matching.match_cost import PLANS, coefficients, terms
from whence.engine.matching.match_pairs import MatchPairs

Numbers = NDArray[np.int64]
Times = NDArray[np.float64]

KEYS = 10_000
KINDS = {  # clustered, half the length of ranges of the other side and of the own one, of a span of 10,000
    "long ranges": (False, 500, 250),
    "clusters": (True, 50, 250),
    "narrow clusters": (True, 10, 250),
    "clusters, few held": (True, 50, 10),
}
DYNAMIC, PRINTED, OPT = "DYNAMIC", "DYNAMIC as printed", "OPT"
_MONOTONIC = 1
_TOGETHER = 50  # events that a plan processes in its turn


@dataclass
class Routed:
    """Some events of one workload: microseconds an event by plan, and shares of the decisions."""

    kind: str
    size: int
    part: str
    hotspots: int
    groups: int
    joined: float
    held: float
    affected: float
    micros: dict[str, float]
    shares: dict[str, float]
    best_shares: dict[str, float]
    optimal: float
    optimal_printed: float


@cache
def _timer() -> Any:
    """Return a kernel that processes events by all plans, some events by each in turn, and writes down the nanoseconds,
    the affected and the plan that was used."""
    clock = ctypes.CDLL(None).clock_gettime
    clock.argtypes, clock.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_int
    affected = pairs.affected

    @njit(nogil=True)
    def timed(  # type: ignore[no-untyped-def]  # Numba's
        address, stabbed, points, keys, owns, orders,
        costs, breaks, counts, means, ratios, store, size, top, meta, column, mode, runs, room, spent, found, used,
    ):  # fmt: skip
        at = np.empty(2, np.int64)
        plan = np.empty(1, np.int64)
        for part in range(orders.shape[0]):
            for turn in range(orders.shape[1]):
                asked = orders[part, turn]
                for q in range(part * _TOGETHER, min((part + 1) * _TOGETHER, points.shape[0])):
                    one = slice(q, q + 1)
                    plan[0] = asked
                    clock(_MONOTONIC, at.ctypes.data)
                    start = at[0] * 1_000_000_000 + at[1]
                    _, n = affected(
                        address, stabbed, points[one], keys[one], owns[one], plan,
                        costs, breaks, counts, means, ratios, store, size, top, meta, column, mode, runs, room,
                    )  # fmt: skip
                    clock(_MONOTONIC, at.ctypes.data)
                    spent[asked, q] = min(spent[asked, q], at[0] * 1_000_000_000 + at[1] - start)
                    found[asked, q] = n
                    used[asked, q] = plan[0]

    return timed


@dataclass
class Events:
    """Events of the left of an operator, as its kernels take them."""

    made: MatchPairs
    rows: Numbers

    def __post_init__(self) -> None:
        side, other = self.made.sides
        _, self.points, self.keys, self.leads = side.events(Batch(self.rows, np.ones(len(self.rows), np.int64)))
        self.joined = calibration.count_joined(side, other, self.keys)
        side.affected(other, self.points, self.keys, self.leads)  # histograms are made

    def time(self, rounds: int) -> tuple[dict[int, Times], dict[int, Numbers], Numbers]:
        """Return nanoseconds and the subscriptions affected of each event by plan, and which plan ROUTED was.

        Plans take turns after some events, in an order by chance, so that neither other work on the machine nor what is
        in the caches favours one."""
        side, other = self.made.sides
        plans, count = (*PLANS, pairs.ROUTED), len(self.rows)
        spent = np.full((len(plans), count), 2**62)
        found, used = np.zeros((2, len(plans), count), np.int64)
        room, runs = np.empty((len(side.subscriptions) + 16384, 2), np.int64), np.empty((1, 2), np.int64)
        rng = np.random.default_rng(7)
        for _ in range(rounds):
            _timer()(
                side.subscriptions.boxes.forest.address, side.subscriptions.points,
                self.points, self.keys, self.leads, rng.permuted(np.tile(plans, (-(-count // _TOGETHER), 1)), axis=1),
                *side.router.statistics(len(other.rows), self.points),
                *other.rows.leaves, side.keys, side.mode, runs, room, spent, found, used,
            )  # fmt: skip
        return dict(enumerate(spent.astype(np.float64))), dict(enumerate(found)), used[pairs.ROUTED]


def printed_plans(events: Events) -> Numbers:
    """Choose plans by the costs, with equal-width histograms of 100 buckets for rows that join and subscriptions."""
    side, other = events.made.sides
    keys = other.rows.head(-1)[0][:, 0]
    edges = np.linspace(0, KEYS, 101)
    rows = np.histogram(keys, edges)[0] * 100 / KEYS
    joined = rows[np.clip(np.searchsorted(edges, events.keys[:, 0], "right") - 1, 0, 99)]
    lines, dims = side.subscriptions.boxes.everything(), side.subscriptions.boxes.dims
    edges = np.linspace(0, calibration.SPAN, 101)
    covered = np.zeros(100)
    for b in range(100):
        low, high = np.maximum(lines[:, 0], edges[b]), np.minimum(lines[:, dims] + 1, edges[b + 1])
        covered[b] = np.maximum(0, high - low).sum() / (edges[b + 1] - edges[b])
    held = covered[np.clip(np.searchsorted(edges, events.points[:, 0], "right") - 1, 0, 99)]
    shape = side.router.shape(len(other.rows))
    costs = [terms(plan, shape, joined, held) @ np.array(coefficients()[plan]) for plan in PLANS]
    chosen: Numbers = np.argmin(costs, axis=0)
    return chosen


def route(kind: str, size: int, count: int, rounds: int, split: bool) -> list[Routed]:
    """Time events of a workload of so many subscriptions and rows."""
    clustered, reach, own = KINDS[kind]
    rng = np.random.default_rng(size)
    made, rows = calibration.workload(rng, size, KEYS, size, clustered, reach, own, count)
    events = Events(made, rng.permutation(rows))
    spent, found, plans = events.time(rounds)
    affected = found[pairs.ROUTED]
    if any((one != affected).any() for one in found.values()):
        raise AssertionError("plans find different subscriptions")
    times = {name: spent[plan] for plan, name in {**PLANS, pairs.ROUTED: DYNAMIC}.items()}
    every = np.array([times[name] for name in PLANS.values()])
    printed = printed_plans(events)
    times |= {PRINTED: every[printed, np.arange(count)], OPT: every.min(axis=0)}
    held = made.sides[0].router.estimate(events.points)
    spots = made.sides[0].subscriptions
    parts = {"all": np.ones(count, bool)}
    if split:
        parts |= _parts("rows that join", events.joined) | _parts("subscriptions held", held)
    out = []
    for part, chosen in parts.items():
        joins = chosen & (events.joined > 0)
        if not joins.any():
            continue
        best, n = every[:, joins].argmin(axis=0), joins.sum()
        shares, bests = (np.bincount(p, minlength=len(PLANS))[: len(PLANS)] / n for p in (plans[joins], best))
        out.append(
            Routed(
                kind, size, part, spots.hotspots, spots.groups, float(events.joined[chosen].mean()),
                float(held[chosen].mean()), float(affected[chosen].mean()),
                {name: float(t[chosen].mean()) / 1e3 for name, t in times.items()},
                {name: float(shares[plan]) for plan, name in PLANS.items()},
                {name: float(bests[plan]) for plan, name in PLANS.items()},
                float((plans[joins] == best).mean()), float((printed[joins] == best).mean()),
            )
        )  # fmt: skip
    return out


def _parts(what: str, values: Times) -> dict[str, NDArray[np.bool_]]:
    """Return events in four parts by a number, from few to many."""
    edges = np.quantile(values[values > 0], (0, 0.25, 0.5, 0.75, 1)) if (values > 0).any() else np.zeros(5)
    found = {}
    for low, high in pairwise(edges.tolist()):
        name = f"{what}: {low:,.0f} to {high:,.0f}"
        found[name] = (values > 0) & (values >= low) & ((values < high) | (high == edges[-1]))
    return found


def table_4_2(sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Fit the costs at these sizes, as the paper does; beside what was fitted at set-up, which events are routed by."""
    rng = np.random.default_rng(1)
    loads = (calibration.workload(rng, n, KEYS, n, *kind, 320) for n in sizes for kind in KINDS.values())
    fitted = calibration.fit_all(calibration.measure_all(loads))
    return [
        {"plan": name, "values": fitted[plan].values, "margins": fitted[plan].margins, "used": coefficients()[plan]}
        for plan, name in PLANS.items()
    ]


def checks(errors: Sequence[HistogramError], routed: Sequence[Routed]) -> list[Check]:
    """Return what was asked for."""
    out = []
    for e in errors:
        if e.intervals == PAPER_INTERVALS and e.buckets == 20:
            out.append(Check("SSI-HIST, 20 buckets: mean error, %", 100 * e.errors["SSI-HIST"], 15, at_least=False))
    for r in routed:
        if r.part == "all":
            where = f"{r.kind}, {r.size:,}"
            out.append(Check(f"{where}: DYNAMIC, times OPT", r.micros[DYNAMIC] / r.micros[OPT], 1.5, at_least=False))
            times = r.micros["Hotspot"] / r.micros[DYNAMIC]
            out.append(Check(f"{where}: throughput of DYNAMIC, times Hotspot", times, 1.0))
    return out


def show(errors: Sequence[HistogramError], fitted: Sequence[dict[str, Any]], routed: Sequence[Routed]) -> None:
    console = Console(width=200)
    table = Table("intervals", "groups", "buckets", *(errors[0].errors if errors else ()), title="mean error, %")
    for e in errors:
        table.add_row(
            e.intervals, str(e.groups), str(e.buckets), *(f"{100 * error:.1f}" for error in e.errors.values())
        )
    console.print(table)
    table = Table("plan", "coefficients, ns, with 95 % intervals", "those used", title="Table 4.2")
    for line in fitted:
        values = zip(line["values"], line["margins"], strict=True)
        shown = "; ".join(f"{v:.3g} [{max(0.0, v - m):.3g}, {v + m:.3g}]" for v, m in values)
        table.add_row(line["plan"], shown, "; ".join(f"{v:.3g}" for v in line["used"]))
    console.print(table)
    names = (*PLANS.values(), DYNAMIC, PRINTED, OPT)
    table = Table("subscriptions", "size", "part", *names, "shares", "optimal %", "as printed %", title="µs an event")
    for r in routed:
        shares = ", ".join(f"{name} {100 * share:.0f}" for name, share in r.shares.items() if share >= 0.005)
        cells = [f"{r.micros[name]:.2f}" for name in names]
        optimal = f"{100 * r.optimal:.0f}", f"{100 * r.optimal_printed:.0f}"
        table.add_row(r.kind, f"{r.size:,}", r.part, *cells, shares, *optimal)
    console.print(table)


def plot(path: Path, errors: Sequence[HistogramError], routed: Sequence[Routed]) -> None:
    """Draw errors by buckets, throughput by size, and shares of plans."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    path.parent.mkdir(parents=True, exist_ok=True)
    picture, panels = plt.subplots(1, 3, figsize=(15, 4.5))
    mine = [e for e in errors if e.intervals == PAPER_INTERVALS]
    for name in mine[0].errors if mine else ():
        panels[0].plot([e.buckets for e in mine], [100 * e.errors[name] for e in mine], marker="o", label=name)
    panels[0].set(xlabel="buckets", ylabel="mean error, %", title="Figure 4.12", yscale="log")
    lines = [r for r in routed if r.kind == "clusters" and r.part == "all"]
    for name in (*PLANS.values(), DYNAMIC, OPT):
        throughput = [1e6 / r.micros[name] for r in lines]
        panels[1].plot([r.size for r in lines], throughput, marker="o", label=name)
    panels[1].set(xlabel="subscriptions and rows", ylabel="events per second", title="Figure 4.13", yscale="log")
    bottom = np.zeros(len(lines))
    for name in PLANS.values():
        shares = np.array([100 * r.shares[name] for r in lines])
        panels[2].bar([f"{r.size:,}" for r in lines], shares, bottom=bottom, label=name)
        bottom += shares
    panels[2].set(xlabel="subscriptions and rows", ylabel="share of decisions, %", title="Figure 4.14")
    for panel in panels:
        panel.legend(fontsize=7)
    picture.tight_layout()
    picture.savefig(path, dpi=120)
    plt.close(picture)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="*", default=[100_000, 300_000, 500_000], help="of both")
    parser.add_argument("--events", type=int, default=1_000, help="per workload")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--buckets", type=int, nargs="*", default=[20, 30, 40, 50, 60, 70])
    parser.add_argument("--intervals", type=int, default=100_000)
    parser.add_argument("--json", type=Path, default=report.RESULTS / "subscriptions_routing.json")
    parser.add_argument("--plot", type=Path, default=report.RESULTS / "subscriptions_routing.png")
    chosen = parser.parse_args(arguments)
    calibration.calibrate()
    errors = histogram_errors(chosen.buckets, chosen.intervals)
    fitted = table_4_2(chosen.sizes)
    routed = []
    for kind in KINDS:
        for size in chosen.sizes:
            routed += route(kind, size, chosen.events, chosen.rounds, split=size == max(chosen.sizes))
    show(errors, fitted, routed)
    met = checks(errors, routed)
    report.show_checks(met, Console())
    settings = {key: value for key, value in vars(chosen).items() if key not in ("json", "plot")}
    found = {"histogram": [asdict(e) for e in errors], "coefficients": fitted, "routing": [asdict(r) for r in routed]}
    report.save(chosen.json, [], met, settings, **found)
    if installed("matplotlib"):
        plot(chosen.plot, errors, routed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
