"""FlowExpect, the yardstick of section 3.3 in paper 002: which rows to keep, by a flow through the steps to come.

It looks some steps ahead and takes the sequence of replacements with the greatest expected benefit, of those that are
fixed beforehand; a step later it asks again. Steps and rows are a network: a unit of memory rides on a row from step to
step, and may change at a step to a row that arrives then. SciPy's HiGHS finds the flow. It is not optimal: a strategy
that decides by what arrives can be better (section 3.3.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from whence.plan.eviction.value_models import Noise

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Candidate:
    """A row that may be kept from the step of its arrival on: `gains[d]` is what it is expected to join at step d."""

    arrives: int
    gains: Sequence[float]


def best_sequence(rows: Sequence[Candidate], memory: int, steps: int) -> tuple[float, list[int]]:
    """Return the greatest expected benefit of a fixed sequence, and which of the rows at hand it keeps at first.

    >>> rows = [Candidate(0, (0, 1.0, 0, 0.5)), Candidate(0, (0, 0, 0.8, 0.8)), Candidate(1, (0, 0, 0.5, 0))]
    >>> best_sequence(rows, 1, 3)
    (1.6, [1])
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    nodes = steps + 1  # of the steps: where memory is free; the last one is the end
    arcs: list[tuple[int, int, float, float]] = [(d, d + 1, 0.0, float(memory)) for d in range(steps)]
    enters: list[int] = []
    for row in rows:
        at = row.arrives
        enters.append(len(arcs))
        arcs.append((at, nodes, 0.0, 1.0))
        for d in range(at + 1, steps + 1):
            arcs += [(nodes, nodes + 1, row.gains[d], 1.0), (nodes + 1, d, 0.0, 1.0)]
            nodes += 1
        nodes += 1
    tails, heads, gains, limits = (np.array(column) for column in zip(*arcs, strict=True))
    count = np.arange(len(arcs))
    ends = np.concatenate((heads, tails)).astype(np.int64), np.concatenate((count, count))
    matrix = coo_matrix((np.repeat([1.0, -1.0], len(arcs)), ends), (nodes, len(arcs))).tocsr()
    balance = np.zeros(nodes)
    balance[0], balance[steps] = -memory, memory
    found = linprog(-gains, A_eq=matrix, b_eq=balance, bounds=np.column_stack((0 * limits, limits)), method="highs-ds")
    kept = [i for i, row in enumerate(rows) if row.arrives == 0 and found.x[enters[i]] > 0.5]
    return round(float(-found.fun), 9), kept


def flow_expect(r: Numbers, s: Numbers, noises: tuple[Noise, Noise], lag: int, memory: int, ahead: int) -> int:
    """Return the pairs of different steps, after the warm-up, that FlowExpect finds where R is step − lag + noise and S
    is step + noise, and it knows that."""
    late = (lag, 0)
    unknown = [
        [_unknown_gain(noises, late, side, gap) for gap in range(ahead + 1)] for side in (0, 1)
    ]  # of a row to come: what it joins after so many steps
    coming = [
        Candidate(step, [unknown[side][max(d - step, 0)] if d > step else 0.0 for d in range(ahead + 1)])
        for step in range(1, ahead + 1)
        for side in (0, 1)
    ]
    kept: list[tuple[int, int]] = []  # side and value
    pairs = 0
    for step, values in enumerate(zip(r.tolist(), s.tolist(), strict=True)):
        if step >= 4 * memory:
            pairs += sum(value == values[1 - side] for side, value in kept)
        choices = [*kept, (0, values[0]), (1, values[1])]
        if len(choices) <= memory:
            kept = choices
            continue
        offsets = step + np.arange(ahead + 1)
        rows = [Candidate(0, noises[1 - side].at(value - offsets + late[1 - side]).tolist()) for side, value in choices]
        _, chosen = best_sequence(rows + coming, memory, ahead)
        kept = [choices[i] for i in chosen]
    return pairs


def _unknown_gain(noises: tuple[Noise, Noise], late: tuple[int, int], side: int, gap: int) -> float:
    """Return the probability that a row of a side, whatever it is, has the value of the other side's row so many steps
    after it."""
    own, other = noises[side], noises[1 - side]
    values = np.arange(own.low, own.high + 1)
    return float(own.p @ other.at(values - late[side] + late[1 - side] - gap))
