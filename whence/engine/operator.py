"""What every operator is: batches in, one batch out, and state that can go back to the last commit.

The law of the whole engine: for every epoch, `output(inputs + deltas) = output(inputs) + apply(deltas)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from whence.annotate import Algebra
from whence.model.codes import Codes
from whence.model.types import Schema


@dataclass(frozen=True)
class Batch:
    """The updates of one relation in one epoch: C-contiguous codes [n, columns] and the change of each row's annotation.

    A row may occur several times; `consolidate` (in `engine/batch.py`) makes each row unique and drops changes of zero.
    """

    rows: Codes
    ann: Codes

    def __len__(self) -> int:
        return len(self.ann)

    @staticmethod
    def empty(columns: int) -> Batch:
        return Batch(np.empty((0, columns), np.int64), np.empty(0, np.int64))


class Operator:
    """A node of the running plan. Subclasses keep their state private and say its size.

    In an epoch `apply` is called at most once, in topological order, with one batch per input (maybe empty). Then either
    `commit` or `undo`: undo restores the state before `apply`, exactly, whether `apply` returned or raised.
    """

    schema: Schema
    inputs: list[Operator]
    algebra: Algebra

    def apply(self, deltas: list[Batch]) -> Batch:
        raise TypeError(f"{type(self).__name__} does not say how it applies")

    def commit(self) -> None:
        """Forget what undo would need."""

    def undo(self) -> None:
        """Return to the state before this epoch's apply."""

    @property
    def state_rows(self) -> int:
        return 0

    @property
    def state_bytes(self) -> int:
        return 0

    def describe(self) -> str:
        """One line for EXPLAIN's physical plan."""
        return type(self).__name__.lower()
