"""ProvenanceJoin: each result of a stream view beside each of its inputs, as `provenance(view, source)` gives them.

Law: for every row r of the view, in its order, and every tid t of the source that r came from, ascending, one row:
r's tid, r, t, the source's row t, and r's `$at`. Inputs are taken from the source's connection point, by tid; of one
that is no longer kept there is the tid alone, and it is counted. The tids are read from lineage, or found by a c-join
from covering intervals (`engine/streams/replay/covering_join.py`), of the results that a condition lets through. A view
that is made later begins with the results whose intervals can still be run; those before are counted, too.

State: none, or the c-join's. Cost: what comes out, and what the c-join runs.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from whence.engine.core.image import Image
from whence.engine.core.operator import Batch, Operator
from whence.engine.expressions.conditions import Compiled
from whence.engine.streams.stream import StreamOperator
from whence.model.codes import NULL, Codes
from whence.model.types import Schema

if TYPE_CHECKING:
    from whence.engine.streams.connection_point import ConnectionPoint
    from whence.engine.streams.replay.covering_join import CoveringJoin

log = logging.getLogger("whence")


class HasConnectionPoint(Protocol):
    """An operator with a connection point."""

    kept: ConnectionPoint


class ProvenanceJoin(StreamOperator):
    """The p-join of a stream view with the retained rows of a source."""

    def __init__(
        self,
        input: Operator,
        kept_of: Operator,
        source: str,
        schema: Schema,
        join: CoveringJoin | None = None,
        where: Compiled | None = None,
    ) -> None:
        self.schema, self.inputs = schema, [input]
        self.source, self._results, self._source = (
            source,
            cast(HasConnectionPoint, input),
            cast(HasConnectionPoint, kept_of),
        )
        self._kept_of, self._join, self._where = kept_of, join, where
        self.expired = 0  # inputs that were no longer kept
        self._expired = 0
        assert input.tracer is not None
        self._tracer = input.tracer

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        return self._brought(self._asked(delta))

    def prime(self, contents: list[Batch]) -> Batch:
        tids = self._asked(contents[0])
        if self._join is None:
            return self._brought(tids)
        found = self._join.findable(tids)
        if len(found) < len(tids):
            log.warning(
                "provenance of %d results of %s begins in rows that %s no longer keeps: the view begins after them",
                *(len(tids) - len(found), self._results.kept.name, self.source),
            )
        return self._brought(found)

    def _asked(self, delta: Batch) -> Codes:
        """Return the tids of the results that came and are asked for; they are kept already."""
        following = self._results.kept.next
        tids = np.arange(following - len(delta), following)
        if self._where is None:
            return tids
        holds: Codes = self._where(np.concatenate([tids[:, None], delta.rows[:, :-1]], axis=1))
        return tids[np.flatnonzero(holds == 1)]

    def _brought(self, tids: Codes) -> Batch:
        """Return results beside their inputs."""
        offsets, inputs = self._behind(tids)
        kept, results = self._source.kept, self._results.kept.at(tids)
        there = inputs >= kept.first
        found = np.full((len(inputs), kept.columns), NULL, np.int64)
        found[there] = kept.at(inputs[there])
        self._expired = len(inputs) - int(there.sum())
        out = join_inputs(tids, results[:, :-1], offsets, inputs, found[:, :-1], results[:, -1])
        return Batch(out, np.ones(len(out), np.int64), True)

    def _behind(self, tids: Codes) -> tuple[Codes, Codes]:
        if self._join is not None:
            return self._join.behind(tids, self.context.replaying)[self.source]
        kept = self._results.kept
        return self._tracer.tids(kept.ann[tids - kept.first], self.source)

    def recompute(self) -> Batch:
        return self.fresh().prime([self.inputs[0].contents()])

    def commit(self) -> None:
        self.expired += self._expired
        self._expired = 0
        if self._join is not None:
            self._join.commit()

    def undo(self) -> None:
        self._expired = 0
        if self._join is not None:
            self._join.undo()

    def clear(self) -> None:
        if self._join is not None:
            self._join.clear()

    def fresh(self) -> Operator:
        join = self._join.fresh() if self._join is not None else None
        return ProvenanceJoin(self.inputs[0], self._kept_of, self.source, self.schema, join, self._where)

    def image(self) -> Image:
        return self._join.image() if self._join is not None else {}

    def restore(self, image: Image) -> None:
        if self._join is not None:
            self._join.restore(image)

    @property
    def state_rows(self) -> int:
        return self._join.state_rows if self._join is not None else 0

    @property
    def state_bytes(self) -> int:
        return self._join.state_bytes if self._join is not None else 0

    def describe(self) -> str:
        lost = f", {self.expired:,} no longer kept" if self.expired else ""
        fed = f", by replay of {self._join.rows:,} rows so far" if self._join is not None else ""
        return f"inputs from {self.source}{fed}{lost}"


def join_inputs(
    tids: Codes, rows: Codes, offsets: Codes, inputs: Codes, found: Codes, at: Codes | None = None
) -> Codes:
    """Join each row with its tid and, per input, the input's tid and row; then `at`.

    >>> inputs, found = np.array([1, 3]), np.array([[10], [30]])
    >>> join_inputs(np.array([7]), np.array([[70]]), np.array([0, 2]), inputs, found).tolist()
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
