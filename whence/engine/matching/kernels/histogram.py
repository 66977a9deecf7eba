"""Step functions over all numbers, and where to put their breaks.

A function of `count` breaks has a height below the first one, one between each two, and one from the last one on:
`heights[b]` is that of the numbers from `breaks[b - 1]` to before `breaks[b]`.

`cluster` and `segment` put breaks where the weighted sum of squares about the means is least, by dynamic programming:
`cluster` for values that rise (where the best last break rises, too, so halves of a range can be searched apart),
`segment` for any.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from whence.model.codes import Codes
from whence.model.jit import allocating, kernel

Heights = NDArray[np.float64]

_FIRST = -(2**63)
LAST = 2**63 - 1


@kernel
def distance(low: int, high: int) -> float:
    """high - low, which may be more than the last number."""
    return float(np.uint64(high) - np.uint64(low))


@kernel
def place_of(breaks: Codes, d: int, count: int, x: int) -> int:
    """The step of line d that a number is in."""
    first = 0
    last = count
    while first < last:
        middle = (first + last) >> 1
        if breaks[d, middle] <= x:
            first = middle + 1
        else:
            last = middle
    return first


@kernel
def width_of(breaks: Codes, d: int, count: int, b: int) -> float:
    """How many numbers a step has."""
    low = breaks[d, b - 1] if b > 0 else _FIRST + 1
    high = breaks[d, b] if b < count else LAST
    return distance(low, high) + (1.0 if b == count else 0.0)


@allocating
def cover(breaks: Codes, d: int, count: int, lows: Codes, highs: Codes, amount: float, heights: Heights) -> None:
    """Add an amount to the steps that closed intervals cover, and its share to those that they cover partly."""
    whole = np.zeros(count + 2)
    for i in range(lows.shape[0]):
        low = lows[i]
        high = highs[i]
        first = place_of(breaks, d, count, low)
        last = place_of(breaks, d, count, high)
        if first == last:
            heights[d, first] += amount * (distance(low, high) + 1.0) / width_of(breaks, d, count, first)
            continue
        heights[d, first] += amount * distance(low, breaks[d, first]) / width_of(breaks, d, count, first)
        heights[d, last] += amount * (distance(breaks[d, last - 1], high) + 1.0) / width_of(breaks, d, count, last)
        whole[first + 1] += amount
        whole[last] -= amount
    added = 0.0
    for b in range(count + 1):
        added += whole[b]
        heights[d, b] += added


@kernel
def scatter(weights: Heights, values: Heights, squares: Heights, i: int, j: int) -> float:
    """The weighted sum of squares about their mean of the values from i to before j, by cumulated sums."""
    weight = weights[j] - weights[i]
    if weight <= 0.0:
        return 0.0
    total = values[j] - values[i]
    return float(max(0.0, squares[j] - squares[i] - total * total / weight))


@allocating
def cumulate(values: Heights, weights: Heights) -> tuple[Heights, Heights, Heights]:
    """Sums of weights, of weighted values and of their squares, before each place."""
    n = values.shape[0]
    sums = np.zeros(n + 1)
    first = np.zeros(n + 1)
    second = np.zeros(n + 1)
    for i in range(n):
        sums[i + 1] = sums[i] + weights[i]
        first[i + 1] = first[i] + weights[i] * values[i]
        second[i + 1] = second[i] + weights[i] * values[i] * values[i]
    return sums, first, second


@allocating
def cluster(values: Heights, weights: Heights, k: int) -> Codes:
    """Where each of k clusters of values that rise begins (1-d k-means, exact)."""
    n = values.shape[0]
    k = min(k, n)
    sums, first, second = cumulate(values, weights)
    best = np.empty(n + 1)
    better = np.empty(n + 1)
    begins = np.zeros((k + 1, n + 1), np.int64)
    for j in range(n + 1):
        best[j] = scatter(sums, first, second, 0, j)
    stack = np.empty((128, 4), np.int64)
    for q in range(2, k + 1):
        stack[0, 0] = q
        stack[0, 1] = n
        stack[0, 2] = q - 1
        stack[0, 3] = n - 1
        waiting = 1
        while waiting:  # the middle of a range of ends, then both halves, whose last clusters begin on either side
            waiting -= 1
            low = stack[waiting, 0]
            high = stack[waiting, 1]
            least = stack[waiting, 2]
            most = stack[waiting, 3]
            middle = (low + high) >> 1
            at = least
            cost = np.inf
            for i in range(least, min(most, middle - 1) + 1):
                found = best[i] + scatter(sums, first, second, i, middle)
                if found < cost:
                    cost = found
                    at = i
            better[middle] = cost
            begins[q, middle] = at
            if low < middle:
                stack[waiting, 0] = low
                stack[waiting, 1] = middle - 1
                stack[waiting, 2] = least
                stack[waiting, 3] = at
                waiting += 1
            if middle < high:
                stack[waiting, 0] = middle + 1
                stack[waiting, 1] = high
                stack[waiting, 2] = at
                stack[waiting, 3] = most
                waiting += 1
        for j in range(q, n + 1):
            best[j] = better[j]
    return followed(begins, k, n)


@allocating
def segment(values: Heights, weights: Heights, k: int) -> Codes:
    """Where each of k runs of values begins."""
    n = values.shape[0]
    k = min(k, n)
    sums, first, second = cumulate(values, weights)
    best = np.empty(n + 1)
    better = np.empty(n + 1)
    begins = np.zeros((k + 1, n + 1), np.int64)
    for j in range(n + 1):
        best[j] = scatter(sums, first, second, 0, j)
    for q in range(2, k + 1):
        for j in range(q, n + 1):
            cost = np.inf
            for i in range(q - 1, j):
                found = best[i] + scatter(sums, first, second, i, j)
                if found < cost:
                    cost = found
                    begins[q, j] = i
            better[j] = cost
        for j in range(q, n + 1):
            best[j] = better[j]
    return followed(begins, k, n)


@allocating
def followed(begins: Codes, k: int, n: int) -> Codes:
    out = np.zeros(k, np.int64)
    end = n
    for q in range(k, 1, -1):
        end = begins[q, end]
        out[q - 1] = end
    return out
