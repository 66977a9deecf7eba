"""Traced: each result of a stream view beside each input behind it, as `provenance(view, source)` gives them.

Law: for every row r of the view, in its order, and every tid t of the source that r came from, ascending, one row:
r's tid, r, t, the source's row t, and r's `$at`. Inputs are taken from the source's connection point, by tid; of one
that is no longer kept there is the tid alone, and it is counted. No state. Cost: what comes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from whence.annotate.counting import COUNTING
from whence.annotate.tracing import Tracer
from whence.engine.operator import Batch, Operator
from whence.engine.stream import StreamOperator
from whence.errors import CatalogError
from whence.model.codes import NULL, Codes
from whence.model.types import Schema

if TYPE_CHECKING:
    from whence.engine.retained import Retained


class Keeping(Protocol):
    """An operator with a connection point."""

    kept: Retained


class Traced(StreamOperator):
    """Brings the inputs of each result, from what the source keeps."""

    def __init__(self, input: Operator, kept_of: Operator, source: str, schema: Schema) -> None:
        self.schema, self.algebra, self.inputs = schema, COUNTING, [input]
        self.source, self._results, self._source = source, cast(Keeping, input), cast(Keeping, kept_of)
        self._kept_of = kept_of
        self.expired = 0  # inputs that were no longer kept
        self._expired = 0
        self._tracer = cast(Tracer, input.algebra)
        if getattr(self._tracer, "name", "") == "covering":
            raise CatalogError(
                "a view over provenance() follows its results as they come, and covering intervals are replayed when "
                "someone asks: give the traced view provenance = 'lineage'"
            )

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        following = self._results.kept.next  # the results are there already
        tids = np.arange(following - len(delta), following)
        offsets, inputs = self._tracer.tids(delta.ann, self.source)
        kept = self._source.kept
        there = inputs >= kept.first
        found = np.full((len(inputs), kept.columns), NULL, np.int64)
        found[there] = kept.at(inputs[there])
        self._expired = len(inputs) - int(there.sum())
        out = beside(tids, delta.rows[:, :-1], offsets, inputs, found[:, :-1], delta.rows[:, -1])
        return Batch(out, np.ones(len(out), np.int64), True)

    def commit(self) -> None:
        self.expired += self._expired
        self._expired = 0

    def undo(self) -> None:
        self._expired = 0

    def fresh(self) -> Operator:
        return Traced(self.inputs[0], self._kept_of, self.source, self.schema)

    def describe(self) -> str:
        lost = f", {self.expired:,} no longer kept" if self.expired else ""
        return f"inputs from {self.source}{lost}"


def beside(tids: Codes, rows: Codes, offsets: Codes, inputs: Codes, found: Codes, at: Codes | None = None) -> Codes:
    """The p-join: each row with its tid and, as often as there are inputs of it, the input's tid and row; then `at`.

    >>> beside(np.array([7]), np.array([[70]]), np.array([0, 2]), np.array([1, 3]), np.array([[10], [30]])).tolist()
    [[7, 70, 1, 10], [7, 70, 3, 30]]
    """
    which = np.repeat(np.arange(len(rows)), np.diff(offsets))
    mine, theirs = rows.shape[1], found.shape[1]
    out = np.empty((len(inputs), 2 + mine + theirs + (at is not None)), np.int64)
    out[:, 0] = tids[which]
    out[:, 1 : 1 + mine] = rows[which]
    out[:, 1 + mine] = inputs
    out[:, 2 + mine : 2 + mine + theirs] = found
    if at is not None:
        out[:, -1] = at[which]
    return out
