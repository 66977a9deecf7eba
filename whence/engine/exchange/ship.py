"""Ship and Mine: rows in the partitions where the plan needs them.

Law: over all partitions, what a Ship gives is what it was given; each row where `cols` route it, or everything in the
first partition, or everything in every one. It gives it one stage later (`engine/core/dataflow.py`): what it takes in
an epoch goes out, and what comes in by its channel is its output. State: none; cost: the delta.

Of rows routed by `cols`, those with a *heavy* key may be treated apart (`plan/partitions/heavy_keys.py`): rows with a
key that is `divided` are routed by all their columns, and rows with one that is `copied` go to every partition.

Rows of a stream stay in its order: a partition sends its share as it is, and what came from all is put in the order of
`$at` again. Rows with equal `$at` come from one partition, in the order they were made (`plan/partitions/streams.py`),
but for those that a promise brings about (`engine/streams/promise.py`), which stand by partition.

Where every partition has all rows nothing has to move: Mine keeps those that live here.
"""

from __future__ import annotations

import numpy as np

from whence.engine.core.batch import consolidate, take
from whence.engine.core.operator import Batch, Operator
from whence.engine.exchange.heavy_keys import Key, as_codes, with_key
from whence.engine.exchange.kernels.routing import route, split
from whence.engine.exchange.messages import EVERYWHERE
from whence.engine.exchange.traffic import Shipped
from whence.model.codes import Codes
from whence.plan.streams.model import has_at

__all__ = ["EVERYWHERE", "LocalFilter", "Ship", "by_arrival", "parted", "targets"]


def targets(rows: Codes, cols: tuple[int, ...], partitions: int) -> Codes:
    """The partition that each row lives in."""
    return route(np.ascontiguousarray(rows), np.array(cols, np.int64), partitions)


def parted(batch: Batch, cols: tuple[int, ...], partitions: int) -> dict[int, Batch]:
    """A batch by the partitions its rows live in."""
    if partitions == 1 or not len(batch.ann):
        return {0: batch} if len(batch.ann) else {}
    order, starts = split(targets(batch.rows, cols, partitions), partitions)
    bounds = starts.tolist()
    return {p: take(batch, order[bounds[p] : bounds[p + 1]]) for p in range(partitions) if bounds[p] < bounds[p + 1]}


def by_arrival(batch: Batch) -> Batch:
    """The rows of a stream, given by shares that are in order, in order."""
    arrived = batch.rows[:, -1]
    if (arrived[1:] >= arrived[:-1]).all():
        return batch
    return take(batch, np.argsort(arrived, kind="stable"))


class Ship(Operator):
    """Sends its input's delta away, and gives what others sent."""

    delay = 1

    def __init__(
        self,
        input: Operator,
        to: str,
        cols: tuple[int, ...],
        partitions: int,
        *,
        rows_of: str = "",
        divided: tuple[Key, ...] = (),
        copied: tuple[Key, ...] = (),
    ):
        self.schema, self.tracer, self.inputs = input.schema, input.tracer, [input]
        self.to, self.cols, self._partitions = to, cols, partitions
        self.rows_of = rows_of  # a name for what it moves, whatever moves it
        self.divided, self.copied = divided, copied
        self._heavy = as_codes((*divided, *copied), len(cols))
        self.ordered = has_at(self.schema)
        self.outgoing = Batch.empty(len(self.schema))
        self.shipped = Shipped()  # by this partition, to others

    @property
    def channel(self) -> str:
        """What its rows are addressed with; the same in every partition."""
        return self.fingerprint

    def apply(self, deltas: list[Batch]) -> Batch:
        self.outgoing = deltas[0] if self.ordered else consolidate(deltas[0])
        return Batch.empty(len(self.schema))

    def received(self, batch: Batch) -> Batch:
        """What others sent as what this gives."""
        return by_arrival(batch) if self.ordered else consolidate(batch)

    def send(self) -> dict[int, Batch]:
        """What is to go out, by destination; once."""
        batch, self.outgoing = self.outgoing, Batch.empty(len(self.schema))
        if not len(batch.ann):
            return {}
        match self.to:
            case "all":
                return {EVERYWHERE: batch}
            case "one":
                return {0: batch}
        return self._routed(batch) if len(self._heavy) else parted(batch, self.cols, self._partitions)

    def _routed(self, batch: Batch) -> dict[int, Batch]:
        """What is to go out, heavy keys apart; nothing has to stay in order."""
        heavy = with_key(batch.rows, self.cols, self._heavy)
        where = targets(batch.rows, self.cols, self._partitions)
        divided = np.flatnonzero((heavy >= 0) & (heavy < len(self.divided)))
        where[divided] = targets(batch.rows.take(divided, axis=0), tuple(range(len(self.schema))), self._partitions)
        where[heavy >= len(self.divided)] = self._partitions  # behind all of them
        order, starts = split(where, self._partitions + 1)
        bounds = starts.tolist()
        out = {p: take(batch, order[bounds[p] : bounds[p + 1]]) for p in range(self._partitions + 1)}
        out[EVERYWHERE] = out.pop(self._partitions)
        return {to: rows for to, rows in out.items() if len(rows.ann)}

    @property
    def recalls(self) -> bool:
        return False

    @property
    def is_readable(self) -> bool:
        return self.arranged is not None

    def undo(self) -> None:
        self.outgoing = Batch.empty(len(self.schema))

    def describe(self) -> str:
        match self.to:
            case "all":
                return "ship to every partition"
            case "one":
                return "ship to the first partition"
        by = f"ship by {', '.join(self.schema.names[c] for c in self.cols)}"
        heavy = ((self.divided, "divided"), (self.copied, "copied"))
        return by + "".join(f", {len(keys)} heavy key{'s' * (len(keys) != 1)} {how}" for keys, how in heavy if keys)


class LocalFilter(Operator):
    """Of rows that all partitions have, those of one partition; with `cols` None all of them are the first one's."""

    def __init__(self, input: Operator, cols: tuple[int, ...] | None, number: int, partitions: int):
        self.schema, self.tracer, self.inputs = input.schema, input.tracer, [input]
        self.cols, self._number, self._partitions = cols, number, partitions

    def apply(self, deltas: list[Batch]) -> Batch:
        (delta,) = deltas
        if self.cols is None:
            return delta if self._number == 0 else Batch.empty(len(self.schema))
        if self._partitions == 1:
            return delta
        return take(delta, np.flatnonzero(targets(delta.rows, self.cols, self._partitions) == self._number))

    def recompute(self) -> Batch:
        return self.apply([self.inputs[0].contents()])

    def describe(self) -> str:
        if self.cols is None:
            return "those of the first partition"
        return f"mine by {', '.join(self.schema.names[c] for c in self.cols)}"
