"""Random instances of refreshing within a bound, small enough for brute force."""

from __future__ import annotations

import math
import random

from whence.adapt.refresh.costs import Cost, Linear, RefreshCosts
from whence.adapt.refresh.learnt_cost import subadditive
from whence.adapt.refresh.plans import Instance


def linear(rng: random.Random) -> Cost:
    """Return a line with a fixed part."""
    return Linear(rng.choice([0.5, 1.0, 1.5, 2.0]), rng.choice([0.0, 1.0, 2.0, 4.0]))


def stepped(rng: random.Random) -> Cost:
    """Return a function that is monotone and subadditive, but neither linear nor concave."""
    width, height = rng.randint(2, 5), rng.choice([1.0, 2.0, 3.0])
    return lambda rows: height * math.ceil(rows / width)


def any_cost(rng: random.Random) -> Cost:
    """Return the subadditive closure of random rises."""
    values = [0.0]
    for _ in range(40):
        values.append(values[-1] + rng.choice([0.0, 0.5, 1.0, 3.0]))
    values[1:] = [value + 1.0 for value in values[1:]]
    closed = subadditive(values)
    return lambda rows: closed[rows]


def instance(rng: random.Random, kind: str, tables: int = 2, instants: int = 6, burst: int = 2) -> Instance:
    """Return an instance with costs of one kind; every table's burst fits the bound."""
    make = {"linear": linear, "stepped": stepped, "any": any_cost}[kind]
    functions = tuple(make(rng) for _ in range(tables))
    arrivals = [tuple(rng.randint(0, burst) for _ in range(tables)) for _ in range(instants)]
    most = max(function(burst) for function in functions)
    return Instance(RefreshCosts(functions), most + rng.choice([0.0, 1.0, 2.5, 4.0]), arrivals)
