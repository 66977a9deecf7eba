"""Batches put together and brought to their shortest form.

A consolidated batch has each row once and no change of zero (`Batch.unique` says it is known to be so).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from whence.annotate.tracing import Tracer
from whence.engine.core.kernels.batches import add_up
from whence.engine.core.operator import Batch
from whence.model.codes import Codes
from whence.model.errors import EvaluationError


def codes2d(rows: Codes) -> Codes:
    """The rows as every kernel wants them: C-contiguous, writeable int64."""
    rows = np.ascontiguousarray(rows, np.int64)
    return rows if rows.flags.writeable else rows.copy()


def carefully(batch: Batch, tracer: Tracer | None, compute: Callable[[Batch], Batch]) -> Batch:
    """`compute(batch)`; if an expression fails, once more without the rows that come and go within the batch.

    A row that never was must not be an error, and to look for such rows first would cost every batch. In a stream, as
    in every batch that takes nothing away, there are none, and its rows stay as many and in their order."""
    try:
        return compute(batch)
    except EvaluationError:
        if batch.unique or tracer is not None or (batch.ann >= 0).all():
            raise
        return compute(consolidate(batch))


def consolidate(batch: Batch) -> Batch:
    """Each row once with its total change; rows whose changes cancel are gone.

    >>> consolidate(Batch(np.array([[1], [2], [1]]), np.array([1, 1, -1]))).rows.tolist()
    [[2]]
    """
    if batch.unique:
        return batch
    if len(batch.ann) <= 1:
        if len(batch.ann) == 1 and batch.ann[0] == 0:
            return Batch.empty(batch.rows.shape[1])
        batch.unique = True
        return batch
    rows, ann = add_up(batch.rows, batch.ann)
    return Batch(rows, ann, True)


def concat(batches: list[Batch], columns: int) -> Batch:
    """All updates of all batches."""
    full = [b for b in batches if len(b.ann)]
    if not full:
        return Batch.empty(columns)
    if len(full) == 1:
        return full[0]
    return Batch(np.concatenate([b.rows for b in full]), np.concatenate([b.ann for b in full]))


def take(batch: Batch, keep: Codes) -> Batch:
    """The updates at some positions, or where a mask is true; each at most once."""
    return Batch(batch.rows[keep], batch.ann[keep], batch.unique)
