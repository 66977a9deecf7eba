"""Shares: what each row of a group is to the group's aggregates.

Of COUNT, SUM and AVG every row has a part of the whole, in proportion to what it adds (parts add up to 1; where values
have both signs some are negative, and of a sum of zero there are none); of MIN and MAX it is the best one, or not.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from whence.explain.graph import Derivations


@dataclass(frozen=True)
class AggregateShare:
    """What a row of a group is to one of its aggregates: its value, and its part of the whole (COUNT, SUM, AVG) or
    whether it is the best one (MIN, MAX)."""

    function: str
    value: object
    part: float | None = None
    best: bool | None = None


def shares_of(graph: Derivations, node: int) -> list[str]:
    """Say what each row of a group adds to its aggregates; of a node that has none, nothing."""
    if node not in graph.tallies:
        return []
    columns = [[in_words(share) for share in column] for column in shares(graph, node)]
    return [", ".join(parts) for parts in zip(*columns, strict=True)]


def in_words(share: AggregateShare) -> str:
    """
    >>> in_words(AggregateShare("sum", 3, 0.25)), in_words(AggregateShare("min", 3, best=True))
    ('3: 25 % of SUM', '3: the MIN')
    >>> in_words(AggregateShare("max", None, best=False))
    'NULL: not the MAX'
    """
    name = share.function.upper()
    value = "" if share.function == "count" else f"{'NULL' if share.value is None else share.value}: "
    if share.best is not None:
        return f"{value}{'the' if share.best else 'not the'} {name}"
    if share.part is None:
        return f"{value}no part of {name}"
    return f"{value}{round(share.part * 100, 1):g} % of {name}"


def shares(graph: Derivations, node: int) -> list[list[AggregateShare]]:
    """Compute the share of each element of its body in each aggregate of a tallied node."""
    tally = graph.tallies[node]
    return [
        _shares(function, distinct, [row[i] for row in tally.values], tally.weights.tolist())
        for i, (function, distinct) in enumerate(tally.functions)
    ]


def _shares(function: str, distinct: bool, values: list[object], weights: list[int]) -> list[AggregateShare]:
    if function in ("min", "max"):
        there = [v for v in values if v is not None]
        best = (min if function == "min" else max)(there) if there else None  # type: ignore[type-var]  # of one type
        return [AggregateShare(function, v, best=v is not None and v == best) for v in values]
    alike: dict[object, int] = {}
    for v, w in zip(values, weights, strict=True):
        alike[v] = alike.get(v, 0) + w
    amounts: list[Fraction | None] = []
    for v, w in zip(values, weights, strict=True):
        copies = Fraction(w, alike[v]) if distinct else Fraction(w)
        amounts.append(None if v is None else copies * _number(v) if function in ("sum", "avg") else copies)
    whole = sum((a for a in amounts if a is not None), Fraction(0))
    return [
        AggregateShare(function, v, float(a / whole) if a is not None and whole else None)
        for v, a in zip(values, amounts, strict=True)
    ]


def _number(value: Any) -> Fraction:
    try:
        return Fraction(value)
    except (TypeError, ValueError, OverflowError):
        return Fraction(0)
