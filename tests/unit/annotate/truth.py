"""Monotone Boolean functions of six variables as truth tables, against which algebras of provenance are held."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import strategies as st

from whence.annotate import Provenance

WIDTH = 6
VARIABLES = tuple(3 + 5 * i for i in range(WIDTH))  # numbers with gaps, as an engine gives them
WORLDS = [frozenset(v for i, v in enumerate(VARIABLES) if world >> i & 1) for world in range(1 << WIDTH)]
Dnf = list[list[int]]  # an OR of ANDs; [] is false and [[]] true

dnfs = st.lists(st.lists(st.sampled_from(VARIABLES), max_size=4), max_size=5)
columns = st.lists(dnfs, min_size=1, max_size=6)


def table(dnf: Dnf) -> tuple[bool, ...]:
    """The function's value in each world."""
    return tuple(any(world.issuperset(term) for term in dnf) for world in WORLDS)


def minimal(truth: tuple[bool, ...]) -> list[tuple[int, ...]]:
    """The minimal worlds in which the function is true, smallest first."""
    true = dict(zip(WORLDS, truth, strict=True))
    smallest = [w for w in WORLDS if true[w] and not any(true[w - {v}] for v in w)]
    return sorted((tuple(sorted(w)) for w in smallest), key=lambda w: (len(w), w))


def column(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def build(algebra: Provenance, dnf: Dnf) -> int:
    """The handle of a function, by way of `of_tid`, `times` and `plus`."""
    out = column(0)
    for term in dnf:
        one = column(1)
        for variable in term:
            one = algebra.times(one, algebra.of_tid(column(variable)))
        out = algebra.plus(out, one)
    return int(out[0])


def read(algebra: Provenance, handle: int) -> tuple[bool, ...]:
    """The truth table of a handle, read off its witnesses."""
    return table([list(witness) for witness in algebra.witnesses(handle, 1000)])


def threshold(algebra: Provenance, variables: range, most: int) -> int:
    """The function that any `most` of these variables make true."""
    return build(algebra, [list(term) for term in combinations(variables, most)])
