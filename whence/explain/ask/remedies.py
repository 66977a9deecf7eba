"""Remedies of a missing row: single base rows whose insertion or deletion makes it appear.

An insertion suffices by construction where the search says so (`MissingRows.sufficient`). A deletion suffices if it
removes every row that excludes a match and leaves the match: both are read off the derivations, for all base rows at
once.
"""

from __future__ import annotations

import numpy as np

from whence.explain.ask.evaluate import evaluate
from whence.explain.graph import Ints
from whence.explain.missing import Exclusion, MissingRows, Remedy

MOST = 500  # base rows of an exclusion that are tried


def find_remedies(missing: MissingRows) -> list[Remedy]:
    """Return the changes of one base row that suffice, deletions first."""
    found: dict[str, Remedy] = {}
    for goal in missing.walk():
        for exclusion in (e for way in goal.ways for e in way.exclusions):
            for table, row in exclusion.graph.rows(find_blockers(exclusion, sufficient=True)):
                remedy = Remedy("delete", table, row, tuple(row))
                found.setdefault(str(remedy), remedy)
    for goal in missing.walk():
        for row in goal.sufficient:
            remedy = Remedy("insert", goal.relation, row, goal.columns)
            found.setdefault(str(remedy), remedy)
    return list(found.values())


def find_blockers(exclusion: Exclusion, sufficient: bool = False) -> Ints:
    """Return the base rows whose loss alone removes every row that excludes a match; if `sufficient`, only those after
    whose loss the row that was asked for is there."""
    graph = exclusion.graph
    base = graph.base
    none = np.empty(0, np.int32)
    if not 0 < len(base) <= MOST or exclusion.more or not graph.exact or (sufficient and not exclusion.sound):
        return none
    left = evaluate(graph, ~np.eye(len(base), dtype=bool))
    lost = ~left[exclusion.excluding].any(axis=0)
    if sufficient:
        lost &= left[exclusion.match]
        names = [graph.relations[r].name for r in graph.relation[base]]
        lost &= np.array([name not in exclusion.protected for name in names], bool)
    found: Ints = base[lost]
    return found
