"""Selections from one batch, decided together.

Many views select from the same stream. Law: each lets through what it would alone. Cost: one call of a kernel for all
of them, however small the batch is, instead of several calls for each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from whence.engine.core.batch import codes2d, take
from whence.engine.core.operator import Batch
from whence.engine.expressions.kernels.conditions import select_each
from whence.engine.relational.select import Select


class Selections:
    """Selections whose conditions are programs over the columns of one input."""

    def __init__(self, selects: Sequence[Select]) -> None:
        programs = [select.program for select in selects]
        self._programs = np.concatenate([program for program in programs if program is not None])
        self._ends = np.cumsum([len(program) for program in programs if program is not None])
        self._places = {id(select): place for place, select in enumerate(selects)}

    def apply(self, batch: Batch) -> dict[int, Batch]:
        """Return what each selection lets through, by its id; those that let nothing through are left out."""
        kept, ends = select_each(self._programs, self._ends, codes2d(batch.rows))
        found, start, whole = dict[int, Batch](), 0, len(batch.ann)
        for select, end in zip(self._places, ends.tolist(), strict=True):
            if end > start:
                found[select] = batch if end - start == whole else take(batch, kept[start:end])
                start = end
        return found
