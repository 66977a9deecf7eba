"""Mark the words of a dictionary that codes refer to, so that the others can be forgotten.

The law: a word that is not marked is referred to by no code that was passed in. Columns are marked by their types: only
TEXT, INTERVAL and wide DECIMAL codes refer to words. Where types are not known (`anything`), every number that could be
such a code marks a word, so a few words may be kept that nothing needs. Cost: one pass over the columns, in numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from whence.model.codes import NULL, Codes
from whence.model.types import Type
from whence.model.wide import INLINE


class WordMarks:
    """The words in use, of a dictionary with `length` codes.

    >>> from whence.model.types import BIGINT, TEXT
    >>> marks = WordMarks(5); marks.rows(np.array([[1, 0], [NULL, 3]]), (TEXT, BIGINT))
    >>> marks.anything(np.array([4, 9])); np.flatnonzero(marks.used).tolist()
    [1, 4]
    """

    def __init__(self, length: int) -> None:
        self.used = np.zeros(length, bool)

    def column(self, codes: Codes, type: Type) -> None:
        """Mark the words of a column of a type."""
        if type.is_interned:
            self._small(codes)
        elif type.is_wide:
            self._large(codes)

    def rows(self, rows: Codes, types: Sequence[Type], live: NDArray[Any] | None = None) -> None:
        """Mark the words of rows, or of those that are `live`: nonzero in an array beside them."""
        wanted = [at for at, type in enumerate(types) if type.needs_dictionary]
        if not wanted:
            return
        picked = None if live is None or np.count_nonzero(live) == len(live) else np.flatnonzero(live)
        for at in wanted:
            self.column(rows[:, at] if picked is None else rows[picked, at], types[at])

    def anything(self, numbers: NDArray[Any]) -> None:
        """Mark every word that one of these numbers could refer to, whatever they mean."""
        if numbers.dtype != np.int64:
            return
        numbers = numbers.reshape(-1)
        self._small(numbers)
        self._large(numbers)

    def _small(self, codes: Codes) -> None:
        """Mark the words of codes that are positions; NULL, and what a free line may hold, are none."""
        self.used[codes[codes.view(np.uint64) < len(self.used)]] = True

    def _large(self, codes: Codes) -> None:
        """Mark the words of codes as wide decimals have them (`wide.py`)."""
        words = np.abs(codes[(codes >= INLINE) | ((codes <= -INLINE) & (codes != NULL))]) - INLINE
        self.used[words[words < len(self.used)]] = True
