"""Choices that can be recorded, replayed and shortened: what a reducer works on."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """Gives small numbers: those of a record first, then random ones, or 0 without a source of them.

    Choice 0 is always the simplest, so a shorter record or smaller numbers give a simpler program.

    >>> dice = Dice([1, 9]); dice.below(3), dice.below(3), dice.below(3), dice.taken
    (1, 0, 0, [1, 0, 0])
    """

    def __init__(self, record: Sequence[int] = (), source: random.Random | None = None):
        self._record, self._source, self.taken = record, source, list[int]()

    def below(self, limit: int) -> int:
        """Return a number from 0 to `limit` - 1."""
        if len(self.taken) < len(self._record):
            choice = self._record[len(self.taken)] % limit
        else:
            choice = self._source.randrange(limit) if self._source is not None else 0
        self.taken.append(choice)
        return choice

    def of(self, options: Sequence[T]) -> T:
        """Return one of some options, the first of which is the simplest."""
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        """Return True so often; False is simpler."""
        return self.below(100) >= 100 - percent
