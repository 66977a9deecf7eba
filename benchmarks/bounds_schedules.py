"""Schedules of refreshes simulated: naive, online, planned for a guessed time, beside the cheapest plan (Figures 2.1,
2.6 and 2.7 of paper 002).

The paper does not print its cost functions. Those of section 2.1 are `f_S(k) = 0.25 k` and `f_R(k) = 285.71 + 0.1071 k`
ms with a bound of 350 ms, which give its 0.97 and 0.42 ms per modification. Figures 2.6 and 2.7 use curves of the
shapes that its text describes: supplier nearly linear, partsupp nearly constant, in seconds.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.report import Check
from whence.adapt.refresh.costs import Linear, RefreshCosts
from whence.adapt.refresh.plans import Instance, search
from whence.adapt.refresh.schedulers import Naive, Online, Planned
from whence.adapt.refresh.simulate import simulate

MOTIVATION = RefreshCosts((Linear(0.25), Linear(0.1071, 285.71)))  # S and R, in ms
SHAPED = RefreshCosts((Linear(0.1, 0.3), Linear(0.005, 7.0)))  # supplier and partsupp, in s
GUESS = 500


@dataclass(frozen=True)
class Sizes:
    """How much is simulated and measured."""

    instants: int = 1000  # of Figures 2.6 and 2.7
    runs: int = 10  # of random arrivals
    scale: float = 0.1  # of TPC-H
    repeats: int = 3  # of a release whose cost is measured
    step: int = 5  # of rows, between two such
    updates: int = 1000  # per table, in Figure 2.5
    nodes: int = 100  # of the recursive view
    epochs: int = 1500
    spark_epochs: int = 60


QUICK = Sizes(300, 2, 0.05, 2, 50, 200, 40, 200, 12)


def arrivals(rng: random.Random, instants: int, p: float, spread: float) -> list[tuple[int, int]]:
    """Return rows of two tables: none with probability 1 - p, else N(1, spread^2) given that it is above zero, rounded.

    Its mean is not 1, as the paper says, but about 1.3 for a spread of 1 and 4.4 for one of 5."""

    def rows() -> int:
        if rng.random() >= p:
            return 0
        while (found := round(rng.gauss(1.0, spread))) <= 0:
            pass
        return found

    return [(rows(), rows()) for _ in range(instants)]


def compare(costs: RefreshCosts, bound: float, rows: Sequence[tuple[int, int]], guess: int) -> dict[str, float]:
    """Return what each schedule costs. The plan for a guessed time is made for one row per instant, as in the paper."""
    instance = Instance(costs, bound, rows)
    return {
        "naive": simulate(Naive(), instance).cost,
        "online": simulate(Online(2), instance).cost,
        "planned": simulate(Planned(2, guess, rates=(1.0, 1.0)), instance).cost,
        "planned, rates learnt": simulate(Planned(2, guess), instance).cost,
        "cheapest": search(instance).cost,
    }


def simulate_schedules(sizes: Sizes) -> tuple[list[str], list[Check]]:
    """Return lines to print, and what was promised."""
    lines, checks = list[str](), list[Check]()
    count = 6000
    costs = compare(MOTIVATION, 350.0, [(1, 1)] * count, 1200)
    naive = simulate(Naive(), Instance(MOTIVATION, 350.0, [(1, 1)] * 1810)).cost / 3620
    lines.append(f"2.1: naive {naive:.2f} ms per modification; {_text(costs, 2 * count)}")
    checks.append(Check("2.1: online over naive", costs["online"] / costs["naive"], 0.45, at_least=False))
    checks.append(Check("2.1: cheapest over naive", costs["cheapest"] / costs["naive"], 0.45, at_least=False))
    for instants in range(100, sizes.instants + 1, 100 if sizes.instants <= 500 else 300):
        found = compare(SHAPED, 12.0, [(1, 1)] * instants, GUESS)
        lines.append(f"2.6: {instants} instants, {_ratios(found)}")
    for p in (0.5, 0.9):
        for spread in (1.0, 5.0):
            runs = [
                compare(SHAPED, 20.0, arrivals(random.Random(seed), sizes.instants, p, spread), GUESS)
                for seed in range(sizes.runs)
            ]
            mean = {name: statistics.fmean(run[name] for run in runs) for name in runs[0]}
            lines.append(f"2.7: p {p}, s {spread:.0f}, {_ratios(mean)}")
            which = "online" if spread == 1.0 else "planned"
            checks.append(
                Check(f"2.7: {which} over cheapest, p {p}, s {spread:.0f}", mean[which] / mean["cheapest"], 1.3, False)
            )
            checks.append(Check(f"2.7: naive over {which}, p {p}, s {spread:.0f}", mean["naive"] / mean[which], 1.0))
    return lines, checks


def _text(costs: dict[str, float], count: int) -> str:
    return ", ".join(f"{name} {cost / count:.3f}" for name, cost in costs.items())


def _ratios(costs: dict[str, float]) -> str:
    best = costs["cheapest"]
    return f"cheapest {best:.0f}; " + ", ".join(f"{n} x {c / best:.2f}" for n, c in costs.items() if n != "cheapest")
