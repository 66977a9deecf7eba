"""TopK: the first `limit` rows after `offset`, in an order made total by the remaining columns.

Law: the output is the first offset + limit rows minus the first offset rows; each *head* is a function of the ordered
multiset, and its delta is the new head minus the old one. State: an ordered index of the input and the two heads.
Cost: O(log n) a row of the delta, and offset + limit rows when a changed row sorts into the head (nothing but the
index otherwise). Without a limit only the first `offset` rows are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence

from whence.engine.core.batch import concat, consolidate
from whence.engine.core.image import Image
from whence.engine.core.operator import Batch, Operator
from whence.engine.core.ordered import Ordered, Rank
from whence.model.codes import Codes, Dictionary
from whence.model.types import Type
from whence.model.word_marks import WordMarks
from whence.plan.algebra.logical import Order


def order_ranks(types: Sequence[Type], order: Sequence[Order], keys: Sequence[int] = ()) -> list[Rank]:
    """Return how columns are ordered: keys first, by their codes; then by `order`, then the others left to right."""
    ranks = [Rank(key) for key in keys]
    for o in order:
        if all(rank.column != o.column for rank in ranks):
            ranks.append(Rank(o.column, types[o.column], o.descending, o.nulls_first))
    named = {rank.column for rank in ranks}
    return ranks + [Rank(c, types[c], nulls_first=False) for c in range(len(types)) if c not in named]


class _Head:
    """The first rows of the index, as of the last look."""

    def __init__(self, size: int, columns: int):
        self.size = size
        self.now = Batch.empty(columns)
        self.before: Batch | None = None

    def full(self) -> bool:
        return int(self.now.ann.sum()) >= self.size

    def move(self, rows: Codes, counts: Codes) -> list[Batch]:
        """Take the new head; its difference from the old one, not consolidated."""
        if self.before is None:
            self.before = self.now
        old, self.now = self.now, Batch(rows, counts)
        return [self.now, Batch(old.rows, -old.ann)]


class TopK(Operator):
    """ORDER BY … LIMIT … OFFSET, kept up to date."""

    def __init__(
        self, input: Operator, order: tuple[Order, ...], limit: int | None, offset: int, dictionary: Dictionary
    ):
        self.schema, self.inputs = input.schema, [input]
        self.order, self.limit, self.offset = order, limit, offset
        ranks = order_ranks(input.schema.types, order)
        columns = len(ranks)
        self._start = _Head(offset, columns) if offset else None
        self._end = _Head(offset + limit, columns) if limit is not None else None
        self.rows = Ordered(ranks, dictionary) if offset or limit is not None else None

    def apply(self, deltas: list[Batch]) -> Batch:
        if self.rows is None:
            return deltas[0]
        delta = consolidate(deltas[0])
        if not len(delta.ann):
            return delta
        self.rows.add(delta.rows, delta.ann)
        parts: list[Batch] = []
        if self._end is None:
            parts.append(delta)
        elif self._reaches(self._end, delta.rows):
            parts += self._end.move(*self.rows.head(self._end.size))
        if self._start is not None and self._reaches(self._start, delta.rows):
            parts += [Batch(b.rows, -b.ann) for b in self._start.move(*self.rows.head(self._start.size))]
        return consolidate(concat(parts, len(self.schema)))

    def _reaches(self, head: _Head, rows: Codes) -> bool:
        """Whether a changed row may sort before the head's end."""
        assert self.rows is not None
        if head.size == 0 or not head.full():
            return head.size > 0
        last = self.rows.encode(head.now.rows[-1:])[0].tolist()
        if len(rows) > 64:
            return True
        return any(row <= last for row in self.rows.encode(rows).tolist())

    def recompute(self) -> Batch:
        if self.rows is None:
            return self.inputs[0].contents()
        end = self._end.now if self._end is not None else Batch(*self.rows.head(-1))
        parts = [end]
        if self._start is not None:
            parts.append(Batch(self._start.now.rows, -self._start.now.ann))
        return consolidate(concat(parts, len(self.schema)))

    @property
    def recalls(self) -> bool:
        return self.rows is not None or super().recalls

    def commit(self) -> None:
        if self.rows is not None:
            self.rows.commit()
        for head in (self._start, self._end):
            if head is not None:
                head.before = None

    def undo(self) -> None:
        if self.rows is not None:
            self.rows.undo()
        for head in (self._start, self._end):
            if head is not None and head.before is not None:
                head.now, head.before = head.before, None

    def image(self) -> Image:
        return self.rows.image() if self.rows is not None else {}

    def restore(self, image: Image) -> None:
        assert self.rows is not None
        self.rows.restore(image)
        for head in (self._start, self._end):
            if head is not None:
                head.now, head.before = Batch(*self.rows.head(head.size)), None

    def mark_words(self, marks: WordMarks) -> None:
        if self.rows is not None:
            self.rows.mark_words(marks)

    @property
    def state_rows(self) -> int:
        return len(self.rows) if self.rows is not None else 0

    @property
    def state_bytes(self) -> int:
        return self.rows.nbytes if self.rows is not None else 0

    def describe(self) -> str:
        by = ", ".join(f"#{o.column}{' desc' if o.descending else ''}" for o in self.order)
        return f"top {'all' if self.limit is None else self.limit} by {by}" + (
            f" after {self.offset}" if self.offset else ""
        )
