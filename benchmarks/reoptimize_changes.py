"""Changes of statistics and costs, taken in by the optimizers: Figures 23, 24, 26, 27 and 31 to 34 of paper 003.

Times are wall-clock of this process. From scratch means that the space is enumerated, too, which is Python; so no ratio
to our own scratch is promised. Every optimizer's cost is compared with that of bottom-up that remembers nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from benchmarks.reoptimize_queries import QUERIES, SMALL, JoinQuery, clique, many_views, named
from whence.adapt.declarative import Declarative
from whence.adapt.optimizer import JoinGraph, PlanOptimizer

FACTORS = (1 / 8, 1 / 4, 1 / 2, 2, 4, 8)
PRUNINGS: dict[str, Any] = {
    "no pruning": "none",
    "Evita Raced": "evita",
    "aggregate, count": ("aggregate", "count"),
    "aggregate, bound": ("aggregate", "bound"),
    "all": "all",
}
WAYS: dict[str, dict[str, Any]] = {
    "bottom-up": {"kind": "bottom_up"},
    "top-down": {"kind": "top_down"},
    **{f"declarative, {name}": {"kind": "declarative", "prune": prune} for name, prune in PRUNINGS.items()},
}
KEPT = "declarative, aggregate, bound"


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    rounds: int = 10
    clique: int = 10
    views: int = 200
    ticks: int = 60
    partitions: int = 10
    scale: float = 0.05
    cars: int = 1500
    traffic_rounds: int = 3
    refresh: int = 15
    quick: bool = False


Change = dict[str, Any]


@dataclass
class Timing:
    """Changes of one kind in one way: milliseconds of each, and the parts of entries and alternatives recomputed."""

    workload: str
    what: str
    way: str
    times: list[float] = field(default_factory=list)
    entries: list[float] = field(default_factory=list)
    alternatives: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def p99(self) -> float:
        return float(np.quantile(self.times, 0.99))


@dataclass(frozen=True)
class First:
    """A first optimization: milliseconds, calls of split, and which parts of the space were never in it."""

    query: str
    way: str
    ms: float
    splits: int
    entries_pruned: float
    alternatives_pruned: float


class WrongCostError(Exception):
    """An optimizer has a cost that is not the least."""


def _make(graph: JoinGraph, kind: str, **options: Any) -> PlanOptimizer:
    return graph.optimizer(kind, **options)  # type: ignore[arg-type]  # by its name


def _space(graph: JoinGraph) -> tuple[int, int]:
    return graph.optimizer("bottom_up").recomputed


def first(sizes: Sizes, queries: Sequence[JoinQuery] = (*QUERIES, *SMALL)) -> list[First]:
    """Optimize each query in each way from nothing."""
    found = []
    for query in queries:
        entries, alternatives = _space(query.graph())
        for way, options in WAYS.items():
            times = []
            for _ in range(1 + min(sizes.rounds, 5)):
                begin = time.perf_counter()
                plan = _make(query.graph(), **options)
                times.append(1e3 * (time.perf_counter() - begin))
            costed = plan.recomputed
            if isinstance(plan.search, Declarative):
                scans = sum(plan.search.model.alternatives[n, 2] < 0 for n in plan.search.ever)
                costed = plan.split_calls, len(plan.search.ever) - int(scans)
            pruned = 1 - costed[0] / entries, 1 - costed[1] / max(1, alternatives)
            found.append(First(query.name, way, statistics.median(times[1:]), plan.split_calls, *pruned))
    return found


def _measure(timing: Timing, plan: PlanOptimizer, changes: Sequence[Change], check: PlanOptimizer) -> None:
    """Apply changes one after another; each must give the least cost."""
    entries, alternatives = check.recomputed
    for change in changes:
        begin = time.perf_counter()
        plan.change(**change)
        timing.times.append(1e3 * (time.perf_counter() - begin))
        timing.entries.append(plan.recomputed[0] / entries)
        timing.alternatives.append(plan.recomputed[1] / max(1, alternatives))
        check.change(**change)
        if plan.costs != check.costs:
            raise WrongCostError(f"{timing.workload}, {timing.way}: {plan.costs} after {change}, not {check.costs}")


def _around(make: Callable[[float], Change], rounds: int) -> Iterator[Change]:
    """Yield changes up and down, each followed by the one that takes it back."""
    for _ in range(rounds):
        for factor in FACTORS:
            yield make(factor)
            yield make(1.0)


def _timed(
    query: JoinQuery, what: str, way: str, options: dict[str, Any], make: Callable[[float], Change], rounds: int
) -> Timing:
    graph = query.graph()
    timing = Timing(query.name, what, way)
    plan, check = _make(graph, **options), graph.optimizer("bottom_up", memo="none")
    _measure(Timing(query.name, what, way), plan, list(_around(make, 1)), check)  # what is compiled or built once
    _measure(timing, plan, list(_around(make, rounds)), check)
    return timing


def changes(sizes: Sizes) -> list[Timing]:
    """Selectivities of the joins of Q5 and Q8Join; the scan cost of orders under each pruning."""
    found = []
    for query in (named("Q5"), named("Q8Join")):
        for level, expression in enumerate(query.levels):
            for name in ("bottom-up", "declarative, no pruning", KEPT):

                def selectivity(factor: float, expression: tuple[str, ...] = expression) -> Change:
                    return {"selectivity": {expression: factor}}

                what = f"selectivity {'ABCDEFGH'[level]}"
                found.append(_timed(query, what, name, WAYS[name], selectivity, sizes.rounds))
    base = named("Q5").graph().optimizer("bottom_up")
    scan = next(entry.cost for entry in base.entries if entry.relations == ("orders",))
    for name, options in WAYS.items():
        found.append(
            _timed(
                named("Q5"),
                "scan cost of orders",
                name,
                options,
                lambda factor: {"scan": {"orders": int(scan * factor)}},
                sizes.rounds,
            )
        )
    return found


def explained(sizes: Sizes) -> Timing:
    """Q5 with bounds, regrets and counts kept, too."""
    query, timing = named("Q5"), Timing("Q5", "selectivity A", "declarative, with bounds")
    plan, check = query.graph().optimizer(prune="none"), query.graph().optimizer("bottom_up", memo="none")
    assert isinstance(plan.search, Declarative)
    plan.search.explained()
    made = list(_around(lambda factor: {"selectivity": {query.levels[0]: factor}}, sizes.rounds))
    _measure(timing, plan, made, check)
    return timing


def procedural(sizes: Sizes) -> list[Timing]:
    """Q5: join costs, selectivities and rows, in the ways of chapter 5."""
    query = named("Q5")
    base = query.graph().optimizer("bottom_up")
    ways: dict[str, dict[str, Any]] = {
        "bottom-up, all": {"kind": "bottom_up", "memo": "all", "conditional": False},
        "bottom-up, best": {"kind": "bottom_up", "memo": "best", "conditional": False},
        "bottom-up, best, conditional": {"kind": "bottom_up", "memo": "best"},
        "bottom-up, likely": {"kind": "bottom_up", "memo": "likely"},
        "top-down, best": {"kind": "top_down", "memo": "best"},
        "top-down, all": {"kind": "top_down", "memo": "all"},
    }
    found = []
    for level, expression in enumerate(query.levels):
        pair = (expression[:-1], expression[-1:])
        local = base.alternative(expression, pair).local
        kinds: dict[str, Callable[[float], Change]] = {
            "join cost": lambda f, pair=pair, local=local: {"local": {pair: int(local * f)}},  # type: ignore[misc]
            "selectivity": lambda f, expression=expression: {"selectivity": {expression: f}},  # type: ignore[misc]
        }
        for kind, make in kinds.items():
            for name, options in ways.items():
                found.append(_timed(query, f"{kind} {'ABCDE'[level]}", name, options, make, sizes.rounds))
    for name, rows in query.rows.items():
        found.append(
            _timed(
                query,
                f"rows of {name}",
                "bottom-up, all",
                ways["bottom-up, all"],
                lambda f, name=name, rows=rows: {"rows": {name: max(1.0, rows * f)}},  # type: ignore[misc]  # now
                sizes.rounds,
            )
        )
    return found


def cliques(sizes: Sizes) -> list[Timing]:
    """Changes of a clique at the top, in the middle, and at a leaf."""
    query = clique(sizes.clique)
    names = list(query.rows)
    middle = tuple(names[: max(2, sizes.clique // 2)])
    rows = query.rows[names[0]]
    makes: dict[str, Callable[[float], Change]] = {
        "top": lambda f: {"selectivity": {tuple(names): f}},
        "middle": lambda f: {"selectivity": {middle: f}},
        "leaf": lambda f: {"rows": {names[0]: max(1.0, rows * f)}},
    }
    ways = {name: WAYS[name] for name in ("bottom-up", "top-down", KEPT, "declarative, no pruning")}
    return [
        _timed(query, what, name, options, make, 1 if "no" in name else sizes.rounds)
        for what, make in makes.items()
        for name, options in ways.items()
    ]


def views(sizes: Sizes) -> list[Timing]:
    """Views in one memo; each tick moves 1 % of the statistics."""
    found = []
    for name in ("bottom-up", KEPT):
        many, random = many_views(sizes.views), Random(5)
        plan, check = _make(many.graph, **WAYS[name]), many.graph.optimizer("bottom_up", memo="none")
        made: list[Change] = []
        for _ in range(sizes.ticks):
            change: Change = {"rows": {}, "selectivity": {}}
            for which in random.sample(many.statistics, max(1, len(many.statistics) // 100)):
                if isinstance(which, str):
                    change["rows"][which] = many.graph.graph.rows[which] * random.uniform(0.5, 2)
                else:
                    change["selectivity"][which] = random.uniform(0.5, 2)
            made.append(change)
        timing = Timing(f"{sizes.views} views", "1 % of statistics", name)
        _measure(timing, plan, made, check)
        found.append(timing)
    return found


def memory() -> dict[str, float]:
    """Costs remembered, all against best; bytes of the state of Q8Join."""
    found = {}
    for count in (5, 10):
        kept = [clique(count).graph().optimizer("bottom_up", memo=memo).search for memo in ("all", "best")]
        found[f"all against best, clique of {count}"] = kept[0].remembered / kept[1].remembered  # type: ignore[union-attr]
    plan = named("Q8Join").graph().optimizer(prune="none")
    assert isinstance(plan.search, Declarative)
    plan.search.explained()
    found["MB of state, Q8Join"] = plan.search.size() / 1e6
    return found
