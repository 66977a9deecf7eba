"""TopKPerGroup: the first `limit` rows after `offset` of each group, in an order made total by the remaining columns.

Law: as TopK's, for each group by itself: the output of a group is a function of its ordered rows, and its delta is the
new head minus the old one. State: an ordered index of the input, by the keys first. Cost: O(log n) per row of the
delta, and the heads before and after of the groups that it has rows of.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.batch import concat, consolidate
from whence.engine.core.image import Image
from whence.engine.core.operator import Batch, Operator
from whence.engine.core.ordered import Ordered, head_ends
from whence.engine.relational.kernels.group_heads import group_heads
from whence.engine.relational.topk import order_ranks
from whence.model.codes import NULL, Codes, Dictionary
from whence.model.word_marks import WordMarks
from whence.plan.algebra import logical
from whence.plan.algebra.expressions import Col, Lit


class TopKPerGroup(Operator):
    """ORDER BY … LIMIT … OFFSET of each group, kept up to date."""

    def __init__(self, input: Operator, node: logical.TopKPerGroup, dictionary: Dictionary):
        self.schema, self.inputs, self._node = input.schema, [input], node
        self.rows = Ordered(order_ranks(input.schema.types, node.order, node.keys), dictionary)

    def apply(self, deltas: list[Batch]) -> Batch:
        delta = consolidate(deltas[0])
        if not len(delta.ann):
            return delta
        groups = np.unique(delta.rows[:, self._node.keys], axis=0)
        before = self._heads(groups)
        self.rows.add(delta.rows, delta.ann)
        after = self._heads(groups)
        return consolidate(concat([after, Batch(before.rows, -before.ann)], len(self.schema)))

    def _heads(self, groups: Codes) -> Batch:
        """The first rows of groups, given by their keys."""
        rows, node = self.rows, self._node
        rows.refresh()
        store, size, top, meta = rows.leaves
        _, lines, counts = group_heads(store, rows.counts, size, top, meta, groups, node.offset, self._ends(groups))
        return Batch(rows.rows_at(lines)[0], counts)

    def _ends(self, groups: Codes) -> Codes:
        match self._node.limit:
            case None:
                limits = np.full(len(groups), NULL, np.int64)
            case Lit(value=value):
                limits = np.full(len(groups), value, np.int64)
            case Col(index=column):
                limits = groups[:, self._node.keys.index(column)]
            case other:
                raise TypeError(f"{other} is not the limit of a group")
        return head_ends(limits, self._node.offset)

    def recompute(self) -> Batch:
        return self._heads(np.unique(self.rows.head(-1)[0][:, self._node.keys], axis=0))

    @property
    def recalls(self) -> bool:
        return True

    def commit(self) -> None:
        self.rows.commit()

    def undo(self) -> None:
        self.rows.undo()

    def image(self) -> Image:
        return self.rows.image()

    def restore(self, image: Image) -> None:
        self.rows.restore(image)

    def mark_words(self, marks: WordMarks) -> None:
        self.rows.mark_words(marks)

    @property
    def state_rows(self) -> int:
        return len(self.rows)

    @property
    def state_bytes(self) -> int:
        return self.rows.nbytes

    def describe(self) -> str:
        return self._node.describe()
