"""Row variables: one small number for each row that annotations mention, whatever slot it is in.

Law: equal rows of a relation have one variable, as long as anything mentions it: slots move when a store is compacted,
and rows leave and come again, but a formula keeps meaning the same row. Variables that nothing mentions are reused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.engine.core.image import Image, StaleImage, with_room
from whence.engine.recursion.kernels import annotations as an
from whence.model.codes import Codes
from whence.model.types import Type
from whence.model.word_marks import WordMarks

_FEW = 4096  # variables that are not worth looking for those that can be freed


class RowVariables:
    """Variables of rows of at most `columns` columns; shorter rows have zeros behind them.

    >>> variables = RowVariables(2)
    >>> ids = variables.of(np.array([0, 0, 1, 0]), np.array([[1, 2], [3, 4], [1, 2], [1, 2]])); ids.tolist()
    [0, 1, 2, 0]
    >>> [part.tolist() for part in variables.rows(ids[1:3])]
    [[0, 1], [[3, 4], [1, 2]]]
    >>> variables.keep(ids[1:2]); variables.find(np.array([1, 0]), np.array([[1, 2], [3, 4]])).tolist()
    [-1, 1]
    """

    def __init__(self, columns: int):
        self.columns = columns
        self._rows = np.zeros((64, 1 + columns), np.int64)
        self._table = np.full(256, -1, np.int64)
        self._free = np.empty(0, np.int64)
        self._kept = 0  # variables when some were last freed
        self._counts = np.zeros(2, np.int64)  # variables ever given, variables free again

    def of(self, relations: Codes, cells: Codes) -> Codes:
        """Return the variables of rows, given now to those that have none."""
        self._make_room(len(relations))
        out = np.empty(len(relations), np.int64)
        relations, cells = np.ascontiguousarray(relations, np.int64), np.ascontiguousarray(cells, np.int64)
        an.intern(self._rows, self._table, self._free, self._counts, relations, cells, out)
        return out

    def find(self, relations: Codes, cells: Codes) -> Codes:
        """Return the variables of rows, -1 for those that have none."""
        out = np.empty(len(relations), np.int64)
        relations, cells = np.ascontiguousarray(relations, np.int64), np.ascontiguousarray(cells, np.int64)
        an.lookup(self._rows, self._table, relations, cells, out)
        return out

    def rows(self, variables: Codes) -> tuple[Codes, Codes]:
        """Return the relations and the cells of the rows that variables mean."""
        found = self._rows[variables]
        return np.ascontiguousarray(found[:, 0]), np.ascontiguousarray(found[:, 1:])

    def keep(self, variables: Codes) -> None:
        """Free all variables but these."""
        kept = np.unique(variables)
        used = np.zeros(int(self._counts[0]), bool)
        used[kept] = True
        self._free = np.ascontiguousarray(np.flatnonzero(~used)[::-1])
        self._counts[1] = len(self._free)
        self._kept = len(kept)
        self._fill(kept, 1 << max(8, (3 * len(kept)).bit_length()))

    def _make_room(self, more: int) -> None:
        count = int(self._counts[0])
        if count + more > len(self._rows):
            self._rows = with_room(self._rows, max(count + more, 2 * len(self._rows)))
        if 2 * (count + more) > len(self._table):
            given = np.setdiff1d(np.arange(count), self.free, assume_unique=True)
            self._fill(given, 1 << (3 * (count + more)).bit_length())

    def _fill(self, variables: Codes, size: int) -> None:
        self._table = np.full(size, -1, np.int64)
        an.rehash(self._rows, self._table, np.ascontiguousarray(variables), *self.rows(variables))

    @property
    def free(self) -> Codes:
        """The variables that were given and are free again."""
        return self._free[: int(self._counts[1])]

    @property
    def grown(self) -> bool:
        """Return whether most variables are newer than the last time some were freed."""
        return len(self) > 2 * self._kept + _FEW

    def __len__(self) -> int:
        return int(self._counts[0] - self._counts[1])

    @property
    def nbytes(self) -> int:
        return self._rows.nbytes + self._table.nbytes + self._free.nbytes

    def mark_words(self, marks: WordMarks, types: Sequence[Sequence[Type]]) -> None:
        """Mark the words that rows with variables refer to; `types` are the columns of each relation."""
        rows = self._rows[: int(self._counts[0])]
        given = np.ones(len(rows), bool)
        given[self.free] = False
        for relation, columns in enumerate(types):
            marks.rows(rows[:, 1:], columns, given & (rows[:, 0] == relation))

    def image(self) -> Image:
        return {"rows": self._rows[: int(self._counts[0])], "free": self.free}

    def restore(self, image: Image) -> None:
        rows, free = image["rows"], image["free"]
        if rows.ndim != 2 or rows.shape[1] != 1 + self.columns:
            raise StaleImage("rows of variables have another width")
        self._rows, self._free = with_room(rows, max(64, len(rows))), np.array(free, np.int64)
        self._counts[:] = len(rows), len(free)
        self._kept = len(self)
        given = np.setdiff1d(np.arange(len(rows)), free, assume_unique=True)
        self._fill(given, 1 << max(8, (3 * len(rows)).bit_length()))
