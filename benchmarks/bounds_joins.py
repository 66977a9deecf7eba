"""Joins in bounded memory: Figures 3.7, 3.9 to 3.13, 3.15, 3.18 and 3.20 of paper 002, and what eviction costs.

Streams as in the paper: TOWER, ROOF and FLOOR are a trend of 1 per step with noise of ±10 (R) and ±15 (S), R a step
behind; WALK are two random walks. Both streams have a row per step; pairs of rows of different steps are counted, after
a warm-up of four times the memory. HEEB learns model and time constant while it runs. OPT knows the future: a flow of
`memory` units through time, solved by SciPy's HiGHS. All policies but LRU are told when rows can match nothing any more
(after 25 steps), as in the paper, where HEEB knows the noise and RAND, PROB and LIFE drop such rows first.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.bounds_flow import flow_expect
from benchmarks.bounds_measured import Measured
from benchmarks.report import Check
from whence.engine.core.operator import Batch, Operator
from whence.engine.relational.values import Values
from whence.engine.streams.windows.bounded_join import BoundedJoin
from whence.engine.streams.windows.kernels import bounded as bk
from whence.engine.streams.windows.window_join import WindowJoin
from whence.model.codes import Dictionary
from whence.model.types import BIGINT, Column, Schema
from whence.plan.eviction.benefit import benefits
from whence.plan.eviction.value_models import Chain, Noise
from whence.plan.streams.model import MemoryLimit, Span, with_at

Numbers = NDArray[np.int64]
POLICIES = ("heeb", "random", "prob", "life", "lru")
REACH = 25  # steps after which a row of TOWER, ROOF or FLOOR can match nothing
_ROW = with_at(Schema((Column("k", BIGINT), Column("step", BIGINT))))
_PAIR = with_at(Schema(2 * _ROW.columns[:2]))


@dataclass(frozen=True)
class JoinSizes:
    """How much is run."""

    steps: int = 5000
    runs: int = 50
    memories: tuple[int, ...] = (5, 10, 20, 35, 50)
    optimal_runs: int = 3
    kept: int = 1_000_000
    arrivals: int = 4_000_000
    ahead: tuple[int, ...] = (1, 2, 3, 5, 8)
    looking_steps: int = 500


QUICK_JOINS = JoinSizes(600, 3, (5, 10, 20), 1, 10_000, 40_000, (1, 3), 120)


def streams(name: str, steps: int, rng: np.random.Generator, lag: int = 1, wider: float = 1.0) -> tuple[Numbers, ...]:
    """Return the join values of R and S."""
    if name == "WALK":
        return tuple(np.cumsum(np.rint(rng.normal(0, 1, steps))).astype(np.int64) for _ in "RS")
    noise = {
        "TOWER": (Noise.normal(1, 10), Noise.normal(2 * wider, 15)),
        "ROOF": (Noise.normal(3.3, 10), Noise.normal(5 * wider, 15)),
        "FLOOR": (Noise.uniform(10), Noise.uniform(15)),
        "SAME": (Noise.normal(1, 10), Noise.normal(1 * wider, 15)),
    }[name]
    made = (rng.choice(np.arange(n.low, n.high + 1), steps, p=n.p) for n in noise)
    return tuple(np.arange(steps) - late + values for late, values in zip((lag, 0), made, strict=True))


def join(r: Numbers, s: Numbers, memory: int, keep: str, window: int | None = None) -> tuple[int, BoundedJoin]:
    """Join two streams in memory; return the pairs after the warm-up, and the operator."""
    op = BoundedJoin(*_feeds(), *2 * (Span(window),), ((0, 0),), None, _PAIR, Dictionary(), _limit(memory, keep))
    found = 0
    for start in range(0, len(r), 1000):
        steps = np.arange(start, min(start + 1000, len(r)))
        pairs = op.apply([_batch(values[steps], 2 * steps + side) for side, values in enumerate((r, s))]).rows
        op.commit()
        first, second = pairs[:, 1], pairs[:, 3]
        found += int(((np.maximum(first, second) >= 4 * memory) & (first != second)).sum())
    return found, op


def _feeds() -> tuple[Operator, Operator]:
    words = Dictionary()
    return Values((), _ROW, words), Values((), _ROW, words)


def _batch(values: Numbers, at: Numbers) -> Batch:
    rows = np.ascontiguousarray(np.column_stack((values, at >> 1, at)), np.int64)
    return Batch(rows, np.ones(len(values), np.int64))


def _limit(memory: int, keep: str) -> MemoryLimit:
    return MemoryLimit(memory, text=f"{memory} rows", keep=keep)  # type: ignore[arg-type]  # named by the caller


def optimum(r: Numbers, s: Numbers, memory: int) -> int:
    """Return the most pairs of different steps, after the warm-up, that any policy finds: the greatest flow of `memory`
    units through the arrivals, on which a row can ride from its arrival to each of its matches in turn."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    steps, first = len(r), 4 * memory
    events = 2 * steps  # arrivals: R, S, R, S, …
    where: list[dict[int, list[int]]] = [{}, {}]
    for side, values in enumerate((r, s)):
        for step, value in enumerate(values.tolist()):
            where[side].setdefault(value, []).append(step)
    tails, heads, gains = list(range(events)), list(range(1, events + 1)), [0] * events
    limits: list[int | None] = [memory] * events
    nodes = events + 1
    for side, values in enumerate((r, s)):
        for step, value in enumerate(values.tolist()):
            at = 2 * step + side
            for later in where[1 - side].get(value, []):
                if later <= step:
                    continue
                tails += [at, nodes]
                heads += [nodes, 2 * later + 1 - side]
                gains += [int(later >= first), 0]
                limits += [1, 1]
                at, nodes = nodes, nodes + 1
    count = len(tails)
    arcs = np.arange(count)
    matrix = coo_matrix(
        (np.repeat([1.0, -1.0], count), (np.concatenate((heads, tails)), np.concatenate((arcs, arcs)))), (nodes, count)
    ).tocsr()
    balance = np.zeros(nodes)
    balance[0], balance[events] = -memory, memory
    found = linprog(-np.array(gains, float), A_eq=matrix, b_eq=balance, bounds=[(0, m) for m in limits], method="highs")
    return round(float(-found.fun))


