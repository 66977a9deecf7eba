"""Fits the costs of plans (`matching/match_cost.py`) on this machine: least squares over measured batches of events.

`calibrate` is run once at set-up and takes seconds. It stores the coefficients beside the compiled kernels, by whose
text the file is named, so that those of other kernels are not used.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from whence.engine.core.operator import Batch
from whence.engine.matching.kernels.histogram import Heights
from whence.engine.matching.match_cost import PLANS, coefficients, stored_file, terms
from whence.engine.matching.match_pairs import EventSide, MatchPairs
from whence.engine.relational.scan import Scan
from whence.engine.work_calibration import calibrate_work
from whence.model.codes import Codes, Dictionary
from whence.model.types import BIGINT, Column, Schema
from whence.plan.algebra import logical
from whence.plan.algebra.expressions import Col

SIZES = (4_000, 32_000)  # subscriptions, and rows
SPAN = 10_000  # of attributes
CLUSTERS = 5_000
_BATCH = 16  # events that are measured together
_ROUNDS = 3
_SIDE = Schema(tuple(Column(name, BIGINT) for name in ("k", "c", "id")))
_PARAMETERS = Schema(tuple(Column(name, BIGINT) for name in ("id", "al", "ah", "cl", "ch")))
_OUT = Schema(tuple(Column(name, BIGINT) for name in ("id", "r", "s")))


class Measured(NamedTuple):
    """Batches of events by one plan: means of what its coefficients are multiplied with, of the subscriptions that are
    affected, and nanoseconds."""

    terms: Heights
    affected: Heights
    nanoseconds: Heights


@dataclass
class Fitted:
    """The coefficients of a plan, and by how much each may be off (95 %)."""

    values: list[float]
    margins: list[float] = field(default_factory=list)


def fit(measured: Measured) -> Fitted:
    """Fit the coefficients of a plan to batches that join rows. What would be negative is left out, as is what affected
    subscriptions cost, which every plan pays."""
    joins = measured.terms.any(axis=1)
    columns, y = np.column_stack((measured.terms, measured.affected))[joins], measured.nanoseconds[joins]
    kept = np.flatnonzero(columns.any(axis=0))
    values, margins = np.zeros(columns.shape[1]), np.zeros(columns.shape[1])
    while len(kept):
        scale = np.linalg.norm(columns[:, kept], axis=0)
        a = columns[:, kept] / scale
        found, *_ = np.linalg.lstsq(a, y, rcond=None)
        if (found >= 0).all():
            spread = ((y - a @ found) ** 2).sum() / max(1, len(y) - len(kept))
            errors = np.sqrt(spread * np.diag(np.linalg.pinv(a.T @ a)))
            values[kept], margins[kept] = found / scale, 1.96 * errors / scale
            break
        kept = np.delete(kept, found.argmin())
    return Fitted(values[:-1].tolist(), margins[:-1].tolist())


def fit_all(measured: dict[int, list[Measured]]) -> dict[int, Fitted]:
    """Fit all plans."""
    return {p: fit(Measured(*map(np.concatenate, zip(*parts, strict=True)))) for p, parts in measured.items()}


def measure(made: MatchPairs, rows: Codes, batch: int = _BATCH, rounds: int = _ROUNDS) -> dict[int, Measured]:
    """Measure events of the left in batches, under every plan: the best of some rounds."""
    side, other = made.sides
    _, points, keys, leads = side.events(Batch(rows, np.ones(len(rows), np.int64)))
    joined, affected = count_joined(side, other, keys), np.zeros(len(rows) // batch)
    side.affected(other, points, keys, leads)
    shape, stabbed = side.router.shape(len(other.rows)), side.router.estimate(points)
    out = {}
    for plan in PLANS:
        best = np.full(len(affected), np.inf)
        for _ in range(rounds):
            for b in range(len(affected)):
                part = slice(b * batch, (b + 1) * batch)
                plans = np.full(batch, plan, np.int64)
                start = time.perf_counter_ns()
                found = side.affected(other, points[part], keys[part], leads[part], plans)
                best[b] = min(best[b], (time.perf_counter_ns() - start) / batch)
                affected[b] = len(found) / batch
        lines = terms(plan, shape, joined, stabbed)[joined > 0]
        every = np.zeros((len(rows), lines.shape[1]))
        every[joined > 0] = lines
        means = every[: len(affected) * batch].reshape(len(affected), batch, -1).mean(axis=1)
        out[plan] = Measured(means, affected.copy(), best)
    return out


def count_joined(side: EventSide, other: EventSide, keys: Codes) -> Heights:
    """Return how many rows of the other side each key joins."""
    found = np.unique(other.rows.head(-1)[0][:, : side.keys], axis=0, return_counts=True)
    known = dict(zip(map(tuple, found[0].tolist()), found[1].tolist(), strict=True))
    return np.array([known.get(tuple(key), 0) for key in keys.tolist()], float)


def workloads(sizes: Sequence[int] = SIZES, seed: int = 0) -> Iterator[tuple[MatchPairs, Codes]]:
    """Give operators and events. As in the paper, keys of rows are normal and those of events uniform, so few to many
    rows join; ranges of the other side are long, or in clusters by Zipf's law; own ranges hold many events, or few."""
    rng = np.random.default_rng(seed)
    for n in sizes:
        for clustered, reach, own in ((False, 500, 250), (True, 50, 250), (True, 10, 250), (True, 50, 10)):
            for rows in (n // 4, n):
                yield workload(rng, rows, rows // 10, n, clustered, reach, own, events=320)


def workload(
    rng: np.random.Generator, size: int, keys: int, n: int, clustered: bool, reach: int, own: int, events: int
) -> tuple[MatchPairs, Codes]:
    """Return an operator of some rows and n subscriptions, and events in the order of how many rows they join."""
    rows = np.column_stack((_normal(rng, size, keys, 10), rng.integers(0, SPAN, size), np.arange(size)))
    middle = rng.integers(0, SPAN, n)
    if clustered:
        weights = 1 / np.arange(1, CLUSTERS + 1)
        middle = rng.integers(0, SPAN, CLUSTERS)[rng.choice(CLUSTERS, n, p=weights / weights.sum())]
        middle = middle + rng.integers(-SPAN // 500, SPAN // 500 + 1, n)
    at = _normal(rng, n, SPAN, 6)
    lengths = np.abs(rng.normal((own, reach), (own / 5, reach / 5), (n, 2))).astype(np.int64)
    low, high = (np.column_stack((at, middle)) + sign * lengths for sign in (-1, 1))
    given = np.column_stack((np.arange(n), low[:, 0], high[:, 0], low[:, 1], high[:, 1]))
    found = np.column_stack((rng.integers(0, keys, events), rng.integers(0, SPAN, events), np.arange(events)))
    joined = np.bincount(rows[:, 0], minlength=keys)[found[:, 0]]
    return operator_of(rows, given), found[np.argsort(joined, kind="stable")]


def _normal(rng: np.random.Generator, n: int, span: int, spread: int) -> Codes:
    """Return numbers about the middle of a span, of which a standard deviation is the given part."""
    found: Codes = np.clip(rng.normal(span / 2, span / spread, n), 0, span - 1).astype(np.int64)
    return found


def operator_of(rows: Codes, parameters: Codes) -> MatchPairs:
    """Return an operator with rows of the right (key, value, id) and subscriptions (id, and two ranges)."""
    inputs = [Scan("r", _SIDE, ()), Scan("s", _SIDE, ()), Scan("p", _PARAMETERS, (0,))]
    nothing = logical.Values(_SIDE, ())
    sides = logical.Side((), logical.Range(1, 1, 2), ()), logical.Side((), logical.Range(1, 3, 4), ())
    exprs = Col(BIGINT, 0), Col(BIGINT, 3), Col(BIGINT, 6)
    node = logical.MatchPairs(_OUT, nothing, nothing, nothing, 1, sides, None, exprs)
    made = MatchPairs(list(inputs), node, Dictionary())
    made.meet([Batch.empty(3), Batch(rows, np.ones(len(rows), np.int64), True)])
    made.change(parameters[:0], parameters)
    made.commit()
    return made


def measure_all(loads: Iterable[tuple[MatchPairs, Codes]]) -> dict[int, list[Measured]]:
    """Measure every workload under every plan."""
    out: dict[int, list[Measured]] = {plan: [] for plan in PLANS}
    for made, events in loads:
        for plan, found in measure(made, events).items():
            out[plan].append(found)
    return out


def calibrate() -> None:
    """Fit the coefficients on this machine and store them, unless they are; and what joins cost."""
    calibrate_work()
    path = stored_file()
    if path.exists():
        return
    warmed = next(workloads())
    measure(*warmed)
    fitted = fit_all(measure_all(workloads()))
    for old in path.parent.glob("match_cost.*.json"):
        old.unlink(missing_ok=True)
    path.write_text(json.dumps({PLANS[plan]: found.values for plan, found in fitted.items()}))
    coefficients.cache_clear()
