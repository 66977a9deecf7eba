"""Sums over a decision diagram: nodes are (variable, low, high), parents before children; 0 is false, 1 is true."""

from __future__ import annotations

from typing import Any

import numpy as np

from whence.explain.graph import Ints
from whence.model.codes import Codes
from whence.model.jit import allocating, kernel


@allocating
def reduce(variable: Ints, low: Codes, high: Codes) -> tuple[Ints, Codes, Codes, int]:
    """Return the same diagram with equal nodes made one and nodes without a choice left out, and its root. Given, node
    2 is the root; low and high are overwritten."""
    n = len(variable)
    size = 16
    while size < 2 * n:
        size *= 2
    table = np.full(size, -1, np.int64)
    mask = np.uint64(size - 1)
    to = np.empty(n, np.int64)
    to[0], to[1] = 0, 1
    for i in range(n - 1, 1, -1):
        a, b = to[low[i]], to[high[i]]
        if a == b:
            to[i] = a
            continue
        h = np.uint64(variable[i]) * np.uint64(0x9E3779B97F4A7C15)
        h = (h ^ np.uint64(a)) * np.uint64(0xFF51AFD7ED558CCD)
        h = ((h ^ h >> np.uint64(32)) ^ np.uint64(b)) * np.uint64(0xC4CEB9FE1A85EC53)
        at = (h ^ h >> np.uint64(29)) & mask
        while True:
            t = table[at]
            if t < 0:
                table[at] = i
                to[i] = i
                low[i], high[i] = a, b
                break
            if variable[t] == variable[i] and low[t] == a and high[t] == b:
                to[i] = t
                break
            at = (at + np.uint64(1)) & mask
    # those reached from the root, in order
    seen = np.zeros(n, np.uint8)
    root = to[2] if n > 2 else 0
    seen[root] = 1
    kept = 0
    for i in range(2, n):
        if seen[i]:
            kept += 1
            seen[low[i]] = 1
            seen[high[i]] = 1
    place = np.zeros(n, np.int64)
    place[1] = 1
    at_place = 2
    for i in range(2, n):
        if seen[i]:
            place[i] = at_place
            at_place += 1
    out_variable = np.empty(kept + 2, np.int32)
    out_low = np.zeros(kept + 2, np.int64)
    out_high = np.zeros(kept + 2, np.int64)
    out_variable[0] = out_variable[1] = -1
    for i in range(2, n):
        if seen[i]:
            p = place[i]
            out_variable[p] = variable[i]
            out_low[p] = place[low[i]]
            out_high[p] = place[high[i]]
    return out_variable, out_low, out_high, place[root]


@allocating
def weigh(variable: Ints, low: Codes, high: Codes, probability: Any) -> Any:
    """Compute the probability of each node's function."""
    value = np.empty(len(variable))
    value[0], value[1] = 0.0, 1.0
    for i in range(len(variable) - 1, 1, -1):
        p = probability[variable[i]]
        value[i] = (1 - p) * value[low[i]] + p * value[high[i]]
    return value


@allocating
def slopes(variable: Ints, low: Codes, high: Codes, root: int, probability: Any) -> Any:
    """Compute how the root's probability changes with that of each variable."""
    value = weigh(variable, low, high, probability)
    mass = np.zeros(len(variable))
    mass[root] = 1.0
    found = np.zeros(len(probability))
    for i in range(2, len(variable)):
        p = probability[variable[i]]
        found[variable[i]] += mass[i] * (value[high[i]] - value[low[i]])
        mass[low[i]] += (1 - p) * mass[i]
        mass[high[i]] += p * mass[i]
    return found


@kernel
def up(rows: int, all_of: Codes, start: Codes, parts: Codes, found: Any) -> None:
    """Compute the probabilities of modules from those of base rows, which come first in `found`."""
    for m in range(len(all_of)):
        product = 1.0
        for i in range(start[m], start[m + 1]):
            product *= found[parts[i]] if all_of[m] else 1 - found[parts[i]]
        found[rows + m] = product if all_of[m] else 1 - product


@kernel
def down(rows: int, all_of: Codes, start: Codes, parts: Codes, chance: Any, slope: Any, after: Any) -> None:
    """Hand the slopes of modules down to their parts: each is multiplied by what the other parts leave to decide."""
    for m in range(len(all_of) - 1, -1, -1):
        product = 1.0
        for i in range(start[m + 1] - 1, start[m] - 1, -1):
            after[i - start[m]] = product
            product *= chance[parts[i]] if all_of[m] else 1 - chance[parts[i]]
        product = slope[rows + m]
        for i in range(start[m], start[m + 1]):
            slope[parts[i]] += product * after[i - start[m]]
            product *= chance[parts[i]] if all_of[m] else 1 - chance[parts[i]]
