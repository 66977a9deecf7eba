"""LateIndex: rows in another order, brought up to date when they are read.

Law: `current` is the rows of the source it follows, in the order of `ranks`. State: an ordered multiset, and the
deltas that it has not got yet. Cost: a delta is put on a list, so epochs that only bring events pay nothing for an
order that only new subscriptions read. Where as many rows wait as the source has, both are dropped, and the next
reader builds the order from the source.

Undo takes back what arrived since the last commit; what had been waiting before that waits again.
"""

from __future__ import annotations

from collections.abc import Sequence

from whence.engine.core.ordered import Ordered, Rank
from whence.model.codes import Codes, Dictionary


class LateIndex:
    """The rows of `source` in the order of `ranks`."""

    def __init__(self, source: Ordered, ranks: Sequence[Rank], dictionary: Dictionary):
        self._source, self._ranks, self._dictionary = source, ranks, dictionary
        self.drop()

    def drop(self) -> None:
        """Forget everything: the next reader builds it anew."""
        self._index: Ordered | None = None
        self._deltas: list[tuple[Codes, Codes]] = []  # since the last commit, and what waited then
        self._added = 0  # of them, those that the index has
        self._committed = 0  # of them, those that had come by the last commit
        self._rows = 0  # of the others

    def add(self, rows: Codes, counts: Codes) -> None:
        """Note a delta that the source has got."""
        if self._index is None:
            return
        self._deltas.append((rows, counts))
        self._rows += len(counts)
        if self._rows > len(self._source):
            self.drop()

    def current(self) -> Ordered:
        """Return all rows, in order."""
        if self._index is None:
            self._index = Ordered(self._ranks, self._dictionary)
            self._index.add(*self._source.head(-1))
            self._index.commit()
            self._built = True
        for delta in self._deltas[self._added :]:
            self._index.add(*delta)
        self._added, self._rows = len(self._deltas), 0
        self._index.refresh()
        return self._index

    @property
    def nbytes(self) -> int:
        waiting = sum(rows.nbytes + counts.nbytes for rows, counts in self._deltas)
        return waiting + (self._index.nbytes if self._index is not None else 0)

    def commit(self) -> None:
        """Let what has come stand."""
        if self._index is not None:
            self._index.commit()
        self._deltas = self._deltas[self._added :]
        self._added, self._committed, self._built = 0, len(self._deltas), False

    def undo(self) -> None:
        """Take back what came since the last commit, after the source has."""
        if self._index is None or self._built:
            self.drop()
            return
        self._index.undo()
        self._deltas = self._deltas[: self._committed]
        self._added, self._rows = 0, sum(len(counts) for _, counts in self._deltas)

    _built = False