def compare(sizes: JoinSizes) -> tuple[list[str], list[Check], dict[str, object]]:
    """Run every policy on every kind of streams and memory."""
    lines, checks = ["Pairs found, mean of the runs ± 95 %"], list[Check]()
    figures: dict[str, object] = {}
    for name in ("TOWER", "ROOF", "FLOOR", "WALK"):
        for memory in sizes.memories:
            counts = {policy: np.zeros(sizes.runs) for policy in POLICIES}
            best = []
            for run in range(sizes.runs):
                r, s = streams(name, sizes.steps, np.random.default_rng(1000 + run))
                for policy in POLICIES:
                    told = REACH if policy != "lru" and name != "WALK" else None
                    counts[policy][run] = join(r, s, memory, policy, told)[0]
                if run < sizes.optimal_runs and memory <= 20:
                    best.append(optimum(r, s, memory))
            shown = ", ".join(f"{p} {c.mean():,.0f} ± {_interval(c):.0f}" for p, c in counts.items())
            optimal = f", OPT {np.mean(best):,.0f}" if best else ""
            lines.append(f"{name} {memory}: {shown}{optimal}")
            figures[f"{name} {memory}"] = {p: c.tolist() for p, c in counts.items()} | {"opt": best}
            checks += _checks(name, memory, counts)
    return lines, checks, figures


def measure_joins(sizes: JoinSizes) -> Measured:
    """Return everything that is run of joins in bounded memory."""
    compared, checks, figures = compare(sizes)
    rated, more = rates(sizes)
    lines = [*walk_curves(), *allocation(sizes), *looking_ahead(sizes), *compared, *rated]
    return Measured("joins", lines, [*checks, *more], figures)


def _interval(counts: NDArray[np.float64]) -> float:
    return float(1.96 * counts.std(ddof=1) / np.sqrt(len(counts))) if len(counts) > 1 else 0.0


