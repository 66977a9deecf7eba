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
from whence.model.budget import reach
from whence.model.codes import Codes

SLICE = 1_000_000  # nodes that one call of the kernel looks at


def find_critical(graph: Derivations) -> Ints:
    """Find the base nodes whose loss alone removes the first root, in order."""
    reach("critical rows")
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
    counts = _one_at_a_time(evaluator) if ready.tallies else _by_followers(evaluator)
    by = np.lexsort((ready.base, -counts))
    by = by[counts[by] > 0]
    return ready.base[by], counts[by]


def _by_followers(evaluator: Evaluator) -> Codes:
    graph = evaluator.graph
    asked = np.bincount(graph.roots, minlength=len(graph)).astype(np.int64)
    counts, doubt = np.zeros(len(graph.base), np.int64), np.zeros(len(graph), np.uint8)
    below, stays = np.empty(len(graph), np.int32), np.empty(len(graph), np.int32)
    kids, kid = losses.followers(len(graph), *evaluator.full, graph.start, graph.body)
    shape = (graph.base, asked, graph.first, graph.head, graph.start, graph.body, *evaluator.uses)
    done = 0
    while done < len(graph.base):
        reach("losses of base rows", done, len(graph.base))
        done = losses.losses(done, SLICE, counts, doubt, below, stays, kids, kid, *shape)
    return counts


def _one_at_a_time(evaluator: Evaluator) -> Codes:
    rows, roots = len(evaluator.graph.base), evaluator.graph.roots
    counts = np.zeros(rows, np.int64)
    for low in range(0, rows, 64):
        reach("losses of base rows", low, rows)
        high = min(low + 64, rows)
        alive = np.full(rows, ~np.uint64(0), np.uint64)
        alive[low:high] = ~(np.uint64(1) << np.arange(high - low, dtype=np.uint64))
        lost = ~evaluator.words(alive)[roots]
        counts[low:high] = [int((lost >> np.uint64(b) & np.uint64(1)).sum()) for b in range(high - low)]
    return counts
