"""Checks over several columns: what `CHECK (low <= high)` says of one column, given the other.

The law: no row of a source makes one of its checks FALSE. So a column that is at most another lies below the other's
highest value, unless the other is NULL, and one that is at least another above its lowest. Columns that are at least an
ordered one rise with its horizon.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

from whence.plan.knowledge.bounds import Bounds
from whence.plan.knowledge.model import Operation, SourceFacts, Term, Variable
from whence.plan.knowledge.terms import bound, rebased, walk

Places = dict[tuple[int, int], Bounds]
"""The bounds of columns of source rows, by the number of the base and of the column."""


def orders_of(source: SourceFacts) -> Iterator[tuple[int, int]]:
    """Yield the pairs of columns of which the first is at most the second, where neither is NULL."""
    for check in source.checks:
        match check:
            case Operation(op="<" | "<=" | "=", args=(Variable(column=a), Variable(column=b))):
                yield a, b
        match check:
            case Operation(op=">" | ">=" | "=", args=(Variable(column=a), Variable(column=b))):
                yield b, a


def narrow_by_checks(places: MutableMapping[Any, Bounds], source: SourceFacts, base: int = 0) -> bool:
    """Narrow what the columns of a source row can be by its checks; return False if no row can be so."""
    if not source.checks:
        return True
    for _ in range(2):  # once more for what follows from what follows
        for a, b in orders_of(source):
            low, high = places[base, a], places[base, b]
            if not high.null and high.high is not None:
                found = low.common(Bounds(None, high.high))
                if found is None:
                    return False
                places[base, a] = found
            if not low.null and low.low is not None:
                found = high.common(Bounds(low.low, None))
                if found is None:
                    return False
                places[base, b] = found
    return all(_may_hold(rebased(check, base), places) for check in source.checks)


def _may_hold(check: Term, places: Mapping[Any, Bounds]) -> bool:
    """Return whether a check may be TRUE or NULL."""
    found = bound(check, lambda leaf: places[leaf.base, leaf.column] if isinstance(leaf, Variable) else Bounds())
    return found.null or not found.some or found.high is not False


def rising_columns(source: SourceFacts) -> set[int]:
    """Return the columns that rise with the horizon of a source: its ordered one, and those that are at least that."""
    if source.ordered is None:
        return set()
    found = {source.ordered}
    while True:
        more = {b for a, b in orders_of(source) if a in found}
        if more <= found:
            return found
        found |= more


def with_differences(term: Term, sources: Mapping[int, SourceFacts]) -> Term:
    """Return a term in which the difference of two columns is one that a check keeps from being negative. `sources`
    are those of the bases."""
    if not isinstance(term, Operation):
        return term
    args = tuple(with_differences(arg, sources) for arg in term.args)
    match term.op, args:
        case "-", (Variable() as more, Variable() as less) if more.base == less.base and _is_exact(term.type):
            if (less.column, more.column) in orders_of(sources[more.base]):
                return Operation(term.type, "difference", args)
    return Operation(term.type, term.op, args)


def has_differences(term: Term) -> bool:
    """Return whether a term has a difference that a check keeps from being negative."""
    return any(isinstance(part, Operation) and part.op == "difference" for part in walk(term))


def _is_exact(type: str) -> bool:
    """Return whether a type has numbers that do not round, of which a difference below zero cannot become zero."""
    return type in ("INTEGER", "BIGINT") or type.startswith("DECIMAL")
