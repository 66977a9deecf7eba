"""Reliability: the probability that a row is there when base rows are there independently of each other.

Exact by a weighted sum over the decision diagram of its function, if that fits (`decision_diagram.py`); else sampled.
When nothing is not monotone, sampling leaves out what is known: with all of one witness the row is there, so only
losses of some of it are drawn. The interval is Clopper's and Pearson's: it covers the truth at least as often as it
says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from whence.explain.ask.decision_diagram import LIMIT, DiagramTooLarge, build_diagram
from whence.explain.ask.evaluate import Bools, Evaluator, pack, unpack
from whence.explain.ask.intervals import clopper_pearson
from whence.explain.ask.simplify import Floats
from whence.explain.ask.witnesses import find_support, find_witness
from whence.explain.graph import Derivations
from whence.explain.kernels import spread
from whence.model.budget import reach
from whence.model.errors import DataError

SAMPLES = 100_000  # unless told otherwise; fewer where cases are expensive
CHUNK = 4096  # cases drawn at a time


@dataclass(frozen=True)
class Probability:
    """A probability and the interval it lies in; for exact ones that is the probability itself."""

    probability: float
    low: float
    high: float
    method: Literal["exact", "sampled"]
    nodes: int | None  # of the decision diagram
    samples: int | None
    confidence: float  # of the interval


def compute_reliability(
    graph: Derivations,
    probabilities: Floats,
    limit: int = LIMIT,
    samples: int | None = None,
    confidence: float = 0.99,
    seed: int = 0,
) -> Probability:
    """Compute the probability of the first root. Probabilities are those of `graph.base`, one each; `limit` is in nodes
    of the diagram."""
    if len(probabilities) != len(graph.base) or not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise DataError("probabilities are numbers from 0 to 1, one for each base row")
    evaluator = Evaluator(graph)
    try:
        found = build_diagram(evaluator, limit, pair=probabilities)
    except DiagramTooLarge:
        samples = max(1_000, min(SAMPLES, evaluator.affordable)) if samples is None else samples
        return sample_reliability(evaluator, probabilities, samples, confidence, seed)
    value = min(1.0, max(0.0, found.probability(probabilities)))
    return Probability(value, value, value, "exact", len(found), None, 1.0)


def sample_reliability(
    evaluator: Evaluator, probabilities: Floats, samples: int, confidence: float, seed: int
) -> Probability:
    """Estimate the probability by drawing cases."""
    graph, rng = evaluator.graph, np.random.default_rng(seed)
    below = find_support(graph)
    witness = None if graph.tallies else find_witness(evaluator, probabilities > 0)
    if witness is None and not graph.tallies:
        return Probability(0.0, 0.0, 0.0, "exact", 0, None, 1.0)
    known = np.empty(0, np.int32) if witness is None else witness
    sure = float(probabilities[known].prod()) if witness is not None else 0.0
    if sure == 1.0:
        return Probability(1.0, 1.0, 1.0, "exact", 0, None, 1.0)
    chances = np.zeros(len(graph.base))
    chances[below] = probabilities[below]
    hits, state = 0, int(rng.integers(1 << 62))
    for done in range(0, samples, CHUNK):
        reach("samples", done, samples)
        cases = min(CHUNK, samples - done)
        words = np.zeros((len(graph.base), -(-cases // 64)), np.uint64)
        state = int(spread.draw(chances, words, state))
        if witness is not None:
            words[known] = pack(_lose_some(unpack(words[known], cases), probabilities[known], rng))
        hits += int(unpack(evaluator.root_words(words)[None, :], cases).sum())
    low, high = clopper_pearson(hits, samples, confidence)
    scaled = [sure + (1 - sure) * share for share in (hits / samples, low, high)]
    return Probability(scaled[0], scaled[1], scaled[2], "sampled", None, samples, confidence)


def _lose_some(drawn: Bools, chances: Floats, rng: np.random.Generator) -> Bools:
    """Draw the rows of a witness given that some of them are lost: which is the first, and those after it as drawn."""
    before = np.concatenate([[1.0], np.cumprod(chances)[:-1]])
    first = np.searchsorted(np.cumsum(before * (1 - chances)), rng.random(drawn.shape[1]) * (1 - chances.prod()))
    first = np.minimum(first, np.flatnonzero(chances < 1)[-1])
    place = np.arange(len(chances))[:, None]
    found: Bools = (place < first) | (place > first) & drawn
    return found