def _checks(name: str, memory: int, counts: dict[str, NDArray[np.float64]]) -> list[Check]:
    heeb = float(counts["heeb"].mean())
    wanted = {"TOWER": 1.35, "ROOF": 1.35, "FLOOR": 1.03}.get(name)
    others = max(float(counts[p].mean()) for p in ("random", "prob", "life"))
    checks = [Check(f"{name}, {memory} rows: HEEB by the best of RAND, PROB, LIFE", heeb / max(others, 1), 1.0)]
    if memory == 10 and wanted is not None:
        checks.append(Check(f"{name}, 10 rows: HEEB by RAND", heeb / max(float(counts["random"].mean()), 1), wanted))
    return checks


def allocation(sizes: JoinSizes) -> list[str]:
    """Return the share of the memory that rows of R have, when R lags or S varies more (Figures 3.15, 3.18)."""
    lines = ["Share of R in a memory of 10 rows, TOWER with equal noise"]
    for what, lag, wider in [("lag 0", 0, 1), ("lag 2", 2, 1), ("lag 4", 4, 1), ("S x 2", 0, 2), ("S x 4", 0, 4)]:
        r, s = streams("SAME", sizes.steps, np.random.default_rng(5), lag, wider)
        _, op = join(r, s, 10, "heeb")
        kept = [int(side.meta[bk.LIVE]) for side in op._kept.sides]
        lines.append(f"{what}: {kept[0]} of {sum(kept)} at the end")
    return lines


def looking_ahead(sizes: JoinSizes, memory: int = 20) -> list[str]:
    """Return what FlowExpect finds when it looks further ahead, and what HEEB does (Figure 3.20)."""
    r, s = streams("FLOOR", sizes.looking_steps, np.random.default_rng(6))
    noises = Noise.uniform(10), Noise.uniform(15)
    found = ", ".join(f"{d} steps {flow_expect(r, s, noises, 1, memory, d):,}" for d in sizes.ahead)
    heeb = join(r, s, memory, "heeb")[0]
    best = optimum(r, s, memory)
    return [f"FLOOR, {len(r):,} steps, {memory} rows: FlowExpect {found}; HEEB {heeb:,}; OPT {best:,}"]


def walk_curves() -> list[str]:
    """Return the benefit of values around a random walk with drift 0, 2 and 4 (Figure 3.7, α = 10)."""
    lines = ["Benefit by distance from the newest value: -6, -4, …, 12"]
    for drift in (0, 2, 4):
        low, table = benefits(Chain(1.0, Noise.normal(1, mean=drift)), 10.0)
        shown = " ".join(f"{table[0, o - low]:.2f}" for o in range(-6, 13, 2))
        lines.append(f"drift {drift}: {shown}")
    return lines


def rates(sizes: JoinSizes) -> tuple[list[str], list[Check]]:
    """Measure arrivals per second of CPU, with evictions, beside the join over windows that keeps as many."""
    rng = np.random.default_rng(2)
    keys = rng.integers(0, 4 * sizes.kept, (2, sizes.arrivals // 2))
    taken = {}
    span = Span(sizes.kept // 2)
    made: dict[str, Callable[[], Operator]] = {
        "windows": lambda: WindowJoin(*_feeds(), span, span, ((0, 0),), None, _PAIR, Dictionary())
    }
    for keep in ("heeb", "prob", "lru", "random"):
        made[keep] = lambda keep=keep: BoundedJoin(  # type: ignore[misc]  # bound at once
            *_feeds(), Span(None), Span(None), ((0, 0),), None, _PAIR, Dictionary(), _limit(sizes.kept, keep)
        )
    for name, make in made.items():
        op, begun = make(), time.process_time()
        for start in range(0, keys.shape[1], 10_000):
            at = 2 * np.arange(start, start + 10_000)
            op.apply([_batch(keys[0, start : start + 10_000], at), _batch(keys[1, start : start + 10_000], at + 1)])
            op.commit()
        taken[name] = time.process_time() - begun
    lines = [f"{name}: {sizes.arrivals / t:,.0f} rows/s" for name, t in taken.items()]
    worst = max(t for name, t in taken.items() if name != "windows")
    return lines, [Check("rows/s in bounded memory by those over windows", taken["windows"] / worst, 0.5)]
