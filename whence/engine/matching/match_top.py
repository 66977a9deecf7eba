"""MatchTop: the first rows of each subscription's selection in an order, ORDER BY … LIMIT.

Law: see `matching.py`; an answer is the first rows of a selection, a function of its ordered rows. A row can change it
only if it is selected, and comes or goes not after the last row of the answer. So the value of that row in the first
column of the order, the **bound**, is one more dimension of a subscription's box; where there are fewer rows than asked
for it is the greatest number. A row that comes after the bound moves into an answer only when another leaves it, which
finds the subscription by itself. State: the rows in order, with the least value of each leaf, and each subscription as
the point [equalities, low ends, high ends, limit] marked with its bound. Cost: O(log n) per row, and for each affected
subscription its first rows before and after; new subscriptions read theirs. Nothing else is looked at.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.operator import Batch, Operator
from whence.engine.core.ordered import Ordered, Rank, head_ends
from whence.engine.matching.bounds import ParameterBounds
from whence.engine.matching.kernels.hull import HIGHEST, LOWEST
from whence.engine.matching.kernels.top import top_in_boxes
from whence.engine.matching.marked_boxes import MarkedBoxes
from whence.engine.matching.matching import Matching
from whence.engine.matching.ordered_minima import OrderedMinima
from whence.model.codes import NULL, Codes, Dictionary
from whence.plan.algebra import logical
from whence.plan.algebra.expressions import Col


class MatchTop(Matching):
    """Ids of subscriptions, and the first rows in their boxes."""

    def __init__(self, inputs: list[Operator], node: logical.MatchTop, dictionary: Dictionary):
        super().__init__(inputs, node.exprs, node.schema, dictionary)
        types, equal = inputs[0].schema.types, len(node.equal)
        self._node, self._equal, self.is_read = node, equal, node.is_read
        self._bounds = ParameterBounds((*node.equal, *node.ranges), inputs[1].schema.types, dictionary)
        dims = self._dims = len(self._bounds)
        self.is_labelled = self._bounds.is_labelled or types[dims].needs_dictionary
        ranks = [Rank(c, types[c]) if c >= equal else Rank(c) for c in range(dims)]
        ranks += [Rank(o.column, types[o.column], o.descending, o.nulls_first) for o in node.order]
        self._rows = OrderedMinima(ranks, dims, dictionary)
        self._subscriptions = MarkedBoxes(equal + 2 * len(node.ranges) + isinstance(node.limit, Col), equal)
        self._affected: Codes | None = None  # lines of subscriptions whose bounds may have changed in this epoch

    def meet(self, deltas: list[Batch]) -> list[Batch]:
        (delta,) = deltas
        found = self._find(delta.rows)
        if not len(found):
            self._rows.add(delta.rows, delta.ann)
            return []
        lines = self._subscriptions.entries[found]
        before, _ = self._first_rows(lines)
        self._rows.add(delta.rows, delta.ann)
        self._affected = lines
        after, bounds = self._first_rows(lines)
        moved = bounds != lines[:, -1]
        self._subscriptions.mark(found[moved], bounds[moved])
        return [after, Batch(before.rows, -before.ann)]

    def _find(self, rows: Codes) -> Codes:
        """Return the places of the subscriptions whose answers rows may change, by coming or going."""
        if not len(self._subscriptions):
            return np.empty(0, np.int64)
        ranked, equal, dims = self._rows.encode(rows), self._equal, self._dims
        lows, highs = (np.empty((len(rows), self._subscriptions.dims), np.int64) for _ in range(2))
        lows[:, equal:], highs[:, equal:] = LOWEST, HIGHEST
        lows[:, :equal] = highs[:, :equal] = ranked[:, :equal]
        highs[:, equal:dims] = ranked[:, equal:dims]
        lows[:, dims : 2 * dims - equal] = ranked[:, equal:dims]
        return self._subscriptions.find_from(lows, highs, np.ascontiguousarray(ranked[:, dims]))

    def _lines(self, rows: Codes) -> tuple[Codes, Codes]:
        """Return which rows of parameters select anything, and their subscriptions without bounds."""
        found = self._bounds.boxes(rows)
        parts = [found.lows, found.highs[:, self._equal :]]
        if isinstance(self._node.limit, Col):
            parts.append(rows[found.at, self._node.limit.index][:, None])
        points = np.column_stack(parts)
        return found.at, self._subscriptions.lines(points, points, found.ids)

    def _first_rows(self, lines: Codes) -> tuple[Batch, Codes]:
        """Return the answers of subscriptions, as ids and rows, and their bounds."""
        _, answers, bounds = self._select(lines)
        return answers, bounds

    def _select(self, lines: Codes) -> tuple[Codes, Batch, Codes]:
        equal, dims, node = self._equal, self._dims, self._node
        lows = np.ascontiguousarray(lines[:, :dims])
        highs = np.column_stack((lines[:, :equal], lines[:, dims : 2 * dims - equal]))
        if isinstance(node.limit, Col):
            limits = lines[:, 2 * dims - equal]
        else:
            limits = np.full(len(lines), NULL if node.limit is None else node.limit, np.int64)
        at, places, counts, bounds = top_in_boxes(
            *self._rows.searched,
            self._rows.counts,
            lows,
            highs,
            equal,
            len(self._rows.ranks),
            node.offset,
            head_ends(limits, node.offset),
        )
        rows = np.column_stack((lines[at, -2], self._rows.rows_at(places)[0]))
        return at, Batch(rows, counts), bounds

    def change(self, gone: Codes, come: Codes) -> None:
        self._rows.refresh()
        if len(gone):
            self._subscriptions.take(self._lines(gone)[1])
        if len(come):
            lines = self._lines(come)[1]
            lines[:, -1] = self._first_rows(lines)[1]
            self._subscriptions.put(lines)

    def select(self, rows: Codes) -> tuple[Codes, Batch]:
        positions, lines = self._lines(rows)
        at, answers, _ = self._select(lines)
        return positions[at], answers

    def forget(self) -> None:
        self._subscriptions.clear()

    def commit(self) -> None:
        super().commit()
        self._affected = None

    def undo(self) -> None:
        super().undo()
        self._rows.refresh()
        if self.is_labelled:  # labels may have moved since
            subscriptions = self._subscriptions
            every = subscriptions.places_used
            subscriptions.mark(every, self._first_rows(subscriptions.entries[every])[1])
        elif self._affected is not None:
            lines = self._affected
            self._subscriptions.take(lines)
            lines[:, -1] = self._first_rows(lines)[1]
            self._subscriptions.put(lines)
        self._affected = None

    def indexes(self) -> list[Ordered]:
        return [self._rows]

    @property
    def state_rows(self) -> int:
        return len(self._subscriptions) + len(self._rows)

    @property
    def state_bytes(self) -> int:
        return self._subscriptions.nbytes + self._rows.nbytes

    def describe(self) -> str:
        return self._node.describe()
