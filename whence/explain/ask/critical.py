"""Single points of failure: base rows whose loss alone takes rows along.

Law: without tallies a base row is critical for a row exactly if it is in all of its minimal witnesses; so the critical
ones are among those of any one derivation, and losing each of these alone decides. So it is for all rows of a view: a
base row can only take rows along whose chosen derivation goes back to it.
"""

from __future__ import annotations

import numpy as np

from whence.explain.ask.evaluate import Evaluator
from whence.explain.ask.witnesses import find_support, find_tree
from whence.explain.graph import Derivations, Ints
from whence.explain.kernels import losses
from whence.model.codes import Codes


def find_critical(graph: Derivations) -> Ints:
    """Find the base nodes whose loss alone removes the first root, in order."""
    evaluator = Evaluator(graph)
    rows = len(graph.base)
    suspects = find_support(graph) if evaluator.graph.tallies else find_tree(evaluator, np.ones(rows, bool))
    if suspects is None:
        return np.empty(0, np.int32)
    found: Ints = graph.base[suspects[~evaluator.without_each(np.ones(rows, bool), suspects)]]
    return found


def rank_losses(graph: Derivations) -> tuple[Ints, Codes]:
    """Rank the base nodes whose loss alone removes some root by the number of roots that each removes, most first."""
    evaluator = Evaluator(graph)
    ready = evaluator.graph
    if ready.tallies:
        counts = _one_at_a_time(evaluator)
    else:
        asked = np.bincount(ready.roots, minlength=len(ready)).astype(np.int64)
        shape = (ready.first, ready.head, ready.start, ready.body, *evaluator.uses)
        counts = losses.losses(*evaluator.full, ready.base, asked, *shape)
    by = np.lexsort((ready.base, -counts))
    by = by[counts[by] > 0]
    return ready.base[by], counts[by]


def _one_at_a_time(evaluator: Evaluator) -> Codes:
    rows, roots = len(evaluator.graph.base), evaluator.graph.roots
    counts = np.zeros(rows, np.int64)
    for low in range(0, rows, 64):
        high = min(low + 64, rows)
        alive = np.full(rows, ~np.uint64(0), np.uint64)
        alive[low:high] = ~(np.uint64(1) << np.arange(high - low, dtype=np.uint64))
        lost = ~evaluator.words(alive)[roots]
        counts[low:high] = [int((lost >> np.uint64(b) & np.uint64(1)).sum()) for b in range(high - low)]
    return counts
