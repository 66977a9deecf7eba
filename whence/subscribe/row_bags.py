"""Rows at a subscriber: those that are there, each as often as it is, and those that were seen to go.

The law: `RowBag.apply` and `replace` keep the rows of a query in step with its updates. Rows are found by the values of
some columns once somebody asks for one: then, and only then, they are indexed by these.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

from whence.model.errors import WhenceError

Row = tuple[Any, ...]
Places = tuple[int, ...]
MOST_GONE = 10_000
"""Rows that went and are remembered."""


class RowBag:
    """The rows of one query that a subscriber has, each as often as it is there.

    >>> bag = RowBag(); bag.replace([(1,), (1,), (2,)])
    ([], [(1,), (1,), (2,)])
    >>> bag.apply([(1,)], [(3,)]); bag.rows, bag.find((0,), (3,))
    ([(1,), (2,), (3,)], [(3,)])
    >>> bag.replace([(3,), (4,)])
    ([(1,), (2,)], [(4,)])
    """

    def __init__(self, known: bool = True) -> None:
        """`known` is False if the subscriber goes on from a position whose rows it has not given."""
        self.known = known
        self._counts: Counter[Row] = Counter()
        self._index: tuple[Places, dict[Row, dict[Row, None]]] | None = None  # by the columns that were asked for last

    def apply(self, went: Sequence[Row], came: Sequence[Row]) -> None:
        """Take rows away and add others."""
        counts = self._counts
        for row in went:
            left = counts[row] - 1
            if left > 0:
                counts[row] = left
            else:
                del counts[row]
                if left < 0 and self.known:
                    raise WhenceError(f"an update takes away {row!r:.200}, which is not there: subscribe again")
        for row in came:
            counts[row] += 1
        if self._index is not None:
            self._follow(self._index, went, came)

    def replace(self, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
        """Have these rows; return what went and what came by that."""
        new = Counter(rows)
        went, came = list((self._counts - new).elements()), list((new - self._counts).elements())
        self._counts, self.known, self._index = new, True, None
        return went, came

    @property
    def rows(self) -> list[Row]:
        """The rows."""
        if not self.known:
            raise WhenceError("the rows at the position given as have= are not known here: give them as rows=, too")
        return list(self._counts.elements())

    def copy(self) -> RowBag:
        """Return another one with the same rows."""
        found = RowBag(self.known)
        found._counts = self._counts.copy()
        return found

    def find(self, places: Places, key: Row) -> list[Row]:
        """Return the distinct rows that have a key in some columns."""
        if self._index is None or self._index[0] != places:
            self._index = places, {}
            self._follow(self._index, (), list(self._counts))
        return list(self._index[1].get(key, ()))

    def _follow(
        self, index: tuple[Places, dict[Row, dict[Row, None]]], went: Sequence[Row], came: Sequence[Row]
    ) -> None:
        places, found = index
        for row in came:
            found.setdefault(tuple(row[place] for place in places), {})[row] = None
        for row in went:
            if row not in self._counts:
                key = tuple(row[place] for place in places)
                rows = found.get(key, {})
                rows.pop(row, None)
                if not rows:
                    found.pop(key, None)


class GoneRows:
    """The last rows that were seen to go, by the number of the update.

    >>> gone = GoneRows(); gone.note(1, [(7, "a")]); gone.note(2, [(8, "b")])
    >>> gone.has((0,), (8,), 1), gone.has((0,), (8,), 2)
    (False, True)
    """

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()  # one after the other: lists of them would be work for the garbage collector
        self._runs: deque[tuple[int, int]] = deque()  # the number of an update, and how many rows went with it
        self._index: tuple[Places, dict[Row, int]] | None = None
        self._unindexed = 0  # rows at the end that the index lacks

    def note(self, number: int, went: Sequence[Row]) -> None:
        """Remember rows that went with an update."""
        if len(went) > MOST_GONE:
            went = went[:MOST_GONE]
        self._rows.extend(went)
        self._runs.append((number, len(went)))
        self._unindexed += len(went)
        if len(self._rows) > MOST_GONE:
            self._index = None
            while len(self._rows) > MOST_GONE // 2 and len(self._runs) > 1:
                for _ in range(self._runs.popleft()[1]):
                    self._rows.popleft()

    def has(self, places: Places, key: Row, upto: int) -> bool:
        """Return whether a row with a key in some columns went with an update up to a number, as far as is known."""
        if self._index is None or self._index[0] != places:
            self._index, self._unindexed = (places, {}), len(self._rows)
        index = self._index[1]
        for number, row in self._newest(self._unindexed):
            index.setdefault(tuple(row[place] for place in places), number)
        self._unindexed = 0
        return index.get(key, upto + 1) <= upto

    def _newest(self, count: int) -> list[tuple[int, Row]]:
        """Return the last rows that went, with the numbers of their updates, oldest first."""
        numbers = (number for number, rows in reversed(self._runs) for _ in range(rows))
        found = list(zip(islice(numbers, count), reversed(self._rows), strict=False))
        found.reverse()
        return found
