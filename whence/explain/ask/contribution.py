"""Contributions: how much each base row matters to a row (Shapley and Banzhaf values).

    Banzhaf   of all losses of other base rows, the share in which this one decides
    Shapley   of all orders in which base rows could be added, the share in which the row comes with this one

Both are slopes of the probability P(p) that the row is there: Banzhaf's is the slope at p = 1/2, Shapley's the mean of
the slope over p from 0 to 1 with all base rows equally likely (Owen's multilinear extension). The slope is a polynomial
in p of smaller degree than there are base rows, so Gauss's quadrature gives the mean. Slopes come from the
decision diagram, if it fits; else both are sampled: Shapley's by orders, where halving finds the row that decides,
Banzhaf's by losses, comparing cases with the row and without.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from whence.explain.ask.decision_diagram import LIMIT, DecisionDiagram, DiagramTooLarge, build_diagram
from whence.explain.ask.evaluate import Evaluator
from whence.explain.ask.intervals import normal_quantile
from whence.explain.ask.simplify import Floats
from whence.explain.ask.witnesses import find_support
from whence.explain.graph import Derivations, Ints
from whence.model.budget import reach

SAMPLES = 20_000  # unless told otherwise; fewer, but no less than a thousand, of so many base rows that this makes more
WORK = 10_000_000  # of base rows times samples
CHUNK = 2048  # cases drawn at a time, or as many as make
CELLS = 10_000_000  # of base rows times cases


@dataclass(frozen=True)
class ShapleyValues:
    """Base nodes by Shapley value, greatest first, and the values of each. Sampled ones are `error` away from the truth
    at most, each with this confidence."""

    rows: Ints
    shapley: Floats
    banzhaf: Floats
    method: Literal["exact", "sampled"]
    nodes: int | None
    samples: int | None
    error: float
    confidence: float


def compute_contribution(
    graph: Derivations, limit: int = LIMIT, samples: int | None = None, confidence: float = 0.99, seed: int = 0
) -> ShapleyValues:
    """Compute how much each base row below the first root contributes to it."""
    evaluator = Evaluator(graph)
    below = find_support(evaluator.graph)
    try:
        found = build_diagram(evaluator, limit)
    except DiagramTooLarge:
        if samples is None:
            samples = max(1_000, min(SAMPLES, WORK // max(len(below), 1)))
            if evaluator.graph.tallies:
                samples = max(100, min(samples, evaluator.affordable // (len(below) + 1)))
        return _sampled(evaluator, below, samples, confidence, seed)
    rows = len(graph.base)
    banzhaf = found.slopes(np.full(rows, 0.5))
    return sort_values(graph, below, _shapley(found, rows, len(below)), banzhaf, "exact", len(found), None, 0.0, 1.0)


def _shapley(found: DecisionDiagram, rows: int, many: int) -> Floats:
    """Compute Shapley values: the mean slope. Half as many points as base rows are exact; of many rows a slope changes
    over a range of 1/√n, so that some √n points leave an error far below that of rounding."""
    total = np.zeros(rows)
    points = list(zip(*_gauss(min(many // 2 + 1, 128 + math.isqrt(64 * many))), strict=True))
    for i, (x, w) in enumerate(points):
        reach("Shapley values", i, len(points))
        total += w * found.slopes(np.full(rows, x))
    return total


def _gauss(many: int) -> tuple[Floats, Floats]:
    """Return the points and weights of Gauss's quadrature from 0 to 1: roots of Legendre's polynomial, by Newton's
    method."""
    x = np.cos(np.pi * (np.arange(1, many + 1) - 0.25) / (many + 0.5))
    slope = np.ones(many)
    for _ in range(6):
        before, now = np.ones(many), x.copy()
        for k in range(2, many + 1):
            before, now = now, ((2 * k - 1) * x * now - (k - 1) * before) / k
        slope = many * (x * now - before) / (x * x - 1)
        x = x - now / slope
    return (1 + x) / 2, 1 / ((1 - x * x) * slope * slope)


def sort_values(
    graph: Derivations,
    below: Ints,
    shapley: Floats,
    banzhaf: Floats,
    method: Literal["exact", "sampled"],
    nodes: int | None,
    samples: int | None,
    error: float,
    confidence: float,
) -> ShapleyValues:
    """Return the values of the variables `below` a root, greatest first."""
    by = below[np.lexsort((below, -banzhaf[below], -shapley[below].round(12)))]
    return ShapleyValues(graph.base[by], shapley[by], banzhaf[by], method, nodes, samples, error, confidence)


def _sampled(evaluator: Evaluator, below: Ints, samples: int, confidence: float, seed: int) -> ShapleyValues:
    graph, rng = evaluator.graph, np.random.default_rng(seed)
    rows, wide = len(graph.base), normal_quantile(confidence)
    with_row, without = np.zeros(rows), np.zeros(rows)
    cases_with = np.zeros(rows)
    shapley = np.zeros(rows)
    chunk = max(64, min(CHUNK, CELLS // max(rows, 1)))
    for done in range(0, samples, chunk):
        reach("samples", done, samples)
        cases = min(chunk, samples - done)
        alive = np.zeros((rows, cases), bool)
        alive[below] = rng.random((len(below), cases)) < 0.5
        there = evaluator.root(alive)
        with_row += alive @ there.astype(np.float64)
        without += ~alive @ there.astype(np.float64)
        cases_with += alive.sum(axis=1)
        shapley += _deciding(evaluator, below, cases, rng)
    some, none = np.maximum(cases_with, 1), np.maximum(samples - cases_with, 1)
    a, b = with_row / some, without / none
    shares = shapley / samples
    errors = np.concatenate(
        [np.sqrt((a * (1 - a) / some + b * (1 - b) / none)[below]), np.sqrt((shares * (1 - shares) / samples)[below])]
    )
    error = wide * float(errors.max(initial=0.0)) + math.log(samples) / samples
    return sort_values(graph, below, shares, a - b, "sampled", None, samples, error, confidence)


def _deciding(evaluator: Evaluator, below: Ints, cases: int, rng: np.random.Generator) -> Floats:
    """Count in how many random orders each base row is the one with which the first root comes. With tallies it may
    also go again, so each step counts."""
    rows, many = len(evaluator.graph.base), len(below)
    orders = np.argsort(rng.random((many, cases)), axis=0)
    place = np.full((rows, cases), many, np.int64)  # of each row in each order
    place[below] = np.argsort(orders, axis=0)
    found = np.zeros(rows)
    if not evaluator.graph.tallies:
        low, high = np.zeros(cases, np.int64), np.full(cases, many)  # absent with `low` rows, there with `high`
        while (low + 1 < high).any():
            middle = (low + high) // 2
            there = evaluator.root(place < middle)
            low, high = np.where(there, low, middle), np.where(there, middle, high)
        decides = below[orders[high - 1, np.arange(cases)]]
        np.add.at(found, decides, 1.0)
        return found
    before = evaluator.root(place < 0)
    for step in range(many):
        reach()
        now = evaluator.root(place < step + 1)
        np.add.at(found, below[orders[step]], now.astype(float) - before)
        before = now
    return found
